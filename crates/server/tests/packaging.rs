//! What packages bring beside the program: the unit of systemd, and the places that their files name.
#![expect(
    clippy::disallowed_methods,
    reason = "tests run on no loop: they read files"
)]

use std::path::{Path, PathBuf};
use std::process::Command;

/// Maximum exposure that `systemd-analyze security` may find, in its points from 0 to 10. nginx's own unit has 9.6.
const EXPOSURE_MAX: f64 = 3.2;

fn path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .join(name)
}

fn text(name: &str) -> String {
    std::fs::read_to_string(path(name)).expect(name)
}

#[test]
fn the_unit_takes_away_what_the_server_does_not_need() {
    let unit = path("packaging/systemd/freewheel.service");
    let judged = Command::new("systemd-analyze")
        .args(["security", "--offline=true", "--no-pager"])
        .arg(unit)
        .output();
    let Ok(judged) = judged else {
        println!("skipped: systemd-analyze is not installed");
        return;
    };
    let said = String::from_utf8_lossy(&judged.stdout).into_owned();
    let errors = String::from_utf8_lossy(&judged.stderr).into_owned();
    if errors.contains("offline") {
        println!("skipped: this systemd judges running services only (before version 250)");
        return;
    }
    // Words that systemd does not know are complained of there.
    assert!(!errors.contains("freewheel.service"), "{errors}");
    let level = said
        .split("Overall exposure level for freewheel.service: ")
        .nth(1);
    let level: f64 = level.unwrap().split(' ').next().unwrap().parse().unwrap();
    assert!(level <= EXPOSURE_MAX, "{level}:\n{said}");
}

/// The values of a name in the unit.
fn values(name: &str) -> Vec<String> {
    let unit = text("packaging/systemd/freewheel.service");
    let lines = unit.lines();
    let values = lines.filter_map(|line| line.strip_prefix(name)?.strip_prefix('='));
    values.map(str::to_owned).collect()
}

#[test]
fn the_unit_lets_the_server_be_upgraded_and_finish_its_requests() {
    for (name, value) in [
        ("Type", "notify"),
        ("NotifyAccess", "main"),
        ("ExecStart", "/usr/sbin/freewheel -g \"daemon off;\""),
        ("KillSignal", "SIGQUIT"),
        ("KillMode", "mixed"),
        ("Restart", "on-failure"),
        ("OOMPolicy", "continue"),
    ] {
        assert_eq!(values(name), [value], "{name}");
    }
    let reload = ["/usr/sbin/freewheel -t -q", "/bin/kill -HUP $MAINPID"];
    assert_eq!(values("ExecReload"), reload);
    assert!(
        values("MemoryDenyWriteExecute").is_empty(),
        "PCRE2 compiles to code"
    );
}

#[test]
fn files_of_the_packages_name_the_same_places() {
    let configuration = text("packaging/etc/freewheel.conf");
    for line in [
        "pid /run/freewheel.pid;",
        "user freewheel;",
        "error_log /var/log/freewheel/error.log;",
    ] {
        assert!(configuration.contains(line), "{line}");
    }
    assert!(text("packaging/etc/logrotate").contains("kill -USR1 \"$(cat /run/freewheel.pid)\""));
    let writable = values("ReadWritePaths").join(" ");
    for place in ["/run", "/var/log", "-/var/cache", "-/var/lib/freewheel"] {
        assert!(writable.split(' ').any(|path| path == place), "{place}");
    }
    let script = text("packaging/debian/postinst");
    for place in [
        "/var/log/freewheel",
        "/var/cache/freewheel",
        "/var/lib/freewheel",
    ] {
        assert!(script.contains(place), "postinst: {place}");
        assert!(
            text("packaging/debian/postrm").contains(place),
            "postrm: {place}"
        );
        assert!(
            text("packaging/rpm/post_install").contains(place),
            "rpm: {place}"
        );
    }
    // Packages have other names elsewhere: programs are required.
    let manifest = text("crates/server/Cargo.toml");
    let (_, requires) = manifest.split_once("generate-rpm.requires]\n").unwrap();
    assert!(
        requires
            .lines()
            .next()
            .unwrap()
            .starts_with("\"/usr/sbin/useradd\"")
    );
    // xtask writes the other group there.
    assert!(text("packaging/etc/logrotate").contains("    create 0640 freewheel adm\n"));
}

#[test]
fn images_run_as_another_user_than_root_and_are_ended_by_quit() {
    for name in ["Containerfile", "Containerfile.distroless"] {
        let file = text(&format!("packaging/container/{name}"));
        for line in [
            "\nUSER 65532:65532\n",
            "\nEXPOSE 8080\n",
            "\nSTOPSIGNAL SIGQUIT\n",
        ] {
            assert!(file.contains(line), "{name}: {line}");
        }
        assert!(
            file.contains("\"-c\", \"/etc/nginx/nginx.conf\", \"-g\", \"daemon off;\"]"),
            "{name}"
        );
        let rust = format!("FROM rust:{}-", env!("CARGO_PKG_RUST_VERSION"));
        assert!(file.contains(&rust), "{name}: {rust}");
    }
    // What is copied is there.
    let layout = text("packaging/container/layout");
    let words = layout.split(['"', ' ', '\n', ';']);
    let files = words.filter(|word| word.starts_with("conf/") || word.starts_with("packaging/"));
    let mut count = 0;
    for file in files.filter(|file| !file.contains('*')) {
        assert!(path(file).is_file(), "{file}");
        count += 1;
    }
    assert!(count >= 8, "{count}");
}
