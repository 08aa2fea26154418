//! Writes requests as FastCGI records: the beginning, names and values, and the framing around the pieces of the body.

use super::{PARAMS_MAX, RECORD_HEAD, REQUEST, VERSION, kind};

/// The only role in use: FCGI_RESPONDER.
const RESPONDER: u8 = 1;
/// FCGI_KEEP_CONN: asks the server to leave the connection open.
const KEEP_CONN: u8 = 1;
/// Records are padded to a multiple of this number of bytes.
const ALIGNED_TO: usize = 8;
static PADDING: [u8; ALIGNED_TO] = [0; ALIGNED_TO];

/// Names and values that exceed [`PARAMS_MAX`], with their size in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("fastcgi request record is too big: {0}")]
pub struct TooBig(pub usize);

/// Appends a request up to its body: `write` appends names and values, each with [`pair`]. A request without a body is
/// ended, too.
///
/// # Errors
/// More than [`PARAMS_MAX`] bytes of names and values; the content of `out` is then invalid.
pub fn request<E: From<TooBig>>(
    out: &mut Vec<u8>,
    keeps_connection: bool,
    has_body: bool,
    write: impl FnOnce(&mut Vec<u8>) -> Result<(), E>,
) -> Result<(), E> {
    out.extend_from_slice(&record_head(kind::BEGIN_REQUEST, 8));
    let flags = if keeps_connection { KEEP_CONN } else { 0 };
    out.extend_from_slice(&[0, RESPONDER, flags, 0, 0, 0, 0, 0]);
    let start = out.len();
    out.extend_from_slice(&[0; RECORD_HEAD]);
    write(out)?;
    let length = out.len() - start - RECORD_HEAD;
    match length {
        // An empty record would end the names and values.
        0 => out.truncate(start),
        1..=PARAMS_MAX => {
            out[start..start + RECORD_HEAD].copy_from_slice(&record_head(kind::PARAMS, length));
            out.extend_from_slice(padding(length));
        }
        _ => return Err(TooBig(length).into()),
    }
    out.extend_from_slice(&record_head(kind::PARAMS, 0));
    if !has_body {
        end_body(out);
    }
    Ok(())
}

/// Appends a name and its value.
pub fn pair(out: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    length(out, name.len());
    length(out, value.len());
    out.extend_from_slice(name);
    out.extend_from_slice(value);
}

/// Appends a length: one byte up to 127, four bytes above. (A length that exceeds four bytes fits in no record anyway.)
fn length(out: &mut Vec<u8>, length: usize) {
    match u8::try_from(length) {
        Ok(short @ 0..=127) => out.push(short),
        _ => out.extend_from_slice(&(length as u32 | 1 << 31).to_be_bytes()),
    }
}

/// Begins a piece of a body, of 1 to [`super::CONTENT_MAX`] bytes: appends the framing before it, and returns the
/// framing after it.
pub(crate) fn body_piece(out: &mut Vec<u8>, length: usize) -> &'static [u8] {
    out.extend_from_slice(&record_head(kind::STDIN, length));
    padding(length)
}

/// Appends the end of a body.
pub fn end_body(out: &mut Vec<u8>) {
    out.extend_from_slice(&record_head(kind::STDIN, 0));
}

fn padding(length: usize) -> &'static [u8] {
    &PADDING[..length.wrapping_neg() % ALIGNED_TO]
}

fn record_head(kind: u8, length: usize) -> [u8; RECORD_HEAD] {
    debug_assert!(
        length <= usize::from(u16::MAX),
        "a record has two bytes for its length"
    );
    let [high, low] = (length as u16).to_be_bytes();
    let [request_high, request_low] = REQUEST;
    let padding = padding(length).len() as u8;
    [
        VERSION,
        kind,
        request_high,
        request_low,
        high,
        low,
        padding,
        0,
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_without_a_body() {
        let mut out = Vec::new();
        request::<TooBig>(&mut out, true, false, |out| {
            pair(out, b"A", b"bc");
            pair(out, &[b'n'; 128], b"");
            Ok(())
        })
        .unwrap();
        let mut expected = vec![1, 1, 0, 1, 0, 8, 0, 0, 0, 1, 1, 0, 0, 0, 0, 0];
        expected.extend([
            1, 4, 0, 1, 0, 138, 6, 0, 1, 2, b'A', b'b', b'c', 0x80, 0, 0, 128, 0,
        ]);
        expected.extend([b'n'; 128]);
        expected.extend([0; 6]);
        expected.extend([1, 4, 0, 1, 0, 0, 0, 0, 1, 5, 0, 1, 0, 0, 0, 0]);
        assert_eq!(out, expected);
    }

    #[test]
    fn a_request_with_too_much() {
        let write = |len: usize| {
            let mut out = Vec::new();
            request::<TooBig>(&mut out, false, true, |out| {
                pair(out, b"N", &vec![b'x'; len]);
                Ok(())
            })
            .map(|()| out.len())
        };
        // One byte for the length of the name, four for that of the value, and the name.
        assert!(write(PARAMS_MAX - 6).is_ok());
        assert_eq!(write(PARAMS_MAX - 5), Err(TooBig(PARAMS_MAX + 1)));
    }

    #[test]
    fn a_body_is_filled_up() {
        let mut out = Vec::new();
        assert_eq!(body_piece(&mut out, 5), [0; 3]);
        assert_eq!(body_piece(&mut out, 32 * 1024), b"");
        end_body(&mut out);
        let expected = [
            [1, 5, 0, 1, 0, 5, 3, 0],
            [1, 5, 0, 1, 0x80, 0, 0, 0],
            [1, 5, 0, 1, 0, 0, 0, 0],
        ];
        assert_eq!(out, expected.concat());
    }
}
