//! `brotli`: answers compressed with Brotli, by the directives of the module ngx_brotli.

use brotli::enc::encode::{
    BrotliEncoderOperation, BrotliEncoderParameter, BrotliEncoderStateStruct,
};
use brotli::enc::{Allocator, BrotliAlloc, SliceWrapper, StandardAlloc};
use config::{Flag, NumberWithin, Problem, Scope, Size, Value, Word, directives};
use disk::memory::{Charge, Holder, charge};

use crate::after::media_types::MediaTypes;

use super::coded::{Coder, FlushMode, OUT_LEN, Progress};
use super::places::Place;
use super::{Coding, Unused, place, ratio};

/// Windows that `brotli_window` accepts, as logarithms.
const WINDOW_BITS: std::ops::RangeInclusive<u32> = 10..=24;

/// `brotli_window`: the logarithm of the window's size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window(pub u32);

impl Value for Window {
    const SYNTAX: &'static str = "1k | 2k | … | 16m";

    fn parse(args: &[Word], scope: &mut Scope) -> Result<Self, Problem> {
        let size = Size::parse(args, scope)?;
        let bits = WINDOW_BITS.into_iter().find(|bits| 1 << bits == size.0);
        let wrong =
            "must be 1k, 2k, 4k, 8k, 16k, 32k, 64k, 128k, 256k, 512k, 1m, 2m, 4m, 8m or 16m";
        bits.map(Window)
            .ok_or_else(|| Problem::directive(wrong).at(0))
    }
}

directives! {
    /// Compression with Brotli.
    pub struct Brotli in Location {
        /// Compresses responses with status 200, 403 or 404 for clients that accept `br`. Of several codings that a
        /// client accepts, `zstd` comes first, then `br`, then `gzip`.
        brotli: Flag = "off", [HTTP | SERVER | LOCATION | LOCATION_IF] FLAG;
        /// Sets the compression level, from 0 (fastest) to 11 (smallest).
        brotli_comp_level: NumberWithin<0, 11> = "6", [HTTP | SERVER | LOCATION] 1;
        /// Also compresses responses of these media types, besides `text/html`; `*` means all.
        brotli_types: MediaTypes = "text/html", [HTTP | SERVER | LOCATION] 1..;
        /// Does not compress responses whose `Content-Length` is below this.
        brotli_min_length: Size = "20", [HTTP | SERVER | LOCATION] 1;
        /// Sets the largest window that repetitions are searched in; one as large as the response is enough. With levels
        /// 5 to 9 it is at least 128k.
        brotli_window: Window = "512k", [HTTP | SERVER | LOCATION] 1;
        /// Has no effect, as in the nginx module.
        brotli_buffers: Unused = none, [HTTP | SERVER | LOCATION] 2, syntax "number size";
    }
}

httpcore::variables! {
    /// The ratio of the original to the compressed length (Brotli).
    "brotli_ratio" => fresh(|request, out| ratio::append(request, Coding::Brotli, out));
}

/// The allocator of one compressor, which counts what that holds.
#[derive(Default)]
struct Counting {
    bytes: usize,
}

impl<T: Clone + Default> Allocator<T> for Counting {
    type AllocatedMemory = <StandardAlloc as Allocator<T>>::AllocatedMemory;

    fn alloc_cell(&mut self, len: usize) -> Self::AllocatedMemory {
        self.bytes += len * size_of::<T>();
        StandardAlloc::default().alloc_cell(len)
    }

    fn free_cell(&mut self, cell: Self::AllocatedMemory) {
        let bytes = size_of_val(cell.slice());
        self.bytes = self.bytes.saturating_sub(bytes);
    }
}

impl BrotliAlloc for Counting {}

/// Windows from which on the levels 5 to 9 take less memory: for smaller ones this encoder has tables of 34 MiB.
const FRUGAL_BITS: u32 = 17;

/// About how many bytes a compressor takes, for a response of more than a few hundred KiB. (Measured.)
fn bytes(level: u32, window_bits: u32) -> usize {
    let tables = match level {
        0..=3 => 512,
        4..=5 => 2 << 10,
        6 => 3 << 10,
        7 => 9 << 10,
        8 => 17 << 10,
        _ => 36 << 10,
    };
    let windows = match (level, window_bits) {
        (0..=1, _) => 0,
        (10.., _) => 10,
        (_, ..=20) => 5,
        _ => 3,
    };
    (tables << 10) + (windows << window_bits)
}

/// A compressor.
pub struct Encoder {
    state: Box<BrotliEncoderStateStruct<Counting>>,
    level: u32,
    charge: Charge,
}

impl Brotli {
    /// A place for a compressor, and its level.
    pub(super) fn place(&self, len: Option<u64>) -> Option<(i32, Place)> {
        // The level is within 0 to 11.
        place(self.brotli_comp_level.0 as i32, |level| {
            OUT_LEN + bytes(level as u32, self.window_bits(level as u32, len))
        })
    }

    /// The logarithm of the window of a compressor for one answer, of this length where that is known.
    fn window_bits(&self, level: u32, len: Option<u64>) -> u32 {
        let mut bits = self.brotli_window.0;
        if let Some(len) = len.filter(|len| *len > 0) {
            let needed = WINDOW_BITS.into_iter().find(|bits| len <= 1 << bits);
            bits = bits.min(needed.unwrap_or(bits));
        }
        match level {
            5..=9 => bits.max(FRUGAL_BITS),
            _ => bits,
        }
    }

    /// A compressor of this level for one answer, of this length where that is known.
    #[must_use]
    pub fn coder(&self, len: Option<u64>, level: i32) -> Encoder {
        // The level is within 0 to 11.
        let level = level as u32;
        let bits = self.window_bits(level, len);
        let mut state = Box::new(BrotliEncoderStateStruct::new(Counting::default()));
        state.set_parameter(BrotliEncoderParameter::BROTLI_PARAM_QUALITY, level);
        state.set_parameter(BrotliEncoderParameter::BROTLI_PARAM_LGWIN, bits);
        Encoder {
            state,
            level,
            charge: charge(Holder::Compressors, 0),
        }
    }
}

impl Coder for Encoder {
    const MAY_BE_LARGE: bool = true;

    fn code(
        &mut self,
        input: &[u8],
        goal: FlushMode,
        out: &mut Vec<u8>,
    ) -> Result<Progress, String> {
        let operation = match goal {
            FlushMode::Take => BrotliEncoderOperation::BROTLI_OPERATION_PROCESS,
            FlushMode::Flush => BrotliEncoderOperation::BROTLI_OPERATION_FLUSH,
            FlushMode::End => BrotliEncoderOperation::BROTLI_OPERATION_FINISH,
        };
        let mut given = out.len();
        out.resize(out.capacity(), 0);
        let (mut left, mut taken, mut room) = (input.len(), 0, out.len() - given);
        let is_sound = self.state.compress_stream(
            operation,
            &mut left,
            input,
            &mut taken,
            &mut room,
            out,
            &mut given,
            &mut None,
            &mut |_, _, _, _| (),
        );
        out.truncate(given);
        self.charge.set(self.state.m8.bytes);
        if !is_sound {
            return Err("BrotliEncoderCompressStream() failed".to_owned());
        }
        Ok(Progress {
            taken,
            is_done: match goal {
                FlushMode::End => self.state.is_finished(),
                FlushMode::Take | FlushMode::Flush => left == 0 && !self.state.has_more_output(),
            },
        })
    }

    fn inline_len(&self) -> usize {
        match self.level {
            0..=1 => 8 << 10,
            2..=4 => 2 << 10,
            5..=6 => 1 << 10,
            _ => 0,
        }
    }

    fn codes_at_once(&self) -> bool {
        false
    }

    fn room(&self, len: usize) -> usize {
        len
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_given_piece_by_piece_is_one_stream() {
        let text: Vec<u8> = (0..50_000_u32)
            .map(|n| (n.wrapping_mul(n) % 251) as u8)
            .collect();
        for (level, bits) in [(0, 10), (6, 19), (11, 24)] {
            let brotli = Brotli {
                brotli: true,
                brotli_comp_level: NumberWithin(level),
                brotli_types: MediaTypes::All,
                brotli_min_length: Size(0),
                brotli_window: Window(bits),
                brotli_buffers: Unused,
            };
            for len in [None, Some(text.len() as u64)] {
                let coded = crate::after::compression::coded::all(
                    brotli.coder(len, level as i32),
                    &text,
                    7_001,
                );
                let mut decoded = Vec::new();
                brotli::BrotliDecompress(&mut &coded[..], &mut decoded).unwrap();
                assert!(decoded == text, "level {level}, length {len:?}");
            }
        }
    }

    #[test]
    fn its_memory_is_about_what_was_estimated() {
        let text: Vec<u8> = (0..600_000_u32)
            .map(|n| (n.wrapping_mul(n) >> 7) as u8 % 97)
            .collect();
        let brotli = Brotli {
            brotli: true,
            brotli_comp_level: NumberWithin(6),
            brotli_types: MediaTypes::All,
            brotli_min_length: Size(0),
            brotli_window: Window(19),
            brotli_buffers: Unused,
        };
        for (level, len) in [(4, None), (5, Some(30_000)), (6, None), (7, None)] {
            let mut coder = brotli.coder(len, level);
            let mut out = Vec::with_capacity(1 << 20);
            let text = &text[..len.map_or(text.len(), |len| len as usize)];
            coder.code(text, FlushMode::Take, &mut out).unwrap();
            coder.code(b"", FlushMode::End, &mut out).unwrap();
            let took = coder.charge.bytes();
            let estimate = bytes(level as u32, brotli.window_bits(level as u32, len));
            assert!(took <= estimate, "level {level}: {took}, {estimate}");
        }
    }

    #[test]
    fn its_memory_is_counted() {
        let brotli = Brotli {
            brotli: true,
            brotli_comp_level: NumberWithin(9),
            brotli_types: MediaTypes::All,
            brotli_min_length: Size(0),
            brotli_window: Window(22),
            brotli_buffers: Unused,
        };
        let mut coder = brotli.coder(None, 9);
        let text: Vec<u8> = (0..100_000_u32).map(|n| (n % 251) as u8).collect();
        let mut coded = Vec::with_capacity(1_000_000);
        let mut piece = || {
            for (input, goal) in [(&text[..], FlushMode::Take), (b"", FlushMode::Flush)] {
                coder.code(input, goal, &mut coded).unwrap();
            }
            coder.charge.bytes()
        };
        let (first, second) = (piece(), piece());
        assert!(first > 1 << 20, "{first}");
        assert!(second < 2 * first, "what is freed counts no more: {second}");
    }
}
