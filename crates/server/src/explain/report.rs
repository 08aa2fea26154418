//! What is told of a request: titles with texts, and below each the lines of the configuration that made it so.

use std::fmt::Write as _;

use config::Directive;

use super::lines;

/// Columns of the titles.
const TITLE: usize = 11;

/// What was told so far.
#[derive(Default)]
pub struct Report {
    out: String,
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

    /// The lines that made it.
    pub fn by(&mut self, made: &[&Directive]) {
        for line in made {
            let place = format!("{}:", line.place());
            let _ = writeln!(self.out, "{:TITLE$}   {place} {}", "", lines::text(line));
        }
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

    /// All of it.
    pub fn into_text(self) -> String {
        self.out
    }
}

/// Bytes for a reader.
pub fn shown(bytes: &[u8]) -> String {
    bytes.escape_ascii().to_string().replace("\\\"", "\"")
}
