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
fn the_readme_s_first_configuration_is_accepted() {
    let site = Site::new();
    std::fs::copy(project("conf/mime.types"), site.path("mime.types"))
        .expect("the directory can be written");
    let readme = read("README.md");
    let text = block(&readme, "nginx").replace("8080", "127.0.0.1:%PORT%");
    site.configure(&format!("pid nginx.pid;\n{text}"));
    let (status, said) = site.run(&["-t"]);
    assert!(
        status.success() && !said.contains("[warn]"),
        "{text}\n{said}"
    );
}

#[test]
fn every_directive_that_the_readme_explains_is_there() {
    let readme = read("README.md");
    let names = readme
        .lines()
        .filter_map(|line| line.split_once("freewheel --explain "));
    for (_, rest) in names {
        let name = rest.split_whitespace().next().unwrap_or_default();
        let output = std::process::Command::new(blackbox::binary())
            .args(["--explain", name])
            .output()
            .expect("the program can be run");
        assert!(output.status.success(), "{name}");
    }
}

#[test]
fn links_between_documents_lead_somewhere() {
    let documents = [
        "README.md",
        "ARCHITECTURE.md",
        "STYLE.md",
        "CONTRIBUTING.md",
        "docs/differences.md",
        "docs/adding-a-module.md",
        "docs/reference/README.md",
        "docs/reference/compatibility.md",
        "bench/README.md",
        "fuzz/README.md",
    ];
    for document in documents {
        let text = read(document);
        let here = project(document);
        let here = here.parent().expect("a document has a directory");
        for link in text.split("](").skip(1) {
            let link = link.split([')', '#']).next().unwrap_or_default();
            let is_local = !link.is_empty() && !link.contains("://");
            assert!(
                !is_local || here.join(link).exists(),
                "{document}: {link} is not there"
            );
        }
    }
}
