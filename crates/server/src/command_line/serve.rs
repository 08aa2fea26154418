//! `freewheel serve DIR`: a directory over HTTP, without a configuration.
//!
//! Makes a configuration text and serves that, in the foreground, so that there is one way only.
//!
//! Not here: what the directives mean. Invariant: `--print-config` prints what would be served.
#![expect(clippy::disallowed_methods, reason = "before anything is served")]

use std::ffi::OsString;
use std::fmt::Write as _;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Parser;

use crate::content::module::Modules;
use crate::listen::{Address, Target};
use crate::loops::Serve;
use crate::process::load::Origin;
use crate::process::start::{self, Options};

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
    let temporary = std::env::temp_dir().join(format!("freewheel-{}", std::process::id()));
    let text = match configuration(&arguments, &directory, &temporary) {
        Ok(text) => text,
        Err(sentence) => return refuse(&sentence),
    };
    if arguments.print_config {
        return super::tell(text);
    }
    if let Err(error) = std::fs::create_dir(&temporary) {
        return refuse(&format!("{}: {error}", temporary.display()));
    }
    for url in urls {
        eprintln!("Serving {} at {url}", directory.display());
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
        text: Some(text.into_bytes()),
        error_log: None,
        is_quiet: false,
        serve,
        modules,
    };
    let code = start::serve(options);
    let _ = std::fs::remove_dir_all(&temporary);
    code
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
fn configuration(
    arguments: &Arguments,
    directory: &Path,
    temporary: &Path,
) -> Result<String, String> {
    let root = quoted(directory)?;
    let temporary = quoted(temporary)?;
    let listen = quoted(Path::new(&arguments.listen))?;
    let mut text = String::new();
    let log = if std::io::stderr().is_terminal() {
        "    log_format readable '$time_local  $status  $request  $body_bytes_sent bytes  $request_time s  $remote_addr';\n    \
         access_log /dev/stderr readable;\n"
    } else {
        "    access_log /dev/stderr;\n"
    };
    let _ = write!(
        text,
        "daemon off;
worker_processes auto;
error_log stderr notice;
pid {temporary}/freewheel.pid;

events {{
    worker_connections 4096;
}}

http {{
{log}
    types {{
{types}    }}
    default_type application/octet-stream;

    sendfile on;
    tcp_nopush on;
    keepalive_timeout 75s;
    client_body_temp_path {temporary}/client_body;

    server {{
        listen {listen};
        root {root};
        index index.html;
{autoindex}    }}
}}
",
        types = TYPES,
        autoindex = if arguments.autoindex {
            "        autoindex on;\n"
        } else {
            ""
        },
    );
    Ok(text)
}

/// A path as a quoted word of the configuration.
fn quoted(path: &Path) -> Result<String, String> {
    let text = path
        .to_str()
        .ok_or_else(|| format!("{}: the path is not UTF-8", path.display()))?;
    if text.contains('$') {
        return Err(format!("{text}: a \"$\" in the path would be a variable"));
    }
    Ok(text
        .chars()
        .flat_map(|letter| {
            let escape = matches!(
                letter,
                ' ' | '"' | '\'' | '\\' | ';' | '{' | '}' | '#' | '\t'
            );
            escape.then_some('\\').into_iter().chain([letter])
        })
        .collect())
}

/// The types that matter to browsers.
const TYPES: &str = "        text/html html htm;
        text/css css;
        text/plain txt log md;
        text/xml xml;
        text/javascript js mjs;
        application/json json map;
        application/wasm wasm;
        application/pdf pdf;
        application/zip zip;
        application/gzip gz;
        image/png png;
        image/jpeg jpg jpeg;
        image/gif gif;
        image/webp webp;
        image/avif avif;
        image/svg+xml svg svgz;
        image/x-icon ico;
        font/woff woff;
        font/woff2 woff2;
        audio/mpeg mp3;
        audio/ogg ogg oga opus;
        video/mp4 mp4 m4v;
        video/webm webm;
        video/mp2t ts;
        application/vnd.apple.mpegurl m3u8;
";

#[cfg(test)]
mod tests {
    use super::*;

    fn text(args: &[&str]) -> String {
        let arguments = Arguments::try_parse_from(args).unwrap();
        configuration(&arguments, &arguments.directory, Path::new("/tmp/t")).unwrap()
    }

    #[test]
    fn the_configuration_says_what_was_asked_for() {
        let plain = text(&["serve", "/srv/a b"]);
        assert!(plain.contains("root /srv/a\\ b;") && plain.contains("listen 127.0.0.1:8080;"));
        assert!(!plain.contains("autoindex"));
        let other = text(&["serve", "/srv", "--autoindex", "--listen", "[::1]:81"]);
        assert!(other.contains("autoindex on;") && other.contains("listen [::1]:81;"));
        config::parse_bytes(other.as_bytes()).unwrap();
    }

    #[test]
    fn paths_that_the_language_cannot_say_are_refused() {
        assert!(quoted(Path::new("/a$b")).is_err());
        assert_eq!(quoted(Path::new("/a;b")).unwrap(), "/a\\;b");
    }

    #[test]
    fn the_url_is_one_to_type() {
        assert_eq!(urls("0.0.0.0:80").unwrap(), ["http://localhost:80/"]);
        assert_eq!(urls("[::1]:81").unwrap(), ["http://[::1]:81/"]);
        assert!(urls("127.0.0.1:x").is_err());
    }
}
