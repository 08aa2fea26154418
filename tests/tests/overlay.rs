//! Files of an overlayfs, the file system of a container's image. Skipped, with a word, where the tests are not run by root.
#![expect(clippy::disallowed_methods, reason = "tests: no event loop")]

use std::process::Command;
use std::time::Duration;

use blackbox::{Server, Site};

/// The file system of a container's image: `sendfile` is not the only way to send what is in memory of it.
#[test]
fn files_of_an_overlay_that_are_in_memory_are_read_while_the_pools_stand_still() {
    let Some(site) = Site::of_root() else { return };
    let tried = Command::new("unshare").args(["--mount", "true"]).status();
    if !tried.is_ok_and(|status| status.success()) {
        println!("skipped: there is no unshare(1), or it is not allowed");
        return;
    }
    for dir in ["lower", "upper", "work"] {
        std::fs::create_dir(site.path(dir)).unwrap();
    }
    let large = vec![b'x'; 1 << 20];
    std::fs::write(site.path("lower/large"), &large).unwrap();
    let options = "lowerdir=%DIR%/lower,upperdir=%DIR%/upper,workdir=%DIR%/work";
    let script = format!("mount -t overlay overlay -o {options} %DIR%/html && exec \"$@\"");
    let site = site.with_environment("FREEWHEEL_DEBUG_HOLD", "%DIR%/hold");
    let server = Server::start_on(
        site.run_by(&["unshare", "--mount", "sh", "-c", &script, "sh"]),
        "worker_processes 2;",
        "server { listen 127.0.0.1:%PORT%; http2 on; root %DIR%/html;
            location /filtered/ { alias %DIR%/html/; sub_filter zz yy; sub_filter_types *; } }",
    );
    let by_http2 = || {
        let mut client = server.connect_http2();
        let stream = client.get("/large");
        client.reply(stream).body
    };
    let all = || {
        [
            server.get("/large").body,
            server.get("/filtered/large").body,
            by_http2(),
        ]
    };
    // The first comes from the disk, the second finds it in memory and has it mapped.
    for _ in 0..3 {
        assert!(all().iter().all(|body| *body == large));
    }
    std::fs::write(server.site().path("hold"), "").unwrap();
    std::thread::sleep(Duration::from_millis(100));
    assert!(all().iter().all(|body| *body == large));
    std::fs::remove_file(server.site().path("hold")).unwrap();
}
