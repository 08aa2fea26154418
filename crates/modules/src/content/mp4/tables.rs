//! Cuts the tables of one track down to a part of it.
//!
//! A table describes samples, or chunks of samples; each table is cut at both ends, in place in memory. Invariant:
//! rows are read and changed only within the table: a file that contradicts itself gives a fault, or a film that
//! shows nothing.

use std::ops::Range;

use super::boxes::{CutRequest, Table, Track, get_32, get_64, set_32, set_64};
use super::fault::Fault;

/// Bytes of a row of `stsc`: first chunk, samples per chunk, description.
const STSC_ROW: usize = 12;

/// A track that is being cut.
pub(super) struct TrackCut<'a> {
    /// Contents of `moov`.
    pub moov: &'a mut [u8],
    /// The wanted part.
    pub wish: &'a CutRequest,
    /// Length of the file in bytes.
    pub file_len: u64,
    /// End of the contents of `mdat` in the file.
    pub mdat_end: u64,
    /// The track's boxes; their rows are narrowed.
    pub track: Track,
    /// Units before the wanted start, back to a key frame.
    pub prefix: u64,
    /// The first row of `stsc`, if its first chunk was shortened.
    pub first_row: Option<[u32; 3]>,
    /// The last row of `stsc`, likewise.
    pub last_row: Option<[u32; 3]>,
    /// The part of the file that holds its samples.
    pub data: Range<u64>,
    start_sample: u64,
    end_sample: u64,
    start_chunk: u64,
    end_chunk: u64,
    start_chunk_samples: u64,
    end_chunk_samples: u64,
    start_size: u64,
    end_size: u64,
}

impl<'a> TrackCut<'a> {
    /// A track that is not cut yet.
    pub(super) fn new(
        moov: &'a mut [u8],
        wish: &'a CutRequest,
        track: Track,
        file_len: u64,
        mdat_end: u64,
    ) -> TrackCut<'a> {
        TrackCut {
            moov,
            wish,
            file_len,
            mdat_end,
            track,
            prefix: 0,
            first_row: None,
            last_row: None,
            data: 0..0,
            start_sample: 0,
            end_sample: 0,
            start_chunk: 0,
            end_chunk: 0,
            start_chunk_samples: 0,
            end_chunk_samples: 0,
            start_size: 0,
            end_size: 0,
        }
    }

    /// Cuts every table.
    ///
    /// # Errors
    /// One is missing, contradicts another, or has nothing of the part.
    pub(super) fn cut(&mut self) -> Result<(), Fault> {
        self.cut_times()?;
        self.cut_key_frames();
        self.cut_offsets_of_times();
        self.cut_chunk_lengths()?;
        self.cut_sizes()?;
        self.cut_chunk_places()
    }

    fn ends(&self) -> bool {
        self.wish.length_ms > 0
    }

    /// `stts`: samples and how long each lasts. Finds the first sample and the last.
    fn cut_times(&mut self) -> Result<(), Fault> {
        let Some(mut table) = self.track.stts.clone() else {
            return Err(Fault::of("no mp4 stts atoms were found"));
        };
        let out = || Fault::of("start time is out mp4 stts samples");
        let time = CutRequest::units(self.wish.start_ms, self.track.timescale);
        let SttsPosition {
            mut at,
            sample,
            mut rest,
        } = match self.find_time(&table.rows, time) {
            Ok(found) => found,
            Err(_) => return Err(out()),
        };
        let mut back = self.back_to_key_frame(sample as u32)?;
        self.start_sample = sample - u64::from(back);
        let duration = |moov: &[u8], at| u64::from(get_32(moov, at + 4));
        while rest < back {
            if at == table.rows.start {
                return Err(out());
            }
            let passed = u64::from(rest).wrapping_mul(duration(self.moov, at));
            self.prefix = self.prefix.wrapping_add(passed);
            back -= rest;
            at -= 8;
            rest = get_32(self.moov, at);
        }
        let passed = u64::from(back).wrapping_mul(duration(self.moov, at));
        self.prefix = self.prefix.wrapping_add(passed);
        self.track.duration = self.track.duration.wrapping_add(self.prefix);
        let count = get_32(self.moov, at);
        set_32(self.moov, at, count.wrapping_sub(rest - back));
        table.rows.start = at;
        if self.ends() {
            let units = CutRequest::units(self.wish.length_ms, self.track.timescale);
            let time = units.wrapping_add(self.prefix);
            let samples = match self.find_time(&table.rows, time) {
                Ok(SttsPosition { at, sample, rest }) => {
                    set_32(self.moov, at, rest);
                    table.rows.end = at + 8;
                    sample
                }
                Err(all) => all,
            };
            self.end_sample = self.start_sample.wrapping_add(samples);
        }
        self.track.stts = Some(table);
        Ok(())
    }

    /// The row in which a time lies; else how many samples there are.
    fn find_time(&self, rows: &Range<usize>, mut time: u64) -> Result<SttsPosition, u64> {
        let mut sample: u64 = 0;
        for at in rows.clone().step_by(8) {
            let count = u64::from(get_32(self.moov, at));
            let duration = u64::from(get_32(self.moov, at + 4));
            if time < count * duration {
                let rest = (time / duration) as u32;
                let sample = sample + u64::from(rest);
                return Ok(SttsPosition { at, sample, rest });
            }
            sample += count;
            time -= count * duration;
        }
        Err(sample)
    }

    /// Samples from the last key frame before a sample up to it.
    fn back_to_key_frame(&self, sample: u32) -> Result<u32, Fault> {
        let mut back = 0;
        let Some(table) = self
            .track
            .stss
            .as_ref()
            .filter(|_| self.wish.from_key_frame)
        else {
            return Ok(0);
        };
        // They are counted from 1.
        let sample = sample.wrapping_add(1);
        for at in table.rows.clone().step_by(4) {
            let key = get_32(self.moov, at);
            if key == 0 {
                return Err(Fault::of("zero sync sample"));
            }
            if key > sample {
                break;
            }
            back = sample - key;
        }
        Ok(back)
    }

    /// `stss`: the numbers of key frames.
    fn cut_key_frames(&mut self) {
        let Some(mut table) = self.track.stss.clone() else {
            return;
        };
        let first = |moov: &[u8], rows: &Range<usize>, least: u32| {
            let mut places = rows.clone().step_by(4);
            let found = places.find(|at| get_32(moov, *at) >= least);
            found.unwrap_or(rows.end)
        };
        let start = self.start_sample as u32;
        table.rows.start = first(self.moov, &table.rows, start.wrapping_add(1));
        if self.ends() {
            let end = (self.end_sample as u32).wrapping_add(1);
            table.rows.end = first(self.moov, &table.rows, end);
        }
        for at in table.rows.clone().step_by(4) {
            let sample = get_32(self.moov, at).wrapping_sub(start);
            set_32(self.moov, at, sample);
        }
        self.track.stss = Some(table);
    }

    /// `ctts`: samples and how much later than decoded each is shown.
    fn cut_offsets_of_times(&mut self) {
        let Some(mut table) = self.track.ctts.clone() else {
            return;
        };
        match self.find_sample(&table.rows, self.start_sample as u32) {
            None => table.rows.start = table.rows.end,
            Some((at, rest)) => {
                let count = get_32(self.moov, at);
                set_32(self.moov, at, count - rest);
                table.rows.start = at;
            }
        }
        if self.ends() {
            let samples = self.end_sample.wrapping_sub(self.start_sample);
            if let Some((at, rest)) = self.find_sample(&table.rows, samples as u32) {
                set_32(self.moov, at, rest);
                table.rows.end = at + 8;
            }
        }
        self.track.ctts = Some(table).filter(|table| !table.rows.is_empty());
    }

    /// The row in which a sample is, and how many come before it there.
    fn find_sample(&self, rows: &Range<usize>, mut sample: u32) -> Option<(usize, u32)> {
        for at in rows.clone().step_by(8) {
            let count = get_32(self.moov, at);
            if sample < count {
                return Some((at, sample));
            }
            sample -= count;
        }
        None
    }

    /// `stsc`: runs of chunks with as many samples each. Finds the first chunk and the last.
    fn cut_chunk_lengths(&mut self) -> Result<(), Fault> {
        let Some(mut table) = self.track.stsc.clone() else {
            return Err(Fault::of("no mp4 stsc atoms were found"));
        };
        if table.rows.is_empty() {
            return Err(Fault::of("zero number of entries in stsc atom"));
        }
        self.cut_first_chunk(&mut table)?;
        if self.ends() {
            self.cut_last_chunk(&mut table)?;
        }
        for at in table.rows.clone().step_by(STSC_ROW) {
            let chunk = get_32(self.moov, at).wrapping_sub(self.start_chunk as u32);
            set_32(self.moov, at, chunk);
        }
        self.track.stsc = Some(table);
        Ok(())
    }

    fn cut_first_chunk(&mut self, table: &mut Table) -> Result<(), Fault> {
        let run = self.find_run(&table.rows, self.start_sample as u32, 0, "start")?;
        let (chunk, before) = (run.chunk_of_sample(), run.samples_before());
        table.rows.start = run.at;
        self.start_chunk = chunk;
        self.start_chunk_samples = u64::from(before);
        set_32(self.moov, run.at, (chunk as u32).wrapping_add(1));
        if before == 0 {
            return Ok(());
        }
        let left = run.samples - before;
        if u64::from(run.next_chunk).wrapping_sub(chunk) == 2 {
            // It is the only one of its run.
            set_32(self.moov, run.at + 4, left);
        } else {
            self.first_row = Some([1, left, get_32(self.moov, run.at + 8)]);
            set_32(self.moov, run.at, (chunk as u32).wrapping_add(2));
        }
        Ok(())
    }

    fn cut_last_chunk(&mut self, table: &mut Table) -> Result<(), Fault> {
        let mut samples = self.end_sample.wrapping_sub(self.start_sample) as u32;
        if let Some(first) = &mut self.first_row {
            first[1] = first[1].min(samples);
            samples -= first[1];
        }
        // nginx takes nothing for the end of a part that lies in one chunk, and finds no data.
        let before = self.first_row.map_or(0, |row| row[1]);
        let run = self.find_run(&table.rows, samples, before, "end")?;
        let (chunk, before) = (run.chunk_of_sample(), run.samples_before());
        if run.sample > 0 {
            table.rows.end = run.at + STSC_ROW;
            self.end_chunk_samples = u64::from(run.samples);
        } else {
            table.rows.end = run.at;
            self.end_chunk_samples = u64::from(run.samples_of_run_before);
        }
        self.end_chunk = chunk;
        if before == 0 {
            return Ok(());
        }
        self.end_chunk = chunk + 1;
        self.end_chunk_samples = u64::from(before);
        if chunk == u64::from(run.chunk - 1) {
            // It is the first of its run.
            set_32(self.moov, run.at + 4, before);
        } else {
            let number = self.end_chunk.wrapping_sub(self.start_chunk) as u32;
            self.last_row = Some([number, before, get_32(self.moov, run.at + 8)]);
        }
        Ok(())
    }

    /// The run of chunks in which a sample is; `before`: how many samples the chunk before the first run has.
    fn find_run(
        &self,
        rows: &Range<usize>,
        mut sample: u32,
        before: u32,
        end: &str,
    ) -> Result<ChunkRun, Fault> {
        let unordered = || Fault::of("unordered mp4 stsc chunks");
        let mut samples_of_run_before = before;
        for at in rows.clone().step_by(STSC_ROW) {
            let (chunk, samples) = (get_32(self.moov, at), get_32(self.moov, at + 4));
            let is_last = at + STSC_ROW == rows.end;
            let next_chunk = match is_last {
                true => self.chunk_count().wrapping_add(1),
                false => get_32(self.moov, at + STSC_ROW),
            };
            let chunks = next_chunk.checked_sub(chunk).ok_or_else(unordered)?;
            let all = u64::from(chunks) * u64::from(samples);
            if u64::from(sample) < all || is_last {
                if u64::from(sample) > all {
                    return Err(Fault::of(format!("{end} time is out mp4 stsc chunks")));
                }
                if samples == 0 {
                    return Err(Fault::of("zero number of samples"));
                }
                if chunk == 0 {
                    return Err(Fault::of("zero chunk"));
                }
                return Ok(ChunkRun {
                    at,
                    chunk,
                    next_chunk,
                    samples,
                    sample,
                    samples_of_run_before,
                });
            }
            sample -= all as u32;
            if chunks > 0 {
                samples_of_run_before = samples;
            }
        }
        Err(Fault::of("zero number of entries in stsc atom"))
    }

    fn chunk_count(&self) -> u32 {
        let width = self.width();
        let rows = self.track.chunks.as_ref().map(|table| table.rows.len());
        (rows.unwrap_or(0) / width) as u32
    }

    fn width(&self) -> usize {
        match self.track.is_wide {
            true => 8,
            false => 4,
        }
    }

    /// `stsz`: sizes of samples. Finds what lies before the first sample in its chunk, and up to the last in its.
    fn cut_sizes(&mut self) -> Result<(), Fault> {
        let Some(mut table) = self.track.stsz.clone().filter(|_| !self.track.is_uniform) else {
            return Ok(());
        };
        let all = table.rows.clone();
        let entries = (all.len() / 4) as u64;
        if self.start_sample >= entries {
            return Err(Fault::of("start time is out mp4 stsz samples"));
        }
        table.rows.start += self.start_sample as usize * 4;
        self.start_size = self.sum_before(&all, table.rows.start, self.start_chunk_samples);
        if self.start_size > self.file_len {
            return Err(Fault::of("too large mp4 start samples size"));
        }
        if self.ends() {
            let samples = self.end_sample.wrapping_sub(self.start_sample);
            if samples > entries - self.start_sample {
                return Err(Fault::of("end time is out mp4 stsz samples"));
            }
            table.rows.end = table.rows.start + samples as usize * 4;
            self.end_size = self.sum_before(&all, table.rows.end, self.end_chunk_samples);
            if self.end_size > self.file_len {
                return Err(Fault::of("too large mp4 end samples size"));
            }
        }
        self.track.stsz = Some(table);
        Ok(())
    }

    /// The sizes of so many samples before a place, as far as there are rows.
    fn sum_before(&self, all: &Range<usize>, at: usize, samples: u64) -> u64 {
        let rows = ((at - all.start) / 4) as u64;
        let from = at - samples.min(rows) as usize * 4;
        let sizes = (from..at).step_by(4);
        sizes.map(|at| u64::from(get_32(self.moov, at))).sum()
    }

    /// `stco` or `co64`: where chunks begin. Finds the part of the file that is wanted.
    fn cut_chunk_places(&mut self) -> Result<(), Fault> {
        let Some(mut table) = self.track.chunks.clone() else {
            return Err(Fault::of("no mp4 stco atoms were found"));
        };
        let (width, chunks) = (self.width(), u64::from(self.chunk_count()));
        let name = match self.track.is_wide {
            true => "co64",
            false => "stco",
        };
        if self.start_chunk >= chunks {
            return Err(Fault::of(format!("start time is out mp4 {name} chunks")));
        }
        table.rows.start += self.start_chunk as usize * width;
        let start = self.place(table.rows.start, self.start_size)?;
        self.set_place(table.rows.start, start);
        self.data = start..self.mdat_end;
        if self.ends() {
            if self.end_chunk > chunks {
                return Err(Fault::of(format!("end time is out mp4 {name} chunks")));
            }
            let entries = self.end_chunk.saturating_sub(self.start_chunk);
            table.rows.end = table.rows.start + entries as usize * width;
            if entries > 0 {
                self.data.end = self.place(table.rows.end - width, self.end_size)?;
            }
        }
        if table.rows.is_empty() {
            self.data = self.file_len..0;
        }
        self.track.chunks = Some(table);
        Ok(())
    }

    /// The offset `size` bytes behind the beginning of a chunk.
    fn place(&self, at: usize, size: u64) -> Result<u64, Fault> {
        let begin = match self.track.is_wide {
            true => get_64(self.moov, at),
            false => u64::from(get_32(self.moov, at)),
        };
        let place = begin.checked_add(size);
        let max = match self.track.is_wide {
            true => self.file_len,
            false => self.file_len.min(u64::from(u32::MAX)),
        };
        let place = place.filter(|place| *place <= max);
        place.ok_or_else(|| Fault::of("too large chunk offset"))
    }

    fn set_place(&mut self, at: usize, place: u64) {
        match self.track.is_wide {
            true => set_64(self.moov, at, place),
            false => set_32(self.moov, at, place as u32),
        }
    }
}

/// Where a time lies in `stts`.
struct SttsPosition {
    at: usize,
    sample: u64,
    /// Samples before it in its row.
    rest: u32,
}

/// A run of chunks in `stsc`, and a sample in it.
struct ChunkRun {
    at: usize,
    /// Its first, counted from 1.
    chunk: u32,
    next_chunk: u32,
    /// Of each of its chunks.
    samples: u32,
    /// Counted from the first of the run.
    sample: u32,
    samples_of_run_before: u32,
}

impl ChunkRun {
    /// Counted from 0.
    fn chunk_of_sample(&self) -> u64 {
        u64::from(self.chunk - 1) + u64::from(self.sample / self.samples)
    }

    fn samples_before(&self) -> u32 {
        self.sample % self.samples
    }
}
