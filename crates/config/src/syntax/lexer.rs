//! Splits bytes into statements: the words up to a `;`, a `{`, a `}` or the end.
//!
//! Follows nginx's tokenizer byte by byte (`ngx_conf_read_token`), with its oddities: a backslash keeps the next byte
//! from ending a word, but only `\" \' \\ \t \r \n` are replaced; `${` does not open a block; `"` and `#` inside a word
//! are ordinary bytes; after a closing quote only white space, `;`, `{` or `)` may follow. One difference: a comment
//! may be longer than nginx's buffer. Invariant: every byte is looked at once, so the work is linear.

use std::sync::Arc;

use bytes::{BufMut, Bytes, BytesMut};

use crate::syntax::error::Error;
use crate::syntax::lookalikes;
use crate::syntax::text::{Text, TextOrigin, TextPlace, TextSpan};
use crate::syntax::tree::Word;

/// Maximum length of a word in a file in bytes; its end must come within them (nginx's `NGX_CONF_BUFFER`).
pub const WORD_BYTES_MAX: usize = 4096;
/// Maximum number of words of one statement.
pub const WORDS_MAX: usize = 65_536;

/// Bytes of an overlong word that its message shows, as many as in nginx.
const SHOWN_BYTES: usize = 10;

/// The words of a statement and the byte that ended them, or the end of the text.
#[derive(Debug)]
pub(crate) enum Statement {
    /// Words ended by a `;` at this offset.
    Line(Vec<Word>, u32),
    /// Words ended by a `{` at this offset.
    Opening(Vec<Word>, u32),
    /// A `}` at this offset.
    Closing(u32),
    /// Nothing but white space and comments up to the end.
    End,
}

/// Reads one text, statement by statement.
pub(crate) struct Lexer<'a> {
    text: &'a Arc<Text>,
    at: usize,
    /// Where nginx's buffer would have to start to hold the current token: at most [`WORD_BYTES_MAX`] before `at`.
    held_from: usize,
}

impl<'a> Lexer<'a> {
    pub(crate) fn new(text: &'a Arc<Text>) -> Self {
        Self {
            text,
            at: 0,
            held_from: 0,
        }
    }

    /// The text being read.
    pub(crate) fn text(&self) -> &'a Arc<Text> {
        self.text
    }

    /// The next statement.
    pub(crate) fn statement(&mut self) -> Result<Statement, Error> {
        let mut words = Vec::new();
        loop {
            let start = self.at;
            let Some(byte) = self.next(None)? else {
                return if words.is_empty() {
                    Ok(Statement::End)
                } else {
                    Err(self.unexpected_end(&words))
                };
            };
            self.held_from = start;
            let offset = TextSpan::new(start, start).start;
            match byte {
                _ if is_white(byte) => {}
                b';' if !words.is_empty() => return Ok(Statement::Line(words, offset)),
                b'{' if !words.is_empty() => return Ok(Statement::Opening(words, offset)),
                b'}' if words.is_empty() => return Ok(Statement::Closing(offset)),
                b';' | b'{' => return Err(self.unexpected(start)),
                b'}' => return Err(self.unclosed(start, &words)),
                b'#' => self.skip_comment(),
                b'"' | b'\'' => words.push(self.quoted_word(byte, &words)?),
                _ => words.push(self.plain_word(&words)?),
            }
            if words.len() > WORDS_MAX {
                let sentence = format!("too many words in one directive, there may be {WORDS_MAX}");
                return Err(self.error(sentence, start, self.at));
            }
        }
    }

    /// The next byte, as long as nginx's buffer would hold the whole current token. `quote` is the open quote, if any.
    fn next(&mut self, quote: Option<u8>) -> Result<Option<u8>, Error> {
        let byte = self.text.bytes().get(self.at).copied();
        let is_full = self.at - self.held_from == WORD_BYTES_MAX;
        if is_full && byte.is_some() && self.text.origin() == TextOrigin::File {
            return Err(self.too_long(self.held_from, quote));
        }
        self.at += usize::from(byte.is_some());
        Ok(byte)
    }

    fn skip_comment(&mut self) {
        let rest = &self.text.bytes()[self.at..];
        let length = rest.iter().position(|byte| *byte == b'\n');
        self.at += length.unwrap_or(rest.len());
        self.held_from = self.at;
    }

    /// Reads a word whose first byte was just read; white space, `;` or `{` ends it.
    fn plain_word(&mut self, before: &[Word]) -> Result<Word, Error> {
        self.at -= 1;
        let start = self.at;
        let end = self.word_end(start, None, before)?;
        self.at = end + usize::from(is_white(self.text.bytes()[end]));
        Ok(self.word(start, end, false))
    }

    /// Reads a word whose opening quote was just read, and checks the byte after the closing one.
    fn quoted_word(&mut self, quote: u8, before: &[Word]) -> Result<Word, Error> {
        let start = self.at;
        self.held_from = start;
        let end = self.word_end(start, Some(quote), before)?;
        let behind = self.next(None)?;
        let is_space = behind.is_some_and(is_white);
        self.at -= usize::from(behind.is_some() && !is_space);
        if is_space || matches!(behind, None | Some(b';' | b'{' | b')')) {
            return Ok(self.word(start, end, true));
        }
        let hint = "a space or \";\" must follow a closing quote";
        Err(self.unexpected(self.at).with_hint(Some(hint)))
    }

    /// Reads up to the byte that ends the word, and returns that byte's offset.
    fn word_end(
        &mut self,
        start: usize,
        quote: Option<u8>,
        before: &[Word],
    ) -> Result<usize, Error> {
        let mut after_dollar = false;
        loop {
            let at = self.at;
            let Some(byte) = self.next(quote)? else {
                return Err(self.word_without_end(start, quote, before));
            };
            if byte == b'{' && after_dollar {
                continue;
            }
            after_dollar = byte == b'$';
            let ends = match quote {
                Some(quote) => byte == quote,
                None => is_white(byte) || matches!(byte, b';' | b'{'),
            };
            if byte == b'\\' {
                self.next(quote)?;
            } else if ends {
                return Ok(at);
            }
        }
    }

    fn word(&self, start: usize, end: usize, is_quoted: bool) -> Word {
        let raw = self.text.bytes().slice(start..end);
        let bytes = if raw.contains(&b'\\') {
            unescape(&raw)
        } else {
            raw
        };
        let quote = usize::from(is_quoted);
        Word::new(
            bytes,
            Arc::clone(self.text),
            TextSpan::new(start - quote, end + quote),
            is_quoted,
        )
    }

    fn error(&self, sentence: String, start: usize, end: usize) -> Error {
        Error::at(
            sentence,
            &TextPlace {
                text: Arc::clone(self.text),
                span: TextSpan::new(start, end),
            },
        )
    }

    fn unexpected(&self, at: usize) -> Error {
        let byte = &self.text.bytes()[at..=at];
        self.error(
            format!("unexpected \"{}\"", String::from_utf8_lossy(byte)),
            at,
            at + 1,
        )
    }

    fn unclosed(&self, at: usize, words: &[Word]) -> Error {
        self.unexpected(at)
            .with_hint(Some(&missing_semicolon(words)))
    }

    fn unexpected_end(&self, words: &[Word]) -> Error {
        let end = self.text.bytes().len();
        let last = words
            .last()
            .map_or(end, |word| word.place().span.start as usize);
        let sentence = match self.text.origin() {
            TextOrigin::CommandLine => "unexpected end of parameter, expecting \";\"",
            TextOrigin::File | TextOrigin::Default => {
                "unexpected end of file, expecting \";\" or \"}\""
            }
        };
        let error = self
            .error(sentence.to_owned(), last, end)
            .on_line_of(TextSpan::new(end, end).end);
        if words.is_empty() {
            error
        } else {
            error.with_hint(Some(&missing_semicolon(words)))
        }
    }

    fn word_without_end(&self, start: usize, quote: Option<u8>, before: &[Word]) -> Error {
        let Some(quote) = quote else {
            let hint = before.first().map(|_| missing_semicolon(before));
            return self
                .unexpected_end(&[])
                .marking(TextSpan::new(start, self.at))
                .with_hint(hint.as_deref());
        };
        let hint = format!(
            "the quote {} that opens here is never closed",
            quote as char
        );
        self.unexpected_end(&[])
            .marking(TextSpan::new(start - 1, start))
            .with_hint(Some(&hint))
    }

    fn too_long(&self, start: usize, quote: Option<u8>) -> Error {
        let first = &self.text.bytes()[start..start + SHOWN_BYTES];
        let sentence = match quote {
            None => format!(
                "too long parameter \"{}...\" started",
                String::from_utf8_lossy(first)
            ),
            Some(quote) => {
                format!(
                    "too long parameter, probably missing terminating \"{}\" character",
                    quote as char
                )
            }
        };
        let from = start - usize::from(quote.is_some());
        let hint = format!("a word may have {} bytes", WORD_BYTES_MAX - 1);
        self.error(sentence, from, start + SHOWN_BYTES)
            .with_hint(Some(&hint))
    }
}

fn is_white(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\r' | b'\n')
}

fn missing_semicolon(words: &[Word]) -> String {
    let name = words.first().map(Word::display).unwrap_or_default();
    if lookalikes::is_comment(&name) {
        return lookalikes::COMMENT.to_owned();
    }
    format!("is a \";\" missing behind the directive \"{name}\"?")
}

/// Undoes the escapes that nginx knows; any other backslash is kept, with the byte after it.
fn unescape(raw: &[u8]) -> Bytes {
    let mut out = BytesMut::with_capacity(raw.len());
    let mut rest = raw.iter().copied().peekable();
    while let Some(byte) = rest.next() {
        let replaced = match (byte, rest.peek()) {
            (b'\\', Some(b'"')) => b'"',
            (b'\\', Some(b'\'')) => b'\'',
            (b'\\', Some(b'\\')) => b'\\',
            (b'\\', Some(b't')) => b'\t',
            (b'\\', Some(b'r')) => b'\r',
            (b'\\', Some(b'n')) => b'\n',
            _ => {
                out.put_u8(byte);
                continue;
            }
        };
        rest.next();
        out.put_u8(replaced);
    }
    out.freeze()
}
