//! The state directory beside a thread that changes the umask, which is the whole process's: the only test here.
#![expect(clippy::disallowed_methods, reason = "tests have no event loop")]

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use acme::Store;
use rustix::fs::Mode;
use rustix::process::umask;

#[test]
fn its_owner_may_enter_it_whatever_the_umask_was_when_it_was_made() {
    let root = tempfile::tempdir().expect("a directory");
    let path = root.path().join("state");
    let store = Store::new(Some(path.clone()));
    // As while the master binds a unix socket.
    let before = umask(Mode::from_raw_mode(0o111));
    let opened = store.open();
    umask(before);
    opened.expect("it is made");
    let mode = fs::metadata(path)
        .expect("it is there")
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o700);
}
