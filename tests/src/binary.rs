//! Which program is under test. Not a build system: one call of cargo for one binary of this workspace.

use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;

const VARIABLE: &str = "FREEWHEEL_TEST_BINARY";

/// Path of the program under test: `FREEWHEEL_TEST_BINARY`, else `freewheel` beside the running test, brought up to date once.
///
/// # Panics
/// When cargo cannot build it: a test against an old binary would prove nothing.
pub fn binary() -> &'static PathBuf {
    static BINARY: OnceLock<PathBuf> = OnceLock::new();
    BINARY.get_or_init(|| match std::env::var_os(VARIABLE) {
        Some(path) => PathBuf::from(path),
        None => build(),
    })
}

/// Whether a foreign program is under test. For the few tests of what freewheel does differently on purpose.
pub fn is_nginx() -> bool {
    std::env::var_os(VARIABLE).is_some_and(|path| path.to_string_lossy().contains("nginx"))
}

/// `--workspace` selects the same features as the `cargo test --workspace` that runs us, so that nothing but the binary is built anew.
fn build() -> PathBuf {
    let test = std::env::current_exe().expect("a running test has a path");
    let profile = test
        .ancestors()
        .nth(2)
        .expect("a test stands in target/PROFILE/deps")
        .to_owned();
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut build = Command::new(cargo);
    build
        .args(["build", "--quiet", "--workspace", "--bin", "freewheel"])
        .current_dir(env!("CARGO_MANIFEST_DIR"));
    build.env(
        "CARGO_TARGET_DIR",
        profile.parent().expect("target/PROFILE has a parent"),
    );
    match profile.file_name().and_then(|name| name.to_str()) {
        Some("debug") | None => {}
        Some(name) => drop(build.args(["--profile", name])),
    }
    let status = build.status().expect("cargo can be run");
    assert!(status.success(), "cargo could not build freewheel");
    profile.join("freewheel")
}
