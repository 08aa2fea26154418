//! What a receiver checks: the list of components (CycloneDX), and checksums.

use super::{Order, output, place, read, tools};
use sha2::{Digest, Sha256};
use std::path::{Path, PathBuf};

/// The name that cargo-cyclonedx gives to its files, one beside each `Cargo.toml` of the workspace.
const NAME: &str = "package-components";

/// The list of the program's components, without a serial number, since two runs shall give the same bytes.
pub fn components(order: &Order) -> Result<String, String> {
    let manifest = order.project.join("crates/server/Cargo.toml");
    let mut command = tools::cargo("cyclonedx")?;
    command
        .arg("--manifest-path")
        .arg(&manifest)
        .args(["--format", "json", "--spec-version", "1.5"])
        .args(["--override-filename", NAME])
        .env("SOURCE_DATE_EPOCH", order.epoch.to_string())
        .current_dir(&order.project);
    let made = output(&mut command);
    let text = made.and_then(|_| read(&manifest.with_file_name(format!("{NAME}.json"))));
    forget(&order.project);
    portable(&text?, &order.project)
}

/// Removes what was written beside the manifests.
fn forget(project: &Path) {
    for directory in [".", "xtask", "tests", "bench"] {
        let _ = std::fs::remove_file(project.join(directory).join(format!("{NAME}.json")));
    }
    for directory in ["crates", "examples"] {
        let entries = std::fs::read_dir(project.join(directory))
            .into_iter()
            .flatten();
        for entry in entries.flatten() {
            let _ = std::fs::remove_file(entry.path().join(format!("{NAME}.json")));
        }
    }
}

/// The list without this machine's paths and without a number of its own.
fn portable(text: &str, project: &Path) -> Result<String, String> {
    let text = text.replace(&project.display().to_string(), "/usr/src/freewheel");
    let mut list: serde_json::Value =
        serde_json::from_str(&text).map_err(|error| format!("components: {error}"))?;
    if let Some(list) = list.as_object_mut() {
        list.remove("serialNumber");
    }
    Ok(format!("{list:#}\n"))
}

/// Writes `SHA256SUMS` for `sha256sum --check`.
pub fn sums(order: &Order, files: &[PathBuf]) -> Result<(), String> {
    let mut text = String::new();
    for file in files {
        let bytes = std::fs::read(file).map_err(|error| format!("{}: {error}", file.display()))?;
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        text.push_str(&format!("{}  {name}\n", hex(&Sha256::digest(&bytes))));
    }
    place(&order.output.join("SHA256SUMS"), text.as_bytes())?;
    Ok(())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_of_components_has_neither_path_nor_number_of_this_machine() {
        let text = r#"{"serialNumber":"urn:uuid:1","a":"path+file:///home/me/f/crates/x"}"#;
        let text = portable(text, Path::new("/home/me/f")).unwrap();
        assert!(text.contains("path+file:///usr/src/freewheel/crates/x"));
        assert!(!text.contains("serialNumber"));
    }

    #[test]
    fn bytes_are_written_in_hexadecimal() {
        assert_eq!(hex(&[0, 15, 255]), "000fff");
    }
}
