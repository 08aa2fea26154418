//! A configuration text through all directives of the server: never a panic, and what is refused can be shown.
//!
//! Texts that name hosts to listen on are left out: they would ask the resolver.
#![no_main]

use std::io;
use std::path::{Path, PathBuf};

use config::{Directive, TextSource};
use libfuzzer_sys::fuzz_target;
use server::settings::circumstances::Circumstances;
use server::process::load::{Origin, load};

/// The text alone: there is nothing to include.
struct Text<'a>(&'a [u8]);

impl TextSource for Text<'_> {
    fn read(&mut self, path: &Path) -> io::Result<Vec<u8>> {
        if path == Path::new("/fuzz/nginx.conf") {
            return Ok(self.0.to_vec());
        }
        Err(io::ErrorKind::NotFound.into())
    }

    fn glob(&mut self, _: &Path) -> io::Result<Vec<PathBuf>> {
        Ok(Vec::new())
    }
}

fuzz_target!(|text: &[u8]| {
    let Ok(tree) = config::parse_bytes(text) else {
        return;
    };
    if tree.directives.iter().any(names_host) {
        return;
    }
    let origin = Origin {
        prefix: "/fuzz/".into(),
        root: "/fuzz/nginx.conf".into(),
        globals: None,
    };
    if let Err(refused) = load(&origin, &Circumstances::here(), &mut Text(text), &[]) {
        let sentence = refused.error.sentence().to_owned();
        assert!(refused.error.render(false).contains(&sentence));
    }
});

fn names_host(directive: &Directive) -> bool {
    let is_host = directive.name == "listen"
        && directive.args.first().is_some_and(|word| {
            !word.bytes().starts_with(b"unix:")
                && word
                    .bytes()
                    .iter()
                    .any(|c| !matches!(c, b'0'..=b'9' | b'.' | b':' | b'*' | b'[' | b']' | b'-'))
        });
    is_host || directive.children().iter().any(names_host)
}
