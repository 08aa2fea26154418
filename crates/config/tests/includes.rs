//! Several files: `include`, its patterns and limits, the globals of `-g`, and the dump of `-T`.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};

use config::{Grammar, TextSource, Tree, load, load_checked};

/// Files in memory. Patterns match by prefix and suffix around one `*`.
#[derive(Default)]
struct Files {
    texts: HashMap<PathBuf, Vec<u8>>,
    asked: Vec<PathBuf>,
}

impl Files {
    fn of(files: &[(&str, &str)]) -> Self {
        let texts = files
            .iter()
            .map(|(path, text)| (PathBuf::from(path), text.as_bytes().to_vec()));
        Self {
            texts: texts.collect(),
            asked: Vec::new(),
        }
    }
}

impl TextSource for Files {
    fn read(&mut self, path: &Path) -> io::Result<Vec<u8>> {
        self.asked.push(path.to_owned());
        self.texts
            .get(path)
            .cloned()
            .ok_or_else(|| io::Error::from_raw_os_error(2))
    }

    fn glob(&mut self, pattern: &Path) -> io::Result<Vec<PathBuf>> {
        let pattern = pattern.to_str().unwrap();
        let (before, behind) = pattern.split_once('*').unwrap();
        let matches = |path: &&PathBuf| {
            let path = path.to_str().unwrap();
            path.starts_with(before) && path.ends_with(behind)
        };
        Ok(self.texts.keys().filter(matches).cloned().collect())
    }
}

const ROOT: &str = "/etc/w/nginx.conf";

fn read(files: &[(&str, &str)]) -> Tree {
    load(Path::new(ROOT), &mut Files::of(files)).unwrap()
}

fn refused(files: &[(&str, &str)]) -> String {
    load(Path::new(ROOT), &mut Files::of(files))
        .unwrap_err()
        .to_string()
}

fn names(tree: &Tree) -> String {
    tree.directives
        .iter()
        .map(|line| line.name.display().into_owned())
        .collect::<Vec<_>>()
        .join(" ")
}

#[test]
fn an_include_stands_for_the_file_s_lines_and_starts_at_the_root_s_directory() {
    let tree = read(&[
        (ROOT, "a; include d/x.conf; e;"),
        ("/etc/w/d/x.conf", "b; include y.conf; d;"),
        ("/etc/w/y.conf", "c;"),
    ]);
    assert_eq!(names(&tree), "a b c d e");
    let tree = read(&[(ROOT, "include /srv/x;"), ("/srv/x", "a;")]);
    assert_eq!(names(&tree), "a");
}

#[test]
fn a_pattern_includes_what_matches_in_order_of_names() {
    let files = [
        (ROOT, "include d/*.conf;"),
        ("/etc/w/d/b.conf", "b;"),
        ("/etc/w/d/a.conf", "a;"),
        ("/etc/w/d/B.conf", "B;"),
    ];
    assert_eq!(names(&read(&files)), "B a b");
    assert_eq!(names(&read(&[(ROOT, "a; include none/*;")])), "a");
}

#[test]
fn data_blocks_include_too() {
    let tree = read(&[
        (ROOT, "map $a $b { x 1; include m; }"),
        ("/etc/w/m", "y 2; 'z z' 3;"),
    ]);
    let lines = tree.directives[0].children();
    assert_eq!(lines.len(), 3);
    assert_eq!(lines[2].name, "z z");
    assert_eq!(lines[2].place().to_string(), "/etc/w/m:1");
}

#[test]
fn a_file_that_is_not_there_is_refused_and_named() {
    assert_eq!(
        refused(&[(ROOT, "a;\ninclude x;")]),
        "open() \"/etc/w/x\" failed (2: No such file or directory) in /etc/w/nginx.conf:2"
    );
    assert_eq!(
        refused(&[]),
        "open() \"/etc/w/nginx.conf\" failed (2: No such file or directory)"
    );
}

#[test]
fn a_file_that_includes_itself_is_refused() {
    let error = load(
        Path::new(ROOT),
        &mut Files::of(&[
            (ROOT, "include a;"),
            ("/etc/w/a", "\ninclude b;"),
            ("/etc/w/b", "include a;"),
        ]),
    )
    .unwrap_err();
    assert_eq!(
        error.to_string(),
        "\"/etc/w/a\" includes itself in /etc/w/b:1"
    );
    assert_eq!(
        error.hint(),
        Some("it is being read already: /etc/w/a -> /etc/w/b -> /etc/w/a")
    );
}

#[test]
fn includes_that_double_at_each_file_end_in_an_error() {
    let names: Vec<String> = (0..40).map(|number| format!("/etc/w/{number}")).collect();
    let texts: Vec<String> = (1..41)
        .map(|next| format!("include {next}; include {next};"))
        .collect();
    let mut files: Vec<(&str, &str)> = names
        .iter()
        .zip(&texts)
        .map(|(name, text)| (name.as_str(), text.as_str()))
        .collect();
    files.push((ROOT, "include 0;"));
    files.push(("/etc/w/40", ""));
    assert!(
        refused(&files).starts_with("too many included files, there may be 1000000 in /etc/w/")
    );
}

#[test]
fn includes_are_bounded_in_depth() {
    let names: Vec<String> = (0..100).map(|number| format!("/etc/w/{number}")).collect();
    let texts: Vec<String> = (1..101).map(|next| format!("include {next};")).collect();
    let mut files: Vec<(&str, &str)> = names
        .iter()
        .zip(&texts)
        .map(|(name, text)| (name.as_str(), text.as_str()))
        .collect();
    files.push((ROOT, "include 0;"));
    assert_eq!(
        refused(&files),
        "too deep includes, there may be 64 in /etc/w/63:1"
    );
}

#[test]
fn blocks_may_not_reach_over_the_end_of_an_included_file() {
    assert_eq!(
        refused(&[(ROOT, "a { include x; }"), ("/etc/w/x", "b; }")]),
        "unexpected \"}\" in /etc/w/x:1"
    );
    assert_eq!(
        refused(&[(ROOT, "include x; }"), ("/etc/w/x", "a { b;")]),
        "unexpected end of file, expecting \"}\" in /etc/w/x:1"
    );
}

#[test]
fn the_dump_has_each_file_once_in_the_order_first_opened() {
    let tree = read(&[
        (ROOT, "include b; include a;\ninclude b;"),
        ("/etc/w/a", "a;"),
        ("/etc/w/b", "# \u{e9}\r\n"),
    ]);
    let dump = "# configuration file /etc/w/nginx.conf:\ninclude b; include a;\ninclude b;\n\
                # configuration file /etc/w/b:\n# \u{e9}\r\n\n\
                # configuration file /etc/w/a:\na;\n";
    assert_eq!(String::from_utf8(tree.dump()).unwrap(), dump);
}

#[test]
fn a_file_is_asked_for_once() {
    let mut files = Files::of(&[
        (ROOT, "include x; include x; include x;"),
        ("/etc/w/x", "a;"),
    ]);
    let tree = load(Path::new(ROOT), &mut files).unwrap();
    assert_eq!(tree.directives.len(), 3);
    assert_eq!(
        files.asked,
        [PathBuf::from(ROOT), PathBuf::from("/etc/w/x")]
    );
}

#[test]
fn what_was_read_gives_the_same_tree_again() {
    let tree = read(&[
        (ROOT, "include x; include d/*;"),
        ("/etc/w/x", "a;"),
        ("/etc/w/d/1", "b;"),
    ]);
    let again = load(Path::new(ROOT), &mut tree.recorded()).unwrap();
    assert_eq!(tree, again);
}

config::blocks! {
    /// Main.
    fn main_lines in Main {
        /// A line.
        "pid": [MAIN] 1;
        /// A flag.
        "daemon": [MAIN] FLAG;
    }
}

fn with_globals(globals: &str) -> Result<String, String> {
    let grammar = Grammar::new([main_lines()]);
    let mut files = Files::of(&[(ROOT, "daemon on;")]);
    let outcome = load_checked(
        Path::new(ROOT),
        Some(globals.as_bytes()),
        &mut files,
        &grammar,
    );
    outcome
        .map(|(tree, _)| names(&tree))
        .map_err(|error| error.to_string())
}

#[test]
fn globals_of_the_command_line_come_first() {
    assert_eq!(with_globals("pid x; ").unwrap(), "pid daemon");
    assert_eq!(
        with_globals("pid 'a b'; daemon off;").unwrap(),
        "pid daemon daemon"
    );
    assert_eq!(
        with_globals("pid x").unwrap_err(),
        "unexpected end of parameter, expecting \";\" in command line"
    );
    assert_eq!(
        with_globals("pidd x;").unwrap_err(),
        "unknown directive \"pidd\" in command line"
    );
    assert_eq!(
        with_globals("events { }").unwrap_err(),
        "block directives are not supported in -g option in command line"
    );
    assert_eq!(
        with_globals("}").unwrap_err(),
        "unexpected \"}\" in command line"
    );
}
