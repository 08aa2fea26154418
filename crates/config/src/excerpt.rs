//! The few lines of a text around an error, with the place marked.

use std::ops::Range;

use annotate_snippets::{AnnotationKind, Group, Level, Renderer, Snippet};

use crate::error::Severity;
use crate::text::{Place, Span};

/// The bytes of a line that are shown before and behind the marked place.
const AROUND_BYTES_MAX: usize = 200;
/// The bytes of a marked place that are shown.
const MARKED_BYTES_MAX: usize = 200;

/// The line of `place` with the place marked and the hint below; ends in a newline.
pub(crate) fn draw(
    place: &Place,
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
        .line_of(Span::new(marked.start, marked.start).start);
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

/// The marked bytes: at most one line of them.
fn marked_range(bytes: &[u8], span: Span) -> Range<usize> {
    let start = bytes.len().min(span.start as usize);
    let most = bytes
        .len()
        .min(start + MARKED_BYTES_MAX)
        .min(span.end as usize)
        .max(start);
    let line_end = bytes[start..most].iter().position(|byte| *byte == b'\n');
    start..line_end.map_or(most, |length| start + length)
}

/// The marked bytes' line, or so much of it as is fit to be shown.
fn shown_range(bytes: &[u8], marked: &Range<usize>) -> Range<usize> {
    let from = marked.start.saturating_sub(AROUND_BYTES_MAX);
    let to = bytes.len().min(marked.end + AROUND_BYTES_MAX);
    let before = bytes[from..marked.start]
        .iter()
        .rposition(|byte| *byte == b'\n');
    let behind = bytes[marked.end..to].iter().position(|byte| *byte == b'\n');
    before.map_or(from, |at| from + at + 1)..behind.map_or(to, |length| marked.end + length)
}
