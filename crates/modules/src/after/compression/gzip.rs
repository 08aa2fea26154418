//! `gzip`: answers compressed with deflate, in gzip's wrapping. nginx-drop-in 34.

use std::cell::RefCell;

use config::{Flag, NumberWithin, Problem, Scope, Size, Value, Word, directives};
use disk::memory::{Charge, Holder, charge};
use flate2::{Compress, Compression, FlushCompress, Status};

use crate::after::media_types::MediaTypes;

use super::coded::{Coder, FlushMode, OUT_LEN, Progress};
use super::places::Place;
use super::{Coding, ratio};

/// Bytes of gzip's header and trailer, and of an empty block.
const FRAME_LEN: usize = 64;
/// Windows that `gzip_window` accepts, as logarithms.
const WINDOW_BITS: std::ops::RangeInclusive<u8> = 9..=15;
/// Maximum compressors that one loop keeps for later answers: a few hundred KiB each, which take longer to create than
/// small bodies take to compress.
const KEPT_MAX: usize = 8;

/// `gzip_window`: the logarithm of the window's size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window(pub u8);

impl Value for Window {
    const SYNTAX: &'static str = "512 | 1k | 2k | 4k | 8k | 16k | 32k";

    fn parse(args: &[Word], scope: &mut Scope) -> Result<Self, Problem> {
        let size = Size::parse(args, scope)?;
        let bits = WINDOW_BITS.into_iter().find(|bits| 1 << bits == size.0);
        let wrong = || Problem::directive("must be 512, 1k, 2k, 4k, 8k, 16k, or 32k").at(0);
        bits.map(Window).ok_or_else(wrong)
    }
}

directives! {
    /// Compression with gzip.
    pub struct Gzip in Location {
        /// Compresses responses with status 200, 403 or 404 for clients that accept gzip. Bodies that take longer than
        /// about 100 µs are compressed in the thread pool `cpu`, which has one thread per core unless `thread_pool`
        /// sets another number.
        gzip: Flag = "off", [HTTP | SERVER | LOCATION | LOCATION_IF] FLAG;
        /// Sets the compression level, from 1 (fastest) to 9 (smallest).
        gzip_comp_level: NumberWithin<1, 9> = "1", [HTTP | SERVER | LOCATION] 1;
        /// Also compresses responses of these media types, besides `text/html`; `*` means all.
        gzip_types: MediaTypes = "text/html", [HTTP | SERVER | LOCATION] 1..;
        /// Does not compress responses whose `Content-Length` is below this.
        gzip_min_length: Size = "20", [HTTP | SERVER | LOCATION] 1;
        /// Sets the window that repetitions are searched in.
        gzip_window: Window = "32k", [HTTP | SERVER | LOCATION] 1;
    }
}

httpcore::variables! {
    /// The ratio of the original to the compressed length (gzip).
    "gzip_ratio" => fresh(|request, out| ratio::append(request, Coding::Gzip, out));
}

/// Bytes of a compressor beside its window, which it has four times (`memLevel` 8, as zlib.h has it).
const TABLES_LEN: usize = 128 << 10;

/// A compressor and its parameters.
pub struct Deflate {
    compress: Compress,
    _charge: Charge,
    level: u32,
    window: u8,
    /// Whether it has ended a stream. It is reset where the next one is coded: that clears 200 KiB.
    is_used: bool,
}

thread_local! {
    static KEPT: RefCell<Vec<Deflate>> = const { RefCell::new(Vec::new()) };
}

impl Gzip {
    /// A place for a compressor.
    pub(super) fn place(&self) -> Option<Place> {
        Place::take(OUT_LEN + TABLES_LEN + (4_usize << self.gzip_window.0))
    }

    /// A compressor for one answer.
    #[must_use]
    pub fn coder(&self) -> Deflate {
        // The level is within 1 to 9.
        let level = self.gzip_comp_level.0 as u32;
        let window = self.gzip_window.0;
        let kept = KEPT.with_borrow_mut(|kept| {
            let is_like = |one: &Deflate| one.level == level && one.window == window;
            let at = kept.iter().position(is_like)?;
            Some(kept.swap_remove(at))
        });
        kept.unwrap_or_else(|| Deflate {
            compress: Compress::new_gzip(Compression::new(level), window),
            _charge: charge(Holder::Compressors, TABLES_LEN + (4_usize << window)),
            level,
            window,
            is_used: false,
        })
    }
}

impl Coder for Deflate {
    const MAY_BE_LARGE: bool = false;

    fn code(
        &mut self,
        input: &[u8],
        goal: FlushMode,
        out: &mut Vec<u8>,
    ) -> Result<Progress, String> {
        let flush = match goal {
            FlushMode::Take => FlushCompress::None,
            FlushMode::Flush => FlushCompress::Sync,
            FlushMode::End => FlushCompress::Finish,
        };
        if std::mem::take(&mut self.is_used) {
            self.compress.reset();
        }
        let before = self.compress.total_in();
        let status = self.compress.compress_vec(input, out, flush);
        let status = status.map_err(|error| format!("deflate() failed: {error}"))?;
        let taken = (self.compress.total_in() - before) as usize;
        let has_room = out.len() < out.capacity();
        Ok(Progress {
            taken,
            is_done: match goal {
                FlushMode::Take => taken == input.len() && has_room,
                FlushMode::Flush => has_room,
                FlushMode::End => status == Status::StreamEnd,
            },
        })
    }

    fn inline_len(&self) -> usize {
        match self.level {
            0..=3 => 16 << 10,
            4..=6 => 8 << 10,
            _ => 4 << 10,
        }
    }

    fn codes_at_once(&self) -> bool {
        true
    }

    fn room(&self, len: usize) -> usize {
        len / 2 + FRAME_LEN
    }

    fn finish(mut self) {
        self.is_used = true;
        KEPT.with_borrow_mut(|kept| {
            if kept.len() < KEPT_MAX {
                kept.push(self);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use super::*;

    #[test]
    fn what_is_given_piece_by_piece_is_one_member() {
        let text: Vec<u8> = (0..300_000_u32)
            .map(|n| (n.wrapping_mul(n) % 251) as u8)
            .collect();
        for (level, window) in [(1, 15), (6, 9), (9, 15), (1, 15)] {
            let gzip = Gzip {
                gzip: true,
                gzip_comp_level: NumberWithin(level),
                gzip_types: MediaTypes::All,
                gzip_min_length: Size(0),
                gzip_window: Window(window),
            };
            let coded = crate::after::compression::coded::all(gzip.coder(), &text, 7_001);
            let mut decoded = Vec::new();
            let mut reader = flate2::read::GzDecoder::new(&coded[..]);
            reader.read_to_end(&mut decoded).unwrap();
            assert!(decoded == text, "level {level}, window {window}");
        }
    }

    #[test]
    fn a_compressor_is_used_again() {
        let gzip = Gzip {
            gzip: true,
            gzip_comp_level: NumberWithin(1),
            gzip_types: MediaTypes::All,
            gzip_min_length: Size(0),
            gzip_window: Window(15),
        };
        let mut coder = gzip.coder();
        let mut coded = Vec::with_capacity(100);
        for (input, goal) in [(&b"abc"[..], FlushMode::Take), (b"", FlushMode::End)] {
            let progress = coder.code(input, goal, &mut coded).unwrap();
            assert!(progress.is_done);
        }
        coder.finish();
        assert_eq!(KEPT.with_borrow(Vec::len), 1);
        let again = gzip.coder();
        assert_eq!(KEPT.with_borrow(Vec::len), 0);
        let mut decoded = String::new();
        let coded = [
            coded,
            crate::after::compression::coded::all(again, b"def", 1),
        ]
        .concat();
        let mut reader = flate2::read::MultiGzDecoder::new(&coded[..]);
        reader.read_to_string(&mut decoded).unwrap();
        assert_eq!(decoded, "abcdef");
    }
}
