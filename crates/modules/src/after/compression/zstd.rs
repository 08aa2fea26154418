//! `zstd`: answers compressed with Zstandard, by the directives of the module zstd-nginx-module.

use config::{Flag, Problem, Scope, Size, Value, Word, directives};
use disk::memory::{Charge, Holder, charge};
use zstd::zstd_safe::{CCtx, CParameter, InBuffer, OutBuffer, get_error_name};

use crate::after::media_types::MediaTypes;

use super::coded::{Coder, FlushMode, OUT_LEN, Progress};
use super::places::Place;
use super::{Coding, Unused, place, ratio};

/// The logarithm of the largest window that clients must be able to hold (RFC 9659, 3): 8 MiB.
const WINDOW_BITS_MAX: u32 = 23;
/// The first level whose window would be larger.
const LARGE_WINDOWS_FROM: i32 = 20;

/// `zstd_comp_level`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Level(pub i32);

impl Value for Level {
    const SYNTAX: &'static str = "level";

    fn parse(args: &[Word], _: &mut Scope) -> Result<Self, Problem> {
        let text = args.first().map_or(&[][..], |word| word.bytes());
        let digits = text.strip_prefix(b"-").unwrap_or(text);
        let is_number = !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
        if !is_number {
            return Err(Problem::directive("invalid number").at(0));
        }
        let level = std::str::from_utf8(text)
            .ok()
            .and_then(|text| text.parse().ok());
        let levels = zstd::compression_level_range();
        let level = level.filter(|level| *level != 0 && levels.contains(level));
        level.map(Level).ok_or_else(|| {
            Problem::new(format!(
                "zstd compress level must between {} and {} excluding 0",
                levels.start(),
                levels.end()
            ))
            .at(0)
        })
    }
}

/// `zstd_dict_file`, which is refused.
#[derive(Debug, Clone, Copy)]
pub enum Dictionary {}

impl Value for Dictionary {
    const SYNTAX: &'static str = "file";

    fn parse(_: &[Word], _: &mut Scope) -> Result<Self, Problem> {
        Err(Problem::directive(
            "is not built: clients have no way to know of a dictionary",
        ))
    }
}

directives! {
    /// Compression with Zstandard.
    pub struct Zstd in Location {
        /// Compresses responses with status 200, 403 or 404 for clients that accept `zstd`. Of several codings that a
        /// client accepts, `zstd` comes first, then `br`, then `gzip`.
        zstd: Flag = "off", [HTTP | SERVER | LOCATION | LOCATION_IF] FLAG;
        /// Sets the compression level, up to 22 (smallest); negative levels are faster still.
        zstd_comp_level: Level = "1", [HTTP | SERVER | LOCATION] 1;
        /// Also compresses responses of these media types, besides `text/html`; `*` means all.
        zstd_types: MediaTypes = "text/html", [HTTP | SERVER | LOCATION] 1..;
        /// Does not compress responses whose `Content-Length` is below this.
        zstd_min_length: Size = "20", [HTTP | SERVER | LOCATION] 1;
        /// Has no effect: memory is allocated as it is needed.
        zstd_buffers: Unused = none, [HTTP | SERVER | LOCATION] 2, syntax "number size";
        /// Refused: a client cannot learn which dictionary a response was compressed with.
        zstd_dict_file: Option<Dictionary> = none, [HTTP] 1;
    }
}

httpcore::variables! {
    /// The ratio of the original to the compressed length (Zstandard).
    "zstd_ratio" => fresh(|request, out| ratio::append(request, Coding::Zstd, out));
}

/// About how many bytes a compressor takes for a response of this length. (Measured; with short ones, that much of it.)
fn bytes(level: i32, len: Option<u64>) -> usize {
    let most = match level {
        ..=1 => 1_400,
        2 => 2_100,
        3 => 3_600,
        4..=6 => 5_400,
        7..=8 => 8_000,
        9 => 15_100,
        10..=11 => 25_400,
        12..=13 => 46_000,
        14..=17 => 70_400,
        18..=19 => 92_000,
        20 => 174_000,
        21 => 338_000,
        _ => 666_000,
    };
    let len = len.and_then(|len| usize::try_from(len).ok());
    let of_len = len.map_or(usize::MAX, |len| {
        len.saturating_mul(32).saturating_add(256 << 10)
    });
    of_len.min(most << 10)
}

/// A compressor; `None`: it could not be created.
pub struct Compressor {
    context: Option<CCtx<'static>>,
    level: i32,
    charge: Charge,
}

impl Zstd {
    /// A place for a compressor, and its level.
    pub(super) fn place(&self, len: Option<u64>) -> Option<(i32, Place)> {
        place(self.zstd_comp_level.0, |level| OUT_LEN + bytes(level, len))
    }

    /// A compressor of this level for one answer, of this length where that is known.
    #[must_use]
    pub fn coder(&self, len: Option<u64>, level: i32) -> Compressor {
        let make = || {
            let mut context = CCtx::try_create()?;
            let mut set = |parameter| context.set_parameter(parameter).ok();
            set(CParameter::CompressionLevel(level))?;
            if level >= LARGE_WINDOWS_FROM {
                set(CParameter::WindowLog(WINDOW_BITS_MAX))?;
            }
            context.set_pledged_src_size(len).ok()?;
            Some(context)
        };
        Compressor {
            context: make(),
            level,
            charge: charge(Holder::Compressors, 0),
        }
    }
}

impl Coder for Compressor {
    const MAY_BE_LARGE: bool = true;

    fn code(
        &mut self,
        input: &[u8],
        goal: FlushMode,
        out: &mut Vec<u8>,
    ) -> Result<Progress, String> {
        let Some(context) = &mut self.context else {
            return Err("ZSTD_createCStream() failed".to_owned());
        };
        let mut input = InBuffer::around(input);
        let given = out.len();
        let room = out.capacity();
        let mut output = OutBuffer::around_pos(out, given);
        let left = match goal {
            FlushMode::Take => (context.compress_stream(&mut output, &mut input)).map(|_| 0),
            FlushMode::Flush => context.flush_stream(&mut output),
            FlushMode::End => context.end_stream(&mut output),
        };
        self.charge.set(context.sizeof());
        let failed = |code| format!("ZSTD_compressStream() failed: {}", get_error_name(code));
        let left = left.map_err(failed)?;
        let has_room = output.pos() < room;
        Ok(Progress {
            taken: input.pos(),
            is_done: match goal {
                FlushMode::Take => input.pos() == input.src.len() && has_room,
                FlushMode::Flush | FlushMode::End => left == 0,
            },
        })
    }

    fn inline_len(&self) -> usize {
        match self.level {
            ..=3 => 16 << 10,
            4..=6 => 1 << 10,
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

    fn of_level(level: i32) -> Zstd {
        Zstd {
            zstd: true,
            zstd_comp_level: Level(level),
            zstd_types: MediaTypes::All,
            zstd_min_length: Size(0),
            zstd_buffers: Unused,
            zstd_dict_file: None,
        }
    }

    #[test]
    fn what_is_given_piece_by_piece_is_one_frame() {
        for level in [-7, 1, 22] {
            let zstd = of_level(level);
            let text: Vec<u8> = (0..50_000_u32).map(|n| (n % 251) as u8).collect();
            for len in [None, Some(text.len() as u64)] {
                let coded =
                    crate::after::compression::coded::all(zstd.coder(len, level), &text, 7_001);
                let decoded = zstd::decode_all(&coded[..]).unwrap();
                assert!(decoded == text, "level {level}, length {len:?}");
            }
        }
    }

    #[test]
    fn its_memory_is_counted() {
        for (level, least) in [(1, 256 << 10), (3, 1 << 20), (9, 8 << 20), (19, 8 << 20)] {
            let zstd = of_level(level);
            let mut coder = zstd.coder(None, level);
            let mut coded = Vec::with_capacity(1000);
            coder.code(b"text", FlushMode::Take, &mut coded).unwrap();
            let bytes = coder.charge.bytes();
            assert!(bytes > least, "level {level}: {bytes}");
            assert!(super::bytes(level, None) >= bytes, "level {level}: {bytes}");
        }
    }
}
