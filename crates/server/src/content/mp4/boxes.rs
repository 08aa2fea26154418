//! The boxes of an MP4 file: which there are, and where (ISO/IEC 14496-12, 4.2; nginx calls them atoms).
//!
//! Not here: what becomes of them (`crop`). Pure but for the function that reads. Invariant: whatever a file says, no more of it is held
//! than `Wish` allows, and a range that was found lies in what was read.

use std::ops::Range;

use bytes::Bytes;

use super::fault::Fault;

/// Tracks of one film.
pub const TRACKS_MAX: usize = 512;
/// Boxes of a file that are stepped over on the way to those that are needed.
const BOXES_MAX: usize = 65_536;
/// Bytes of `ftyp`, without its head.
const FTYP_MAX: u64 = 1024;
/// What may be looked at behind `moov` to understand a box at its end.
const BEHIND: u64 = 16;

/// What of a film is wanted, and how much memory may be used for it.
#[derive(Clone, Copy, Debug)]
pub struct Wish {
    /// First millisecond.
    pub start_ms: u64,
    /// Milliseconds; 0: to the end.
    pub length_ms: u64,
    /// Does it begin with a key frame (`mp4_start_key_frame`)?
    pub from_key_frame: bool,
    /// Bytes that are read at once (`mp4_buffer_size`).
    pub buffer: u64,
    /// Bytes of a `moov` that is larger (`mp4_max_buffer_size`).
    pub buffer_max: u64,
}

impl Wish {
    /// Milliseconds in units of a timescale.
    #[must_use]
    pub fn units(ms: u64, timescale: u32) -> u64 {
        ms.wrapping_mul(u64::from(timescale)) / 1000
    }

    /// Cuts a duration down to what is wanted of it; the start must lie in it.
    #[must_use]
    pub fn cut(&self, duration: u64, timescale: u32) -> u64 {
        let left = duration.saturating_sub(Self::units(self.start_ms, timescale));
        match self.length_ms {
            0 => left,
            length => left.min(Self::units(length, timescale)),
        }
    }
}

/// A file that is looked at.
pub struct File<'a> {
    /// Its bytes.
    pub len: u64,
    /// Reads: fewer bytes come only at the end.
    pub read: &'a dyn Fn(u64, usize) -> Result<Bytes, disk::Error>,
}

impl File<'_> {
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
pub struct Film {
    /// What is in `ftyp`.
    pub ftyp: Option<Bytes>,
    /// What is in `moov`; all ranges are of it.
    pub moov: Vec<u8>,
    /// `mvhd`.
    pub mvhd: Option<Range<usize>>,
    timescale: u32,
    /// The tracks that last longer than the wanted start.
    pub tracks: Vec<Track>,
    /// Where what is in `mdat` ends in the file.
    pub mdat_end: Option<u64>,
}

/// A table of entries: its head up to their number, and the entries.
#[derive(Clone, Debug)]
pub struct Table {
    /// Up to and with the number of entries.
    pub head: Range<usize>,
    /// The entries.
    pub rows: Range<usize>,
}

/// A `trak`: where its boxes are.
#[derive(Clone, Debug, Default)]
pub struct Track {
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
    /// `stts`: how long samples last.
    pub stts: Option<Table>,
    /// `stss`: which are key frames.
    pub stss: Option<Table>,
    /// `ctts`: when they are shown.
    pub ctts: Option<Table>,
    /// `stsc`: how many a chunk has.
    pub stsc: Option<Table>,
    /// `stsz`: their sizes; no rows where all have one.
    pub stsz: Option<Table>,
    /// `stsz` has one size for all.
    pub is_uniform: bool,
    /// `stco` or `co64`: where chunks begin.
    pub chunks: Option<Table>,
    /// It is `co64`.
    pub is_wide: bool,
    has_mdia: bool,
    has_minf: bool,
    has_stbl: bool,
    /// Units of a second, by `mdhd`.
    pub timescale: u32,
    /// By `mdhd`, of what is wanted.
    pub duration: u64,
    /// By `tkhd`, of what is wanted.
    pub movie_duration: u64,
}

/// The head of a box.
struct Head {
    name: [u8; 4],
    size: u64,
    head: u64,
}

/// Finds what is needed of a film. `None`: the file is what is wanted, as it is.
///
/// # Errors
/// It is no film, or one that nothing can be cut from.
pub fn find(file: &File<'_>, wish: &Wish) -> Result<Option<Film>, Fault> {
    let mut film = Film::default();
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
        let Some(Head { name, size, head }) = head else {
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
        file: &File<'_>,
        wish: &Wish,
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

fn first(bytes: &[u8]) -> [u8; BEHIND as usize] {
    let mut out = [0; BEHIND as usize];
    out[..bytes.len()].copy_from_slice(bytes);
    out
}

/// The head of the box at `at`, which must end before `end`. `None`: nothing comes any more.
fn next(
    at: u64,
    end: u64,
    mut peek: impl FnMut(u64, usize) -> Result<[u8; BEHIND as usize], Fault>,
) -> Result<Option<Head>, Fault> {
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
    Ok(Some(Head { name, size, head }))
}

impl Film {
    fn take_ftyp(&mut self, file: &File<'_>, data: Range<u64>) -> Result<(), Fault> {
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

    /// Reads `moov`; gives the place at which the file goes on.
    fn take_moov(&mut self, file: &File<'_>, wish: &Wish, data: Range<u64>) -> Result<u64, Fault> {
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
        let mut inside = Inside {
            film: self,
            wish,
            at: 0,
        };
        match inside.read(Level::Moov, len) {
            Ok(()) => Ok(data.start + inside.at),
            Err(Stop::Fault(fault)) => Err(fault),
            Err(Stop::Skip) => unreachable!("a track that is skipped ends there"),
        }
    }
}

/// Which boxes are looked for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Level {
    Moov,
    Trak,
    Mdia,
    Minf,
    Stbl,
}

/// Why reading ends.
enum Stop {
    Fault(Fault),
    /// The track ends before the wanted start.
    Skip,
}

impl From<Fault> for Stop {
    fn from(fault: Fault) -> Stop {
        Stop::Fault(fault)
    }
}

/// Reading inside `moov`.
struct Inside<'a> {
    film: &'a mut Film,
    wish: &'a Wish,
    at: u64,
}

impl Inside<'_> {
    /// Reads boxes up to `end`. Levels are five, so it goes no deeper.
    fn read(&mut self, level: Level, end: u64) -> Result<(), Stop> {
        while self.at < end {
            let bytes = &self.film.moov;
            let head = next(self.at, end, |at, len| {
                let from = at as usize;
                let bytes = bytes.get(from..from + len);
                bytes.map(first).ok_or(Fault::named("mp4 file truncated"))
            })?;
            let Some(Head { name, size, head }) = head else {
                // As in nginx, what is around it finds its end here, too.
                return Ok(());
            };
            let data = self.at + head;
            let behind = self.at + size;
            self.at = data;
            let is_entered = self.enter(level, &name, behind)?;
            if !is_entered {
                self.take(level, &name, data as usize..behind as usize)?;
                self.at = behind;
            }
        }
        Ok(())
    }

    /// Reads what a box holds that holds boxes.
    fn enter(&mut self, level: Level, name: &[u8; 4], end: u64) -> Result<bool, Stop> {
        if level == Level::Moov {
            if name == b"trak" {
                self.read_track(end)?;
            }
            return Ok(name == b"trak");
        }
        let track = self.film.tracks.last_mut().expect("trak pushed one");
        let (inner, slot) = match (level, name) {
            (Level::Trak, b"mdia") => (Level::Mdia, &mut track.has_mdia),
            (Level::Mdia, b"minf") => (Level::Minf, &mut track.has_minf),
            (Level::Minf, b"stbl") => (Level::Stbl, &mut track.has_stbl),
            _ => return Ok(false),
        };
        if std::mem::replace(slot, true) {
            return Err(Fault::duplicate(&String::from_utf8_lossy(name)).into());
        }
        self.read(inner, end)?;
        Ok(true)
    }

    fn read_track(&mut self, end: u64) -> Result<(), Stop> {
        if self.film.tracks.len() == TRACKS_MAX {
            return Err(Fault::named(format!("has more than {TRACKS_MAX} mp4 traks")).into());
        }
        self.film.tracks.push(Track::default());
        match self.read(Level::Trak, end) {
            Err(Stop::Skip) => {
                self.film.tracks.pop();
                self.at = end;
                Ok(())
            }
            outcome => outcome,
        }
    }

    /// Notes a box that is needed.
    fn take(&mut self, level: Level, name: &[u8; 4], data: Range<usize>) -> Result<(), Stop> {
        match (level, name) {
            (Level::Moov, b"mvhd") => Ok(self.take_mvhd(data)?),
            (Level::Moov, b"cmov") => {
                let text = "mp4 compressed moov atom (cmov) is not supported";
                Err(Fault::named(text).into())
            }
            (Level::Trak, b"tkhd") => self.take_tkhd(data),
            (Level::Mdia, b"mdhd") => self.take_mdhd(data),
            (Level::Mdia, b"hdlr") => Ok(once(&mut self.track().hdlr, "hdlr", data)?),
            (Level::Minf, b"vmhd" | b"smhd") => Ok(self.take_media_head(name, data)?),
            (Level::Minf, b"dinf") => Ok(once(&mut self.track().dinf, "dinf", data)?),
            (Level::Stbl, _) => Ok(self.take_table(name, data)?),
            _ => Ok(()),
        }
    }

    fn track(&mut self) -> &mut Track {
        self.film.tracks.last_mut().expect("trak pushed one")
    }

    fn take_mvhd(&mut self, data: Range<usize>) -> Result<(), Fault> {
        if self.film.mvhd.is_some() {
            return Err(Fault::duplicate("mvhd"));
        }
        let clock = Clock::of(&self.film.moov[data.clone()], "mvhd", 100, 12)?;
        self.film.timescale = clock.timescale;
        if clock.duration < Wish::units(self.wish.start_ms, clock.timescale) {
            return Err(Fault::named("mp4 start time exceeds file duration"));
        }
        let duration = self.wish.cut(clock.duration, clock.timescale);
        set_duration(&mut self.film.moov[data.clone()], 16, duration);
        self.film.mvhd = Some(data);
        Ok(())
    }

    fn take_tkhd(&mut self, data: Range<usize>) -> Result<(), Stop> {
        let timescale = self.film.timescale;
        let clock = Clock::of(&self.film.moov[data.clone()], "tkhd", 84, 16)?;
        if clock.duration <= Wish::units(self.wish.start_ms, timescale) {
            return Err(Stop::Skip);
        }
        let duration = self.wish.cut(clock.duration, timescale);
        once(&mut self.track().tkhd, "tkhd", data.clone())?;
        self.track().movie_duration = duration;
        set_duration(&mut self.film.moov[data], 20, duration);
        Ok(())
    }

    fn take_mdhd(&mut self, data: Range<usize>) -> Result<(), Stop> {
        let clock = Clock::of(&self.film.moov[data.clone()], "mdhd", 24, 12)?;
        if clock.duration <= Wish::units(self.wish.start_ms, clock.timescale) {
            return Err(Stop::Skip);
        }
        let duration = self.wish.cut(clock.duration, clock.timescale);
        let track = self.track();
        once(&mut track.mdhd, "mdhd", data)?;
        (track.timescale, track.duration) = (clock.timescale, duration);
        Ok(())
    }

    fn take_media_head(&mut self, name: &[u8; 4], data: Range<usize>) -> Result<(), Fault> {
        let track = self.track();
        if track.vmhd.is_some() || track.smhd.is_some() {
            return Err(Fault::duplicate("vmhd/smhd"));
        }
        match name {
            b"vmhd" => track.vmhd = Some(data),
            _ => track.smhd = Some(data),
        }
        Ok(())
    }

    fn take_table(&mut self, name: &[u8; 4], data: Range<usize>) -> Result<(), Fault> {
        let film = &mut *self.film;
        let track = film.tracks.last_mut().expect("trak pushed one");
        let moov = &film.moov;
        let table = |text, head, row| table(moov, text, data.clone(), head, row);
        match name {
            b"stsd" => {
                too_small(data.len() < 16, "stsd")?;
                once(&mut track.stsd, "stsd", data)
            }
            b"stts" => once(&mut track.stts, "stts", table("stts", 8, 8)?),
            b"stss" => once(&mut track.stss, "stss", table("stss", 8, 4)?),
            b"ctts" => once(&mut track.ctts, "ctts", table("ctts", 8, 8)?),
            b"stsc" => once(&mut track.stsc, "stsc", table("stsc", 8, 12)?),
            b"stsz" => {
                too_small(data.len() < 12, "stsz")?;
                let is_uniform = get_32(moov, data.start + 4) != 0;
                let sizes = match is_uniform {
                    true => Table {
                        head: data.clone(),
                        rows: data.end..data.end,
                    },
                    false => table("stsz", 12, 4)?,
                };
                track.is_uniform = is_uniform;
                once(&mut track.stsz, "stsz", sizes)
            }
            b"stco" => once(&mut track.chunks, "stco/co64", table("stco", 8, 4)?),
            b"co64" => {
                once(&mut track.chunks, "stco/co64", table("co64", 8, 8)?)?;
                track.is_wide = true;
                Ok(())
            }
            _ => Ok(()),
        }
    }
}

fn once<T>(slot: &mut Option<T>, name: &str, value: T) -> Result<(), Fault> {
    match slot.replace(value) {
        None => Ok(()),
        Some(_) => Err(Fault::duplicate(name)),
    }
}

fn too_small(is_so: bool, name: &str) -> Result<(), Fault> {
    match is_so {
        true => Err(Fault::named(format!("mp4 {name} atom too small"))),
        false => Ok(()),
    }
}

/// A table whose head of `head` bytes ends with the number of rows, `row` bytes each.
fn table(
    moov: &[u8],
    name: &str,
    data: Range<usize>,
    head: usize,
    row: u64,
) -> Result<Table, Fault> {
    too_small(data.len() < head, name)?;
    let rows = u64::from(get_32(moov, data.start + head - 4)) * row;
    too_small(head as u64 + rows > data.len() as u64, name)?;
    let start = data.start + head;
    Ok(Table {
        head: data.start..start,
        rows: start..start + rows as usize,
    })
}

/// What `mvhd`, `tkhd` and `mdhd` say of time.
struct Clock {
    timescale: u32,
    duration: u64,
}

impl Clock {
    /// `least`: bytes of the box in version 0, where times have 32 bits; in version 1 there are 12 more. `at`: where what stands before
    /// the duration does.
    fn of(data: &[u8], name: &str, least: usize, at: usize) -> Result<Clock, Fault> {
        too_small(data.len() < least, name)?;
        if data[0] == 0 {
            return Ok(Clock {
                timescale: get_32(data, at),
                duration: u64::from(get_32(data, at + 4)),
            });
        }
        too_small(data.len() < least + 12, name)?;
        Ok(Clock {
            timescale: get_32(data, at + 8),
            duration: get_64(data, at + 12),
        })
    }
}

/// Sets the duration that stands at `at` in version 0.
pub fn set_duration(data: &mut [u8], at: usize, duration: u64) {
    match data[0] {
        0 => set_32(data, at, duration as u32),
        _ => data[at + 8..at + 16].copy_from_slice(&duration.to_be_bytes()),
    }
}

/// The number in four bytes.
#[must_use]
pub fn get_32(bytes: &[u8], at: usize) -> u32 {
    let bytes = [bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]];
    u32::from_be_bytes(bytes)
}

/// The number in eight bytes.
#[must_use]
pub fn get_64(bytes: &[u8], at: usize) -> u64 {
    u64::from(get_32(bytes, at)) << 32 | u64::from(get_32(bytes, at + 4))
}

/// Writes a number into four bytes.
pub fn set_32(bytes: &mut [u8], at: usize, value: u32) {
    bytes[at..at + 4].copy_from_slice(&value.to_be_bytes());
}

/// Writes a number into eight bytes.
pub fn set_64(bytes: &mut [u8], at: usize, value: u64) {
    bytes[at..at + 8].copy_from_slice(&value.to_be_bytes());
}
