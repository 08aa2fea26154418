//! `gunzip`: decompresses gzip answers for clients that do not accept gzip. nginx-drop-in 34.

use config::{Flag, directives};
use flate2::{Decompress, FlushDecompress, Status};

use httpcore::Response;
use httpcore::request::Request;
use httpcore::settings::Location;

use super::coded::{Coder, FlushMode, OUT_LEN, Progress};
use super::{GzipTest, mark_varying};
use crate::after::compression::coded;
use httpcore::body_filter::Steps;

directives! {
    /// Decompression.
    pub struct Gunzip in Location {
        /// Decompresses responses with `Content-Encoding: gzip` for clients that do not accept it.
        gunzip: Flag = "off", [HTTP | SERVER | LOCATION] FLAG;
    }
}

/// Maximum bytes, taken and given together, that are decompressed on the loop.
const INLINE_LEN: usize = 32 << 10;
/// The largest window of deflate, as a logarithm.
const WINDOW_BITS: u8 = 15;

/// Whether answers are decompressed at a location.
#[must_use]
pub fn is_on(location: &Location) -> bool {
    location.own::<Gunzip>().gunzip
}

/// Has an answer decompressed, if that is due.
pub fn decide(request: &Request, response: &mut Response, test: &mut GzipTest, steps: &mut Steps) {
    let encoding = response.content_encoding.as_deref();
    if !request.location().own::<Gunzip>().gunzip
        || !encoding.is_some_and(|encoding| encoding.eq_ignore_ascii_case(b"gzip"))
    {
        return;
    }
    mark_varying(request, response);
    if test.takes(request, response) {
        return;
    }
    response.content_encoding = None;
    response.becomes_another();
    steps.push(|request, body| coded::body(request, body, Inflate::new(), None));
}

/// A decompressor of one or more gzip members.
#[derive(Debug)]
pub struct Inflate {
    decompress: Decompress,
    /// Whether a member has ended; the bytes that follow are another one.
    is_between: bool,
}

impl Inflate {
    /// A decompressor at the start of the first member.
    #[must_use]
    pub fn new() -> Self {
        Self {
            decompress: Decompress::new_gzip(WINDOW_BITS),
            is_between: false,
        }
    }
}

impl Default for Inflate {
    fn default() -> Self {
        Self::new()
    }
}

impl Coder for Inflate {
    const MAY_BE_LARGE: bool = false;

    fn code(
        &mut self,
        input: &[u8],
        goal: FlushMode,
        out: &mut Vec<u8>,
    ) -> Result<Progress, String> {
        let mut taken = 0;
        loop {
            let rest = &input[taken..];
            if self.is_between {
                if rest.is_empty() {
                    break;
                }
                *self = Self::new();
            }
            let before = self.decompress.total_in();
            let status = self
                .decompress
                .decompress_vec(rest, out, FlushDecompress::None);
            let status = status.map_err(|error| format!("inflate() failed: {error}"))?;
            taken += (self.decompress.total_in() - before) as usize;
            self.is_between = status == Status::StreamEnd;
            if !self.is_between {
                break;
            }
        }
        let has_room = out.len() < out.capacity();
        let is_done = taken == input.len() && has_room;
        if goal == FlushMode::End && is_done && !self.is_between {
            return Err("inflate() wants more on response end".to_owned());
        }
        Ok(Progress { taken, is_done })
    }

    fn inline_len(&self) -> usize {
        INLINE_LEN
    }

    fn codes_at_once(&self) -> bool {
        true
    }

    fn room(&self, len: usize) -> usize {
        (len * 4).min(OUT_LEN)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    fn member(text: &[u8]) -> Vec<u8> {
        let mut writer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        writer.write_all(text).unwrap();
        writer.finish().unwrap()
    }

    #[test]
    fn members_are_put_together_wherever_they_are_cut() {
        let coded = [member(b"first, "), member(b""), member(&[b'x'; 5000])].concat();
        for piece in [1, 7, coded.len()] {
            let decoded = coded::all(Inflate::new(), &coded, piece);
            assert_eq!(
                decoded,
                [&b"first, "[..], &[b'x'; 5000]].concat(),
                "{piece}"
            );
        }
    }

    #[test]
    fn what_breaks_off_or_is_no_gzip_is_an_error() {
        let whole = member(b"some text");
        let end = |coded: &[u8]| {
            let mut inflate = Inflate::new();
            let mut out = Vec::with_capacity(1000);
            inflate.code(coded, FlushMode::Take, &mut out)?;
            inflate.code(&[], FlushMode::End, &mut out)
        };
        assert!(end(&whole).is_ok());
        assert!(end(&whole[..whole.len() - 1]).is_err());
        assert!(end(b"plain text").is_err());
        assert!(end(&[&whole[..], b"x"].concat()).is_err());
    }
}
