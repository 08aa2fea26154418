//! The results of the calls, on a kernel that has them.
#![expect(clippy::disallowed_methods, reason = "a test may wait for a disk")]

use std::io::Write;
use std::os::fd::AsFd;

use sys::{
    Mapping, cachestat, first_absent, first_absent_by_entries, page_size, pread_into, pread_nowait,
    set_notsent_lowat, tcp_info,
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

/// Where populating is forbidden, or older than the kernel, touching does the same.
#[test]
fn a_touched_mapping_is_present_up_to_the_end_of_its_file() {
    let mut file = tempfile::tempfile().unwrap();
    let (page, pages) = (page_size(), 200);
    file.write_all(&vec![7; pages * page]).unwrap();
    let pagemap = std::fs::File::open("/proc/self/pagemap").unwrap();
    let mapping = Mapping::new(file.as_fd(), 0, pages * page).unwrap();
    let first = |len| first_absent_by_entries(pagemap.as_fd(), &mapping, 0, len).unwrap();
    assert_eq!(first(page), Some(0));
    mapping.touch(0, pages * page).unwrap();
    assert_eq!(first(pages * page), None);
    file.set_len(page as u64).unwrap();
    let beyond = mapping
        .touch(0, 2 * page)
        .map_err(|error| error.raw_os_error());
    assert_eq!(beyond, Err(Some(libc::EFAULT)));
    assert!(
        mapping.touch(page, pages * page).is_err(),
        "beyond the mapping"
    );
}

#[test]
fn a_populated_mapping_is_present_and_an_untouched_one_is_not() {
    for first_absent in [first_absent, first_absent_by_entries] {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&vec![7; 4 << 20]).unwrap();
        let pagemap = std::fs::File::open("/proc/self/pagemap").unwrap();
        let mapping = Mapping::new(file.as_fd(), 0, 4 << 20).unwrap();
        let first = |offset, len| first_absent(pagemap.as_fd(), &mapping, offset, len);
        let Ok(before) = first(0, 4 << 20) else {
            continue; // Linux before 6.7, or memory that may not be seen.
        };
        assert_eq!(before, Some(0));
        mapping.populate(0, 3 << 20).unwrap();
        assert_eq!(first(0, 3 << 20).unwrap(), None);
        assert_eq!(first(0, (3 << 20) - 1).unwrap(), None);
        // Of the rest nothing is known: the kernel may map a large folio as a whole.
        assert!(first(1 << 20, 4 << 20).is_err(), "beyond the mapping");
        file.set_len(4 * 4096).unwrap();
        assert_eq!(first(0, 3 << 20).unwrap(), Some(0));
        mapping.populate(0, 4 * 4096).unwrap();
        if page_size() == 4096 {
            let first = |offset| first(offset, 8 * 4096).unwrap();
            assert_eq!((first(0), first(4096)), (Some(4 * 4096), Some(4 * 4096)));
            assert_eq!(first(6 * 4096), Some(6 * 4096));
        }
    }
}

#[test]
fn a_connection_has_a_window() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let client = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let info = tcp_info(&client).unwrap();
    assert!(info.snd_cwnd > 0 && info.snd_mss > 0);
}

#[test]
fn a_socket_takes_little_ahead_of_the_network() {
    let taken = |limit| {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        set_notsent_lowat(&client, limit).unwrap();
        client.set_nonblocking(true).unwrap();
        let mut taken = 0;
        while let Ok(count) = client.write(&[0; 4096]) {
            taken += count;
        }
        taken
    };
    let (limited, unlimited) = (taken(16 << 10), taken(0));
    assert!(limited < unlimited, "{limited} of {unlimited} bytes");
    let not_tcp = std::os::unix::net::UnixStream::pair().unwrap().0;
    assert!(set_notsent_lowat(&not_tcp, 1).is_err());
}
