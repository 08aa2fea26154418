//! The load that a program which counts is trained with: the ways that most requests of most servers go, each for some seconds.
//!
//! Invariant: a request that is not answered as it should be ends the training: a profile of error pages would be worse than none.

use super::COUNTS_FILE;
use crate::running::{self, Running};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rcgen::{CertificateParams, KeyPair};
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Time of one kind of load, in seconds.
const SECONDS: &str = "3";
/// Maximum time for the server to listen, and to end: with counters it is slow.
const PATIENCE: Duration = Duration::from_secs(60);
const TICK: Duration = Duration::from_millis(20);
/// Keys that are asked for once each: more than a load can ask for.
const ONCE: usize = 300_000;

/// Sizes in bytes of the files.
const SMALL: &[usize] = &[300, 1000, 4000, 10_000, 30_000];
const LARGE: &[usize] = &[200_000, 1 << 20];

/// Groups of clients, each with the list of its targets.
type Groups = &'static [(&'static str, &'static str)];

/// The kinds of load, each with what its connections speak.
const LOADS: &[(&[&str], Groups)] = &[
    (
        &[],
        &[
            ("connections=16", "small"),
            ("connections=4,fresh", "small"),
            ("connections=2", "large"),
        ],
    ),
    (
        &[],
        &[
            ("connections=16", "proxied"),
            ("connections=2", "proxied-large"),
        ],
    ),
    (
        &[],
        &[
            ("connections=16", "stored"),
            ("connections=4,fresh", "stored"),
        ],
    ),
    (
        &[],
        &[
            ("connections=8,order=turn", "once-files"),
            ("connections=8,order=turn", "once-segments"),
        ],
    ),
    (
        &["--tls"],
        &[
            ("connections=8", "small"),
            ("connections=2,fresh", "small"),
            ("connections=2", "large"),
            ("connections=4", "proxied"),
        ],
    ),
    (
        &["--tls", "--http2"],
        &[
            ("connections=8", "small"),
            ("connections=2,fresh", "small"),
            ("connections=2", "large"),
            ("connections=4", "proxied"),
            ("connections=4", "stored"),
        ],
    ),
];

/// Runs the program under each load; its counts are in files below `counts` then.
pub fn run(program: &Path, tools: &Path, counts: &Path) -> Result<(), String> {
    let directory = tempfile::Builder::new()
        .prefix("freewheel-training.")
        .tempdir()
        .map_err(|error| error.to_string())?;
    let [plain, secure, origin] = ports().map_err(|error| error.to_string())?;
    let _origin = begin_origin(&tools.join("origin"), origin)?;
    let place = directory.path();
    prepare(place, [plain, secure, origin]).map_err(|error| error.to_string())?;
    let mut server = begin(program, place, plain, counts)?;
    for (flags, groups) in LOADS {
        let port = if flags.is_empty() { plain } else { secure };
        load(&tools.join("load"), flags, port, groups, place)?;
    }
    end(&mut server.0)
}

fn ports() -> std::io::Result<[u16; 3]> {
    let listeners = [(); 3].map(|()| TcpListener::bind("127.0.0.1:0"));
    let mut ports = [0; 3];
    for (port, listener) in ports.iter_mut().zip(listeners) {
        *port = listener?.local_addr()?.port();
    }
    Ok(ports)
}

fn begin_origin(program: &Path, port: u16) -> Result<Running, String> {
    let failed = |error: std::io::Error| format!("{}: {error}", program.display());
    let mut command = Command::new(program);
    command
        .arg(format!("127.0.0.1:{port}"))
        .stdout(Stdio::piped());
    let mut origin = Running(command.spawn().map_err(failed)?);
    let mut line = String::new();
    let output = origin.0.stdout.take().ok_or("the origin has no output")?;
    BufReader::new(output)
        .read_line(&mut line)
        .map_err(failed)?;
    match line.trim() {
        "ready" => Ok(origin),
        said => Err(format!("the origin says {said:?}")),
    }
}

/// Files, certificates, lists of targets, and the configuration.
fn prepare(place: &Path, [plain, secure, origin]: [u16; 3]) -> std::io::Result<()> {
    for name in ["html", "logs", "files", "segments"] {
        std::fs::create_dir(place.join(name))?;
    }
    for size in SMALL.iter().chain(LARGE) {
        std::fs::write(place.join(format!("html/{size}")), vec![b'x'; *size])?;
    }
    let key = KeyPair::generate().map_err(std::io::Error::other)?;
    let certificate = CertificateParams::new(vec!["localhost".to_owned()])
        .and_then(|params| params.self_signed(&key))
        .map_err(std::io::Error::other)?;
    std::fs::write(place.join("key.pem"), key.serialize_pem())?;
    std::fs::write(place.join("certificate.pem"), certificate.pem())?;
    let list = |name: &str, targets: Vec<String>| {
        std::fs::write(place.join(name), targets.join("\n") + "\n")
    };
    let files = |sizes: &[usize]| sizes.iter().map(|size| format!("/{size}")).collect();
    let some = |prefix: &str| (0..50).map(|key| format!("{prefix}/{key}")).collect();
    let once = |cache: &str| {
        let size = |key: usize| if key.is_multiple_of(4) { 16_384 } else { 1024 };
        let keys = 0..ONCE;
        keys.map(|key| format!("/{cache}/{},age=3600/once-{key}", size(key)))
            .collect()
    };
    list("small", files(SMALL))?;
    list("large", files(LARGE))?;
    let proxied: [Vec<String>; 2] = [some("/proxy/1024"), some("/proxy/4096,chunked")];
    list("proxied", proxied.concat())?;
    list("proxied-large", some("/proxy/65536"))?;
    let stored: [Vec<String>; 3] = [
        some("/files/4096,age=3600"),
        some("/segments/1024,age=3600"),
        some("/segments/65536,age=3600"),
    ];
    list("stored", stored.concat())?;
    list("once-files", once("files"))?;
    list("once-segments", once("segments"))?;
    let text = configuration(place, plain, secure, origin);
    std::fs::write(place.join("nginx.conf"), text)
}

fn configuration(place: &Path, plain: u16, secure: u16, origin: u16) -> String {
    let place = place.display();
    let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|name| format!("{name}_temp_path {place}/{name};\n"))
        .concat();
    format!(
        "daemon off; master_process off; user root; pid {place}/pid; error_log {place}/logs/error.log;\n\
         events {{ worker_connections 1024; }}\n\
         http {{ {temporary} access_log {place}/logs/access.log combined; root {place}/html; sendfile on; tcp_nopush on; keepalive_requests 1000000;\n\
         ssl_certificate {place}/certificate.pem; ssl_certificate_key {place}/key.pem;\n\
         proxy_cache_path {place}/files keys_zone=files:64m max_size=2g levels=1:2;\n\
         proxy_cache_path {place}/segments keys_zone=segments:64m max_size=2g store=segments;\n\
         upstream origin {{ server 127.0.0.1:{origin}; keepalive 32; }}\n\
         proxy_http_version 1.1; proxy_set_header Connection \"\"; proxy_set_header Host $host; proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;\n\
         server {{ listen 127.0.0.1:{plain}; listen 127.0.0.1:{secure} ssl; http2 on;\n\
         location /proxy/ {{ proxy_pass http://origin/; }}\n\
         location /files/ {{ proxy_cache files; proxy_pass http://origin/; }}\n\
         location /segments/ {{ proxy_cache segments; proxy_pass http://origin/; }} }} }}\n"
    )
}

fn begin(program: &Path, place: &Path, port: u16, counts: &Path) -> Result<Running, String> {
    let server = Command::new(program)
        .arg("-p")
        .arg(place)
        .args(["-c", "nginx.conf", "-e", "logs/error.log"])
        .env(COUNTS_FILE, counts.join("%m.profraw"))
        .spawn()
        .map_err(|error| format!("{}: {error}", program.display()))?;
    let mut server = Running(server);
    running::listens(&mut server.0, port, PATIENCE, || {
        std::fs::read_to_string(place.join("logs/error.log")).unwrap_or_default()
    })?;
    Ok(server)
}

/// Ends it in good order, since it writes its counts then.
fn end(server: &mut Child) -> Result<(), String> {
    let pid = i32::try_from(server.id()).map_err(|error| error.to_string())?;
    kill(Pid::from_raw(pid), Signal::SIGTERM).map_err(|error| error.to_string())?;
    let deadline = Instant::now() + PATIENCE;
    loop {
        match server.try_wait() {
            Ok(Some(status)) if status.success() => return Ok(()),
            Ok(Some(status)) => return Err(format!("the server ended with {status}")),
            Err(error) => return Err(error.to_string()),
            Ok(None) if Instant::now() > deadline => return Err("the server does not end".into()),
            Ok(None) => std::thread::sleep(TICK),
        }
    }
}

/// One kind of load, to its end.
fn load(
    program: &Path,
    flags: &[&str],
    port: u16,
    groups: Groups,
    place: &Path,
) -> Result<(), String> {
    let mut command = Command::new(program);
    command
        .args(flags)
        .args(["run", &format!("127.0.0.1:{port}"), SECONDS]);
    for (index, (group, targets)) in groups.iter().enumerate() {
        let targets: PathBuf = place.join(targets);
        command.arg(format!(
            "name={index},{group},targets={}",
            targets.display()
        ));
    }
    let output = command
        .output()
        .map_err(|error| format!("{}: {error}", program.display()))?;
    let said = String::from_utf8_lossy(&output.stdout);
    let figures: serde_json::Value = serde_json::from_str(&said).map_err(|error| {
        format!(
            "the load: {error}: {}",
            String::from_utf8_lossy(&output.stderr)
        )
    })?;
    for (index, (_, targets)) in groups.iter().enumerate() {
        let group = &figures[index.to_string()];
        let what = [flags, &[*targets]].concat().join(" ");
        println!("{what}: {}", group["statuses"]);
        if !is_well(group) {
            return Err(format!(
                "{targets}: statuses {}, failures {}",
                group["statuses"], group["failures"]
            ));
        }
    }
    Ok(())
}

/// Whether there are answers, and all of them are as wanted.
fn is_well(group: &serde_json::Value) -> bool {
    let is_200 =
        |statuses: &serde_json::Map<_, _>| statuses.len() == 1 && statuses.contains_key("200");
    let is_zero = |count: &serde_json::Value| count.as_u64() == Some(0);
    let has_none = |failures: &serde_json::Map<_, _>| failures.values().all(is_zero);
    group["statuses"].as_object().is_some_and(is_200)
        && group["failures"].as_object().is_some_and(has_none)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn only_answers_that_are_wanted_are_well() {
        let group =
            |statuses, failures| is_well(&json!({"statuses": statuses, "failures": failures}));
        assert!(group(json!({"200": 3}), json!({})));
        assert!(group(json!({"200": 3}), json!({"cut": 0})));
        assert!(!group(json!({"200": 3}), json!({"cut": 1})));
        assert!(!group(json!({"200": 3, "404": 1}), json!({})));
        assert!(!group(json!({}), json!({})));
        assert!(!is_well(&json!(null)));
    }

    #[test]
    fn each_load_has_its_targets() {
        let directory = tempfile::tempdir().unwrap();
        prepare(directory.path(), [1, 2, 3]).unwrap();
        for (_, groups) in LOADS {
            for (_, targets) in *groups {
                let text = std::fs::read_to_string(directory.path().join(targets)).unwrap();
                assert!(
                    text.lines().all(|target| target.starts_with('/')),
                    "{targets}"
                );
            }
        }
    }
}
