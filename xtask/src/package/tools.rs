//! The tools that packages are made with: which are missing, and how they are installed.

use super::Order;
use crate::pgo;
use std::path::PathBuf;
use std::process::Command;

/// A program of `PATH`.
pub fn find(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .chain(cargo_home().map(|home| home.join("bin")))
        .map(|directory| directory.join(name))
        .find(|file| file.is_file())
}

/// The directory of cargo's registries and installed programs.
pub fn cargo_home() -> Option<PathBuf> {
    let home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    home.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cargo")))
}

/// Fails with a line for each tool that this order needs and that is missing.
pub fn check(order: &Order) -> Result<(), String> {
    let crates = [
        ("cargo-deb", order.has("deb")),
        ("cargo-generate-rpm", order.has("rpm")),
        ("cargo-cyclonedx", true),
    ];
    let programs = [
        ("objcopy", "binutils", true),
        ("tar", "tar", order.has("tar")),
        ("xz", "xz-utils", order.has("tar")),
    ];
    let mut missing = String::new();
    for (name, is_needed) in crates {
        if is_needed && find(name).is_none() {
            missing.push_str(&format!(
                "{name} is missing: cargo install --locked {name}\n"
            ));
        }
    }
    for (name, package, is_needed) in programs {
        if is_needed && find(name).is_none() {
            missing.push_str(&format!(
                "{name} is missing: it is in the package {package}\n"
            ));
        }
    }
    if order.profile.is_none()
        && order.own_profile().is_some()
        && let Err(why) = pgo::check()
    {
        missing.push_str(&format!("{why}\n"));
    }
    match missing.is_empty() {
        true => Ok(()),
        false => Err(missing),
    }
}

/// `cargo NAME`, by the path that [`find`] knows.
pub fn cargo(name: &str) -> Result<Command, String> {
    let program = find(&format!("cargo-{name}")).ok_or(format!("cargo-{name} is missing"))?;
    let mut command = Command::new(program);
    command.arg(name).env("CARGO", env!("CARGO"));
    Ok(command)
}
