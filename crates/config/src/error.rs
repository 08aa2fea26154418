//! What is wrong with a configuration, in nginx's words, with the place.
//!
//! A [`Problem`] is what a value's parser finds, without knowing the directive; an [`Error`] is the finished message. The
//! first line is always what nginx writes, since scripts look for it; the excerpt and the hint stand below.

use std::borrow::Cow;
use std::fmt;

use crate::excerpt;
use crate::text::{Place, Span};

/// What is wrong with one directive, before it is known which.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Problem {
    sentence: Sentence,
    hint: Option<String>,
    word: Option<usize>,
    voice: Voice,
}

/// Whose a message is, which its first word says.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Voice {
    /// nginx says the same.
    #[default]
    Nginx,
    /// Only this program has it to say.
    Own,
    /// The same, of a directive that has no effect here: where nobody tests a configuration all such lines are one.
    NoEffect,
}

impl Voice {
    /// The program that says it.
    fn name(self) -> &'static str {
        match self {
            Self::Nginx => "nginx",
            Self::Own | Self::NoEffect => "freewheel",
        }
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum Sentence {
    /// The whole sentence.
    Whole(String),
    /// What follows `"NAME" directive `.
    AboutDirective(String),
    /// `invalid value "VALUE" in "NAME" directive` and what follows it.
    InvalidValue(String, String),
}

impl Problem {
    /// A problem whose whole sentence is this.
    #[must_use]
    pub fn new(sentence: impl Into<String>) -> Self {
        Self {
            sentence: Sentence::Whole(sentence.into()),
            hint: None,
            word: None,
            voice: Voice::Nginx,
        }
    }

    /// A problem whose sentence is `"NAME" directive …`, such as `is duplicate` or `invalid value`.
    #[must_use]
    pub fn directive(rest: impl Into<String>) -> Self {
        Self {
            sentence: Sentence::AboutDirective(rest.into()),
            hint: None,
            word: None,
            voice: Voice::Nginx,
        }
    }

    /// `"NAME" directive is duplicate`.
    #[must_use]
    pub fn duplicate() -> Self {
        Self::directive("is duplicate").hint_that("it may stand only once at each level")
    }

    /// `invalid value "VALUE" in "NAME" directive` and `rest`, which opens with its own comma or space.
    #[must_use]
    pub fn invalid_value(value: &[u8], rest: &str) -> Self {
        let value = String::from_utf8_lossy(value).into_owned();
        Self {
            sentence: Sentence::InvalidValue(value, rest.to_owned()),
            hint: None,
            word: None,
            voice: Voice::Nginx,
        }
    }

    /// `invalid number of arguments in "NAME" directive`.
    #[must_use]
    pub fn argument_count(name: &str) -> Self {
        Self::new(format!(
            "invalid number of arguments in \"{name}\" directive"
        ))
    }

    /// A directive that is taken and has no effect, and why: a clause.
    #[must_use]
    pub fn ignored(why: &str) -> Self {
        Self {
            voice: Voice::NoEffect,
            ..Self::directive(format!("is ignored: {why}"))
        }
    }

    /// The same, said by this program and not by nginx.
    #[must_use]
    pub fn own(mut self) -> Self {
        self.voice = Voice::Own;
        self
    }

    /// Whose it is.
    #[must_use]
    pub fn voice(&self) -> Voice {
        self.voice
    }

    /// Adds what helps to mend it.
    #[must_use]
    pub fn hint_that(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Says which argument it is about, counted from 0.
    #[must_use]
    pub fn at(mut self, argument: usize) -> Self {
        self.word = Some(argument);
        self
    }

    /// The argument that it is about, counted from 0.
    #[must_use]
    pub fn word(&self) -> Option<usize> {
        self.word
    }

    /// What helps to mend it.
    #[must_use]
    pub fn hint(&self) -> Option<&str> {
        self.hint.as_deref()
    }

    /// nginx's sentence for a directive of this name.
    #[must_use]
    pub fn sentence_for(&self, name: &str) -> String {
        match &self.sentence {
            Sentence::Whole(sentence) => sentence.clone(),
            Sentence::AboutDirective(rest) => format!("\"{name}\" directive {rest}"),
            Sentence::InvalidValue(value, rest) => {
                format!("invalid value \"{value}\" in \"{name}\" directive{rest}")
            }
        }
    }
}

/// How bad it is: nginx's log levels, as far as a configuration has them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Severity {
    /// The configuration cannot be used.
    Emerg,
    /// It can, but the user should know.
    Warn,
}

impl fmt::Display for Severity {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Emerg => "emerg",
            Self::Warn => "warn",
        })
    }
}

/// A message about the configuration: an error, or a warning.
///
/// `Display` gives nginx's line without the `nginx: [emerg] ` before it, for a log that writes levels itself;
/// [`Error::render`] gives all of it, for a terminal.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{sentence}{}", self.location())]
pub struct Error {
    severity: Severity,
    sentence: String,
    /// Boxed: an error travels up through every `Result` of the parser.
    place: Option<Box<Spot>>,
    hint: Option<String>,
    voice: Voice,
}

#[derive(Clone, PartialEq, Eq, Debug)]
struct Spot {
    /// What the excerpt marks.
    marked: Place,
    /// The offset on whose line nginx is when it finds the error: that of a directive's end.
    found: u32,
}

impl Error {
    /// An error at a place, which names that place's line.
    #[must_use]
    pub fn at(sentence: impl Into<String>, place: &Place) -> Self {
        let spot = Spot {
            marked: place.clone(),
            found: place.span.start,
        };
        Self {
            severity: Severity::Emerg,
            sentence: sentence.into(),
            place: Some(Box::new(spot)),
            hint: None,
            voice: Voice::Nginx,
        }
    }

    /// This error at a place, if it has none yet.
    #[must_use]
    pub fn or_at(self, place: &Place) -> Self {
        if self.place.is_some() {
            return self;
        }
        Self {
            severity: self.severity,
            voice: self.voice,
            ..Self::at(self.sentence, place).with_hint(self.hint.as_deref())
        }
    }

    /// An error of no place in any text, such as a root file that is not there.
    #[must_use]
    pub fn without_place(sentence: impl Into<String>) -> Self {
        Self {
            severity: Severity::Emerg,
            sentence: sentence.into(),
            place: None,
            hint: None,
            voice: Voice::Nginx,
        }
    }

    /// Adds what helps to mend it; replaces an earlier hint.
    #[must_use]
    pub fn with_hint(mut self, hint: Option<&str>) -> Self {
        self.hint = hint.map(str::to_owned).or(self.hint);
        self
    }

    /// The same message, of this program or of nginx.
    #[must_use]
    pub fn of(mut self, voice: Voice) -> Self {
        self.voice = voice;
        self
    }

    /// Whose it is.
    #[must_use]
    pub fn voice(&self) -> Voice {
        self.voice
    }

    /// Adds what the text around its place says of its cause.
    #[must_use]
    pub fn advised(self) -> Self {
        crate::advice::add(self)
    }

    /// The same message as a warning.
    #[must_use]
    pub fn as_warning(mut self) -> Self {
        self.severity = Severity::Warn;
        self
    }

    /// Names the line of this offset instead of the marked place's.
    pub(crate) fn on_line_of(mut self, offset: u32) -> Self {
        if let Some(spot) = &mut self.place {
            spot.found = offset;
        }
        self
    }

    /// Marks this stretch of the same text; the line that is named stays.
    pub(crate) fn marking(mut self, span: Span) -> Self {
        if let Some(spot) = &mut self.place {
            spot.marked.span = span;
        }
        self
    }

    /// How bad it is.
    #[must_use]
    pub fn severity(&self) -> Severity {
        self.severity
    }

    /// The sentence alone.
    #[must_use]
    pub fn sentence(&self) -> &str {
        &self.sentence
    }

    /// What helps to mend it.
    #[must_use]
    pub fn hint(&self) -> Option<&str> {
        self.hint.as_deref()
    }

    /// The marked place.
    #[must_use]
    pub fn place(&self) -> Option<&Place> {
        self.place.as_ref().map(|spot| &spot.marked)
    }

    /// The line that is named.
    pub(crate) fn line(&self) -> Option<usize> {
        let spot = self.place.as_ref()?;
        Some(spot.marked.text.line_of(spot.found))
    }

    fn location(&self) -> Cow<'static, str> {
        match &self.place {
            None => Cow::Borrowed(""),
            Some(spot) => Cow::Owned(format!(" in {}", spot.marked.text.locate(spot.found))),
        }
    }

    /// The whole message: `nginx: [emerg] SENTENCE in FILE:LINE`, the excerpt, the hint. Ends in a newline. What nginx does not say begins
    /// with `freewheel:`.
    /// `in_colour` adds terminal colours to the excerpt.
    #[must_use]
    pub fn render(&self, in_colour: bool) -> String {
        let mut out = format!("{}: [{}] {self}\n", self.voice.name(), self.severity);
        match self.place() {
            Some(place) => {
                out.push_str(&excerpt::draw(place, self.severity, self.hint(), in_colour))
            }
            None => out.extend(self.hint.iter().map(|hint| format!("  = help: {hint}\n"))),
        }
        out
    }
}
