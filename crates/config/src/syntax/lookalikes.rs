//! Comments and quotes that are none in this language: those of other languages, and of typesetting.
//!
//! Not here: what is an error (`lexer`, `grammar`), and the other hints (`advice`).

/// Typographic quotes, which editors and web pages substitute for plain ones.
const TYPOGRAPHIC_QUOTES: &str = "“”„‟‘’‚‛«»‹›";
/// The beginnings of comments in other languages.
const COMMENTS: [&str; 4] = ["//", "/*", "--", "<!--"];

/// The hint for a comment of another language.
pub(crate) const COMMENT: &str = "a comment begins with \"#\" and ends with its line";

/// Whether a word begins a comment of another language.
pub(crate) fn is_comment(word: &str) -> bool {
    COMMENTS.iter().any(|begin| word.starts_with(begin))
}

/// Whether a word begins with a typographic quote, which is none in a configuration.
pub(crate) fn is_typeset(word: &[u8]) -> bool {
    let is_it = |quote: char| word.starts_with(quote.encode_utf8(&mut [0; 4]).as_bytes());
    word.first().is_some_and(|byte| *byte >= 0x80) && TYPOGRAPHIC_QUOTES.chars().any(is_it)
}

/// Whether a character is a typographic quote.
pub(crate) fn is_quote(letter: char) -> bool {
    TYPOGRAPHIC_QUOTES.contains(letter)
}

/// The hint for a typographic quote.
pub(crate) fn typeset(quote: char) -> String {
    format!("{quote} is a quote of typesetting: a configuration's quotes are \" and '")
}
