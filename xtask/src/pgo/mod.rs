//! Profile-guided optimization (rustc's book, "Profile-guided Optimization"): the program is built with counters, serves a load, and is
//! built again by what they say. What the load does not touch is built as without a profile.
//!
//! Not here: the load ([`training`]), and packages, which are made of such a program (`package`). Invariant: one source, one toolchain and
//! one profile give the same program.

mod training;

use crate::{option, output, succeed};
use sha2::{Digest, Sha256};
use std::path::{Path, PathBuf};
use std::process::Command;

/// What makes `cargo build` finish sooner, for programs whose speed does not matter: no optimization over all crates.
pub const QUICK: &[&str] = &[
    "--config",
    "profile.release.lto=false",
    "--config",
    "profile.release.codegen-units=16",
];

/// The program that joins profiles, a part of rustup's component `llvm-tools`.
const MERGER: &str = "llvm-profdata";

/// Builds the program for this machine into `target/pgo/release`, with the default paths of the environment.
pub fn run(project: &Path, arguments: &[String]) -> Result<(), String> {
    let mut arguments = arguments.to_vec();
    let given = option(&mut arguments, "--profile")?.map(PathBuf::from);
    if let Some(unknown) = arguments.first() {
        return Err(format!("unknown argument {unknown}"));
    }
    let target = project.join("target/pgo");
    let build = |into: &Path, flag: &str| -> Result<PathBuf, String> {
        let mut cargo = Command::new(env!("CARGO"));
        cargo
            .args(["build", "--release", "--locked", "--bin", "freewheel"])
            .env("CARGO_ENCODED_RUSTFLAGS", flag)
            .env(COUNTS_FILE, into.join(UNUSED))
            .env("CARGO_TARGET_DIR", into)
            .current_dir(project);
        succeed(&mut cargo)?;
        Ok(into.join("release/freewheel"))
    };
    let profile = match given {
        Some(profile) => profile,
        None => {
            check()?;
            let profile = target.join("freewheel.profdata");
            let counting = build(&target.join("counting"), COUNTING)?;
            made(project, &counting, &target, &profile)?;
            profile
        }
    };
    let program = build(&target, &used(&profile, &target)?)?;
    println!("{} by {}", program.display(), profile.display());
    Ok(())
}

/// The variable of the environment that names the file for the counts of a program that ends.
pub const COUNTS_FILE: &str = "LLVM_PROFILE_FILE";
/// A file for those of build scripts and macros, which count, too; below the directory of the build.
pub const UNUSED: &str = "unused-%m.profraw";

/// The flag for rustc of a program that counts.
pub const COUNTING: &str = "-Cprofile-generate";

/// The flag for rustc that builds by a profile, a copy of which is kept in `directory`.
pub fn used(profile: &Path, directory: &Path) -> Result<String, String> {
    let bytes =
        std::fs::read(profile).map_err(|error| format!("{}: {error}", profile.display()))?;
    // Cargo knows by the flag alone that libraries are to be built again.
    let digest: String = Sha256::digest(&bytes)[..8]
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    let copy = directory.join(format!("{digest}.profdata"));
    // The compiler does not run in this directory.
    let copy =
        std::path::absolute(&copy).map_err(|error| format!("{}: {error}", copy.display()))?;
    std::fs::create_dir_all(directory)
        .and_then(|()| std::fs::write(&copy, &bytes))
        .map_err(|error| format!("{}: {error}", copy.display()))?;
    let path = copy.to_str().ok_or("the path of the profile is no UTF-8")?;
    Ok(format!("-Cprofile-use={path}"))
}

/// Makes a profile of what a program, which counts, does under the load. `scratch` is for programs that are built on the way.
pub fn made(project: &Path, counting: &Path, scratch: &Path, profile: &Path) -> Result<(), String> {
    let merger = merger()?;
    let tools = tools(project, &scratch.join("tools"))?;
    let counts = tempfile::Builder::new()
        .prefix("freewheel-counts.")
        .tempdir()
        .map_err(|error| error.to_string())?;
    training::run(counting, &tools, counts.path())?;
    // Sparse: without the functions that were never called, of which nothing is known.
    let mut merge = Command::new(merger);
    merge.args(["merge", "--sparse", "--output"]).arg(profile);
    succeed(merge.arg(counts.path()))
}

/// Fails, with what to do, if there is no program that joins profiles.
pub fn check() -> Result<(), String> {
    merger().map(drop)
}

fn merger() -> Result<PathBuf, String> {
    let said = |arguments: &[&str]| -> Result<String, String> {
        let said = output(Command::new("rustc").args(arguments))?;
        Ok(String::from_utf8_lossy(&said.stdout).into_owned())
    };
    let (sysroot, version) = (said(&["--print", "sysroot"])?, said(&["-vV"])?);
    let mut hosts = version
        .lines()
        .filter_map(|line| line.strip_prefix("host: "));
    let host = hosts
        .next()
        .ok_or("rustc does not say what machine this is")?;
    let path = Path::new(sysroot.trim()).join(format!("lib/rustlib/{host}/bin/{MERGER}"));
    match path.exists() {
        true => Ok(path),
        false => Err(format!(
            "{MERGER} is missing: rustup component add llvm-tools"
        )),
    }
}

/// The load and the server behind the proxy, of the benchmarks: the directory of both programs.
fn tools(project: &Path, target: &Path) -> Result<PathBuf, String> {
    let mut cargo = Command::new(env!("CARGO"));
    cargo
        .args(["build", "--release", "--locked", "--package", "bench"])
        .args(["--bin", "load", "--bin", "origin"])
        .args(QUICK)
        .env("CARGO_TARGET_DIR", target)
        .current_dir(project);
    succeed(&mut cargo)?;
    Ok(target.join("release"))
}
