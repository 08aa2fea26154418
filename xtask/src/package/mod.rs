//! Packages of the program, made into `target/package`: a Debian package and one with its symbols, an RPM, an archive, a list
//! of components (CycloneDX), the licences of the libraries, checksums.
//!
//! Not here: what the packages contain beside the program (`packaging/`). Invariant: two runs on the same source give the
//! same bytes, in whatever directories: every time stamp is the commit's, no path of this machine is in the program, and the
//! lists are sorted.

mod again;
mod build;
mod formats;
mod licences;
mod supply;
mod tools;
mod tree;
mod trial;

use crate::{flag, option, output};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

/// What can be made.
const FORMATS: &[&str] = &["deb", "rpm", "tar"];

/// What was asked for.
struct Order {
    project: PathBuf,
    /// Where everything is made.
    output: PathBuf,
    formats: Vec<String>,
    /// A program that is there already, with its symbols.
    binary: Option<PathBuf>,
    /// Without the optimization over all crates and without a profile, which take minutes.
    is_quick: bool,
    /// The profile of an earlier run; `None`: one is made.
    profile: Option<PathBuf>,
    /// The number of the package of this version.
    revision: String,
    /// Seconds since 1970: the time of the commit, or what `SOURCE_DATE_EPOCH` says.
    epoch: u64,
    version: String,
}

/// Makes the packages, checks them, or tries them.
pub fn run(project: &Path, arguments: &[String]) -> Result<(), String> {
    let mut arguments = arguments.to_vec();
    let is_check = flag(&mut arguments, "--check");
    let is_program = flag(&mut arguments, "--reproduce");
    let is_trial = flag(&mut arguments, "--try");
    let base = option(&mut arguments, "--root")?;
    let order = Order::of(project, &mut arguments)?;
    if is_trial {
        return trial::run(&order, base.map(PathBuf::from));
    }
    if is_program {
        return again::program(&order);
    }
    make(&order)?;
    if is_check {
        return again::packages(&order);
    }
    Ok(())
}

impl Order {
    fn of(project: &Path, arguments: &mut Vec<String>) -> Result<Self, String> {
        let is_quick = flag(arguments, "--quick");
        let binary = option(arguments, "--binary")?.map(PathBuf::from);
        let profile = option(arguments, "--profile")?.map(PathBuf::from);
        if profile.is_some() && (is_quick || binary.is_some()) {
            return Err("--profile does nothing with --quick or --binary".to_owned());
        }
        let revision = option(arguments, "--revision")?.unwrap_or_else(|| "1".to_owned());
        let mut formats = std::mem::take(arguments);
        if let Some(unknown) = formats.iter().find(|name| !FORMATS.contains(&&name[..])) {
            return Err(format!(
                "unknown argument {unknown}: the formats are {}",
                FORMATS.join(", ")
            ));
        }
        if formats.is_empty() {
            formats = FORMATS.iter().map(|name| (*name).to_owned()).collect();
        }
        Ok(Self {
            project: project.to_owned(),
            output: project.join("target/package"),
            formats,
            binary,
            is_quick,
            profile,
            revision,
            epoch: epoch(project)?,
            version: env!("CARGO_PKG_VERSION").to_owned(),
        })
    }

    fn has(&self, format: &str) -> bool {
        self.formats.iter().any(|name| name == format)
    }

    /// The name of a file of this version.
    fn named(&self, ending: &str) -> PathBuf {
        let machine = std::env::consts::ARCH;
        let name = format!("freewheel-{}-{machine}{ending}", self.version);
        self.output.join(name)
    }

    /// Where the profile lies that the program of this order is built by; `None`: by none.
    fn own_profile(&self) -> Option<PathBuf> {
        let has_one = !self.is_quick && self.binary.is_none();
        has_one.then(|| self.named(".profdata"))
    }
}

/// The time that everything gets.
fn epoch(project: &Path) -> Result<u64, String> {
    let text = match std::env::var("SOURCE_DATE_EPOCH") {
        Ok(text) => text,
        Err(_) => {
            let mut git = Command::new("git");
            git.args(["log", "-1", "--format=%ct"]).current_dir(project);
            String::from_utf8_lossy(&output(&mut git)?.stdout).into_owned()
        }
    };
    text.trim()
        .parse()
        .map_err(|_| format!("not a time in seconds: {text:?}"))
}

/// One run: the files made, each with its size.
fn make(order: &Order) -> Result<Vec<PathBuf>, String> {
    let start = Instant::now();
    tools::check(order)?;
    let program = match &order.binary {
        Some(path) => {
            build::check(path)?;
            path.clone()
        }
        None => build::program(order)?,
    };
    println!("program: {} s", start.elapsed().as_secs());
    let licences = licences::text(&order.project)?;
    let components = supply::components(order)?;
    let trees = tree::make(order, &program, &licences, &components)?;
    let mut files = formats::make(order, &trees)?;
    files.push(place(&order.named(".cdx.json"), components.as_bytes())?);
    files.push(place(
        &order.named("-THIRD-PARTY-LICENSES"),
        licences.as_bytes(),
    )?);
    files.extend(order.own_profile());
    files.sort();
    supply::sums(order, &files)?;
    for file in &files {
        println!("{:>12} bytes  {}", size(file)?, file.display());
    }
    println!("made in {} s", start.elapsed().as_secs());
    Ok(files)
}

/// Writes a file, and says where it is.
fn place(path: &Path, bytes: &[u8]) -> Result<PathBuf, String> {
    if let Some(directory) = path.parent() {
        std::fs::create_dir_all(directory)
            .map_err(|error| format!("{}: {error}", directory.display()))?;
    }
    std::fs::write(path, bytes).map_err(|error| format!("{}: {error}", path.display()))?;
    Ok(path.to_owned())
}

fn read(path: &Path) -> Result<String, String> {
    std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))
}

fn size(path: &Path) -> Result<u64, String> {
    let data = std::fs::metadata(path).map_err(|error| format!("{}: {error}", path.display()))?;
    Ok(data.len())
}
