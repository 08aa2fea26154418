//! The results of the calls, on a kernel that has them.
#![expect(clippy::disallowed_methods, reason = "a test may wait for a disk")]

use std::io::Write;
use std::os::fd::AsFd;

use sys::{
    Mapping, all_present, cachestat, first_absent, page_size, pread_into, pread_nowait, tcp_info,
};

#[test]
fn a_written_file_is_in_memory_and_read_at_once() {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(&[7; 100_000]).unwrap();
    let mut buffer = Vec::new();
    assert_eq!(
        pread_into(file.as_fd(), &mut buffer, 200_000, 10).unwrap(),
        99_990
    );
    buffer.clear();
    match pread_nowait(file.as_fd(), &mut buffer, 200_000, 0) {
        Ok(read) => assert_eq!(read, buffer.len()),
        Err(error) => assert!(matches!(
            error.raw_os_error(),
            Some(libc::EOPNOTSUPP | libc::ENOSYS)
        )),
    }
    match cachestat(file.as_fd(), 0, 100_000) {
        Ok(stat) => assert!(stat.cached <= 25),
        Err(error) => assert!(matches!(
            error.raw_os_error(),
            Some(libc::EPERM | libc::ENOSYS)
        )),
    }
}

#[test]
fn a_populated_mapping_is_present_and_an_untouched_one_is_not() {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(&vec![7; 1 << 20]).unwrap();
    let pagemap = std::fs::File::open("/proc/self/pagemap").unwrap();
    let mapping = Mapping::new(file.as_fd(), 0, 1 << 20).unwrap();
    let Ok(before) = all_present(pagemap.as_fd(), &mapping, 0, 1 << 19) else {
        return;
    };
    assert!(!before);
    mapping.populate(0, 1 << 19).unwrap();
    assert!(all_present(pagemap.as_fd(), &mapping, 0, 1 << 19).unwrap());
    // Of the other half nothing is known: the kernel may map a large folio as a whole.
    assert!(all_present(pagemap.as_fd(), &mapping, 1 << 19, 1 << 20).is_err());
    file.set_len(4 * 4096).unwrap();
    assert!(!all_present(pagemap.as_fd(), &mapping, 0, 1 << 19).unwrap());
    mapping.populate(0, 4 * 4096).unwrap();
    let first = |offset| first_absent(pagemap.as_fd(), &mapping, offset, 8 * 4096).unwrap();
    if page_size() == 4096 {
        assert_eq!((first(0), first(4096)), (Some(4 * 4096), Some(4 * 4096)));
        assert_eq!(first(6 * 4096), Some(6 * 4096));
    }
}

#[test]
fn a_connection_has_a_window() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let client = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    assert!(tcp_info(&client).unwrap().snd_cwnd > 0);
}
