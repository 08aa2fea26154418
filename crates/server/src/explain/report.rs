//! The explanation as a report: titles with texts, and below each the lines of the configuration that caused it.

use std::fmt::Write as _;

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

/// The report so far.
#[derive(Default)]
pub struct Report {
    out: String,
    uses: Vec<Use>,
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

    /// All of it.
    pub fn into_text(self) -> String {
        self.out
    }
}

/// Bytes for a reader.
pub(super) fn shown(bytes: &[u8]) -> String {
    bytes.escape_ascii().to_string().replace("\\\"", "\"")
}
