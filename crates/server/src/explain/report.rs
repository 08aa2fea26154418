//! The explanation as a report: titles with texts, and below each the lines of the configuration that caused it.

use std::fmt::Write as _;
use std::ops::Range;

use bytes::Bytes;
use cache::Levels;
use cache::freshness::{RequestControl, Rules};
use config::Directive;

use super::lines;

/// Columns of the titles.
const TITLE: usize = 11;

/// A variable's name, and its value as it is shown.
pub(super) type Named = (String, String);

/// A line that was reported, and the variables that it used.
pub struct Use {
    /// With its place.
    pub line: String,
    /// Their names, lower-cased.
    pub names: Vec<String>,
    /// Their values when it ran; `None`: the values at the end.
    pub values: Option<Vec<Named>>,
}

/// A request as its cache would be asked for it.
#[derive(Debug)]
pub(crate) struct CacheQuestion {
    /// Its directory.
    pub directory: Bytes,
    /// Its levels.
    pub levels: Levels,
    /// The text of the key.
    pub key_text: Bytes,
    /// The request's header lines.
    pub fields: Vec<(Vec<u8>, Vec<u8>)>,
    /// The location's rules of freshness.
    pub rules: Rules,
    /// The request's `Cache-Control`, if the rules obey it.
    pub wishes: RequestControl,
    /// Whether `proxy_cache_bypass` holds.
    pub is_bypassed: bool,
    /// Whether `proxy_cache_use_stale` has `updating`, and whether the stored response is updated behind a request.
    pub stale: (bool, bool),
}

/// The report so far.
#[derive(Default)]
pub struct Report {
    out: String,
    uses: Vec<Use>,
    /// Where in `out` the lines about the cache begin and end.
    about_cache: Range<usize>,
    cache: Option<CacheQuestion>,
}

impl Report {
    /// A decision.
    pub fn say(&mut self, title: &str, text: impl AsRef<str>) {
        let mut title = title;
        for line in text.as_ref().lines() {
            let _ = writeln!(self.out, "{title:TITLE$} {line}");
            title = "";
        }
    }

    /// The lines that caused it.
    pub fn by(&mut self, made: &[&Directive]) {
        for line in made {
            let text = format!("{}: {}", line.place(), lines::text(line));
            self.by_text(&text);
            if self.uses.iter().all(|known| known.line != text) {
                self.uses.push(Use {
                    line: text,
                    names: lines::names(line),
                    values: None,
                });
            }
        }
    }

    /// Lines that decided nothing.
    pub fn say_aside(&mut self, title: &str, text: &str, others: &[&Directive]) {
        self.say(title, text);
        for line in others {
            self.by_text(&format!("{}: {}", line.place(), lines::text(line)));
        }
    }

    /// A line that caused it, as it is shown.
    pub fn by_text(&mut self, line: &str) {
        let _ = writeln!(self.out, "{:TITLE$}   {line}", "");
    }

    /// A decision of an instruction, which used variables with these values.
    pub fn say_with(&mut self, title: &str, text: &str, made: &Directive, values: Vec<Named>) {
        self.say(title, text);
        let line = format!("{}: {}", made.place(), lines::text(made));
        self.by_text(&line);
        self.uses.push(Use {
            line,
            names: lines::names(made),
            values: Some(values),
        });
    }

    /// The lines reported so far, in order; the report forgets them.
    pub fn take_uses(&mut self) -> Vec<Use> {
        std::mem::take(&mut self.uses)
    }

    /// A decision with its lines.
    pub fn say_by(&mut self, title: &str, text: impl AsRef<str>, made: &[&Directive]) {
        self.say(title, text);
        self.by(made);
    }

    /// An empty line.
    pub fn pause(&mut self) {
        if !self.out.ends_with("\n\n") {
            self.out.push('\n');
        }
    }

    /// Has the lines about the cache begin here.
    pub fn begin_cache(&mut self) {
        self.about_cache = self.out.len()..self.out.len();
    }

    /// Has them end here, with what the cache would be asked.
    pub(super) fn end_cache(&mut self, asked: Option<CacheQuestion>) {
        self.about_cache.end = self.out.len();
        self.cache = asked;
    }

    /// The lines about the cache, and what it would be asked; `None`: the request has no cache.
    pub(super) fn into_cache(self) -> (String, Option<CacheQuestion>) {
        (self.out[self.about_cache].to_owned(), self.cache)
    }

    /// All of it.
    pub fn into_text(self) -> String {
        self.out
    }
}

/// Bytes for a reader.
pub(super) fn shown(bytes: &[u8]) -> String {
    bytes.escape_ascii().to_string().replace("\\\"", "\"")
}
