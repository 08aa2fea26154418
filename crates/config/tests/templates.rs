//! `include_template`: variables of the environment in words.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::io;
use std::path::{Path, PathBuf};

use config::{Recorded, TextSource, Tree, load};

/// A root file, one template, one plain file, and an environment.
struct Files<'a> {
    template: &'a str,
    environment: &'a [(&'a str, &'a str)],
}

impl TextSource for Files<'_> {
    fn read(&mut self, path: &Path) -> io::Result<Vec<u8>> {
        let text = match path.to_str().unwrap() {
            "/e/nginx.conf" => "include_template a.template; include plain; last ${PORT};",
            "/e/plain" => "plain ${PORT};",
            "/e/a.template" => self.template,
            _ => return Err(io::Error::from_raw_os_error(2)),
        };
        Ok(text.as_bytes().to_vec())
    }

    fn glob(&mut self, _: &Path) -> io::Result<Vec<PathBuf>> {
        Ok(Vec::new())
    }

    fn variable(&mut self, name: &str) -> Option<Vec<u8>> {
        let mut all = self.environment.iter();
        let (_, value) = all.find(|(known, _)| *known == name)?;
        Some(value.as_bytes().to_vec())
    }
}

fn read(template: &str, environment: &[(&str, &str)]) -> Result<Tree, String> {
    let mut files = Files {
        template,
        environment,
    };
    load(Path::new("/e/nginx.conf"), &mut files).map_err(|error| error.to_string())
}

/// The words of the lines of the template.
fn words(template: &str, environment: &[(&str, &str)]) -> Vec<Vec<String>> {
    let tree = read(template, environment).unwrap();
    let end = tree.directives.len() - 2;
    let of = |line: &config::Directive| {
        let words = std::iter::once(&line.name).chain(&line.args);
        words.map(|word| word.display().into_owned()).collect()
    };
    tree.directives[..end].iter().map(of).collect()
}

#[test]
fn values_are_data() {
    let evil = "a; b { c } \" ' \\ # d";
    let all = words("x ${V} y-${V}z; 'q ${V}' w;", &[("V", evil)]);
    let whole = format!("y-{evil}z");
    assert_eq!(
        all,
        [
            vec!["x".to_owned(), evil.to_owned(), whole],
            vec![format!("q {evil}"), "w".to_owned()]
        ]
    );
}

#[test]
fn defaults_stand_for_what_is_not_set_or_empty() {
    let all = words(
        "x ${A:-1} ${B:-2} ${C:-3} '${D:-four words}' ${E:-};",
        &[("A", "set"), ("B", "")],
    );
    assert_eq!(all, [["x", "set", "2", "3", "four words", ""]]);
    assert_eq!(words("x a${B}b;", &[("B", "")]), [["x", "ab"]]);
}

#[test]
fn variables_of_the_configuration_stay() {
    let all = words(
        "x $host ${uri} $1 $SET $UNSET a$;",
        &[("SET", "v"), ("host", "no")],
    );
    assert_eq!(all, [["x", "$host", "${uri}", "$1", "v", "$UNSET", "a$"]]);
}

#[test]
fn what_is_not_set_is_an_error_with_its_place() {
    let refused = read("ok;\nx ${NONE};", &[]).unwrap_err();
    assert_eq!(
        refused,
        "\"NONE\" is not set in the environment in /e/a.template:2"
    );
    let refused = read("x ${V};", &[("V", "pa$$word")]).unwrap_err();
    assert!(
        refused.contains("has a \"$\" in /e/a.template:1"),
        "{refused}"
    );
    assert!(!refused.contains("pa$$word"), "{refused}");
}

#[test]
fn only_templates_are_changed() {
    let tree = read("t ${PORT};", &[("PORT", "80")]).unwrap();
    let last = |line: &config::Directive| line.args[0].display().into_owned();
    let all: Vec<_> = tree.directives.iter().map(last).collect();
    assert_eq!(all, ["80", "${PORT}", "${PORT}"]);
}

#[test]
fn the_dump_reads_as_the_same() {
    let value = "a; \"b\" \\n { $";
    let value = &value[..value.len() - 1];
    let tree = read("t ${V} \"q${V}\"; # ${V}\n", &[("V", value)]).unwrap();
    let dump = String::from_utf8(tree.dump()).unwrap();
    let template = dump.split("# configuration file ").nth(2).unwrap();
    assert!(template.starts_with("/e/a.template:\n"), "{template}");
    let text = template.split_once('\n').unwrap().1;
    assert!(
        text.contains("# ${V}\n"),
        "a comment is left as it is: {text}"
    );
    let again = config::parse_bytes(text.as_bytes()).unwrap();
    assert_eq!(again.directives[0].args[0].bytes(), value.as_bytes());
    assert_eq!(
        again.directives[0].args[1].bytes(),
        format!("q{value}").as_bytes()
    );
}

#[test]
fn what_was_recorded_needs_no_environment() {
    let tree = read(
        "t ${PORT} ${NONE:-x};",
        &[("PORT", "80"), ("OTHER", "secret")],
    )
    .unwrap();
    let mut recorded: Recorded = tree.recorded();
    let names: Vec<_> = recorded.environment.keys().collect();
    assert_eq!(names, ["PORT"]);
    let again = load(Path::new("/e/nginx.conf"), &mut recorded).unwrap();
    let bytes = |tree: &Tree| -> Vec<_> {
        let lines = tree.directives.iter();
        lines.map(|line| line.args[0].bytes().clone()).collect()
    };
    assert_eq!(bytes(&again), bytes(&tree));
}
