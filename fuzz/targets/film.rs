//! An MP4 file, of which a part is cut: never a panic, never more read or held than the file has, and what is to be sent lies in it.
#![no_main]

use std::cell::Cell;

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use modules::content::mp4::{Mp4File, CutRequest, find_and_cut};

/// Bytes of the new head that do not come from the file: the heads of boxes, an edit list.
const NEW_MAX: usize = 1024;

fuzz_target!(|input: &[u8]| {
    let [start, length, flags, bytes @ ..] = input else {
        return;
    };
    // A few seconds, and the most that there can be.
    let time = |byte: u8| match byte {
        u8::MAX => u64::MAX / 1000 * 1000,
        byte => u64::from(byte) * 20,
    };
    let wish = CutRequest {
        start_ms: time(*start),
        length_ms: time(*length),
        from_key_frame: flags & 1 == 1,
        buffer: 64 << (flags >> 1 & 7),
        buffer_max: 1 << 20,
    };
    let most = Cell::new(0);
    let read = |at: u64, len: usize| {
        most.set(most.get().max(len));
        let at = usize::try_from(at).unwrap_or(usize::MAX).min(bytes.len());
        let end = at.saturating_add(len).min(bytes.len());
        Ok(Bytes::copy_from_slice(&bytes[at..end]))
    };
    let file = Mp4File {
        len: bytes.len() as u64,
        read: &read,
    };
    if let Ok(Some(part)) = find_and_cut(&file, &wish) {
        assert!(part.head.len() <= bytes.len() + NEW_MAX);
        assert!(part.data.start <= part.data.end && part.data.end <= bytes.len() as u64);
    }
    assert!(most.get() <= bytes.len().max(1));
});
