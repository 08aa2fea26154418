//! Access logs as a configuration describes them.

use std::cell::RefCell;
use std::fs;

use config::{Scope, Section as _, VariableIndex};

use super::{Fixture, open};
use crate::directives::{AccessLog, LogFormats};
use crate::getaddrinfo::Hosts;
use crate::template::Variables;
use crate::{AccessLogs, ErrorLogs, Level, LogFiles};

/// A request that knows its variables by name.
struct Request<'a> {
    scope: &'a Scope,
    values: RefCell<Vec<(&'static str, &'static str)>>,
}

impl Variables for Request<'_> {
    fn variable(&self, index: VariableIndex, out: &mut Vec<u8>) -> bool {
        let name = self.scope.name_of(index);
        let values = self.values.borrow();
        let found = values.iter().find(|(known, _)| *known == name);
        found
            .inspect(|(_, value)| out.extend_from_slice(value.as_bytes()))
            .is_some()
    }

    fn capture(&self, _: u8, _: &mut Vec<u8>) {}
}

struct Configured {
    scope: Scope,
    logs: AccessLogs,
}

/// Reads, checks, opens and builds the access logs of a piece of configuration.
fn configure(fixture: &Fixture, configuration: &str) -> Result<Configured, String> {
    let mut scope = Scope::new();
    let mut raw = (
        <AccessLog as config::Section>::Raw::default(),
        <LogFormats as config::Section>::Raw::default(),
    );
    let tree = config::parse_bytes(configuration.as_bytes()).map_err(|error| error.to_string())?;
    let sentence = |error: config::Error| error.sentence().to_owned();
    for directive in &tree.directives {
        let known = AccessLog::set(&mut raw.0, directive, &mut scope).map_err(sentence)?
            || LogFormats::set(&mut raw.1, directive, &mut scope).map_err(sentence)?;
        assert!(known);
    }
    let section = AccessLog::finish(raw.0, &mut scope).map_err(sentence)?;
    let formats = LogFormats::finish(raw.1, &mut scope)
        .map_err(sentence)?
        .log_format;
    let mut files = LogFiles::new(fixture.directory.path(), &Hosts::default());
    files
        .add_access(&section.access_log, &formats)
        .map_err(sentence)?;
    for (path, buffer) in files.files() {
        fixture.logs.file(path, open(path), *buffer);
    }
    let errors = ErrorLogs::new(vec![(Level::Info, fixture.file("place.log", None))]);
    let logs = AccessLogs::build(&section, &formats, &files, &fixture.logs, &errors);
    let logs = logs.map_err(sentence)?;
    Ok(Configured { scope, logs })
}

impl Configured {
    fn request(&self, fixture: &Fixture, values: &[(&'static str, &'static str)]) {
        let request = Request {
            scope: &self.scope,
            values: RefCell::new(values.to_vec()),
        };
        let root = fixture
            .directory
            .path()
            .as_os_str()
            .as_encoded_bytes()
            .to_vec();
        let root = move |out: &mut Vec<u8>| match values.iter().find(|(name, _)| *name == "root") {
            None => out.extend_from_slice(&root),
            Some((_, path)) => out.extend_from_slice(path.as_bytes()),
        };
        fixture.on_loop(async |feed| self.logs.log(&feed, &request, &root).await);
        fixture.drain();
    }
}

#[test]
fn access_logs_of_a_configuration() {
    let fixture = Fixture::new();
    let formats = "log_format test '$uri:$status'; log_format long 'long line $uri';";
    let lines = "access_log multi1.log test; access_log multi1.log TEST; access_log multi2.log long if=$arg_a$arg_b;";
    let configured = configure(&fixture, &format!("{formats}{lines}")).unwrap();
    let uri = ("uri", "/multi");
    for values in [
        &[uri, ("status", "200")][..],
        &[uri, ("arg_a", "0")],
        &[uri, ("arg_a", "0"), ("arg_b", "0")],
    ] {
        configured.request(&fixture, values);
    }
    let twice = |line: &str| format!("{line}\n{line}\n");
    assert_eq!(
        fixture.read("multi1.log"),
        twice("/multi:200") + &twice("/multi:-") + &twice("/multi:-")
    );
    assert_eq!(
        fixture.read("multi2.log"),
        "long line /multi\n",
        "00 is true, 0 is not"
    );

    let off = configure(&fixture, "access_log x.log; access_log off;").unwrap();
    assert!(off.logs.is_off());
    off.request(&fixture, &[uri]);
    assert_eq!(fixture.read("x.log"), "");
}

#[test]
fn what_needs_the_whole_configuration_is_refused_with_nginx_s_words() {
    let fixture = Fixture::new();
    for (lines, words) in [
        ("access_log a.log test;", "unknown log format \"test\""),
        (
            "access_log a.log combined buffer=1k; access_log ./a.log combined buffer=2k;",
            "access_log \"./a.log\" already defined with conflicting parameters",
        ),
    ] {
        assert_eq!(configure(&fixture, lines).err().unwrap(), words);
    }
    assert!(
        configure(
            &fixture,
            "access_log a.log combined buffer=1k; access_log a.log;"
        )
        .is_ok()
    );
}

#[test]
fn logs_with_variables_in_their_names() {
    let fixture = Fixture::new();
    fixture.main_log();
    let configured = configure(
        &fixture,
        "log_format t $uri; access_log dir/log_${arg_name} t;",
    )
    .unwrap();
    let named = |name| [("uri", "/u"), ("arg_name", name)];
    configured.request(&fixture, &named("early"));
    fs::create_dir(fixture.path("dir")).unwrap();
    configured.request(&fixture, &named("0"));
    configured.request(&fixture, &named("0"));
    configured.request(&fixture, &[("uri", "/none")]);
    configured.request(
        &fixture,
        &[("uri", "/x"), ("arg_name", "x"), ("root", "/no/such/root")],
    );
    assert_eq!(fixture.read("dir/log_0"), "/u\n/u\n");
    assert_eq!(fixture.read("dir/log_"), "/none\n");
    assert!(!fixture.path("dir/log_x").exists());
    assert_eq!(fixture.read("error.log"), "");
    let log = fixture.read("place.log");
    assert!(
        log.contains("[crit]")
            && log.contains("/dir/log_early\" failed (2: No such file or directory)"),
        "{log}"
    );
    assert!(
        log.contains("testing \"/no/such/root\" existence failed (2: No such file or directory)"),
        "{log}"
    );
}

#[test]
fn a_named_log_on_a_full_disk_is_complained_about_once() {
    let fixture = Fixture::new();
    fixture.main_log();
    let configured = configure(
        &fixture,
        "log_format t $uri; access_log /dev/$arg_name t; access_log $arg_name t;",
    )
    .unwrap();
    for _ in 0..100 {
        configured.request(&fixture, &[("uri", "/u"), ("arg_name", "full")]);
    }
    let log = fixture.read("place.log");
    let said = "write() to \"/dev/full\" failed (28: No space left on device)";
    assert_eq!(log.matches(said).count(), 1, "{log}");
    assert!(fixture.read("full").lines().count() == 100, "another log");
    let figures = fixture.logs.figures();
    assert_eq!((figures.failed, figures.written), (100, 100));
}

#[test]
fn open_log_files_are_kept_as_nginx_keeps_them() {
    let fixture = Fixture::new();
    let cache = "open_log_file_cache max=3 inactive=20s valid=1m min_uses=2;";
    let configured = configure(
        &fixture,
        &format!("{cache} log_format t $uri; access_log dir/$arg_name t;"),
    )
    .unwrap();
    let write = |name| configured.request(&fixture, &[("uri", "/"), ("arg_name", name)]);
    fs::create_dir(fixture.path("dir")).unwrap();
    ["lru", "lru", "once", "first", "first", "second", "second"]
        .into_iter()
        .for_each(write);
    fs::rename(fixture.path("dir"), fixture.path("moved")).unwrap();
    // Only files that are open still take a line.
    ["lru", "once", "first", "second"]
        .into_iter()
        .for_each(write);
    let lines = |name: &str| fixture.read(&format!("moved/{name}")).lines().count();
    assert_eq!(["lru", "once", "first", "second"].map(lines), [2, 1, 3, 3]);
    fixture.logs.forget_named();
    write("first");
    assert_eq!(lines("first"), 3);
}
