//! The program for packages: the default paths of an installation, no path of this machine in it, libraries of C linked in.

use super::{Order, output, place, tools};
use crate::{pgo, succeed};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The default paths, as `configure` sets them for nginx's packages.
const PATHS: &[(&str, &str)] = &[
    ("FREEWHEEL_PREFIX", "/usr/share/freewheel/"),
    ("FREEWHEEL_CONF_PATH", "/etc/freewheel/freewheel.conf"),
    ("FREEWHEEL_ERROR_LOG_PATH", "/var/log/freewheel/error.log"),
    (
        "FREEWHEEL_HTTP_LOG_PATH",
        "/var/log/freewheel/access.log combined",
    ),
    ("FREEWHEEL_PID_PATH", "/run/freewheel.pid"),
    ("FREEWHEEL_LOCK_PATH", "/run/lock/freewheel.lock"),
    (
        "FREEWHEEL_HTTP_CLIENT_BODY_TEMP_PATH",
        "/var/lib/freewheel/body",
    ),
    ("FREEWHEEL_HTTP_PROXY_TEMP_PATH", "/var/lib/freewheel/proxy"),
    (
        "FREEWHEEL_HTTP_FASTCGI_TEMP_PATH",
        "/var/lib/freewheel/fastcgi",
    ),
    ("FREEWHEEL_HTTP_UWSGI_TEMP_PATH", "/var/lib/freewheel/uwsgi"),
    ("FREEWHEEL_HTTP_SCGI_TEMP_PATH", "/var/lib/freewheel/scgi"),
    ("FREEWHEEL_USER", "freewheel"),
    ("FREEWHEEL_GROUP", "freewheel"),
];

/// Where it is built, below the order's directory.
const TARGET: &str = "build";
/// The same for the program that counts what it does, and for what it is trained with.
const COUNTING: &str = "counting";

/// The names that paths of this machine get in the program; of two that begin a path, the later counts.
fn renamed(order: &Order) -> Result<Vec<(PathBuf, &'static str)>, String> {
    let mut rustc = Command::new("rustc");
    let sysroot = output(rustc.args(["--print", "sysroot"]))?.stdout;
    let sysroot = PathBuf::from(String::from_utf8_lossy(&sysroot).trim());
    let home = tools::cargo_home().ok_or("neither CARGO_HOME nor HOME is set")?;
    let mut all = vec![
        (order.project.clone(), "/usr/src/freewheel"),
        (order.output.join(TARGET), "/usr/src/freewheel/target"),
        (order.output.join(COUNTING), "/usr/src/freewheel/target"),
        (home.join("registry/src"), "/usr/src/cargo"),
    ];
    // Only where the standard library's source is installed do its paths stand in a program.
    let library = sysroot.join("lib/rustlib/src/rust");
    if library.exists() {
        all.push((library, "/usr/src/rust"));
    }
    Ok(all)
}

/// Builds it: the path of the program, which has its symbols.
pub fn program(order: &Order) -> Result<PathBuf, String> {
    let flag = match order.own_profile() {
        None => None,
        Some(profile) => {
            match &order.profile {
                Some(given) => copy(given, &profile)?,
                None => train(order, &profile)?,
            }
            Some(pgo::used(&profile, &order.output.join(TARGET))?)
        }
    };
    let program = compile(order, TARGET, flag)?;
    nothing_of(&program, renamed(order)?.iter().map(|(path, _)| path))?;
    Ok(program)
}

fn copy(from: &Path, to: &Path) -> Result<(), String> {
    let bytes = std::fs::read(from).map_err(|error| format!("{}: {error}", from.display()))?;
    place(to, &bytes).map(drop)
}

/// Makes the profile.
fn train(order: &Order, profile: &Path) -> Result<(), String> {
    let counting = compile(order, COUNTING, Some(pgo::COUNTING.to_owned()))?;
    pgo::made(
        &order.project,
        &counting,
        &order.output.join(COUNTING),
        profile,
    )
}

/// Builds it below the order's directory, with one more flag for rustc.
fn compile(order: &Order, target: &str, flag: Option<String>) -> Result<PathBuf, String> {
    let renamed = renamed(order)?;
    let mut rust: Vec<String> = renamed
        .iter()
        .map(|(path, name)| format!("--remap-path-prefix={}={name}", path.display()))
        .collect();
    rust.extend(flag);
    // Symbols are found by this number.
    rust.push("-Clink-arg=-Wl,--build-id=sha1".to_owned());
    let c: Vec<String> = renamed
        .iter()
        .map(|(path, name)| format!("-ffile-prefix-map={}={name}", path.display()))
        .collect();
    let target = order.output.join(target);
    let mut cargo = Command::new(env!("CARGO"));
    match tools::find("cargo-auditable") {
        Some(_) => drop(cargo.arg("auditable")),
        None => println!(
            "cargo-auditable is not installed: the program has no list of its libraries in itself"
        ),
    }
    cargo
        .args(["build", "--release", "--locked", "--package", "freewheel"])
        .args(["--bin", "freewheel"])
        .current_dir(&order.project)
        .envs(PATHS.iter().copied())
        .env("CARGO_ENCODED_RUSTFLAGS", rust.join("\u{1f}"))
        .env("CFLAGS", c.join(" "))
        // The program shall run where no PCRE2 is installed, too.
        .env("PCRE2_SYS_STATIC", "1")
        .env("SOURCE_DATE_EPOCH", order.epoch.to_string())
        .env(pgo::COUNTS_FILE, target.join(pgo::UNUSED))
        .env("CARGO_TARGET_DIR", &target);
    if order.is_quick {
        cargo.args(pgo::QUICK);
    }
    succeed(&mut cargo)?;
    Ok(target.join("release/freewheel"))
}

/// Fails if one of these paths is in a program.
fn nothing_of<'p>(
    program: &Path,
    mut paths: impl Iterator<Item = &'p PathBuf>,
) -> Result<(), String> {
    let shown = program.display();
    let bytes = std::fs::read(program).map_err(|error| format!("{shown}: {error}"))?;
    let text = String::from_utf8_lossy(&bytes);
    match paths.find(|path| text.contains(&*path.to_string_lossy())) {
        None => Ok(()),
        Some(path) => Err(format!(
            "{shown} has the path {} of this machine in it",
            path.display()
        )),
    }
}

/// Fails for a ready program that was built with other default paths: a package of it would not start.
pub fn check(program: &Path) -> Result<(), String> {
    let shown = program.display();
    // With a path that has no slash, a program of `PATH` would be run.
    let program = std::path::absolute(program).map_err(|error| format!("{shown}: {error}"))?;
    let said = output(Command::new(program).arg("-V"))?;
    let said = [said.stdout, said.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    let missing = missing(&said);
    if missing.is_empty() {
        return Ok(());
    }
    let variables: Vec<String> = missing
        .iter()
        .map(|(name, value)| format!("  {name}={value:?}\n"))
        .collect();
    Err(format!(
        "{shown} was built with other default paths than a package has ({shown} -V shows them), so it would not start \
         from one. Leave --binary out, so that it is built here (--quick: in a few minutes), or build it with \
         these in the environment:\n{}",
        variables.concat()
    ))
}

/// The variables of the build that a program, by what its `-V` says, did not have so.
fn missing(said: &str) -> Vec<&'static (&'static str, &'static str)> {
    let mut arguments = said
        .lines()
        .filter_map(|line| line.strip_prefix("configure arguments:"));
    let arguments = format!("{} ", arguments.next().unwrap_or_default());
    let is_missing = |(name, value): &&(&str, &str)| {
        let name = name.trim_start_matches("FREEWHEEL_");
        let name = name.to_ascii_lowercase().replace('_', "-");
        !arguments.contains(&format!(" --{name}={value} "))
    };
    PATHS.iter().filter(is_missing).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_with_other_paths_is_found_by_what_it_says() {
        let arguments = |paths: &[(&str, &str)]| -> String {
            let name = |name: &str| {
                name.replace("FREEWHEEL_", "")
                    .to_lowercase()
                    .replace('_', "-")
            };
            let all = paths
                .iter()
                .map(|(path, value)| format!(" --{}={value}", name(path)));
            format!(
                "freewheel version: x\nconfigure arguments:{}\n",
                all.collect::<String>()
            )
        };
        assert!(missing(&arguments(PATHS)).is_empty());
        assert_eq!(missing(&arguments(&PATHS[1..])), [&PATHS[0]]);
        assert_eq!(missing("freewheel version: x\n").len(), PATHS.len());
        let said = arguments(PATHS).replace("/run/freewheel.pid", "/run/freewheel.pid2");
        assert_eq!(missing(&said)[0].0, "FREEWHEEL_PID_PATH");
    }

    #[test]
    fn every_path_that_the_program_knows_is_one_of_a_package() {
        let project = crate::project();
        let known = std::fs::read_to_string(project.join("crates/config/src/default_paths.rs"));
        let known = known.unwrap();
        let names = known
            .split('"')
            .filter(|word| word.starts_with("FREEWHEEL_"));
        let names: Vec<&str> = names.collect();
        let ours: Vec<&str> = PATHS.iter().map(|(name, _)| *name).collect();
        assert_eq!(names, ours);
    }
}
