//! The configuration that comes with the program.
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "tests run on no loop"
)]

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};

const MIME_TYPES: &str = include_str!("../../../conf/mime.types");

fn types_of(text: &str) -> Vec<config::Directive> {
    config::parse_bytes(text.as_bytes()).unwrap().directives[0]
        .children()
        .to_vec()
}

fn types() -> HashMap<String, String> {
    let mut types = HashMap::new();
    for line in types_of(MIME_TYPES) {
        assert!(
            !line.args.is_empty(),
            "{} names an extension",
            line.name.display()
        );
        for extension in &line.args {
            let earlier = types.insert(
                extension.display().into_owned(),
                line.name.display().into_owned(),
            );
            assert_eq!(earlier, None, "{} stands twice", extension.display());
        }
    }
    types
}

#[test]
fn each_extension_has_one_type() {
    let types = types();
    assert!(
        types
            .keys()
            .all(|extension| *extension == extension.to_lowercase())
    );
    for (extension, of_type) in [
        ("html", "text/html"),
        ("js", "application/javascript"),
        ("ts", "video/mp2t"),
    ] {
        assert_eq!(types[extension], of_type);
    }
    let is_token = |part: &str| {
        part.bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"+-._".contains(&byte))
    };
    for of_type in types.values() {
        let (kind, name) = of_type.split_once('/').unwrap();
        assert!(
            is_token(kind) && is_token(name) && !name.is_empty(),
            "{of_type}"
        );
    }
}

/// The files as they lie in the repository.
struct Files;

impl config::TextSource for Files {
    fn read(&mut self, path: &Path) -> io::Result<Vec<u8>> {
        std::fs::read(path)
    }

    fn glob(&mut self, pattern: &Path) -> io::Result<Vec<PathBuf>> {
        Err(io::Error::other(format!(
            "no pattern is used: {}",
            pattern.display()
        )))
    }
}

#[test]
fn the_default_configuration_takes_in_the_types_and_its_pages_are_there() {
    let top = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let tree = config::load(&top.join("conf/nginx.conf"), &mut Files).unwrap();
    let http = tree
        .directives
        .iter()
        .find(|directive| directive.name == "http")
        .unwrap();
    let included = http
        .children()
        .iter()
        .find(|line| line.name == "types")
        .unwrap();
    assert_eq!(included.children().len(), types_of(MIME_TYPES).len());
    for page in ["index.html", "50x.html"] {
        let text = std::fs::read_to_string(top.join("conf/html").join(page)).unwrap();
        assert!(text.starts_with("<!DOCTYPE html>") && text.trim_end().ends_with("</html>"));
    }
}
