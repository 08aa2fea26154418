//! Finds the boxes of an MP4 file (ISO/IEC 14496-12, 4.2; nginx calls them atoms).
//!
//! Not here: the contents of `moov` (`moov`), and the cut film (`cut`). Pure but for the function that reads.
//! Invariant: whatever a file says, no more of it is held than `CutRequest` allows, and every range found lies within the
//! bytes read.

use std::ops::Range;

use bytes::Bytes;

use super::fault::Fault;
use super::moov::{BoxLevel, MoovReader, Stop};

/// Maximum number of tracks of one film.
pub const TRACKS_MAX: usize = 512;
/// Maximum number of boxes that are read or skipped in a file.
const BOXES_MAX: usize = 65_536;
/// Maximum number of bytes of `ftyp`, without its head.
const FTYP_MAX: u64 = 1024;
/// Maximum number of bytes after `moov` that are read to understand a box at its end.
pub(super) const BEHIND: u64 = 16;

/// The part of a film that is wanted, and the memory limits for it.
#[derive(Clone, Copy, Debug)]
pub struct CutRequest {
    /// Start, in milliseconds.
    pub start_ms: u64,
    /// Length in milliseconds; 0: to the end.
    pub length_ms: u64,
    /// Whether it begins with a key frame (`mp4_start_key_frame`).
    pub from_key_frame: bool,
    /// Bytes read at once (`mp4_buffer_size`).
    pub buffer: u64,
    /// Maximum number of bytes of a `moov` that is larger than `buffer` (`mp4_max_buffer_size`).
    pub buffer_max: u64,
}

impl CutRequest {
    /// Converts milliseconds to units of a timescale.
    #[must_use]
    pub fn units(ms: u64, timescale: u32) -> u64 {
        ms.wrapping_mul(u64::from(timescale)) / 1000
    }

    /// Cuts a duration down to the wanted part; the start must lie in it.
    #[must_use]
    pub fn cut(&self, duration: u64, timescale: u32) -> u64 {
        let left = duration.saturating_sub(Self::units(self.start_ms, timescale));
        match self.length_ms {
            0 => left,
            length => left.min(Self::units(length, timescale)),
        }
    }
}

/// A file and the way to read it.
pub struct Mp4File<'a> {
    /// Length in bytes.
    pub len: u64,
    /// Reads bytes at an offset: fewer than requested only at the end.
    pub read: &'a dyn Fn(u64, usize) -> Result<Bytes, disk::Error>,
}

impl Mp4File<'_> {
    fn take(&self, at: u64, len: u64) -> Result<Bytes, Fault> {
        let len = usize::try_from(len).unwrap_or(usize::MAX);
        let bytes = (self.read)(at, len).map_err(Fault::Disk)?;
        match bytes.len() == len {
            true => Ok(bytes),
            false => Err(Fault::short(bytes.len(), len)),
        }
    }
}

/// A film, as far as it was read.
#[derive(Debug, Default)]
pub(super) struct Movie {
    /// Contents of `ftyp`.
    pub ftyp: Option<Bytes>,
    /// Contents of `moov`; all ranges refer to it.
    pub moov: Vec<u8>,
    /// `mvhd`.
    pub mvhd: Option<Range<usize>>,
    /// Units per second, from `mvhd`.
    pub(super) timescale: u32,
    /// The tracks that last longer than the wanted start.
    pub tracks: Vec<Track>,
    /// End of the contents of `mdat` in the file.
    pub mdat_end: Option<u64>,
}

/// A table of entries: its head up to their number, and the entries.
#[derive(Clone, Debug)]
pub(super) struct Table {
    /// The head, up to and including the number of entries.
    pub head: Range<usize>,
    /// The entries.
    pub rows: Range<usize>,
}

/// A `trak`: the positions of its boxes.
#[derive(Clone, Debug, Default)]
pub(super) struct Track {
    /// `tkhd`.
    pub tkhd: Option<Range<usize>>,
    /// `mdhd`.
    pub mdhd: Option<Range<usize>>,
    /// `hdlr`.
    pub hdlr: Option<Range<usize>>,
    /// `vmhd`.
    pub vmhd: Option<Range<usize>>,
    /// `smhd`.
    pub smhd: Option<Range<usize>>,
    /// `dinf`.
    pub dinf: Option<Range<usize>>,
    /// `stsd`.
    pub stsd: Option<Range<usize>>,
    /// `stts`: durations of samples.
    pub stts: Option<Table>,
    /// `stss`: the key frames.
    pub stss: Option<Table>,
    /// `ctts`: offsets from decoding to presentation.
    pub ctts: Option<Table>,
    /// `stsc`: samples per chunk.
    pub stsc: Option<Table>,
    /// `stsz`: sizes of samples; no rows if all have the same size.
    pub stsz: Option<Table>,
    /// Whether `stsz` has one size for all samples.
    pub is_uniform: bool,
    /// `stco` or `co64`: offsets of chunks.
    pub chunks: Option<Table>,
    /// Whether it is `co64`.
    pub is_wide: bool,
    pub(super) has_mdia: bool,
    pub(super) has_minf: bool,
    pub(super) has_stbl: bool,
    /// Units per second, from `mdhd`.
    pub timescale: u32,
    /// Duration of the wanted part in units of `mdhd`.
    pub duration: u64,
    /// Duration of the wanted part, from `tkhd`.
    pub movie_duration: u64,
}

/// The head of a box.
pub(super) struct BoxHeader {
    pub(super) name: [u8; 4],
    pub(super) size: u64,
    pub(super) head: u64,
}

/// Finds the boxes of a film that are needed. `None`: the whole file is wanted, unchanged.
///
/// # Errors
/// The file is not a film, or is one that cannot be cut.
pub(super) fn find(file: &Mp4File<'_>, wish: &CutRequest) -> Result<Option<Movie>, Fault> {
    let mut film = Movie::default();
    let mut window = Window::default();
    let mut at = 0;
    for number in 0.. {
        if at >= file.len {
            break;
        }
        if number == BOXES_MAX {
            return Err(Fault::named(format!("has more than {BOXES_MAX} mp4 atoms")));
        }
        let head = next(at, file.len, |at, len| window.peek(file, wish, at, len))?;
        let Some(BoxHeader { name, size, head }) = head else {
            break;
        };
        let (data, end) = (at + head, at + size);
        at = end;
        match &name {
            b"ftyp" => film.take_ftyp(file, data..end)?,
            b"moov" => {
                let is_first = film.mdat_end.is_none();
                if is_first && wish.start_ms == 0 && wish.length_ms == 0 {
                    return Ok(None);
                }
                at = film.take_moov(file, wish, data..end)?;
                if !is_first {
                    break;
                }
            }
            b"mdat" => {
                if film.mdat_end.is_some() {
                    return Err(Fault::duplicate("mdat"));
                }
                film.mdat_end = Some(end);
                if !film.tracks.is_empty() {
                    break;
                }
            }
            _ => {}
        }
    }
    Ok(Some(film))
}

/// The part of the file that was read last.
#[derive(Default)]
struct Window {
    start: u64,
    bytes: Bytes,
}

impl Window {
    fn peek(
        &mut self,
        file: &Mp4File<'_>,
        wish: &CutRequest,
        at: u64,
        len: usize,
    ) -> Result<[u8; BEHIND as usize], Fault> {
        let end = self.start + self.bytes.len() as u64;
        if at < self.start || at + len as u64 > end {
            let want = wish.buffer.min(file.len - at);
            if want < len as u64 {
                return Err(Fault::named("mp4 file truncated"));
            }
            self.bytes = file.take(at, want)?;
            self.start = at;
        }
        let from = (at - self.start) as usize;
        Ok(first(&self.bytes[from..from + len]))
    }
}

pub(super) fn first(bytes: &[u8]) -> [u8; BEHIND as usize] {
    let mut out = [0; BEHIND as usize];
    out[..bytes.len()].copy_from_slice(bytes);
    out
}

/// The head of the box at `at`; the box must end by `end`. `None`: there are no more boxes.
pub(super) fn next(
    at: u64,
    end: u64,
    mut peek: impl FnMut(u64, usize) -> Result<[u8; BEHIND as usize], Fault>,
) -> Result<Option<BoxHeader>, Fault> {
    let mut size = u64::from(get_32(&peek(at, 4)?, 0));
    let mut head = 8;
    match size {
        0 => return Ok(None),
        1 => {
            size = get_64(&peek(at, 16)?, 8);
            head = 16;
        }
        _ => {}
    }
    if size < head {
        return Err(Fault::named(format!("mp4 atom is too small:{size}")));
    }
    let name = peek(at, 8)?;
    if size > i64::MAX as u64 - at || at + size > end {
        return Err(Fault::named(format!("mp4 atom too large:{size}")));
    }
    let name = [name[4], name[5], name[6], name[7]];
    Ok(Some(BoxHeader { name, size, head }))
}

impl Movie {
    fn take_ftyp(&mut self, file: &Mp4File<'_>, data: Range<u64>) -> Result<(), Fault> {
        let len = data.end - data.start;
        if len > FTYP_MAX {
            return Err(Fault::named(format!("mp4 ftyp atom is too large:{len}")));
        }
        if self.ftyp.is_some() {
            return Err(Fault::duplicate("ftyp"));
        }
        self.ftyp = Some(file.take(data.start, len)?);
        Ok(())
    }

    /// Reads `moov`; returns the offset at which the file continues.
    fn take_moov(
        &mut self,
        file: &Mp4File<'_>,
        wish: &CutRequest,
        data: Range<u64>,
    ) -> Result<u64, Fault> {
        if !self.moov.is_empty() {
            return Err(Fault::duplicate("moov"));
        }
        let len = data.end - data.start;
        if len > wish.buffer.max(wish.buffer_max) {
            return Err(Fault::named(format!(
                "mp4 moov atom is too large:{len}, you may want to increase mp4_max_buffer_size"
            )));
        }
        let behind = BEHIND.min(file.len - data.end);
        self.moov = file.take(data.start, len + behind)?.into();
        let mut inside = MoovReader {
            film: self,
            wish,
            at: 0,
        };
        match inside.read(BoxLevel::Moov, len) {
            Ok(()) => Ok(data.start + inside.at),
            Err(Stop::Fault(fault)) => Err(fault),
            Err(Stop::Skip) => unreachable!("a track that is skipped ends there"),
        }
    }
}

/// Sets the duration that stands at `at` in version 0.
pub(super) fn set_duration(data: &mut [u8], at: usize, duration: u64) {
    match data[0] {
        0 => set_32(data, at, duration as u32),
        _ => data[at + 8..at + 16].copy_from_slice(&duration.to_be_bytes()),
    }
}

/// The number in four bytes.
#[must_use]
pub(super) fn get_32(bytes: &[u8], at: usize) -> u32 {
    let bytes = [bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]];
    u32::from_be_bytes(bytes)
}

/// The number in eight bytes.
#[must_use]
pub(super) fn get_64(bytes: &[u8], at: usize) -> u64 {
    u64::from(get_32(bytes, at)) << 32 | u64::from(get_32(bytes, at + 4))
}

/// Writes a number into four bytes.
pub(super) fn set_32(bytes: &mut [u8], at: usize, value: u32) {
    bytes[at..at + 4].copy_from_slice(&value.to_be_bytes());
}

/// Writes a number into eight bytes.
pub(super) fn set_64(bytes: &mut [u8], at: usize, value: u64) {
    bytes[at..at + 8].copy_from_slice(&value.to_be_bytes());
}
