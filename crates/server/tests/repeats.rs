//! What may stand twice at one level: every directive that is built and that nginx has, two lines of it in each of its contexts, beside
//! what nginx 1.31.5 says of the same (`repeats/nginx.txt`, which `cargo xtask repeats` compares with a peer, or writes).
//!
//! Not here: what the lines mean, once they may stand there. Invariant: no directive is left out without a word; one without
//! arguments in `repeats/lines.txt` is a fault.
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "tests run on no loop"
)]

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use config::{Context, DirectiveEntry, known};
use server::process::load::{self, Origin};
use server::process::source;
use server::settings::circumstances::Circumstances;

const LINES: &str = include_str!("repeats/lines.txt");
/// nginx to compare with, and whether what it says is written down. `cargo xtask repeats` sets them.
const NGINX: &str = "FREEWHEEL_REPEATS_NGINX";
const RECORD: &str = "FREEWHEEL_REPEATS_RECORD";
/// Where servers of the peer would listen; nothing does, since all is a test of configurations.
const PORTS: [(&str, &str); 3] = [
    ("%PORT%", "18971"),
    ("%PORT2%", "18972"),
    ("%PORT3%", "18973"),
];
/// The families that have the directives of `proxy_`.
const FAMILIES: [&str; 4] = ["fastcgi_", "uwsgi_", "scgi_", "grpc_"];
/// Left out, each with its reason.
const LEFT_OUT: [(&str, &str); 1] = [("load_module", "the peer would need the file")];
/// What stands in every configuration, for lines that name it.
const SURROUNDINGS: &str = "proxy_cache_path cache/c keys_zone=c:1m; fastcgi_cache_path cache/f keys_zone=f:1m; \
    uwsgi_cache_path cache/u keys_zone=u:1m; scgi_cache_path cache/s keys_zone=s:1m; limit_req_zone $uri zone=r:1m rate=1r/s; \
    limit_req_zone $uri zone=r2:1m rate=1r/s; limit_conn_zone $uri zone=n:1m; limit_conn_zone $uri zone=n2:1m; log_format c c;";

/// Two lines of a directive in a context.
struct Pair {
    name: &'static str,
    context: Context,
    text: String,
}

/// What a server says of a configuration: nothing, or why it refuses it.
type Said = Result<(), String>;

fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/repeats")
}

/// The arguments of each name.
fn arguments() -> BTreeMap<&'static str, Vec<&'static str>> {
    let lines = LINES.lines().filter(|line| !line.starts_with('#'));
    lines
        .map(|line| {
            let (name, arguments) = line.split_once(':').unwrap();
            (name, arguments.split(" | ").map(str::trim).collect())
        })
        .collect()
}

fn arguments_of(
    all: &BTreeMap<&'static str, Vec<&'static str>>,
    entry: &DirectiveEntry,
    context: Context,
) -> Vec<&'static str> {
    if entry.args.is_flag() {
        return vec!["on", "off"];
    }
    let of_family = FAMILIES
        .iter()
        .find_map(|family| entry.name.strip_prefix(family));
    let names = [
        format!("{context}/{}", entry.name),
        entry.name.to_owned(),
        format!("proxy_{}", of_family.unwrap_or("?")),
    ];
    let found = names.iter().find_map(|name| all.get(name.as_str()));
    found
        .unwrap_or_else(|| panic!("{} has no arguments in lines.txt", entry.name))
        .clone()
}

/// A configuration with these lines in this context.
fn around(context: Context, lines: &str) -> String {
    let server = |inside: &str| {
        format!(
            "events {{}} http {{ {SURROUNDINGS} server {{ listen 127.0.0.1:%PORT%; {inside} }} }}"
        )
    };
    let text = match context {
        Context::MAIN if lines.starts_with("events") => format!("{lines} http {{}}"),
        Context::MAIN => format!("{lines} events {{}}"),
        Context::EVENTS => format!("events {{ {lines} }} http {{}}"),
        Context::HTTP => format!("events {{}} http {{ {SURROUNDINGS} {lines} }}"),
        Context::SERVER => server(lines),
        Context::SERVER_IF => server(&format!("if ($uri) {{ {lines} }}")),
        Context::LOCATION => server(&format!("location /l {{ {lines} }}")),
        Context::LOCATION_IF => server(&format!("location /l {{ if ($uri) {{ {lines} }} }}")),
        Context::LIMIT_EXCEPT => {
            server(&format!("location /l {{ limit_except GET {{ {lines} }} }}"))
        }
        Context::UPSTREAM if lines.starts_with("server") => {
            format!("events {{}} http {{ upstream u {{ {lines} }} }}")
        }
        Context::UPSTREAM => {
            format!("events {{}} http {{ upstream u {{ {lines} server 127.0.0.1:1; }} }}")
        }
        other => panic!("no configuration is made for {other}"),
    };
    PORTS
        .iter()
        .fold(text, |text, (name, port)| text.replace(name, port))
}

fn line(name: &str, arguments: &str) -> String {
    let end = if arguments.ends_with('}') { "" } else { ";" };
    format!("{name} {arguments}{end} ")
}

/// Every directive twice, in each of its contexts, with each two of its arguments; and once, first of all.
fn pairs() -> Vec<Pair> {
    let all = arguments();
    let mut pairs = Vec::new();
    for entry in server::process::tables()
        .iter()
        .flat_map(|table| &table.entries)
    {
        let is_left_out = LEFT_OUT.iter().any(|(name, _)| *name == entry.name);
        for (context, _) in Context::NAMES {
            let is_nginx_s = known::find_in(entry.name.as_bytes(), *context).is_some();
            if !entry.contexts.meets(*context) || !is_nginx_s || is_left_out {
                continue;
            }
            let arguments = arguments_of(&all, entry, *context);
            let mut add = |lines: String| {
                pairs.push(Pair {
                    name: entry.name,
                    context: *context,
                    text: around(*context, &lines),
                });
            };
            for first in &arguments {
                add(line(entry.name, first));
                for second in &arguments {
                    add(line(entry.name, first) + &line(entry.name, second));
                }
            }
        }
    }
    pairs
}

fn ours(pair: &Pair) -> Said {
    let root = PathBuf::from("/tmp/nginx.conf");
    let mut source = source::Files {
        instead: Some((root.clone(), pair.text.clone().into_bytes())),
    };
    let origin = Origin {
        prefix: PathBuf::from("/tmp/"),
        root,
        globals: None,
    };
    let loaded = load::load(&origin, &Circumstances::here(), &mut source, &[]);
    loaded
        .map(drop)
        .map_err(|refused| refused.error.sentence().to_owned())
}

/// What nginx says of it, `-t`, in a directory of its own.
fn nginx_s(nginx: &Path, directory: &Path, pair: &Pair) -> Said {
    std::fs::write(directory.join("nginx.conf"), &pair.text).unwrap();
    let mut command = Command::new(nginx);
    command.arg("-p").arg(format!("{}/", directory.display()));
    let told = command
        .args(["-t", "-e", "stderr", "-c", "nginx.conf"])
        .output()
        .unwrap();
    if told.status.success() {
        return Ok(());
    }
    let told = String::from_utf8_lossy(&told.stderr).into_owned();
    let line = told.lines().find_map(|line| line.split_once("[emerg] "));
    Err(line
        .map_or(told.as_str(), |(_, sentence)| sentence)
        .to_owned())
}

/// A line for each directive and what is said of it: the contexts, and for each of its configurations `+` or, where it is refused, `-`.
fn written(pairs: &[Pair], said: &[Said]) -> String {
    let mut rows: BTreeMap<&str, Vec<(Context, String)>> = BTreeMap::new();
    for (pair, said) in pairs.iter().zip(said) {
        let rows = rows.entry(pair.name).or_default();
        if rows
            .last()
            .is_none_or(|(context, _)| *context != pair.context)
        {
            rows.push((pair.context, String::new()));
        }
        rows.last_mut()
            .unwrap()
            .1
            .push(if said.is_ok() { '+' } else { '-' });
    }
    let mut text = String::new();
    for (name, rows) in rows {
        let mut by_letters: BTreeMap<&str, Context> = BTreeMap::new();
        for (context, letters) in &rows {
            let contexts = by_letters.entry(letters).or_default();
            *contexts = *contexts | *context;
        }
        for (letters, contexts) in by_letters {
            let _ = writeln!(text, "{name} [{contexts}] {letters}");
        }
    }
    text
}

#[test]
fn what_may_stand_twice_is_what_may_in_nginx() {
    let pairs = pairs();
    let ours = pairs.iter().map(ours).collect::<Vec<_>>();
    let path = directory().join("nginx.txt");
    let recorded = std::fs::read_to_string(&path).unwrap_or_default();
    let Some(nginx) = std::env::var_os(NGINX) else {
        let written = written(&pairs, &ours);
        let differing: Vec<_> = written
            .lines()
            .filter(|line| !recorded.lines().any(|other| other == *line))
            .collect();
        assert!(
            differing.is_empty() && written == recorded,
            "not as recorded of nginx (cargo xtask repeats tells more): {differing:#?}"
        );
        return;
    };
    let directory = tempfile::tempdir().unwrap();
    for name in ["logs", "cache"] {
        std::fs::create_dir(directory.path().join(name)).unwrap();
    }
    let theirs: Vec<_> = pairs
        .iter()
        .map(|pair| nginx_s(Path::new(&nginx), directory.path(), pair))
        .collect();
    let mut faults = 0;
    for ((pair, ours), theirs) in pairs.iter().zip(&ours).zip(&theirs) {
        if ours.is_ok() != theirs.is_ok() {
            faults += 1;
            println!(
                "{}\n  nginx: {theirs:?}\n  ours: {ours:?}",
                pair.text.replace(SURROUNDINGS, "…")
            );
        }
    }
    let now = written(&pairs, &theirs);
    if std::env::var_os(RECORD).is_some() {
        std::fs::write(&path, now).unwrap();
    } else {
        assert!(
            now == recorded,
            "nginx does not say what is recorded: cargo xtask repeats --record"
        );
    }
    assert_eq!(faults, 0, "of {} configurations", pairs.len());
}
