//! The trees, packed: Debian packages, RPMs, an archive. What the packages say of themselves stands in `crates/server/Cargo.toml`.

use super::tree::{self, Trees};
use super::{Order, output, place, tools};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The rules for the rotation of logs.
const ROTATION: &str = "etc/logrotate.d/freewheel";
/// The crate with the packages' metadata.
const CRATE: &str = "crates/server";

/// Makes what was asked for: the files.
pub fn make(order: &Order, trees: &Trees) -> Result<Vec<PathBuf>, String> {
    let mut files = Vec::new();
    if order.has("deb") {
        files.push(deb(order, None)?);
        files.push(deb(order, Some("dbgsym"))?);
    }
    if order.has("rpm") {
        files.push(rpm(order, &trees.program, "freewheel")?);
        files.push(rpm(order, &trees.symbols, "freewheel-debuginfo")?);
    }
    if order.has("tar") {
        files.push(archive(order, &trees.program, &order.named(".tar.xz"))?);
        files.push(archive(
            order,
            &trees.symbols,
            &order.named("-symbols.tar.xz"),
        )?);
    }
    Ok(files)
}

/// `cargo deb`, of the trees that are there.
fn deb(order: &Order, variant: Option<&str>) -> Result<PathBuf, String> {
    let name = variant.map_or_else(
        || "freewheel".to_owned(),
        |name| format!("freewheel-{name}"),
    );
    let machine = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    let version = format!("{}-{}", order.version, order.revision);
    let file = order.output.join(format!("{name}_{version}_{machine}.deb"));
    let mut command = tools::cargo("deb")?;
    command
        .args(["--no-build", "--no-strip", "--quiet", "--locked"])
        .args(["--deb-revision", &order.revision, "--output"])
        .arg(&file)
        .arg("--manifest-path")
        .arg(order.project.join(CRATE).join("Cargo.toml"))
        .env("SOURCE_DATE_EPOCH", order.epoch.to_string())
        .current_dir(&order.project);
    if let Some(variant) = variant {
        command.args(["--variant", variant]);
    }
    output(&mut command)?;
    Ok(file)
}

/// `cargo generate-rpm`, whose list of files is made of the tree.
fn rpm(order: &Order, tree: &Path, name: &str) -> Result<PathBuf, String> {
    let mut text = format!("name = \"{name}\"\nrelease = \"{}\"\n", order.revision);
    if name != "freewheel" {
        text.push_str("auto-req = \"no\"\n");
        for script in [
            "pre_install",
            "post_install",
            "pre_uninstall",
            "post_uninstall",
        ] {
            // A script can be replaced, and not taken away.
            text.push_str(&format!("{script}_script = \"exit 0\"\n"));
        }
    }
    text.push_str("assets = [\n");
    for file in tree::files(tree)? {
        let source = match file == Path::new(ROTATION) {
            true => rotation(order, tree)?,
            false => tree.join(&file),
        };
        text.push_str(&asset(&source, &file));
    }
    text.push_str("]\n");
    if name != "freewheel" {
        // Those of the scripts.
        text.push_str("[requires]\n");
    }
    let list = place(
        &order.output.join(format!("{name}.rpm.toml")),
        text.as_bytes(),
    )?;
    let machine = std::env::consts::ARCH;
    let file = format!("{name}-{}-{}.{machine}.rpm", order.version, order.revision);
    let file = order.output.join(file);
    let mut command = tools::cargo("generate-rpm")?;
    command
        .args([
            "--package",
            CRATE,
            "--auto-req",
            "builtin",
            "--metadata-overwrite",
        ])
        .arg(list)
        .arg("--output")
        .arg(&file)
        .env("SOURCE_DATE_EPOCH", order.epoch.to_string())
        .current_dir(&order.project);
    output(&mut command)?;
    Ok(file)
}

/// The rules for rotation with the group of the logs' directory: distributions with RPMs need not have Debian's.
fn rotation(order: &Order, tree: &Path) -> Result<PathBuf, String> {
    let path = tree.join(ROTATION);
    let text = std::fs::read_to_string(&path);
    let text = text.map_err(|error| format!("{}: {error}", path.display()))?;
    let text = text.replace(
        "create 0640 freewheel adm",
        "create 0640 freewheel freewheel",
    );
    place(&order.output.join("logrotate"), text.as_bytes())
}

/// The line of a file.
fn asset(source: &Path, file: &Path) -> String {
    let place = file.display().to_string();
    // Where distributions with RPMs have completions of zsh.
    let place = place.replace("zsh/vendor-completions", "zsh/site-functions");
    let mode = if tree::is_program(file) { "755" } else { "644" };
    let kind = match place.split_once('/') {
        Some(("etc", _)) => ", config = \"noreplace\"",
        _ if place.starts_with("usr/share/doc/") => ", doc = true",
        _ => "",
    };
    format!(
        "    {{ source = \"{}\", dest = \"/{place}\", mode = \"{mode}\"{kind} }},\n",
        source.display()
    )
}

/// An archive with sorted names and one time.
fn archive(order: &Order, tree: &Path, file: &Path) -> Result<PathBuf, String> {
    let mut tar = Command::new("tar");
    tar.args(["--sort=name", "--owner=0", "--group=0", "--numeric-owner"])
        .args(["--format=gnu", "--mode=u+rw,go+r-w"])
        .arg(format!("--mtime=@{}", order.epoch))
        .args(["--use-compress-program=xz -T1 -6", "--create", "--file"])
        .arg(file)
        .arg("--directory")
        .arg(tree)
        .arg("--transform=s,^\\./,,")
        .arg(".");
    output(&mut tar)?;
    Ok(file.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_etc_are_configuration_and_programs_can_be_run() {
        let line = |file: &str| asset(&Path::new("/t").join(file), Path::new(file));
        assert!(line("etc/freewheel/mime.types").contains("config = \"noreplace\""));
        assert!(line("usr/sbin/freewheel").contains("\"755\" }"));
        let zsh = line("usr/share/zsh/vendor-completions/_freewheel");
        assert!(zsh.contains("dest = \"/usr/share/zsh/site-functions/_freewheel\""));
        assert!(zsh.contains("source = \"/t/usr/share/zsh/vendor-completions/_freewheel\""));
    }
}
