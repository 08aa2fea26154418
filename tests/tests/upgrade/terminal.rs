//! An upgrade of a server in the foreground of a terminal, whose size may change.

use std::process::{Command, Stdio};

use blackbox::Site;
use nix::sys::signal::{Signal, kill};

use super::PLAIN;
use super::daemon::{Daemon, until};

#[test]
fn a_terminal_that_changes_its_size_ends_no_worker() {
    let terminal = nix::pty::openpty(None, None).unwrap();
    let path = nix::unistd::ttyname(&terminal.slave).unwrap();
    let site = Site::new().run_by(&["setsid", "--ctty"]);
    site.configure(&format!("daemon off; {PLAIN}"));
    let mut first = site
        .command()
        .stdin(Stdio::from(terminal.slave))
        .spawn()
        .unwrap();
    let daemon = Daemon(site);
    until("the first master", || {
        daemon.number("nginx.pid").is_some() && daemon.0.path("logs/error.log").exists()
    });
    let (old, new) = daemon.upgrade();
    let mut resize = Command::new("stty");
    resize.arg("-F").arg(path).args(["cols", "77"]);
    assert!(resize.status().unwrap().success());
    // Of two signals that wait, this one is taken behind the terminal's.
    kill(new, Signal::SIGIO).unwrap();
    daemon.wait_for_log("(SIGIO) received from", 1);
    let log = daemon.log();
    assert!(!log.contains("stop accepting connections"), "{log}");
    kill(old, Signal::SIGQUIT).unwrap();
    assert!(first.wait().unwrap().success());
    assert_eq!(daemon.master(), new);
    daemon.ask();
}
