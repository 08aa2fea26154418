//! The files of an installation, laid out as they are to lie on the machine. All formats pack the same ones.
//!
//! Invariant: modes and times do not depend on this machine.

use super::{Order, output};
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime};

/// The two trees.
pub struct Trees {
    /// The installation.
    pub program: PathBuf,
    /// The symbols of the program, by its build's number.
    pub symbols: PathBuf,
}

/// Files of the repository, and where they are installed.
const FILES: &[(&str, &str)] = &[
    (
        "packaging/etc/freewheel.conf",
        "etc/freewheel/freewheel.conf",
    ),
    ("packaging/etc/proxy_params", "etc/freewheel/proxy_params"),
    (
        "packaging/etc/default-site",
        "etc/freewheel/sites-available/default",
    ),
    ("packaging/etc/logrotate", "etc/logrotate.d/freewheel"),
    ("conf/mime.types", "etc/freewheel/mime.types"),
    ("conf/fastcgi.conf", "etc/freewheel/fastcgi.conf"),
    ("conf/fastcgi_params", "etc/freewheel/fastcgi_params"),
    ("conf/scgi_params", "etc/freewheel/scgi_params"),
    ("conf/uwsgi_params", "etc/freewheel/uwsgi_params"),
    (
        "packaging/systemd/freewheel.service",
        "usr/lib/systemd/system/freewheel.service",
    ),
    ("packaging/upgrade", "usr/lib/freewheel/upgrade"),
    (
        "conf/html/index.html",
        "usr/share/freewheel/html/index.html",
    ),
    ("conf/html/50x.html", "usr/share/freewheel/html/50x.html"),
    (
        "packaging/debian/copyright",
        "usr/share/doc/freewheel/copyright",
    ),
    ("CHANGELOG.md", "usr/share/doc/freewheel/CHANGELOG.md"),
    ("LICENSE-MIT", "usr/share/doc/freewheel/LICENSE-MIT"),
    ("LICENSE-APACHE", "usr/share/doc/freewheel/LICENSE-APACHE"),
    (
        "docs/differences.md",
        "usr/share/doc/freewheel/differences.md",
    ),
    ("docs/upgrading.md", "usr/share/doc/freewheel/upgrading.md"),
    (
        "docs/installing.md",
        "usr/share/doc/freewheel/installing.md",
    ),
];

/// What the program writes of itself (`freewheel --generate NAME`), and where that is installed.
const GENERATED: &[(&str, &str)] = &[
    ("freewheel.8", "usr/share/man/man8/freewheel.8"),
    ("freewheel.conf.5", "usr/share/man/man5/freewheel.conf.5"),
    (
        "freewheel.bash",
        "usr/share/bash-completion/completions/freewheel",
    ),
    ("_freewheel", "usr/share/zsh/vendor-completions/_freewheel"),
    (
        "freewheel.fish",
        "usr/share/fish/vendor_completions.d/freewheel.fish",
    ),
];

/// Lays both out anew.
pub fn make(
    order: &Order,
    program: &Path,
    licences: &str,
    components: &str,
) -> Result<Trees, String> {
    let trees = Trees {
        program: order.output.join("tree"),
        symbols: order.output.join("symbols"),
    };
    for tree in [&trees.program, &trees.symbols] {
        let _ = std::fs::remove_dir_all(tree);
    }
    for (from, to) in FILES {
        let text =
            std::fs::read(order.project.join(from)).map_err(|error| format!("{from}: {error}"))?;
        super::place(&trees.program.join(to), &text)?;
    }
    let documents = trees.program.join("usr/share/doc/freewheel");
    super::place(&documents.join("THIRD-PARTY-LICENSES"), licences.as_bytes())?;
    super::place(&documents.join("freewheel.cdx.json"), components.as_bytes())?;
    let installed = trees.program.join("usr/sbin/freewheel");
    split(program, &installed, &trees.symbols)?;
    generate(&installed, &trees.program)?;
    set_modes(&trees.program, order.epoch)?;
    set_modes(&trees.symbols, order.epoch)?;
    Ok(trees)
}

/// Splits the symbols off the program.
fn split(program: &Path, installed: &Path, symbols: &Path) -> Result<(), String> {
    let number = build_number(program)?;
    let (directory, name) = number.split_at(2);
    let file = symbols.join(format!("usr/lib/debug/.build-id/{directory}/{name}.debug"));
    super::place(&file, b"")?;
    super::place(installed, b"")?;
    let objcopy = || {
        let mut command = Command::new("objcopy");
        command.arg("--enable-deterministic-archives");
        command
    };
    output(
        objcopy()
            .args(["--only-keep-debug", "--compress-debug-sections=zlib"])
            .args([program, &file]),
    )?;
    output(objcopy().arg("--strip-all").args([program, installed]))?;
    Ok(())
}

/// The number that the linker has given to the program (`NT_GNU_BUILD_ID`), in hexadecimal.
fn build_number(program: &Path) -> Result<String, String> {
    let text = output(Command::new("readelf").arg("-n").arg(program))?.stdout;
    let text = String::from_utf8_lossy(&text).into_owned();
    let number = text
        .lines()
        .find_map(|line| line.trim().strip_prefix("Build ID: "));
    number
        .filter(|number| number.len() > 2)
        .map(str::to_owned)
        .ok_or_else(|| {
            format!(
                "{} has no build id: link it with -C link-arg=-Wl,--build-id=sha1",
                program.display()
            )
        })
}

/// Man pages and completions, as far as the program writes them.
fn generate(program: &Path, tree: &Path) -> Result<(), String> {
    set_mode(program, 0o755)?;
    for (name, to) in GENERATED {
        let made = Command::new(program)
            .args(["--generate", name])
            .output()
            .map_err(|error| format!("{}: {error}", program.display()))?;
        if !made.status.success() || made.stdout.is_empty() {
            println!("without {to}: this program does not know --generate {name}");
            continue;
        }
        let file = super::place(&tree.join(to), &made.stdout)?;
        if to.contains("/man/") {
            output(Command::new("gzip").args(["-9", "-n", "-f"]).arg(file))?;
        }
    }
    Ok(())
}

/// Whether a file of the installation is a program.
pub fn is_program(path: &Path) -> bool {
    path.ends_with("usr/sbin/freewheel") || path.ends_with("usr/lib/freewheel/upgrade")
}

/// The files of a tree, by their names in it, sorted.
pub fn files(tree: &Path) -> Result<Vec<PathBuf>, String> {
    let mut files = Vec::new();
    let mut todo = vec![tree.to_owned()];
    while let Some(directory) = todo.pop() {
        let entries = std::fs::read_dir(&directory)
            .map_err(|error| format!("{}: {error}", directory.display()))?;
        for entry in entries {
            let path = entry.map_err(|error| error.to_string())?.path();
            match path.is_dir() {
                true => todo.push(path),
                false => files.push(path.strip_prefix(tree).unwrap_or(&path).to_owned()),
            }
        }
    }
    files.sort();
    Ok(files)
}

fn set_modes(tree: &Path, epoch: u64) -> Result<(), String> {
    let time = SystemTime::UNIX_EPOCH + Duration::from_secs(epoch);
    for name in files(tree)? {
        let path = tree.join(&name);
        set_mode(&path, if is_program(&name) { 0o755 } else { 0o644 })?;
        std::fs::File::open(&path)
            .and_then(|file| file.set_modified(time))
            .map_err(|error| format!("{}: {error}", path.display()))?;
        for directory in path.ancestors().skip(1).take_while(|path| *path != tree) {
            set_mode(directory, 0o755)?;
        }
    }
    Ok(())
}

fn set_mode(path: &Path, mode: u32) -> Result<(), String> {
    std::fs::set_permissions(path, Permissions::from_mode(mode))
        .map_err(|error| format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_to_be_installed_is_there() {
        for (from, _) in FILES {
            assert!(crate::project().join(from).is_file(), "{from}");
        }
    }

    #[test]
    fn files_are_found_in_order() {
        let tree = tempfile::tempdir().unwrap();
        for name in ["b/c", "a", "b/a/x"] {
            super::super::place(&tree.path().join(name), b"").unwrap();
        }
        let names = ["a", "b/a/x", "b/c"].map(PathBuf::from);
        assert_eq!(files(tree.path()).unwrap(), names);
    }
}
