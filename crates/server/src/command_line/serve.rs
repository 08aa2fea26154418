//! `freewheel serve DIR`: a directory over HTTP, without a configuration.
//!
//! Makes a configuration text and serves that, in the foreground, so that there is one way only.
//!
//! Not here: what the directives mean. Invariant: `--print-config` prints what would be served.
#![expect(clippy::disallowed_methods, reason = "before anything is served")]

use std::ffi::OsString;
use std::io::{ErrorKind, IsTerminal};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Parser;

use crate::content::module::Modules;
use crate::listen::{Address, Target};
use crate::loops::Serve;
use crate::process::load::Origin;
use crate::process::start::{self, Instead, Options};

/// Names that are tried for a temporary directory.
const DIRECTORIES_TRIED_MAX: u32 = 1000;

/// Serves a directory over HTTP.
#[derive(Debug, Parser)]
#[command(name = "freewheel serve", bin_name = "freewheel serve")]
struct Arguments {
    /// The directory.
    directory: PathBuf,
    /// Where to listen: a port, an address with a port, or unix:PATH.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8080")]
    listen: String,
    /// Lists directories that have no index file.
    #[arg(long)]
    autoindex: bool,
    /// Prints the configuration that this stands for, and leaves.
    #[arg(long)]
    print_config: bool,
}

/// Does what the arguments (the word `serve` first) say.
pub fn run(args: &[OsString], serve: Serve, modules: Modules) -> ExitCode {
    let arguments = match Arguments::try_parse_from(args) {
        Ok(arguments) => arguments,
        Err(error) => {
            let _ = error.print();
            return if error.use_stderr() {
                ExitCode::FAILURE
            } else {
                ExitCode::SUCCESS
            };
        }
    };
    let directory = match std::fs::canonicalize(&arguments.directory) {
        Ok(directory) if directory.is_dir() => directory,
        Ok(_) => {
            return refuse(&format!(
                "{} is not a directory",
                arguments.directory.display()
            ));
        }
        Err(error) => return refuse(&format!("{}: {error}", arguments.directory.display())),
    };
    let urls = match urls(&arguments.listen) {
        Ok(urls) => urls,
        Err(sentence) => return refuse(&sentence),
    };
    if arguments.print_config {
        return match configuration(&arguments, &directory, &lasting_pid()) {
            Ok(text) => super::tell(text),
            Err(sentence) => refuse(&sentence),
        };
    }
    serve_it(&arguments, &directory, &urls, serve, modules)
}

/// Serves until a signal ends it, with a directory of its own for what a configuration needs.
fn serve_it(
    arguments: &Arguments,
    directory: &Path,
    urls: &[String],
    serve: Serve,
    modules: Modules,
) -> ExitCode {
    let temporary = match private_directory() {
        Ok(temporary) => temporary,
        Err(error) => return refuse(&format!("{}: {error}", std::env::temp_dir().display())),
    };
    let text = match configuration(arguments, directory, &temporary.join("freewheel.pid")) {
        Ok(text) => text,
        Err(sentence) => {
            let _ = std::fs::remove_dir(&temporary);
            return refuse(&sentence);
        }
    };
    let mut greeting: String = urls
        .iter()
        .map(|url| format!("Serving {} at {url}\n", directory.display()))
        .collect();
    if !arguments.autoindex && !directory.join("index.html").exists() {
        greeting.push_str("It has no index.html; --autoindex lists what is there\n");
    }
    let mut prefix = temporary.clone().into_os_string();
    prefix.push("/");
    let origin = Origin {
        root: temporary.join("nginx.conf"),
        prefix: prefix.into(),
        globals: None,
    };
    let options = Options {
        origin,
        instead: Some(Instead {
            text: text.into_bytes(),
            greeting,
        }),
        error_log: None,
        is_quiet: false,
        serve,
        modules,
    };
    let code = start::serve(options);
    let _ = std::fs::remove_dir_all(&temporary);
    code
}

/// A new directory: nobody else's, and no link, is taken for ours. One of the same number may be left of a process that was killed.
fn private_directory() -> std::io::Result<PathBuf> {
    let mut number = 0;
    loop {
        let name = format!("freewheel-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        match std::fs::DirBuilder::new().mode(0o700).create(&path) {
            Ok(()) => return Ok(path),
            Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(error),
            Err(error) if number == DIRECTORIES_TRIED_MAX => return Err(error),
            Err(_) => number += 1,
        }
    }
}

/// Where a configuration that is kept has its pid file: in a directory that is there and that its user can write to.
fn lasting_pid() -> PathBuf {
    let uid = nix::unistd::geteuid();
    if uid.is_root() {
        return PathBuf::from("/run/freewheel.pid");
    }
    match std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from) {
        Some(directory) if directory.is_dir() => directory.join("freewheel.pid"),
        _ => std::env::temp_dir().join(format!("freewheel-{uid}.pid")),
    }
}

fn refuse(sentence: &str) -> ExitCode {
    eprintln!("freewheel: {sentence}");
    ExitCode::FAILURE
}

/// What to type into a browser.
fn urls(listen: &str) -> Result<Vec<String>, String> {
    let target = Target::parse(listen).map_err(|reason| format!("{reason} in \"{listen}\""))?;
    let addresses = target.addresses(&mut crate::process::resolve::host);
    let addresses = addresses.map_err(|reason| format!("{reason} in \"{listen}\""))?;
    let url = |address: &Address| match address {
        Address::Inet(inet) if inet.ip().is_unspecified() => {
            format!("http://localhost:{}/", inet.port())
        }
        Address::Inet(inet) => format!("http://{inet}/"),
        Address::Unix(_) => address.to_string(),
    };
    Ok(addresses.iter().map(url).collect())
}

/// The configuration that the arguments stand for.
fn configuration(arguments: &Arguments, directory: &Path, pid: &Path) -> Result<String, String> {
    let root = quoted(directory)?;
    let pid = quoted(pid)?;
    let listen = quoted(Path::new(&arguments.listen))?;
    let log = if std::io::stderr().is_terminal() {
        "    log_format readable '$time_local  $status  $request  $body_bytes_sent bytes  $request_time s  $remote_addr';\n    \
         access_log /dev/stderr readable;\n"
    } else {
        "    access_log /dev/stderr;\n"
    };
    let dollar = if root.contains(DOLLAR) {
        "    # The language has no other way to say a dollar sign.\n    split_clients \"\" $dollar { * \"$\"; }\n\n"
    } else {
        ""
    };
    let autoindex = if arguments.autoindex {
        "        autoindex on;\n"
    } else {
        ""
    };
    Ok(format!(
        "daemon off;
worker_processes auto;
error_log stderr warn;
pid {pid};

events {{
    worker_connections 1024;
}}

http {{
{log}
{TYPES}
    default_type application/octet-stream;

    sendfile on;
    tcp_nopush on;
    keepalive_timeout 75s;
    log_not_found off;

{dollar}    server {{
        listen {listen};
        root {root};
        index index.html;
{autoindex}    }}
}}
"
    ))
}

/// What stands for `$`, which else begins a variable.
const DOLLAR: &str = "${dollar}";

/// A path as a word of the configuration, quoted where it must be.
fn quoted(path: &Path) -> Result<String, String> {
    let text = path
        .to_str()
        .ok_or_else(|| format!("{}: the path is not UTF-8", path.display()))?;
    let is_plain = |letter: char| {
        letter.is_alphanumeric() || matches!(letter, '/' | '.' | ':' | '[' | ']' | '-' | '_' | '*')
    };
    if text.chars().all(is_plain) {
        return Ok(text.to_owned());
    }
    let escaped = text.replace('\\', "\\\\").replace('"', "\\\"");
    Ok(format!("\"{}\"", escaped.replace('$', DOLLAR)))
}

/// The file that is installed beside a configuration.
const TYPES: &str = include_str!("../../../../conf/mime.types");

#[cfg(test)]
mod tests {
    use super::*;

    fn text(args: &[&str]) -> String {
        let arguments = Arguments::try_parse_from(args).unwrap();
        configuration(
            &arguments,
            &arguments.directory,
            Path::new("/run/freewheel.pid"),
        )
        .unwrap()
    }

    #[test]
    fn the_configuration_says_what_was_asked_for() {
        let plain = text(&["serve", "/srv/a b"]);
        assert!(plain.contains("root \"/srv/a b\";") && plain.contains("listen 127.0.0.1:8080;"));
        assert!(!plain.contains("autoindex"));
        let other = text(&["serve", "/srv", "--autoindex", "--listen", "[::1]:81"]);
        assert!(other.contains("autoindex on;") && other.contains("listen [::1]:81;"));
        config::parse_bytes(other.as_bytes()).unwrap();
    }

    #[test]
    fn every_path_is_one_word_of_the_language() {
        assert_eq!(quoted(Path::new("/a;b")).unwrap(), "\"/a;b\"");
        assert_eq!(quoted(Path::new("/a\"\\n")).unwrap(), "\"/a\\\"\\\\n\"");
        assert_eq!(quoted(Path::new("/a$b")).unwrap(), "\"/a${dollar}b\"");
        assert!(text(&["serve", "/a$b"]).contains("split_clients"));
        assert!(!text(&["serve", "/ab"]).contains("split_clients"));
    }

    #[test]
    fn the_url_is_one_to_type() {
        assert_eq!(urls("0.0.0.0:80").unwrap(), ["http://localhost:80/"]);
        assert_eq!(urls("[::1]:81").unwrap(), ["http://[::1]:81/"]);
        assert!(urls("127.0.0.1:x").is_err());
    }
}
