//! The program as an operator has it: master as root, worker as `nobody`, files root:root 0644 in directories 0755.
//! A worker that is root hides what the kernel refuses to others (cachestat, signals, the modes of files).

use crate::option;
use nix::sys::signal::{SigSet, Signal, kill};
use nix::unistd::Pid;
use std::fs::Permissions;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};

const PAGE: &str = "<!doctype html>\n<title>freewheel</title>\n<p>It turns.\n";

/// Sets the directory up, runs the program in the foreground until it ends, and takes the directory away.
pub fn run(project: &Path, arguments: &[String]) -> Result<(), String> {
    let mut arguments = arguments.to_vec();
    let extra: Vec<String> = match arguments.iter().position(|argument| argument == "--") {
        Some(at) => arguments.split_off(at).into_iter().skip(1).collect(),
        None => Vec::new(),
    };
    let binary = option(&mut arguments, "--binary")?
        .map_or_else(|| project.join("target/release/freewheel"), PathBuf::from);
    let root = option(&mut arguments, "--root")?;
    let conf = option(&mut arguments, "--conf")?;
    let port = option(&mut arguments, "--port")?.unwrap_or_else(|| "8080".to_owned());
    if let Some(unknown) = arguments.first() {
        return Err(format!("unknown argument {unknown}"));
    }
    let directory = tempfile::Builder::new()
        .prefix("freewheel-installed.")
        .tempdir()
        .map_err(|error| error.to_string())?;
    let owner = std::fs::metadata(directory.path())
        .map_err(|error| error.to_string())?
        .uid();
    if owner != 0 {
        return Err(
            "needs root: the point is a master that is root and a worker that is not".to_owned(),
        );
    }
    prepare(directory.path(), root.as_deref(), conf.as_deref(), &port)
        .map_err(|error| error.to_string())?;
    let prefix = format!("{}/", directory.path().display());
    let mut command = Command::new(&binary);
    command
        .args([
            "-p",
            &prefix,
            "-c",
            "conf/nginx.conf",
            "-e",
            "logs/error.log",
            "-g",
            "daemon off;",
        ])
        .args(&extra);
    println!("{} -p {prefix} -c conf/nginx.conf", binary.display());
    let status =
        run_until_signal(&mut command).map_err(|error| format!("{}: {error}", binary.display()))?;
    if status.success() {
        Ok(())
    } else {
        Err(format!("ended with {status}"))
    }
}

/// Runs to the end; INT and TERM go to the program, so that the directory is taken away behind it.
fn run_until_signal(command: &mut Command) -> std::io::Result<ExitStatus> {
    let signals = SigSet::from_iter([Signal::SIGINT, Signal::SIGTERM]);
    signals.thread_block()?;
    let mut child = command.spawn()?;
    let pid = Pid::from_raw(i32::try_from(child.id()).expect("a pid fits"));
    std::thread::spawn(
        move || while signals.wait().is_ok_and(|signal| kill(pid, signal).is_ok()) {},
    );
    child.wait()
}

fn prepare(
    directory: &Path,
    root: Option<&str>,
    conf: Option<&str>,
    port: &str,
) -> std::io::Result<()> {
    open_to_all(directory, 0o755)?;
    for name in ["conf", "html", "logs"] {
        std::fs::create_dir(directory.join(name))?;
        open_to_all(&directory.join(name), 0o755)?;
    }
    write(&directory.join("html/index.html"), PAGE)?;
    let root = root.map_or_else(|| directory.join("html"), PathBuf::from);
    let text = match conf {
        Some(path) => std::fs::read_to_string(path)?,
        None => configuration(&root, port),
    };
    write(&directory.join("conf/nginx.conf"), &text)
}

fn configuration(root: &Path, port: &str) -> String {
    format!(
        "user nobody {};\nworker_processes auto;\npid logs/nginx.pid;\nerror_log logs/error.log notice;\nevents {{ }}\nhttp {{\n    \
         access_log logs/access.log;\n    server {{\n        listen 127.0.0.1:{port};\n        root {};\n    }}\n}}\n",
        group(),
        root.display()
    )
}

/// The group of `nobody`: Debian calls it `nogroup`, most others by the user's name.
fn group() -> &'static str {
    let groups = std::fs::read_to_string("/etc/group").unwrap_or_default();
    if groups.lines().any(|line| line.starts_with("nobody:")) {
        "nobody"
    } else {
        "nogroup"
    }
}

fn write(path: &Path, text: &str) -> std::io::Result<()> {
    std::fs::write(path, text)?;
    open_to_all(path, 0o644)
}

fn open_to_all(path: &Path, mode: u32) -> std::io::Result<()> {
    std::fs::set_permissions(path, Permissions::from_mode(mode))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_readable_by_everyone_and_writable_by_their_owner() {
        let directory = tempfile::tempdir().unwrap();
        prepare(directory.path(), None, None, "8080").unwrap();
        let mode = |name: &str| {
            std::fs::metadata(directory.path().join(name))
                .unwrap()
                .mode()
                & 0o777
        };
        assert_eq!(
            (
                mode("html"),
                mode("html/index.html"),
                mode("conf/nginx.conf"),
                mode(".")
            ),
            (0o755, 0o644, 0o644, 0o755)
        );
        assert!(
            std::fs::read_to_string(directory.path().join("conf/nginx.conf"))
                .unwrap()
                .contains("user nobody no")
        );
    }
}
