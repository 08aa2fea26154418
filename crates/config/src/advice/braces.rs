//! Finds a missing or superfluous `}` from the indentation: for a reader a block ends where the indentation does, for
//! the language it ends at a brace.
//!
//! Invariants: a text without indentation gives no finding except the last block that is open at its end; finding a
//! word's column costs no more than the blanks before it.

use std::sync::Arc;

use crate::syntax::lexer::{Lexer, Statement};
use crate::syntax::text::{Text, TextSpan};
use crate::syntax::tree::BLOCKS_DEEP_MAX;

/// Columns per tab.
const TAB_COLUMNS: usize = 8;

/// The first disagreement between braces and indentation.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Finding {
    /// A block that is still open although the indentation says that it has ended.
    Unclosed {
        /// Its name and the span of the name.
        name: String,
        span: TextSpan,
        /// The first line that should not be in the block.
        before: usize,
    },
    /// A `}` that closes more than the indentation says.
    TooMany {
        /// Its line.
        line: usize,
    },
}

/// An open block.
struct OpenBlock {
    name: String,
    span: TextSpan,
    column: Option<usize>,
    /// Whether lines in it are indented deeper than the block.
    is_indented: bool,
    /// The column of the block that ended last within it.
    last_block: Option<usize>,
}

/// Whether a missing or superfluous `}` may be the cause of an error with this sentence.
pub(crate) fn may_be_why(sentence: &str) -> bool {
    sentence.ends_with("directive is not allowed here")
        || sentence == "unexpected \"}\""
        || sentence.starts_with("unexpected end of file, expecting \"}\"")
        || sentence.starts_with("location \"")
        || sentence.starts_with("named location \"")
}

/// The first disagreement; `None` if there is none, or if the text cannot be read up to there.
pub(crate) fn find(text: &Arc<Text>) -> Option<Finding> {
    let mut lexer = Lexer::new(text);
    let mut open: Vec<OpenBlock> = Vec::new();
    loop {
        match lexer.statement().ok()? {
            Statement::Line(words, _) => {
                let column = column_of(text, words.first()?.place().span.start);
                if let Some(finding) =
                    stands_outside(text, open.last_mut(), column, words.first()?.place().span)
                {
                    return Some(finding);
                }
            }
            Statement::Opening(words, _) => {
                let span = words.first()?.place().span;
                let column = column_of(text, span.start);
                if let Some(finding) = stands_outside(text, open.last_mut(), column, span) {
                    return Some(finding);
                }
                if open.len() == BLOCKS_DEEP_MAX {
                    return None;
                }
                let name = words.first()?.display().into_owned();
                open.push(OpenBlock {
                    name,
                    span,
                    column,
                    is_indented: false,
                    last_block: None,
                });
            }
            Statement::Closing(at) => {
                let closed = open.pop()?;
                if let Some(finding) = closing(text, &closed, at) {
                    return Some(finding);
                }
                if let Some(around) = open.last_mut() {
                    around.last_block = closed.column;
                }
            }
            Statement::End => {
                let last = open.pop()?;
                let before =
                    text.line_of(TextSpan::new(text.bytes().len(), text.bytes().len()).start);
                return Some(Finding::Unclosed {
                    name: last.name,
                    span: last.span,
                    before,
                });
            }
        }
    }
}

/// Finds a statement indented no deeper than its block, if other statements in that block are.
fn stands_outside(
    text: &Text,
    block: Option<&mut OpenBlock>,
    column: Option<usize>,
    span: TextSpan,
) -> Option<Finding> {
    let block = block?;
    let (outer, column) = (block.column?, column?);
    if column > outer {
        block.is_indented = true;
        return None;
    }
    block.is_indented.then(|| Finding::Unclosed {
        name: block.name.clone(),
        span: block.span,
        before: text.line_of(span.start),
    })
}

/// Finds a `}` indented less than its block, or as deep as a block that has ended within it.
fn closing(text: &Text, block: &OpenBlock, at: u32) -> Option<Finding> {
    let (outer, column) = (block.column?, column_of(text, at)?);
    let line = text.line_of(at);
    if column < outer {
        let (name, span) = (block.name.clone(), block.span);
        return Some(Finding::Unclosed {
            name,
            span,
            before: line,
        });
    }
    (column > outer && block.last_block == Some(column)).then_some(Finding::TooMany { line })
}

/// The column of a byte, if it is the first on its line.
fn column_of(text: &Text, at: u32) -> Option<usize> {
    let before = &text.bytes()[..at as usize];
    let blanks = before
        .iter()
        .rev()
        .take_while(|byte| matches!(byte, b' ' | b'\t'));
    let begin = before.len() - blanks.count();
    if begin > 0 && before[begin - 1] != b'\n' {
        return None;
    }
    let mut column = 0;
    for byte in &before[begin..] {
        column = match byte {
            b'\t' => (column / TAB_COLUMNS + 1) * TAB_COLUMNS,
            _ => column + 1,
        };
    }
    Some(column)
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    fn finding(text: &'static str) -> Option<Finding> {
        let text = Text::file(PathBuf::from("/n.conf"), text.as_bytes().into());
        find(&Arc::new(text))
    }

    #[test]
    fn correct_indentation_has_no_finding() {
        for text in [
            "a {\n  b {\n    c;\n  }\n  d;\n}\n",
            "a {\nb {\nc;\n}\nd;\n}\n",
            "a { b { c; } d; }\n",
            "a\n{\n  b\n  {\n    c;\n  }\n}\n",
            "",
        ] {
            assert_eq!(finding(text), None, "{text}");
        }
    }

    #[test]
    fn the_block_whose_end_is_missing_is_named() {
        let unclosed = |text| match finding(text) {
            Some(Finding::Unclosed { name, before, .. }) => (name, before),
            other => panic!("{other:?}"),
        };
        let text = "a {\n  b {\n    c;\n  d {\n    c;\n  }\n}\n";
        assert_eq!(unclosed(text), ("b".to_owned(), 4));
        assert_eq!(unclosed("a {\n  b {\n    c;\n}\n"), ("b".to_owned(), 4));
        assert_eq!(unclosed("a {\nb {\nc;\n}\n"), ("a".to_owned(), 5));
        assert_eq!(unclosed("a {\n\tb;\na {\n\tb;\n}\n"), ("a".to_owned(), 3));
    }

    #[test]
    fn a_superfluous_brace_is_found() {
        let text = "a {\n  b {\n    c;\n  }\n  }\n  d;\n}\n";
        assert_eq!(finding(text), Some(Finding::TooMany { line: 5 }));
    }
}
