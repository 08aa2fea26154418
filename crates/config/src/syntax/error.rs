//! Errors of a configuration, in nginx's words, with their position.
//!
//! A [`Problem`] is what the parser of a value reports, without knowing the directive; an [`Error`] is the complete
//! message. Its first line is always the one that nginx writes, since scripts look for it; the excerpt and the hint
//! follow.

use std::borrow::Cow;

use crate::syntax::excerpt;
use crate::syntax::severity::Severity;
use crate::syntax::text::{TextPlace, TextSpan};

/// An error in a directive, before the directive is known.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Problem {
    sentence: Sentence,
    hint: Option<String>,
    word: Option<usize>,
    voice: Voice,
}

/// The program that a message is attributed to: its first word.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Voice {
    /// A message that nginx has too.
    #[default]
    Nginx,
    /// A message that only this program has.
    Own,
    /// As `Own`, about a directive without effect; unless a configuration is being tested, all such lines become one.
    NoEffect,
}

impl Voice {
    /// The name of the program.
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
    /// The words after `"NAME" `.
    AboutName(String),
    /// The words after `"NAME" directive `.
    AboutDirective(String),
    /// The value in `invalid value "VALUE" in "NAME" directive`, and the words after that.
    InvalidValue(String, String),
}

impl Problem {
    /// A problem with a complete sentence.
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

    /// `"NAME" must have the "PARAMETER" parameter`.
    #[must_use]
    pub fn missing_parameter(parameter: &str) -> Self {
        Self {
            sentence: Sentence::AboutName(format!("must have the \"{parameter}\" parameter")),
            ..Self::directive("")
        }
    }

    /// `"NAME" directive is duplicate`.
    #[must_use]
    pub fn duplicate() -> Self {
        Self::directive("is duplicate").hint_that("it may stand only once at each level")
    }

    /// `invalid value "VALUE" in "NAME" directive` followed by `rest`, which begins with its own comma or space.
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

    /// A directive that is accepted but has no effect; `why` is a clause.
    #[must_use]
    pub fn ignored(why: &str) -> Self {
        Self {
            voice: Voice::NoEffect,
            ..Self::directive(format!("is ignored: {why}"))
        }
    }

    /// The same problem, attributed to this program instead of nginx.
    #[must_use]
    pub fn own(mut self) -> Self {
        self.voice = Voice::Own;
        self
    }

    /// The program that the message is attributed to.
    #[must_use]
    pub fn voice(&self) -> Voice {
        self.voice
    }

    /// Adds a hint that helps to correct it.
    #[must_use]
    pub fn hint_that(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Sets the argument that it is about, counted from 0.
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

    /// The hint that helps to correct it.
    #[must_use]
    pub fn hint(&self) -> Option<&str> {
        self.hint.as_deref()
    }

    /// The sentence, in nginx's words, for a directive of this name.
    #[must_use]
    pub fn sentence_for(&self, name: &str) -> String {
        match &self.sentence {
            Sentence::Whole(sentence) => sentence.clone(),
            Sentence::AboutName(rest) => format!("\"{name}\" {rest}"),
            Sentence::AboutDirective(rest) => format!("\"{name}\" directive {rest}"),
            Sentence::InvalidValue(value, rest) => {
                format!("invalid value \"{value}\" in \"{name}\" directive{rest}")
            }
        }
    }
}

/// A message about the configuration: an error or a warning.
///
/// `Display` gives nginx's line without the leading `nginx: [emerg] `, for a log that writes levels itself;
/// [`Error::render`] gives the complete message, for a terminal.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{sentence}{}", self.location())]
pub struct Error {
    severity: Severity,
    sentence: String,
    /// Boxed, because every `Result` of the parser carries an error.
    place: Option<Box<ErrorSpot>>,
    hint: Option<String>,
    voice: Voice,
}

#[derive(Clone, PartialEq, Eq, Debug)]
struct ErrorSpot {
    /// The range that the excerpt marks.
    marked: TextPlace,
    /// The offset whose line nginx reports: that of a directive's end.
    found: u32,
}

impl Error {
    /// An error at a position, whose line it reports.
    #[must_use]
    pub fn at(sentence: impl Into<String>, place: &TextPlace) -> Self {
        let spot = ErrorSpot {
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

    /// This error at a position, if it has none yet.
    #[must_use]
    pub fn or_at(self, place: &TextPlace) -> Self {
        if self.place.is_some() {
            return self;
        }
        Self {
            severity: self.severity,
            voice: self.voice,
            ..Self::at(self.sentence, place).with_hint(self.hint.as_deref())
        }
    }

    /// An error without a position in any text, such as a missing root file.
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

    /// Sets the hint that helps to correct it, replacing an earlier one.
    #[must_use]
    pub fn with_hint(mut self, hint: Option<&str>) -> Self {
        self.hint = hint.map(str::to_owned).or(self.hint);
        self
    }

    /// The same message, attributed to this program or to nginx.
    #[must_use]
    pub fn of(mut self, voice: Voice) -> Self {
        self.voice = voice;
        self
    }

    /// The program that the message is attributed to.
    #[must_use]
    pub fn voice(&self) -> Voice {
        self.voice
    }

    /// The same message as a warning.
    #[must_use]
    pub(crate) fn into_warning(mut self) -> Self {
        self.severity = Severity::Warn;
        self
    }

    /// Reports the line of this offset instead of that of the marked position.
    pub(crate) fn on_line_of(mut self, offset: u32) -> Self {
        if let Some(spot) = &mut self.place {
            spot.found = offset;
        }
        self
    }

    /// Marks this range of the same text; the reported line does not change.
    pub(crate) fn marking(mut self, span: TextSpan) -> Self {
        if let Some(spot) = &mut self.place {
            spot.marked.span = span;
        }
        self
    }

    /// How severe the message is.
    #[must_use]
    pub fn severity(&self) -> Severity {
        self.severity
    }

    /// The sentence alone.
    #[must_use]
    pub fn sentence(&self) -> &str {
        &self.sentence
    }

    /// The hint that helps to correct it.
    #[must_use]
    pub fn hint(&self) -> Option<&str> {
        self.hint.as_deref()
    }

    /// The marked position.
    #[must_use]
    pub fn place(&self) -> Option<&TextPlace> {
        self.place.as_ref().map(|spot| &spot.marked)
    }

    /// The reported line.
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

    /// The complete message: `nginx: [emerg] SENTENCE in FILE:LINE`, the excerpt, the hint; ends in a newline. Messages
    /// that nginx does not have begin with `freewheel:`. `in_colour` adds terminal colours to the excerpt.
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
