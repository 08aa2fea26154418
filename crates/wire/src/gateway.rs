//! Writes uwsgi and SCGI requests: names and values, before the body. (The responses are those of CGI programs:
//! [`crate::exchange::AnswerReader::of_gateway`].)
//!
//! Knows no socket. Invariant: the output is exactly one request, whatever the values are.

/// Maximum size in bytes of the names and values of a uwsgi request.
pub const UWSGI_PARAMS_MAX: usize = u16::MAX as usize;
/// Maximum size in bytes of the names and values of an SCGI request.
pub const SCGI_PARAMS_MAX: usize = 1024 * 1024;

/// Why a request cannot be sent.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unsendable {
    /// Its names and values have this number of bytes, which is too many.
    #[error("{0} request is too big: {1}")]
    TooBig(&'static str, usize),
    /// A name or value holds NUL, which would end it.
    #[error("invalid parameter \"{0}\" for scgi upstream")]
    Nul(String),
}

/// Appends the head of a uwsgi packet and the pairs that `write` appends, each with [`uwsgi_pair`].
///
/// # Errors
/// More than [`UWSGI_PARAMS_MAX`] bytes; the content of `out` is then invalid.
pub fn uwsgi<E: From<Unsendable>>(
    out: &mut Vec<u8>,
    modifiers: (u8, u8),
    write: impl FnOnce(&mut Vec<u8>) -> Result<(), E>,
) -> Result<(), E> {
    let start = out.len();
    out.extend_from_slice(&[modifiers.0, 0, 0, modifiers.1]);
    write(out)?;
    let length = out.len() - start - 4;
    let Ok(size) = u16::try_from(length) else {
        return Err(Unsendable::TooBig("uwsgi", length).into());
    };
    out[start + 1..start + 3].copy_from_slice(&size.to_le_bytes());
    Ok(())
}

/// Appends a name and its value. (A length over two bytes is cut off, but the packet is then refused.)
pub fn uwsgi_pair(out: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    for text in [name, value] {
        out.extend_from_slice(&(text.len() as u16).to_le_bytes());
        out.extend_from_slice(text);
    }
}

/// Appends an SCGI head: the length of the body, and the pairs that `write` appends, each with [`scgi_pair`].
///
/// # Errors
/// More than [`SCGI_PARAMS_MAX`] bytes; the content of `out` is then invalid.
pub fn scgi<E: From<Unsendable>>(
    out: &mut Vec<u8>,
    body_length: u64,
    write: impl FnOnce(&mut Vec<u8>) -> Result<(), E>,
) -> Result<(), E> {
    let start = out.len();
    let mut digits = itoa::Buffer::new();
    scgi_pair(
        out,
        b"CONTENT_LENGTH",
        digits.format(body_length).as_bytes(),
    )?;
    write(out)?;
    let length = out.len() - start;
    if length > SCGI_PARAMS_MAX {
        return Err(Unsendable::TooBig("scgi", length).into());
    }
    let prefix = digits.format(length).bytes().chain([b':']);
    out.splice(start..start, prefix);
    out.push(b',');
    Ok(())
}

/// Appends a name and its value.
///
/// # Errors
/// One of them holds a NUL.
pub fn scgi_pair(out: &mut Vec<u8>, name: &[u8], value: &[u8]) -> Result<(), Unsendable> {
    for text in [name, value] {
        if memchr::memchr(0, text).is_some() {
            return Err(Unsendable::Nul(name.escape_ascii().to_string()));
        }
        out.extend_from_slice(text);
        out.push(0);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uwsgi_packet() {
        let mut out = Vec::new();
        uwsgi::<Unsendable>(&mut out, (5, 7), |out| {
            uwsgi_pair(out, b"A", b"bc");
            Ok(())
        })
        .unwrap();
        assert_eq!(out, *b"\x05\x07\x00\x07\x01\x00A\x02\x00bc");
        let big = uwsgi::<Unsendable>(&mut out, (0, 0), |out| {
            uwsgi_pair(out, b"A", &vec![0; UWSGI_PARAMS_MAX - 4]);
            Ok(())
        });
        let length = UWSGI_PARAMS_MAX + 1;
        assert_eq!(big, Err(Unsendable::TooBig("uwsgi", length)));
    }

    #[test]
    fn an_scgi_head() {
        let mut out = Vec::new();
        scgi::<Unsendable>(&mut out, 27, |out| scgi_pair(out, b"SCGI", b"1")).unwrap();
        assert_eq!(out, *b"25:CONTENT_LENGTH\x0027\x00SCGI\x001\x00,");
        let nul = scgi::<Unsendable>(&mut out, 0, |out| scgi_pair(out, b"A", b"b\0c"));
        assert_eq!(nul, Err(Unsendable::Nul("A".to_owned())));
    }
}
