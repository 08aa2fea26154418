//! `freewheel proxy ORIGIN --cache DIR[,DIR…]`: a caching reverse proxy, without a configuration.
//!
//! Generates a configuration text and serves that, in the foreground. Each directory has a cache and a thread pool of
//! its own, so that no disk delays requests for another; keys are spread over them by `split_clients`.
//!
//! Not here: what the directives mean. Invariant: `--print-config` prints what would be served.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Parser, ValueHint};

use super::domain::{DomainArguments, Site};
use super::made::{Dashboard, lasting_pid, quoted, quoted_for_variables, refuse};
use crate::command_line::made;
use httpcore::handler::Modules;

/// Maximum number of directories of one proxy.
const DIRECTORIES_MAX: usize = 64;
/// The whole of `split_clients`, in hundredths of a percent.
const WHOLE: usize = 10_000;

/// Passes requests on to an origin and caches its responses on disks, without a configuration.
#[derive(Debug, Parser)]
#[command(name = "freewheel proxy", bin_name = "freewheel proxy")]
pub(super) struct Arguments {
    /// The origin: http[s]://HOST[:PORT][/PATH], or HOST[:PORT]. With a path, /a is fetched from PATH/a.
    origin: String,
    /// The directories of the cache, one for each disk. They are made if they are not there.
    #[arg(long, value_name = "DIR", value_delimiter = ',', required = true, value_hint = ValueHint::DirPath)]
    cache: Vec<PathBuf>,
    /// Maximum size of each directory.
    #[arg(long, value_name = "SIZE", default_value = "10g")]
    max_size: String,
    /// How long an answer of status 200, 301 or 302 is fresh that does not say so itself, such as 10m. Unless it is said, such an answer is not stored.
    #[arg(long, value_name = "TIME")]
    valid: Option<String>,
    /// Where to listen: a port, an address with a port, or unix:PATH. Unless it is said, 127.0.0.1:8080; with --domain 443.
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<String>,
    #[command(flatten)]
    domain: DomainArguments,
    /// Where the dashboard is: an address with a port, or off. Unless it is said, a free port of 127.0.0.1.
    #[arg(long, value_name = "ADDRESS|off")]
    dashboard: Option<String>,
    /// Prints the configuration that this stands for, and leaves.
    #[arg(long)]
    print_config: bool,
}

/// Runs `freewheel proxy` with these arguments (the word `proxy` first).
pub(super) fn run(args: &[OsString], modules: Modules) -> ExitCode {
    let arguments: Arguments = match made::arguments(args) {
        Ok(arguments) => arguments,
        Err(code) => return code,
    };
    let site = match Site::new(&arguments.domain, arguments.listen.as_deref()) {
        Ok(site) => site,
        Err(sentence) => return refuse(&sentence),
    };
    let urls = match site.urls() {
        Ok(urls) => urls,
        Err(sentence) => return refuse(&sentence),
    };
    let dashboard = match Dashboard::find(arguments.dashboard.as_deref()) {
        Ok(dashboard) => dashboard,
        Err(sentence) => return refuse(&sentence),
    };
    if arguments.print_config {
        return match configuration(&arguments, (&site, &dashboard), &lasting_pid()) {
            Ok(text) => super::printing::tell(text),
            Err(sentence) => refuse(&sentence),
        };
    }
    let line = |url: &String| format!("Serving {} at {url}\n", arguments.origin);
    let greeting: String = urls
        .iter()
        .map(line)
        .chain([site.greeting(), dashboard.greeting()])
        .collect();
    if let Err(sentence) = site.make_state() {
        return refuse(&sentence);
    }
    made::serve(
        &|pid| configuration(&arguments, (&site, &dashboard), pid),
        (greeting, &dashboard),
        modules,
    )
}

/// The origin as `proxy_pass` takes it. Its path ends with a slash, since it stands for the slash of `location /`:
/// `http://a/b` would make `/bc` of `/c`.
fn origin(text: &str) -> Result<String, String> {
    let origin = match text.split_once("://") {
        None => format!("http://{text}"),
        Some(("http", rest)) if !rest.is_empty() => text.to_owned(),
        Some(("https", rest)) if !rest.is_empty() => text.to_owned(),
        Some(_) => return Err(format!("{text}: an origin begins with http:// or https://")),
    };
    let authority = origin.split_once("://").map_or("", |(_, rest)| rest);
    let path = authority.split_once('/').map_or("", |(_, path)| path);
    let is_cut = !path.is_empty() && !path.ends_with('/') && !path.contains('?');
    let slash = match is_cut && !authority.starts_with("unix:") {
        true => "/",
        false => "",
    };
    quoted_for_variables(Path::new(&format!("{origin}{slash}")))
}

/// Files in which distributions keep the authorities that they trust.
const AUTHORITIES: [&str; 3] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
];

/// The lines for an origin that speaks TLS: its certificate has to come from an authority of this machine.
#[expect(
    clippy::disallowed_methods,
    reason = "the command line runs before any loop"
)]
fn tls(origin: &str) -> Result<String, String> {
    if !origin.contains("https://") {
        return Ok(String::new());
    }
    let mut known = AUTHORITIES.iter().filter(|path| Path::new(path).exists());
    let file = known.next().ok_or_else(|| {
        let names = AUTHORITIES.join(", ");
        format!("{origin}: its certificate cannot be judged, since there is none of {names}")
    })?;
    Ok(format!(
        "
            proxy_ssl_server_name on;
            proxy_ssl_verify on;
            proxy_ssl_verify_depth 5;
            proxy_ssl_trusted_certificate {file};"
    ))
}

/// The configuration's parts for each directory.
struct Disks {
    pools: String,
    caches: String,
    spread: String,
    /// `_$disk`, or `_1`.
    suffix: &'static str,
}

fn disks(arguments: &Arguments) -> Result<Disks, String> {
    let directories = &arguments.cache;
    if directories.len() > DIRECTORIES_MAX {
        return Err(format!("more than {DIRECTORIES_MAX} directories"));
    }
    let is_size = config::parse_offset(arguments.max_size.as_bytes()).is_some_and(|size| size > 0);
    if !is_size {
        return Err(format!("{}: no size, such as 10g", arguments.max_size));
    }
    let mut disks = Disks {
        pools: String::new(),
        caches: String::new(),
        spread: String::new(),
        suffix: if directories.len() > 1 {
            "_$disk"
        } else {
            "_1"
        },
    };
    let share = WHOLE / directories.len();
    for (index, directory) in directories.iter().enumerate() {
        let number = index + 1;
        let path = std::path::absolute(directory)
            .map_err(|error| format!("{}: {error}", directory.display()))?;
        let path = quoted(&path)?;
        // A String takes all that is written.
        let _ = writeln!(disks.pools, "thread_pool disk_{number} threads=32;");
        let _ = writeln!(
            disks.caches,
            "    proxy_cache_path {path} levels=1:2 keys_zone=cache_{number}:64m max_size={} inactive=30d use_temp_path=off;",
            arguments.max_size
        );
        let part = match number == directories.len() {
            true => "*".to_owned(),
            false => format!("{}.{:02}%", share / 100, share % 100),
        };
        let _ = writeln!(disks.spread, "        {part} {number};");
    }
    disks.spread = match directories.len() {
        1 => String::new(),
        _ => format!(
            "    split_clients $request_uri $disk {{\n{}    }}\n",
            disks.spread
        ),
    };
    Ok(disks)
}

/// The lines for the lifetime of responses that name none.
fn valid(time: Option<&str>) -> Result<String, String> {
    match time {
        None => Ok("; what says nothing is not stored (--valid TIME):\n            # proxy_cache_valid 200 301 302 10m;".to_owned()),
        Some(time) if config::parse_sec(time.as_bytes()).is_some() => {
            Ok(format!(", and of what says nothing this line:\n            proxy_cache_valid 200 301 302 {time};"))
        }
        Some(time) => Err(format!("--valid {time}: no time, such as 10m or 1d")),
    }
}

/// The cache's outcome for a request (RFC 9211), and the reason why a response is not stored: `no lifetime`,
/// `Set-Cookie`, …
const CACHE_STATUS: &str =
    "    # Cache-Status (RFC 9211): what the cache did, and why an answer is not stored.
    map $upstream_cache_refusal $cache_stored {
        \"\"      \"; stored\";
        default \"; detail=\\\"not stored: $upstream_cache_refusal\\\"\";
    }
    map $upstream_cache_status $cache_status {
        HIT         \"freewheel; hit\";
        STALE       \"freewheel; hit; detail=stale\";
        UPDATING    \"freewheel; hit; detail=updating\";
        REVALIDATED \"freewheel; hit; detail=revalidated\";
        MISS        \"freewheel; fwd=uri-miss$cache_stored\";
        EXPIRED     \"freewheel; fwd=stale$cache_stored\";
        default     \"freewheel; fwd=method\";
    }
";

/// The configuration that the arguments stand for.
fn configuration(
    arguments: &Arguments,
    (site, dashboard): (&Site, &Dashboard),
    pid: &Path,
) -> Result<String, String> {
    let (zone, dashboard) = (dashboard.zone(), dashboard.server());
    let origin = origin(&arguments.origin)?;
    let tls = tls(&origin)?;
    let pid = quoted(pid)?;
    let (issuer, own, ssl) = (site.issuer()?, site.server()?, site.ssl());
    let listen = quoted(Path::new(site.listen()))?;
    let log = made::log();
    let Disks {
        pools,
        caches,
        spread,
        suffix,
    } = disks(arguments)?;
    let dollar = made::dollar(&[&origin]);
    let valid = valid(arguments.valid.as_deref())?;
    Ok(format!(
        "daemon off;
worker_processes auto;
error_log stderr warn;
pid {pid};
{pools}
events {{
    worker_connections 1024;
}}

http {{
{log}
    sendfile on;
    tcp_nopush on;
    keepalive_timeout 75s;

{dollar}{caches}{spread}
{CACHE_STATUS}
{issuer}    server {{
        listen {listen}{ssl};
{own}{zone}
        location / {{
            proxy_pass {origin};{tls}
            proxy_cache cache{suffix};
            aio threads=disk{suffix};

            # How long an answer is fresh, the origin says{valid}
            proxy_cache_lock on;
            proxy_cache_revalidate on;
            proxy_cache_background_update on;
            proxy_cache_use_stale error timeout invalid_header updating http_500 http_502 http_503 http_504;
            add_header X-Cache-Status $upstream_cache_status;
            add_header Cache-Status $cache_status always;
        }}
    }}
{dashboard}}}
"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(args: &[&str]) -> Result<String, String> {
        let arguments = Arguments::try_parse_from(args).unwrap();
        let site = Site::new(&arguments.domain, arguments.listen.as_deref())?;
        configuration(
            &arguments,
            (&site, &Dashboard::find(arguments.dashboard.as_deref())?),
            Path::new("/run/freewheel.pid"),
        )
    }

    #[test]
    fn one_disk_has_one_cache_and_one_pool() {
        let one = text(&["proxy", "a.example:81", "--cache", "/x y"]).unwrap();
        assert!(one.contains("proxy_pass http://a.example:81;"));
        assert!(one.contains("proxy_cache_path \"/x y\" ") && one.contains("max_size=10g"));
        assert!(one.contains("proxy_cache cache_1;") && !one.contains("split_clients"));
        config::parse_bytes(one.as_bytes()).unwrap();
        let dollar = text(&["proxy", "a", "--cache", "/c$x"]).unwrap();
        assert!(dollar.contains("proxy_cache_path \"/c$x\" ") && !dollar.contains("$dollar"));
    }

    #[test]
    fn a_path_of_the_origin_stands_for_the_root() {
        for (origin, wanted) in [
            ("http://a", "http://a;"),
            ("http://a/", "http://a/;"),
            ("http://a/b", "http://a/b/;"),
            ("https://a:1/b/c/", "https://a:1/b/c/;"),
            ("http://a/b?c=", "\"http://a/b?c=\";"),
            ("http://unix:/run/a", "http://unix:/run/a;"),
            ("http://a/$b", "\"http://a/${dollar}b/\";"),
        ] {
            let text = super::origin(origin).unwrap();
            assert_eq!(format!("{text};"), wanted);
        }
    }

    #[test]
    fn several_disks_are_spread_over() {
        let line = [
            "proxy",
            "http://a",
            "--cache",
            "/a,/b,/c",
            "--max-size",
            "1024g",
        ];
        let three = text(&line).unwrap();
        assert!(three.contains("33.33% 1;\n        33.33% 2;\n        * 3;"));
        assert!(
            three.contains("aio threads=disk_$disk;")
                && three.contains("keys_zone=cache_3:64m max_size=1024g")
        );
        config::parse_bytes(three.as_bytes()).unwrap();
    }

    #[test]
    fn what_cannot_be_is_refused() {
        for line in [
            ["proxy", "ftp://a", "--cache", "/a", "--max-size", "1g"],
            ["proxy", "a", "--cache", "/a", "--max-size", "much"],
            ["proxy", "a", "--cache", "/a", "--valid", "soon"],
        ] {
            assert!(text(&line).is_err(), "{line:?}");
        }
        assert!(Arguments::try_parse_from(["proxy", "a"]).is_err());
    }
}
