//! Reads a film's `moov`: the tracks, and the positions of the boxes and tables of each.
//!
//! Not here: finding `moov` in the file (`boxes`). Invariant: every range found lies within the bytes read.

use std::ops::Range;

use super::boxes::{
    BoxHeader, CutRequest, Movie, TRACKS_MAX, Table, Track, first, get_32, get_64, next,
    set_duration,
};
use super::fault::Fault;

/// Which boxes are looked for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum BoxLevel {
    Moov,
    Trak,
    Mdia,
    Minf,
    Stbl,
}

/// Why reading ends.
pub(super) enum Stop {
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
pub(super) struct MoovReader<'a> {
    pub(super) film: &'a mut Movie,
    pub(super) wish: &'a CutRequest,
    pub(super) at: u64,
}

impl MoovReader<'_> {
    /// Reads boxes up to `end`. Levels are five, so it goes no deeper.
    pub(super) fn read(&mut self, level: BoxLevel, end: u64) -> Result<(), Stop> {
        while self.at < end {
            let bytes = &self.film.moov;
            let head = next(self.at, end, |at, len| {
                let from = at as usize;
                let bytes = bytes.get(from..from + len);
                bytes.map(first).ok_or(Fault::named("mp4 file truncated"))
            })?;
            let Some(BoxHeader { name, size, head }) = head else {
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
    fn enter(&mut self, level: BoxLevel, name: &[u8; 4], end: u64) -> Result<bool, Stop> {
        if level == BoxLevel::Moov {
            if name == b"trak" {
                self.read_track(end)?;
            }
            return Ok(name == b"trak");
        }
        let track = self.film.tracks.last_mut().expect("trak pushed one");
        let (inner, slot) = match (level, name) {
            (BoxLevel::Trak, b"mdia") => (BoxLevel::Mdia, &mut track.has_mdia),
            (BoxLevel::Mdia, b"minf") => (BoxLevel::Minf, &mut track.has_minf),
            (BoxLevel::Minf, b"stbl") => (BoxLevel::Stbl, &mut track.has_stbl),
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
        match self.read(BoxLevel::Trak, end) {
            Err(Stop::Skip) => {
                self.film.tracks.pop();
                self.at = end;
                Ok(())
            }
            outcome => outcome,
        }
    }

    /// Notes a box that is needed.
    fn take(&mut self, level: BoxLevel, name: &[u8; 4], data: Range<usize>) -> Result<(), Stop> {
        match (level, name) {
            (BoxLevel::Moov, b"mvhd") => Ok(self.take_mvhd(data)?),
            (BoxLevel::Moov, b"cmov") => {
                let text = "mp4 compressed moov atom (cmov) is not supported";
                Err(Fault::named(text).into())
            }
            (BoxLevel::Trak, b"tkhd") => self.take_tkhd(data),
            (BoxLevel::Mdia, b"mdhd") => self.take_mdhd(data),
            (BoxLevel::Mdia, b"hdlr") => Ok(once(&mut self.track().hdlr, "hdlr", data)?),
            (BoxLevel::Minf, b"vmhd" | b"smhd") => Ok(self.take_media_head(name, data)?),
            (BoxLevel::Minf, b"dinf") => Ok(once(&mut self.track().dinf, "dinf", data)?),
            (BoxLevel::Stbl, _) => Ok(self.take_table(name, data)?),
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
        let clock = TimeHeader::of(&self.film.moov[data.clone()], "mvhd", 100, 12)?;
        self.film.timescale = clock.timescale;
        if clock.duration < CutRequest::units(self.wish.start_ms, clock.timescale) {
            return Err(Fault::named("mp4 start time exceeds file duration"));
        }
        let duration = self.wish.cut(clock.duration, clock.timescale);
        set_duration(&mut self.film.moov[data.clone()], 16, duration);
        self.film.mvhd = Some(data);
        Ok(())
    }

    fn take_tkhd(&mut self, data: Range<usize>) -> Result<(), Stop> {
        let timescale = self.film.timescale;
        let clock = TimeHeader::of(&self.film.moov[data.clone()], "tkhd", 84, 16)?;
        if clock.duration <= CutRequest::units(self.wish.start_ms, timescale) {
            return Err(Stop::Skip);
        }
        let duration = self.wish.cut(clock.duration, timescale);
        once(&mut self.track().tkhd, "tkhd", data.clone())?;
        self.track().movie_duration = duration;
        set_duration(&mut self.film.moov[data], 20, duration);
        Ok(())
    }

    fn take_mdhd(&mut self, data: Range<usize>) -> Result<(), Stop> {
        let clock = TimeHeader::of(&self.film.moov[data.clone()], "mdhd", 24, 12)?;
        if clock.duration <= CutRequest::units(self.wish.start_ms, clock.timescale) {
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

/// The time fields of `mvhd`, `tkhd` and `mdhd`.
struct TimeHeader {
    timescale: u32,
    duration: u64,
}

impl TimeHeader {
    /// `least`: bytes of the box in version 0, where times have 32 bits; in version 1 there are 12 more. `at`: where what stands before
    /// the duration does.
    fn of(data: &[u8], name: &str, least: usize, at: usize) -> Result<TimeHeader, Fault> {
        too_small(data.len() < least, name)?;
        if data[0] == 0 {
            return Ok(TimeHeader {
                timescale: get_32(data, at),
                duration: u64::from(get_32(data, at + 4)),
            });
        }
        too_small(data.len() < least + 12, name)?;
        Ok(TimeHeader {
            timescale: get_32(data, at + 8),
            duration: get_64(data, at + 12),
        })
    }
}
