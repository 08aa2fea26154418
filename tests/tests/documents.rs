//! What the documents show is what the program takes.
#![expect(
    clippy::disallowed_methods,
    reason = "tests have no event loop: blocking files"
)]

use blackbox::Site;
use std::path::{Path, PathBuf};

fn project(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(name)
}

fn read(name: &str) -> String {
    std::fs::read_to_string(project(name)).expect("the document is there")
}

/// The first block of code in this language.
fn block<'a>(text: &'a str, language: &str) -> &'a str {
    let (_, behind) = text
        .split_once(&format!("```{language}\n"))
        .expect("there is a block");
    behind.split("```").next().unwrap_or_default()
}

#[test]
fn the_whole_configurations_of_documents_are_accepted() {
    for document in [
        "docs/first-configuration.md",
        "docs/start/cache.md",
        "docs/start/downloads.md",
    ] {
        let site = Site::new();
        std::fs::copy(project("conf/mime.types"), site.path("mime.types"))
            .expect("the directory can be written");
        let text = read(document);
        // What is about the certificate of an origin needs the machine's authorities.
        let lines = block(&text, "nginx").lines();
        let lines: Vec<_> = lines
            .filter(|line| !line.trim().starts_with("proxy_ssl_"))
            .collect();
        let text = lines
            .join("\n")
            .replace("0.0.0.0:8080", "8080")
            .replace("8080", "127.0.0.1:%PORT%")
            .replace("/disk", "%DIR%/disk")
            .replace("https://origin.example.org", "http://127.0.0.1:1");
        for disk in ["disk1", "disk2", "disk3"] {
            std::fs::create_dir(site.path(disk)).expect("the directory can be written");
        }
        site.configure(&format!("pid nginx.pid;\n{text}"));
        let (status, said) = site.run(&["-t"]);
        assert!(
            status.success() && !said.contains("[warn]"),
            "{document}: {text}\n{said}"
        );
    }
}

#[test]
fn every_name_that_documents_explain_is_there() {
    let texts = read("docs/first-configuration.md") + &read("docs/start/look.md");
    let names = texts
        .lines()
        .filter_map(|line| line.split_once("freewheel --explain "));
    for (_, rest) in names {
        let name = rest.split_whitespace().next().unwrap_or_default();
        let name = name.trim_matches('\'');
        let output = std::process::Command::new(blackbox::binary())
            .args(["--explain", name])
            .output()
            .expect("the program can be run");
        assert!(output.status.success(), "{name}");
    }
}

#[test]
fn the_readme_is_short() {
    assert!(read("README.md").lines().count() <= 60);
}
