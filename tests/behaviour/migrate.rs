//! `freewheel migrate`: one page about a configuration of nginx. Freewheel's own.
#![expect(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "tests: no event loop, and a failure is a panic"
)]

use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Command, Output};

use blackbox::{Site, binary, is_nginx};
use serde_json::Value;

fn migrate(path: &Path, more: &[&str]) -> Output {
    let mut command = Command::new(binary());
    command.arg("migrate").arg(path).args(more);
    command.output().unwrap()
}

fn report(site: &Site) -> (Option<i32>, Value) {
    let output = migrate(&site.path("nginx.conf"), &["--json"]);
    let value = serde_json::from_slice(&output.stdout).unwrap();
    (output.status.code(), value)
}

fn told(site: &Site) -> (Option<i32>, String) {
    let output = migrate(&site.path("nginx.conf"), &[]);
    let text = String::from_utf8(output.stdout).unwrap();
    (output.status.code(), text)
}

/// All files and directories below the site's directory.
fn names(site: &Site) -> Vec<String> {
    let mut all = Vec::new();
    let mut left = vec![site.path("")];
    while let Some(directory) = left.pop() {
        for entry in std::fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            all.push(path.display().to_string());
            if path.is_dir() {
                left.push(path);
            }
        }
    }
    all.sort();
    all
}

const SIMPLE: &str = "worker_processes 2;
error_log logs/e.log;
pid run/nginx.pid;
events { worker_connections 64; use epoll; }
http {
    types_hash_max_size 2048;
    sendfile on;
    aio threads;
    proxy_cache_path cache keys_zone=one:1m;
    upstream app { server 127.0.0.1:%PORT2%; }
    server {
        listen 127.0.0.1:%PORT%;
        server_name a;
        location / { root html; index index.html; }
        location /app { proxy_pass http://app; proxy_cache one; }
    }
}
";

#[test]
fn a_configuration_that_runs_is_told_so() {
    if is_nginx() {
        return;
    }
    let site = Site::new();
    site.configure(SIMPLE);
    let before = names(&site);
    let (status, report) = report(&site);
    assert_eq!(status, Some(0), "{report}");
    assert_eq!(names(&site), before, "nothing is made");
    assert_eq!(report["runs"], "unchanged");
    // It is relative: nginx's prefix is another one.
    assert!(report["different"]["root"].is_number());
    assert!(
        report["warnings"][0]
            .as_str()
            .unwrap()
            .contains("relative paths")
    );
    for same in ["index", "server_name", "location", "sendfile"] {
        assert!(report["same"][same].is_number(), "{same}: {report}");
    }
    // A difference is about them, so they are not told to be the same.
    for different in [
        "proxy_pass",
        "proxy_cache",
        "aio",
        "upstream",
        "worker_processes",
    ] {
        assert!(report["same"].get(different).is_none(), "{different}");
    }
    assert!(report["needless"]["types_hash_max_size"]["why"].is_string());
    let leads: Vec<_> = report["differences"].as_array().unwrap().iter().collect();
    let has = |lead: &str| leads.iter().any(|one| one["lead"] == lead);
    assert!(has("`Age` is calculated and sent.") && !has("`open_file_cache`"));
    let counted = ["same", "different", "needless", "ignored"]
        .iter()
        .flat_map(|kind| {
            let all = report[*kind].as_object().unwrap().values();
            all.map(|one| one.as_u64().or(one["count"].as_u64()).unwrap())
        });
    assert_eq!(counted.sum::<u64>(), report["directives"].as_u64().unwrap());
}

#[test]
fn all_faults_are_told_in_one_run() {
    if is_nginx() {
        return;
    }
    let site = Site::new();
    site.configure(
        "events { }
http {
    lua_package_path /x;
    js_set $fromjs main.f;
    gzip perhaps;
    memcached_connect_timeout soon;
    include missing.conf;
    server {
        listen 127.0.0.1:%PORT%;
        perl_set $x 'sub { }';
        return 200 $fromjs;
        location / { root html extra; modsecurity on; }
        location /b { autoindex maybe; expires 1h; }
    }
    server { listen 127.0.0.1:%PORT1% ssl; ssl_certificate none.pem; ssl_certificate_key none.key; }
}
stream { server { listen 1; proxy_pass x; } }
",
    );
    let (status, text) = told(&site);
    assert_eq!(status, Some(1), "{text}");
    let flat = text.split_whitespace().collect::<Vec<_>>().join(" ");
    for told in [
        "unknown directive \"lua_package_path\"",
        "unknown directive \"js_set\"",
        "in \"gzip\" directive",
        "missing.conf",
        "\"perl_set\"",
        "invalid number of arguments in \"root\" directive",
        "unknown directive \"modsecurity\"",
        "\"autoindex\"",
        "none.pem",
        "\"stream\"",
    ] {
        assert!(flat.contains(told), "{told}: {text}");
    }
    let (_, follows) = flat.split_once("Refers to what is refused").unwrap();
    assert!(follows.contains("unknown \"fromjs\" variable"), "{text}");
}

#[test]
fn what_needs_root_is_told_so() {
    if is_nginx() {
        return;
    }
    let site = Site::new();
    site.configure("events { } http { include secret.conf; }");
    site.secret("secret.conf", "server { }");
    // Root reads everything: then the file is judged.
    let (status, report) = report(&site);
    match nix::unistd::geteuid().is_root() {
        true => assert_eq!(status, Some(0), "{report}"),
        false => {
            assert_eq!(status, Some(3));
            assert!(
                report["unjudged"][0]
                    .as_str()
                    .unwrap()
                    .contains("needs root")
            );
        }
    }
}

#[test]
fn a_user_that_is_not_there_is_missing() {
    if is_nginx() {
        return;
    }
    for (line, sentence) in [
        ("user nosuchuser;", "getpwnam(\"nosuchuser\") failed"),
        ("user root nosuchgroup;", "getgrnam(\"nosuchgroup\") failed"),
    ] {
        let site = Site::new();
        site.configure(&format!("{line}\n{SIMPLE}"));
        let (status, report) = report(&site);
        assert_eq!(status, Some(3), "{report}");
        let missing = report["missing"][0].as_str().unwrap();
        assert!(
            missing.contains(sentence) && missing.ends_with("nginx.conf:1"),
            "{missing}"
        );
    }
}

#[test]
fn there_may_be_no_configuration() {
    if is_nginx() {
        return;
    }
    let site = Site::new();
    let output = migrate(&site.path("nowhere"), &[]);
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("No such file"));
    // A directory is that of the file.
    site.configure(SIMPLE);
    assert_eq!(migrate(&site.path(""), &[]).status.code(), Some(0));
    // 1 says that something is refused.
    assert_eq!(
        migrate(&site.path(""), &["--nonsense"]).status.code(),
        Some(2)
    );
}

#[test]
fn the_commands_of_the_trial_make_a_copy_that_is_accepted() {
    if is_nginx() {
        return;
    }
    let site = Site::new();
    let ports =
        "server { listen 127.0.0.1:%PORT1%; listen 127.0.0.1:%PORT2%; server_name a; } server {";
    let paths = "proxy_temp_path '/srv/temp' 1 2;\n    client_body_temp_path body;
    resolver 127.0.0.1;
    acme_issuer x { uri https://localhost/; state_path /srv/state; }
    server {";
    let text = SIMPLE.replacen("server {", paths, 1);
    site.configure(&text.replacen("server {\n", ports, 1));
    let (_, report) = report(&site);
    let lines = trial(&report);
    let copy = copied(&lines);
    let text = std::fs::read_to_string(format!("{copy}/nginx/nginx.conf")).unwrap();
    let before: Vec<_> = (0..3).map(|index| site.port(index)).collect();
    let after: BTreeSet<u16> = text
        .split("listen 127.0.0.1:")
        .skip(1)
        .map(|rest| rest.split(';').next().unwrap().parse().unwrap())
        .collect();
    assert!(
        after.len() == 3 && before.iter().all(|port| !after.contains(port)),
        "{text}"
    );
    let calls = lines.join("\n");
    assert!(
        calls.contains("prefix=$(nginx -V 2>&1 | ")
            && calls.matches(".conf -p \"$prefix\"").count() == 3,
        "{calls}"
    );
    assert!(text.contains(&format!("pid {copy}/pid;")), "{text}");
    assert!(
        text.contains(&format!("proxy_cache_path {copy}/cache0 keys_zone")),
        "{text}"
    );
    for line in [
        "proxy_temp_path %/temp0 1 2;",
        "client_body_temp_path %/temp1;",
        "state_path %/state0;",
    ] {
        let line = line.replace('%', &copy);
        assert!(text.contains(&line), "{line}: {text}");
    }
    assert!(
        calls.contains("# change by hand: the \"uri\" of \"acme_issuer\""),
        "{calls}"
    );
    std::fs::remove_dir_all(copy).unwrap();
}

/// The commands of the trial.
fn trial(report: &Value) -> Vec<&str> {
    let lines = report["steps"]["trial"].as_array().unwrap().iter();
    lines.map(|line| line.as_str().unwrap()).collect()
}

/// Runs the commands that make the copy of a trial; returns its directory.
fn copied(lines: &[&str]) -> String {
    let end = lines.iter().position(|line| line.ends_with("{} +"));
    let script = lines[..=end.unwrap()].join("\n") + "\necho \"$try\"";
    let output = Command::new("sh").args(["-ec", &script]).output().unwrap();
    assert!(output.status.success(), "{script}: {output:?}");
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

#[test]
fn a_second_trial_is_of_the_configuration_as_it_is_then() {
    if is_nginx() {
        return;
    }
    let site = Site::new();
    let below = site.path("it's here");
    std::fs::create_dir(&below).unwrap();
    let file = below.join("nginx.conf");
    let copies = ["one", "two"].map(|text| {
        let line = format!("add_header X {text};");
        let servers =
            format!("pid run/x.pid; events {{}} http {{ server {{ listen 80; {line} }} }}");
        std::fs::write(&file, servers).unwrap();
        let output = migrate(&below, &["--json"]);
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        let copy = copied(&trial(&report));
        let text = std::fs::read_to_string(format!("{copy}/nginx/nginx.conf")).unwrap();
        assert!(text.contains(&line), "{text}");
        assert!(text.contains(&format!("pid {copy}/pid;")), "{text}");
        copy
    });
    assert_ne!(copies[0], copies[1]);
    for copy in copies {
        std::fs::remove_dir_all(copy).unwrap();
    }
}

/// Checks the width of a text; commands may be longer.
fn is_narrow(text: &str) {
    let is_command = |line: &&str| line.starts_with("  ") && !line.starts_with("  -");
    let long = text.lines().filter(|line| line.chars().count() > 100);
    assert_eq!(long.filter(|line| !is_command(line)).count(), 0, "{text}");
}

#[test]
fn the_page_is_short() {
    if is_nginx() {
        return;
    }
    let site = Site::new();
    site.configure(SIMPLE);
    let (_, text) = told(&site);
    is_narrow(&text);
    let lines: Vec<_> = text.lines().collect();
    assert_eq!(lines[1], "It runs unchanged.", "{text}");
    assert!(lines.contains(&"To do:"), "{text}");
    let path = site.path("nginx.conf").display().to_string();
    assert!(text.contains(&format!("freewheel migrate --steps {path}")));
    // Each difference is a whole sentence with its first line, under the link to its section.
    let (_, differences) = text
        .split_once(" differences that this configuration meets")
        .unwrap();
    let (differences, _) = differences.split_once("\n\n").unwrap();
    let all = differences.matches("\n  - ").count();
    let (_, report) = report(&site);
    assert_eq!(all, report["differences"].as_array().unwrap().len());
    let links = differences.matches(": docs/differences.md#").count();
    assert!(differences.lines().count() <= 1 + 3 * all + links, "{text}");
    assert!(!differences.contains("… ["), "{text}");
    let flat = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        flat.contains("Caching: docs/differences.md#caching"),
        "{text}"
    );
    assert!(flat.contains("- Age is calculated and sent ["), "{text}");
    // The rest is elsewhere.
    for part in [
        "Gets better by itself:",
        "kill -USR2",
        "types_hash_max_size",
    ] {
        assert!(!text.contains(part), "{part}: {text}");
    }
}

#[test]
fn the_long_page_has_everything() {
    if is_nginx() {
        return;
    }
    let site = Site::new();
    site.configure(SIMPLE);
    let output = migrate(&site.path("nginx.conf"), &["--long"]);
    let text = String::from_utf8(output.stdout).unwrap();
    is_narrow(&text);
    for part in [
        "It runs unchanged.",
        "The same, beside",
        "Needs nothing here:\n  - types_hash_max_size (1)",
        "Gets better by itself:",
        "Differences that this configuration meets",
        "\nTo try it beside nginx:",
        "pid=$prefix/run/nginx.pid\n",
        "kill -USR2 \"$(cat \"$pid\")\"",
        "To go back:",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let output = migrate(&site.path("nginx.conf"), &["--steps"]);
    let steps = String::from_utf8(output.stdout).unwrap();
    assert!(
        steps.starts_with("To try it beside nginx:\n  try=$(mktemp -d "),
        "{steps}"
    );
    assert!(text.ends_with(&steps), "{text}");
    let output = migrate(&site.path("nginx.conf"), &["--steps", "--json"]);
    assert!(!output.status.success() && output.stdout.is_empty());
}
