//! Finds the commands of a page that comes piece by piece: `<!--# name parameter="value" … -->`.
//!
//! A state machine over bytes. Not here: the effects of commands. Invariant: a name has at most [`NAME_MAX`] bytes, a
//! value at most the configured number, and at most [`PARAMETERS_MAX`] parameters are kept, so a page cannot make the
//! parser hold more.

use bytes::Bytes;

/// Maximum bytes of a command's or a parameter's name, as in nginx.
pub const NAME_MAX: usize = 32;
/// Maximum parameters of one command, as in nginx.
pub const PARAMETERS_MAX: usize = 16;

/// The beginning of a command, except its last byte.
const COMMENT: &[u8; 4] = b"<!--";

/// A command as it was written.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Command {
    /// Its name.
    pub name: Vec<u8>,
    /// Its parameters in order; in values, a backslash still precedes the character that it protects.
    pub parameters: Vec<(Vec<u8>, Vec<u8>)>,
    /// Whether it had more than [`PARAMETERS_MAX`].
    pub has_too_many: bool,
}

/// An element found in a page.
#[derive(Debug, PartialEq, Eq)]
pub enum Event {
    /// Text between commands.
    Text(Bytes),
    /// A command.
    Command(Command),
    /// A fault in a command, for the log. The command still goes on to its end.
    Fault(String),
    /// The end of a faulty command.
    Broken,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// In text, after so many bytes of [`COMMENT`].
    Text(usize),
    BeforeName,
    Name,
    BeforeParameter,
    Parameter,
    BeforeEquals,
    BeforeValue,
    /// Inside a value in this kind of quotes.
    Value(u8),
    /// After a backslash in a value.
    Protected(u8),
    BehindValue,
    /// After so many dashes of the end.
    End(usize),
    /// The same in a faulty command.
    Wrong(usize),
}

/// A parser in the middle of a page.
#[derive(Debug)]
pub struct Parser {
    state: State,
    command: Command,
    /// Bytes of a value.
    value_max: usize,
}

impl Parser {
    /// Begins a page; `value_max`: maximum bytes of a parameter's value.
    #[must_use]
    pub fn new(value_max: usize) -> Self {
        Self {
            state: State::Text(0),
            command: Command::default(),
            value_max,
        }
    }

    /// The next event in `piece`, whose parsed bytes are cut off; `None`: more input is needed.
    pub fn next(&mut self, piece: &mut Bytes) -> Option<Event> {
        if let State::Text(seen) = self.state {
            return match seen {
                0 => self.text(piece),
                _ => self.maybe_comment(piece, seen),
            };
        }
        let mut at = 0;
        while at < piece.len() {
            let event = self.step(piece[at]);
            at += 1;
            if event.is_some() {
                let _ = piece.split_to(at);
                return event;
            }
        }
        piece.clear();
        None
    }

    /// The text that is held back at the end of a page, since it looked like the beginning of a command.
    pub fn end(&mut self) -> Option<Bytes> {
        let State::Text(seen @ 1..) = self.state else {
            return None;
        };
        self.state = State::Text(0);
        Some(Bytes::from_static(&COMMENT[..seen]))
    }

    /// Parses text, while nothing is held back.
    fn text(&mut self, piece: &mut Bytes) -> Option<Event> {
        if piece.is_empty() {
            return None;
        }
        let mut from = 0;
        while let Some(found) = memchr::memchr(COMMENT[0], &piece[from..]) {
            let at = from + found;
            let rest = &piece[at..];
            let seen = rest.iter().zip(COMMENT).take_while(|(a, b)| a == b).count();
            let is_open =
                seen == rest.len() || (seen == COMMENT.len() && rest.get(seen) == Some(&b'#'));
            if is_open {
                let text = piece.split_to(at);
                self.state = State::Text(seen);
                let _ = piece.split_to(seen);
                return match text.is_empty() {
                    true => self.next(piece),
                    false => Some(Event::Text(text)),
                };
            }
            from = at + seen;
        }
        Some(Event::Text(std::mem::take(piece)))
    }

    /// Parses after so many bytes of a comment's beginning, which are held back.
    fn maybe_comment(&mut self, piece: &mut Bytes, mut seen: usize) -> Option<Event> {
        while let Some(byte) = piece.first() {
            match COMMENT.get(seen) {
                Some(expected) if byte == expected => {
                    seen += 1;
                    self.state = State::Text(seen);
                    let _ = piece.split_to(1);
                }
                None if *byte == b'#' => {
                    let _ = piece.split_to(1);
                    self.command = Command::default();
                    self.state = State::BeforeName;
                    return self.next(piece);
                }
                // It was text.
                _ => {
                    self.state = State::Text(0);
                    return Some(Event::Text(Bytes::from_static(&COMMENT[..seen])));
                }
            }
        }
        None
    }

    fn step(&mut self, byte: u8) -> Option<Event> {
        let is_blank = matches!(byte, b' ' | b'\t' | b'\r' | b'\n');
        match self.state {
            State::Text(_) => unreachable!("text is searched, not stepped through"),
            State::BeforeName if is_blank => None,
            State::BeforeName => {
                self.command.name.push(byte);
                self.go(State::Name)
            }
            State::Name => self.name(byte, is_blank),
            State::BeforeParameter if is_blank => None,
            State::BeforeParameter if byte == b'-' => self.go(State::End(1)),
            State::BeforeParameter => {
                self.add_parameter(byte);
                self.go(State::Parameter)
            }
            State::Parameter => self.parameter(byte, is_blank),
            State::BeforeEquals | State::BeforeValue if is_blank => None,
            State::BeforeEquals if byte == b'=' => self.go(State::BeforeValue),
            State::BeforeEquals => {
                let place = format!("after \"{}\" parameter", self.last_name());
                self.unexpected(byte, &place, true)
            }
            State::BeforeValue if matches!(byte, b'"' | b'\'') => self.go(State::Value(byte)),
            State::BeforeValue => {
                let place = format!("before value of \"{}\" parameter", self.last_name());
                self.unexpected(byte, &place, true)
            }
            State::Value(quote) if byte == quote => self.go(State::BehindValue),
            State::Value(quote) => {
                self.state = match byte {
                    b'\\' => State::Protected(quote),
                    _ => State::Value(quote),
                };
                self.add_to_value(byte)
            }
            State::Protected(quote) => {
                self.state = State::Value(quote);
                self.add_to_value(byte)
            }
            State::BehindValue if is_blank => self.go(State::BeforeParameter),
            State::BehindValue if byte == b'-' => self.go(State::End(1)),
            State::BehindValue => {
                let value = text(self.last().map_or(&[], |(_, value)| &value[..]));
                let name = self.last_name();
                let place = format!("after \"{value}\" value of \"{name}\" parameter");
                self.unexpected(byte, &place, false)
            }
            State::End(1) if byte == b'-' => self.go(State::End(2)),
            State::End(2) if byte == b'>' => {
                self.state = State::Text(0);
                Some(Event::Command(std::mem::take(&mut self.command)))
            }
            State::End(_) => self.unexpected(byte, "", false),
            State::Wrong(2) if byte == b'>' => {
                self.state = State::Text(0);
                Some(Event::Broken)
            }
            State::Wrong(seen) if byte == b'-' && seen < 2 => self.go(State::Wrong(seen + 1)),
            State::Wrong(_) => self.go(State::Wrong(0)),
        }
    }

    fn name(&mut self, byte: u8, is_blank: bool) -> Option<Event> {
        if is_blank {
            return self.go(State::BeforeParameter);
        }
        if byte == b'-' {
            return self.go(State::End(1));
        }
        if self.command.name.len() == NAME_MAX {
            let sentence = format!(
                "the \"{}{}...\" SSI command is too long",
                self.name_text(),
                text(&[byte])
            );
            return self.fault(sentence, 0);
        }
        self.command.name.push(byte);
        None
    }

    fn parameter(&mut self, byte: u8, is_blank: bool) -> Option<Event> {
        if is_blank {
            return self.go(State::BeforeEquals);
        }
        match byte {
            b'=' => return self.go(State::BeforeValue),
            b'-' => {
                let place = format!("after \"{}\" parameter", self.last_name());
                return self.unexpected(byte, &place, true);
            }
            _ => {}
        }
        let (name, _) = self.command.parameters.last_mut()?;
        if name.len() == NAME_MAX {
            let sentence = format!(
                "too long \"{}{}...\" parameter in \"{}\" SSI command",
                self.last_name(),
                text(&[byte]),
                self.name_text()
            );
            return self.fault(sentence, 0);
        }
        name.push(byte);
        None
    }

    fn add_parameter(&mut self, byte: u8) {
        let parameters = &mut self.command.parameters;
        if parameters.len() == PARAMETERS_MAX {
            // The last place is for excess parameters.
            self.command.has_too_many = true;
            parameters.pop();
        }
        parameters.push((vec![byte], Vec::new()));
    }

    fn add_to_value(&mut self, byte: u8) -> Option<Event> {
        let value_max = self.value_max;
        let (_, value) = self.command.parameters.last_mut()?;
        if value.len() < value_max {
            value.push(byte);
            return None;
        }
        let sentence = format!(
            "too long \"{}{}...\" value of \"{}\" parameter in \"{}\" SSI command",
            text(value),
            text(&[byte]),
            self.last_name(),
            self.name_text()
        );
        self.fault(sentence, 0)
    }

    fn go(&mut self, state: State) -> Option<Event> {
        self.state = state;
        None
    }

    fn unexpected(&mut self, byte: u8, place: &str, may_end: bool) -> Option<Event> {
        let blank = if place.is_empty() { "" } else { " " };
        let sentence = format!(
            "unexpected \"{}\" symbol{blank}{place} in \"{}\" SSI command",
            text(&[byte]),
            self.name_text()
        );
        self.fault(sentence, usize::from(may_end && byte == b'-'))
    }

    fn fault(&mut self, sentence: String, dashes: usize) -> Option<Event> {
        self.state = State::Wrong(dashes);
        Some(Event::Fault(sentence))
    }

    fn last(&self) -> Option<&(Vec<u8>, Vec<u8>)> {
        self.command.parameters.last()
    }

    fn last_name(&self) -> String {
        text(self.last().map_or(&[], |(name, _)| &name[..]))
    }

    fn name_text(&self) -> String {
        text(&self.command.name)
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The events of a page, abbreviated.
    fn parsed(pieces: &[&[u8]]) -> (String, Vec<String>) {
        let (mut parser, mut out, mut faults) = (Parser::new(20), String::new(), Vec::new());
        for piece in pieces {
            let mut piece = Bytes::copy_from_slice(piece);
            while let Some(event) = parser.next(&mut piece) {
                match event {
                    Event::Text(bytes) => out += &text(&bytes),
                    Event::Command(command) => out += &shown(&command),
                    Event::Fault(sentence) => faults.push(sentence),
                    Event::Broken => out += "[broken]",
                }
            }
            assert!(piece.is_empty());
        }
        out += &text(&parser.end().unwrap_or_default());
        (out, faults)
    }

    fn shown(command: &Command) -> String {
        let mut out = format!("[{}", text(&command.name));
        for (name, value) in &command.parameters {
            out += &format!(" {}={}", text(name), text(value));
        }
        if command.has_too_many {
            out += " …";
        }
        out + "]"
    }

    fn page(page: &str) -> String {
        parsed(&[page.as_bytes()]).0
    }

    #[test]
    fn commands() {
        assert_eq!(page("a<!--#echo var=\"x\" -->b"), "a[echo var=x]b");
        assert_eq!(
            page("<!--# \n include virtual = '/a?\"b' wait=\"yes\"-->"),
            "[include virtual=/a?\"b wait=yes]"
        );
        assert_eq!(page("<!--#endif-->"), "[endif]");
        assert_eq!(page("<!--#set var='a\\'b' -->"), "[set var=a\\'b]");
        assert_eq!(page("<!--#a b=\"-->\"-->"), "[a b=-->]");
    }

    #[test]
    fn what_is_no_command_is_text() {
        for text in [
            "a",
            "<!-- x -->",
            "<<!-",
            "<",
            "a<!--",
            "<!--x#",
            "<!---#a-->",
            "a<b<!--<c",
        ] {
            assert_eq!(page(text), text);
        }
        assert_eq!(page("<<!--#a-->"), "<[a]");
        assert_eq!(page("<!--<!--#a-->"), "<!--[a]");
    }

    #[test]
    fn pieces_make_no_difference() {
        let page = b"a<b <!--x--> <!--#if expr=\"$a = 'b\\\"' \" --> <!- <!--#x y z='1'--><!--<!--#b-->-<!";
        let whole = parsed(&[page]);
        assert_eq!(
            whole.0,
            "a<b <!--x--> [if expr=$a = 'b\\\"' ] <!- [broken]<!--[b]-<!"
        );
        for size in 1..page.len() {
            let pieces: Vec<&[u8]> = page.chunks(size).collect();
            assert_eq!(parsed(&pieces), whole, "{size}");
        }
    }

    #[test]
    fn faults() {
        for (page, sentence) in [
            (
                "<!--#a b-->",
                "unexpected \"-\" symbol after \"b\" parameter in \"a\" SSI command",
            ),
            (
                "<!--#a b c-->",
                "unexpected \"c\" symbol after \"b\" parameter in \"a\" SSI command",
            ),
            (
                "<!--#a b=c-->",
                "unexpected \"c\" symbol before value of \"b\" parameter in \"a\" SSI command",
            ),
            (
                "<!--#a b=\"c\"d-->",
                "unexpected \"d\" symbol after \"c\" value of \"b\" parameter in \"a\" SSI command",
            ),
            (
                "<!--#a -x-->",
                "unexpected \"x\" symbol in \"a\" SSI command",
            ),
            (
                "<!--#a --x-->",
                "unexpected \"x\" symbol in \"a\" SSI command",
            ),
            (
                "<!--#a b=\"012345678901234567890\"-->",
                "too long \"012345678901234567890...\" value of \"b\" parameter in \"a\" SSI command",
            ),
        ] {
            let (out, faults) = parsed(&[page.as_bytes()]);
            assert_eq!(
                (&out[..], &faults[..]),
                ("[broken]", &[sentence.to_owned()][..]),
                "{page}"
            );
        }
        let long = "x".repeat(33);
        let (out, faults) = parsed(&[format!("<!--#{long} -->a").as_bytes()]);
        assert_eq!(out, "[broken]a");
        assert_eq!(
            faults,
            [format!("the \"{long}...\" SSI command is too long")]
        );
        let (out, faults) = parsed(&[format!("<!--#a {long}='' -->").as_bytes()]);
        assert_eq!(out, "[broken]");
        assert_eq!(
            faults,
            [format!(
                "too long \"{long}...\" parameter in \"a\" SSI command"
            )]
        );
    }

    #[test]
    fn parameters_are_bounded() {
        let page = format!("<!--#a{}-->", " x='1'".repeat(PARAMETERS_MAX + 1));
        let mut parser = Parser::new(20);
        let Some(Event::Command(command)) = parser.next(&mut Bytes::from(page)) else {
            panic!("a command");
        };
        assert!(command.has_too_many);
        assert_eq!(command.parameters.len(), PARAMETERS_MAX);
    }
}
