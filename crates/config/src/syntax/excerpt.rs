//! The excerpt of an error message: the line of the text, with the position marked.

use std::ops::Range;

use annotate_snippets::{AnnotationKind, Group, Level, Renderer, Snippet};

use crate::syntax::severity::Severity;
use crate::syntax::text::{TextPlace, TextSpan};

/// Bytes of the line shown on either side of the marked range.
const AROUND_BYTES_MAX: usize = 200;
/// Bytes of the marked range that are shown.
const MARKED_BYTES_MAX: usize = 200;

/// The line of `place` with the range marked and the hint below; ends in a newline.
pub(crate) fn draw(
    place: &TextPlace,
    severity: Severity,
    hint: Option<&str>,
    in_colour: bool,
) -> String {
    let bytes = place.text.bytes();
    let marked = marked_range(bytes, place.span);
    let shown = shown_range(bytes, &marked);
    let before = String::from_utf8_lossy(&bytes[shown.start..marked.start]).into_owned();
    let within = String::from_utf8_lossy(&bytes[marked.clone()]);
    let behind = String::from_utf8_lossy(&bytes[marked.end..shown.end]);
    let span = before.len()..before.len() + within.len();
    let source = format!("{before}{within}{behind}");
    let line = place
        .text
        .line_of(TextSpan::new(marked.start, marked.start).start);
    let level = match severity {
        Severity::Emerg => Level::ERROR,
        Severity::Warn => Level::WARNING,
    };
    let snippet = Snippet::source(source).line_start(line).fold(false);
    let mut group =
        Group::with_level(level).element(snippet.annotation(AnnotationKind::Primary.span(span)));
    if let Some(hint) = hint {
        group = group.element(Level::HELP.message(hint));
    }
    let renderer = if in_colour {
        Renderer::styled()
    } else {
        Renderer::plain()
    };
    let mut out = renderer.render(&[group]);
    out.push('\n');
    out
}

/// The marked bytes, within one line.
fn marked_range(bytes: &[u8], span: TextSpan) -> Range<usize> {
    let start = bytes.len().min(span.start as usize);
    let most = bytes
        .len()
        .min(start + MARKED_BYTES_MAX)
        .min(span.end as usize)
        .max(start);
    let line_end = bytes[start..most].iter().position(|byte| *byte == b'\n');
    start..line_end.map_or(most, |length| start + length)
}

/// The part of the line around the marked bytes that is shown.
fn shown_range(bytes: &[u8], marked: &Range<usize>) -> Range<usize> {
    let from = marked.start.saturating_sub(AROUND_BYTES_MAX);
    let to = bytes.len().min(marked.end + AROUND_BYTES_MAX);
    let before = bytes[from..marked.start]
        .iter()
        .rposition(|byte| *byte == b'\n');
    let behind = bytes[marked.end..to].iter().position(|byte| *byte == b'\n');
    before.map_or(from, |at| from + at + 1)..behind.map_or(to, |length| marked.end + length)
}
