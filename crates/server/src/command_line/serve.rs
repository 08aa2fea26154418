//! `freewheel serve DIR`: a directory over HTTP, without a configuration.
//!
//! Generates a configuration text and serves that, in the foreground, so that there is only one code path.
//!
//! Not here: what the directives mean. Invariant: `--print-config` prints what would be served.
#![expect(clippy::disallowed_methods, reason = "before anything is served")]

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Parser, ValueHint};

use super::domain::{DomainArguments, Site};
use super::first_certificate;
use super::made::{Dashboard, lasting_pid, quoted, quoted_for_variables, refuse};
use crate::command_line::made;
use httpcore::handler::Modules;

/// Serves a directory over HTTP, without a configuration.
#[derive(Debug, Parser)]
#[command(name = "freewheel serve", bin_name = "freewheel serve")]
pub(super) struct Arguments {
    /// The directory.
    #[arg(value_name = "DIR", value_hint = ValueHint::DirPath)]
    directory: PathBuf,
    /// Where to listen: a port, an address with a port, or unix:PATH. Unless it is said, 127.0.0.1:8080; with --domain 443.
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<String>,
    /// Where the dashboard is: an address with a port, or off. Unless it is said, a free port of 127.0.0.1.
    #[arg(long, value_name = "ADDRESS|off")]
    dashboard: Option<String>,
    /// Speaks HTTPS and HTTP/2, with a certificate that is made now and that clients are warned of.
    #[arg(long, conflicts_with = "domain")]
    tls: bool,
    #[command(flatten)]
    domain: DomainArguments,
    /// Lists directories that have no index file.
    #[arg(long)]
    autoindex: bool,
    /// Prints the configuration that this stands for, and leaves.
    #[arg(long)]
    print_config: bool,
}

/// Runs `freewheel serve` with these arguments (the word `serve` first).
pub(super) fn run(args: &[OsString], modules: Modules) -> ExitCode {
    let arguments: Arguments = match made::arguments(args) {
        Ok(arguments) => arguments,
        Err(code) => return code,
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
    let site = match Site::new(&arguments.domain, arguments.listen.as_deref()) {
        Ok(site) => site,
        Err(sentence) => return refuse(&sentence),
    };
    let urls = match site.urls() {
        Ok(urls) => with_scheme(urls, arguments.tls),
        Err(sentence) => return refuse(&sentence),
    };
    let dashboard = match Dashboard::find(arguments.dashboard.as_deref()) {
        Ok(dashboard) => dashboard,
        Err(sentence) => return refuse(&sentence),
    };
    if arguments.print_config {
        return match configuration(&arguments, &directory, (&site, &dashboard), &lasting_pid()) {
            Ok(text) => super::printing::tell(text),
            Err(sentence) => refuse(&sentence),
        };
    }
    serve_it(&arguments, &directory, (&site, &dashboard), &urls, modules)
}

/// URLs of HTTP, with the scheme of what is served.
fn with_scheme(urls: Vec<String>, is_tls: bool) -> Vec<String> {
    let https = |url: String| match (is_tls, url.strip_prefix("http://")) {
        (true, Some(rest)) => format!("https://{rest}"),
        _ => url,
    };
    urls.into_iter().map(https).collect()
}

/// Serves it.
fn serve_it(
    arguments: &Arguments,
    directory: &Path,
    (site, dashboard): (&Site, &Dashboard),
    urls: &[String],
    modules: Modules,
) -> ExitCode {
    let mut greeting: String = urls
        .iter()
        .map(|url| format!("Serving {} at {url}\n", directory.display()))
        .collect();
    if !arguments.autoindex && !directory.join("index.html").exists() {
        greeting.push_str("It has no index.html; --autoindex lists what is there\n");
    }
    greeting.push_str(&site.greeting());
    greeting.push_str(&dashboard.greeting());
    if let Err(sentence) = site.make_state() {
        return refuse(&sentence);
    }
    made::serve(
        &|pid| configuration(arguments, directory, (site, dashboard), pid),
        (greeting, dashboard),
        modules,
    )
}

/// The configuration that the arguments stand for.
fn configuration(
    arguments: &Arguments,
    directory: &Path,
    (site, dashboard): (&Site, &Dashboard),
    pid: &Path,
) -> Result<String, String> {
    let (zone, dashboard) = (dashboard.zone(), dashboard.server());
    let root = quoted_for_variables(directory)?;
    let pid = quoted(pid)?;
    let (issuer, own) = (site.issuer()?, site.server()?);
    let log = made::log();
    let dollar = made::dollar(&[&root]);
    let autoindex = if arguments.autoindex {
        "        autoindex on;\n"
    } else {
        ""
    };
    let (ssl, certificate) = match arguments.tls {
        true => (" ssl", first_certificate::directives()?),
        false => (site.ssl(), String::new()),
    };
    let listen = quoted(Path::new(site.listen()))?;
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

{dollar}{issuer}    server {{
        listen {listen}{ssl};
{own}{certificate}{zone}        root {root};
        index index.html;
{autoindex}    }}
{dashboard}}}
"
    ))
}

/// The file that is installed beside a configuration.
const TYPES: &str = include_str!("../../mime.types");

#[cfg(test)]
mod tests {
    use super::super::made::urls;
    use super::*;

    fn text(args: &[&str]) -> String {
        let arguments = Arguments::try_parse_from(args).unwrap();
        let site = Site::new(&arguments.domain, arguments.listen.as_deref()).unwrap();
        configuration(
            &arguments,
            &arguments.directory,
            (
                &site,
                &Dashboard::find(arguments.dashboard.as_deref()).unwrap(),
            ),
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
    fn with_tls_it_has_a_certificate_and_another_scheme() {
        let text = text(&["serve", "/srv", "--tls"]);
        assert!(text.contains("listen 127.0.0.1:8080 ssl;") && text.contains("http2 on;"));
        config::parse_bytes(text.as_bytes()).unwrap();
        let urls = with_scheme(urls("0.0.0.0:80").unwrap(), true);
        assert_eq!(urls, ["https://localhost:80/"]);
    }

    #[test]
    fn every_path_is_one_word_of_the_language() {
        assert_eq!(quoted(Path::new("/a;b")).unwrap(), "\"/a;b\"");
        assert_eq!(quoted(Path::new("/a\"\\n")).unwrap(), "\"/a\\\"\\\\n\"");
        assert_eq!(quoted(Path::new("/a$b")).unwrap(), "\"/a$b\"");
        let path = quoted_for_variables(Path::new("/a$b")).unwrap();
        assert_eq!(path, "\"/a${dollar}b\"");
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
