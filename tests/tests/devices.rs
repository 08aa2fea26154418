//! A cache on a block device: opened by root, used by a worker that may not open it. Skipped, with a word, where the tests
//! are not run by root, or loop devices are not to be had.
#![expect(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "tests: no event loop, and a failure is a panic"
)]

use std::path::Path;
use std::process::Command;

use blackbox::{Answer, Origin, PATIENCE, Server, Site, binary, until};

/// A loop device, until it is dropped.
struct LoopDevice(String);

impl LoopDevice {
    /// None, with a word: there is none to be had.
    fn of(file: &Path) -> Option<Self> {
        std::fs::File::create(file)
            .unwrap()
            .set_len(48 << 20)
            .unwrap();
        let made = Command::new("losetup")
            .args(["--find", "--show"])
            .arg(file)
            .output();
        match made {
            Ok(made) if made.status.success() => Some(Self(
                String::from_utf8(made.stdout).unwrap().trim().to_owned(),
            )),
            _ => {
                println!("skipped: there is no losetup(8), or no loop device");
                None
            }
        }
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        let _ = Command::new("losetup").args(["--detach", &self.0]).status();
    }
}

fn text(origin: &Origin, path: &str) -> String {
    let address = origin.address();
    format!(
        "proxy_cache_path {path} keys_zone=c:1m;
         server {{ listen 127.0.0.1:%PORT%; proxy_cache_valid 1h; proxy_cache c;
         add_header X-Cache $upstream_cache_status; location / {{ proxy_pass http://{address}; }} }}"
    )
}

#[test]
fn a_worker_that_is_nobody_uses_the_device_that_root_has_opened() {
    let Some(site) = Site::of_root() else { return };
    let Some(device) = LoopDevice::of(&site.path("file")) else {
        return;
    };
    let origin = Origin::start(|request| match request.target() {
        "/large" => Answer::ok("l".repeat(2_000_000)),
        target => Answer::ok(target.repeat(10_000)),
    });
    let zone = format!("{} files=%DIR%/cache", device.0);
    let mut server = Server::start_on(site, "worker_processes 2;", &text(&origin, &zone));
    let expect = |server: &Server| {
        for path in ["/", "/small", "/large"] {
            let first = server.get(path).text();
            until("a hit", PATIENCE, || {
                let again = server.get(path);
                assert_eq!(again.text(), first);
                (again.header("x-cache") == Some("HIT")).then_some(())
            });
        }
    };
    expect(&server);
    let asked = origin.received().len();
    // In use by the server: neither the command nor another program gets it.
    let mut format = Command::new(binary());
    let format = format.args(["cache", "format", &device.0, "--force"]);
    let told = format.output().unwrap();
    let told = String::from_utf8_lossy(&told.stderr).into_owned();
    assert!(told.contains("is in use"), "{told}");
    server.reload(&text(&origin, &format!("{zone} max_size=32m")));
    expect(&server);
    server.restart();
    expect(&server);
    assert_eq!(origin.received().len(), asked, "all was found again");
    // Without a directory beside it, a device is no cache.
    let lone = format!(
        "daemon off; pid nginx.pid; events {{}} http {{ {} }}",
        text(&origin, &device.0)
    );
    let refused = Server::try_start(&lone).err().unwrap().stderr;
    assert!(
        refused.contains("is a block device, not a directory")
            && refused.contains("files=directory"),
        "{refused}"
    );
}

#[test]
fn a_device_that_another_program_has_is_refused() {
    let Some(site) = Site::of_root() else { return };
    let Some(device) = LoopDevice::of(&site.path("file")) else {
        return;
    };
    let origin = Origin::start(|_| Answer::ok("a"));
    // As a mounted file system has it.
    let _held = disk_held(&device.0);
    let zone = format!("{} files=%DIR%/cache", device.0);
    let lone = format!(
        "daemon off; pid nginx.pid; events {{}} http {{ {} }}",
        text(&origin, &zone)
    );
    let refused = Server::try_start(&lone).err().unwrap().stderr;
    assert!(
        refused.contains("is in use: a file system on it is mounted"),
        "{refused}"
    );
}

fn disk_held(device: &str) -> std::fs::File {
    use std::os::unix::fs::OpenOptionsExt;
    let mut options = std::fs::File::options();
    let excl = nix::libc::O_EXCL;
    options.read(true).custom_flags(excl).open(device).unwrap()
}
