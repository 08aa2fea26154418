//! Cuts a film down to a part of it: a new head, and the range of the file that follows it.

use std::ops::Range;

use super::boxes::{CutRequest, Movie, Table, Track, set_32, set_64, set_duration};
use super::fault::Fault;
use super::tables::TrackCut;

/// Bytes that a track's head may have that the file has not: an edit list, two rows of `stsc`.
const MORE_PER_TRACK: usize = 128;
/// Samples start at 0 in the first edit, at normal speed.
const ELST_SIZE: u32 = 36;

/// The response in the place of the whole file.
#[derive(Debug)]
pub struct CutMovie {
    /// The new head: `ftyp`, `moov`, and the beginning of `mdat`.
    pub head: Vec<u8>,
    /// The range of the file that follows the head.
    pub data: Range<u64>,
}

/// Cuts a film.
///
/// # Errors
/// It has nothing of the part, or contradicts itself.
pub(super) fn cut(mut film: Movie, file_len: u64, wish: &CutRequest) -> Result<CutMovie, Fault> {
    if film.tracks.is_empty() {
        return Err(Fault::of("no mp4 trak atoms were found"));
    }
    let Some(mdat_end) = film.mdat_end else {
        return Err(Fault::of("no mp4 mdat atom was found"));
    };
    let mut moov = std::mem::take(&mut film.moov);
    let tracks = std::mem::take(&mut film.tracks);
    let ftyp = film.ftyp.as_ref().map_or(0, bytes::Bytes::len);
    let capacity = ftyp + moov.len() + tracks.len() * MORE_PER_TRACK + MORE_PER_TRACK;
    let mut writer = Writer {
        out: Vec::with_capacity(capacity),
        chunks: Vec::new(),
    };
    if let Some(ftyp) = &film.ftyp {
        writer.boxed(b"ftyp", |writer| writer.out.extend_from_slice(ftyp));
    }
    let begun = writer.begin(b"moov");
    writer.copy(b"mvhd", &moov, film.mvhd.as_ref());
    let mut data = file_len..0;
    for track in tracks {
        let mut cutting = TrackCut::new(&mut moov, wish, track, file_len, mdat_end);
        cutting.cut()?;
        data.start = data.start.min(cutting.data.start);
        data.end = data.end.max(cutting.data.end);
        writer.track(&cutting);
    }
    writer.end(begun);
    if data.end <= data.start {
        return Err(Fault::of("no data between start time and end time"));
    }
    if data.start >= mdat_end {
        return Err(Fault::of("start time is out mp4 mdat atom"));
    }
    writer.begin_mdat(data.end - data.start);
    writer.move_chunks(data.start);
    Ok(CutMovie {
        head: writer.out,
        data,
    })
}

/// Writes boxes.
struct Writer {
    out: Vec<u8>,
    /// Where the places of chunks stand, and whether they are wide.
    chunks: Vec<(Range<usize>, bool)>,
}

impl Writer {
    fn begin(&mut self, name: &[u8; 4]) -> usize {
        let begun = self.out.len();
        self.out.extend_from_slice(&[0; 4]);
        self.out.extend_from_slice(name);
        begun
    }

    fn end(&mut self, begun: usize) {
        let size = (self.out.len() - begun) as u32;
        set_32(&mut self.out, begun, size);
    }

    fn boxed(&mut self, name: &[u8; 4], write: impl FnOnce(&mut Self)) {
        let begun = self.begin(name);
        write(self);
        self.end(begun);
    }

    fn copy(&mut self, name: &[u8; 4], moov: &[u8], data: Option<&Range<usize>>) {
        if let Some(data) = data {
            self.boxed(name, |writer| {
                writer.out.extend_from_slice(&moov[data.clone()]);
            });
        }
    }

    fn track(&mut self, cutting: &TrackCut<'_>) {
        let (moov, track) = (&*cutting.moov, &cutting.track);
        self.boxed(b"trak", |writer| {
            writer.copy(b"tkhd", moov, track.tkhd.as_ref());
            if cutting.prefix > 0 {
                writer.edits(track.movie_duration, cutting.prefix);
            }
            writer.boxed(b"mdia", |writer| {
                writer.media_head(moov, track);
                writer.copy(b"hdlr", moov, track.hdlr.as_ref());
                writer.boxed(b"minf", |writer| {
                    writer.copy(b"vmhd", moov, track.vmhd.as_ref());
                    writer.copy(b"smhd", moov, track.smhd.as_ref());
                    writer.copy(b"dinf", moov, track.dinf.as_ref());
                    writer.boxed(b"stbl", |writer| writer.tables(cutting));
                });
            });
        });
    }

    fn media_head(&mut self, moov: &[u8], track: &Track) {
        let Some(mdhd) = &track.mdhd else { return };
        let begun = self.begin(b"mdhd");
        self.out.extend_from_slice(&moov[mdhd.clone()]);
        set_duration(&mut self.out[begun + 8..], 16, track.duration);
        self.end(begun);
    }

    /// An edit list: what lies before the wanted start, back to the key frame, is decoded and not shown.
    fn edits(&mut self, duration: u64, prefix: u64) {
        self.boxed(b"edts", |writer| {
            let begun = writer.begin(b"elst");
            let version_and_count = [1, 0, 0, 0, 0, 0, 0, 1];
            writer.out.extend_from_slice(&version_and_count);
            writer.out.extend_from_slice(&duration.to_be_bytes());
            writer.out.extend_from_slice(&prefix.to_be_bytes());
            let speed = [0, 1, 0, 0];
            writer.out.extend_from_slice(&speed);
            writer.end(begun);
            debug_assert_eq!(writer.out.len() - begun, ELST_SIZE as usize);
        });
    }

    fn tables(&mut self, cutting: &TrackCut<'_>) {
        let (moov, track) = (&*cutting.moov, &cutting.track);
        self.copy(b"stsd", moov, track.stsd.as_ref());
        self.table(b"stts", moov, track.stts.as_ref(), 8);
        self.table(b"stss", moov, track.stss.as_ref(), 4);
        self.table(b"ctts", moov, track.ctts.as_ref(), 8);
        if let Some(stsc) = &track.stsc {
            self.chunk_lengths(cutting, stsc);
        }
        match track.is_uniform {
            true => self.copy(b"stsz", moov, track.stsz.as_ref().map(|table| &table.head)),
            false => self.table(b"stsz", moov, track.stsz.as_ref(), 4),
        }
        let (name, width) = match track.is_wide {
            true => (b"co64", 8),
            false => (b"stco", 4),
        };
        self.table(name, moov, track.chunks.as_ref(), width);
        let rows = track.chunks.as_ref().map_or(0, |table| table.rows.len());
        let end = self.out.len();
        self.chunks.push((end - rows..end, track.is_wide));
    }

    fn table(&mut self, name: &[u8; 4], moov: &[u8], table: Option<&Table>, row: usize) {
        if let Some(table) = table {
            self.boxed(name, |writer| {
                writer.table_head(moov, table, table.rows.len() / row);
                writer.out.extend_from_slice(&moov[table.rows.clone()]);
            });
        }
    }

    fn table_head(&mut self, moov: &[u8], table: &Table, rows: usize) {
        self.out.extend_from_slice(&moov[table.head.clone()]);
        let at = self.out.len() - 4;
        set_32(&mut self.out, at, rows as u32);
    }

    fn chunk_lengths(&mut self, cutting: &TrackCut<'_>, table: &Table) {
        let more = [&cutting.first_row, &cutting.last_row];
        let rows = table.rows.len() / 12 + more.iter().filter(|row| row.is_some()).count();
        self.boxed(b"stsc", |writer| {
            writer.table_head(cutting.moov, table, rows);
            writer.row(cutting.first_row);
            writer
                .out
                .extend_from_slice(&cutting.moov[table.rows.clone()]);
            writer.row(cutting.last_row);
        });
    }

    fn row(&mut self, row: Option<[u32; 3]>) {
        for number in row.iter().flatten() {
            self.out.extend_from_slice(&number.to_be_bytes());
        }
    }

    /// `len`: bytes that follow.
    fn begin_mdat(&mut self, len: u64) {
        let begun = self.begin(b"mdat");
        match u32::try_from(len + 8) {
            Ok(size) => set_32(&mut self.out, begun, size),
            Err(_) => {
                set_32(&mut self.out, begun, 1);
                self.out.extend_from_slice(&(len + 16).to_be_bytes());
            }
        }
    }

    /// Data that began at `start` begins behind the head now.
    fn move_chunks(&mut self, start: u64) {
        let by = (self.out.len() as u64).wrapping_sub(start);
        for (rows, is_wide) in std::mem::take(&mut self.chunks) {
            let width = if is_wide { 8 } else { 4 };
            for at in rows.step_by(width) {
                if is_wide {
                    let place = super::boxes::get_64(&self.out, at).wrapping_add(by);
                    set_64(&mut self.out, at, place);
                } else {
                    let place = super::boxes::get_32(&self.out, at).wrapping_add(by as u32);
                    set_32(&mut self.out, at, place);
                }
            }
        }
    }
}
