//! The usual installation: the worker is `nobody`, the files are root's. Run only as root: the test starts itself again
//! with another user.

use crate::tests::block_on;
use crate::*;
use rustix::fs::{Advice, fadvise};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use tokio::io::AsyncReadExt;

const NOBODY: u32 = 65534;
const FILE: &str = "FREEWHEEL_TEST_FILE";
const LEN: usize = 2 * WINDOW as usize + 777;

#[test]
fn nobody_sends_a_file_of_root_from_memory_by_the_mapping() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: only root can become nobody");
        return;
    }
    // Not below the builder's home: the user `nobody` must be able to search the directory and run the program.
    let dir = tempfile::tempdir_in("/var/tmp").unwrap();
    std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let (program, file) = (dir.path().join("test"), dir.path().join("file"));
    std::fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
    std::fs::write(
        &file,
        (0..LEN).map(|n| (n % 251) as u8).collect::<Vec<u8>>(),
    )
    .unwrap();
    std::fs::File::open(&file).unwrap().sync_all().unwrap();
    fadvise(
        std::fs::File::open(&file).unwrap(),
        0,
        None,
        Advice::DontNeed,
    )
    .unwrap();
    let mut child = Command::new(program);
    child
        .args([
            "--exact",
            "tests::unprivileged::as_nobody",
            "--ignored",
            "--nocapture",
        ])
        .env(FILE, &file);
    let output = child.uid(NOBODY).gid(NOBODY).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success() && text.contains("1 passed"),
        "{text}"
    );
}

#[test]
#[ignore = "the other half of the test above"]
fn as_nobody() {
    let path = PathBuf::from(std::env::var_os(FILE).expect("started by the other half"));
    assert!(!rustix::process::geteuid().is_root());
    block_on(async {
        let disk = Disk::new(Disk::prepare());
        let pool = disk.define_pool("files", 4, 100);
        let local = Local::new(&disk);
        let open = async |path: &Path| {
            local
                .open(path.as_os_str().as_bytes(), &Access::new(&pool))
                .await
                .unwrap()
        };
        let file = open(&path).await;
        let send = async || {
            let (here, mut there) = tokio::net::UnixStream::pair().unwrap();
            let send = async {
                local
                    .send(&file, &mut 0, LEN as u64, &here, &Access::new(&pool))
                    .await
                    .unwrap();
                drop(here);
            };
            let mut got = Vec::new();
            let ((), read) = tokio::join!(send, there.read_to_end(&mut got));
            read.unwrap();
            got
        };
        // The first comes from the disk, the second finds it in memory and has it mapped.
        for _ in 0..3 {
            assert_eq!(send().await.len(), LEN);
        }
        if disk.windows.pagemap.is_some() {
            assert!(disk.mapped() >= LEN);
            let hold = disk.hold_pools(PoolKind::Disk);
            let again = tokio::time::timeout(Duration::from_secs(5), send()).await;
            assert_eq!(again.expect("it waited for the pool").len(), LEN);
            assert_eq!(open(&path).await.meta().len, LEN as u64);
            drop(hold);
        }
    });
}
