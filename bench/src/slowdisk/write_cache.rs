//! What a disk has not made safe yet: the content that each block had before it was written, until the next sync.
//!
//! Invariant: the backing file with all these blocks put back is what the last sync made safe.

use crate::mixed;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// Bytes that are lost or kept as one.
const BLOCK: u64 = 4096;

/// The blocks that were written since the last sync, as they were before, by number. At most as many as the disk has.
#[derive(Default)]
pub struct WriteCache(BTreeMap<u64, Box<[u8]>>);

impl WriteCache {
    /// To be called before so many bytes are written at this place.
    pub fn keep(&mut self, backing: &File, offset: u64, bytes: usize) -> io::Result<()> {
        for number in offset / BLOCK..(offset + bytes as u64).div_ceil(BLOCK) {
            if let Entry::Vacant(vacant) = self.0.entry(number) {
                let mut before = vec![0; BLOCK as usize].into_boxed_slice();
                backing.read_exact_at(&mut before, number * BLOCK)?;
                vacant.insert(before);
            }
        }
        Ok(())
    }

    /// All that was written is safe.
    pub fn sync(&mut self) {
        self.0.clear();
    }

    /// Loses what is not safe: about every second block, as the seed says; with 0, all of it. Returns the number of blocks.
    pub fn lose(&mut self, backing: &File, seed: u64) -> io::Result<u64> {
        let mut lost = 0;
        for (number, before) in std::mem::take(&mut self.0) {
            if seed == 0 || mixed(seed ^ mixed(number)).is_multiple_of(2) {
                backing.write_all_at(&before, number * BLOCK)?;
                lost += 1;
            }
        }
        Ok(lost)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[expect(clippy::disallowed_methods, reason = "a test")]
    fn what_was_not_synced_is_lost() {
        let path = std::env::temp_dir().join(format!("write-cache-{}", std::process::id()));
        let open = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .open(&path);
        let backing = open.unwrap();
        backing.set_len(64 * BLOCK).unwrap();
        let mut unsynced = WriteCache::default();
        let write = |unsynced: &mut WriteCache, offset: u64, bytes: &[u8]| {
            unsynced.keep(&backing, offset, bytes.len()).unwrap();
            backing.write_all_at(bytes, offset).unwrap();
        };
        write(&mut unsynced, 0, &[1; 8192]);
        unsynced.sync();
        write(&mut unsynced, 4000, &[2; 200]);
        write(&mut unsynced, 4000, &[3; 200]);
        assert_eq!(unsynced.lose(&backing, 0).unwrap(), 2);
        let mut found = [0; 8192];
        backing.read_exact_at(&mut found, 0).unwrap();
        assert!(found.iter().all(|byte| *byte == 1), "as it was synced");
        write(&mut unsynced, 0, &vec![4; 64 * BLOCK as usize]);
        let lost = unsynced.lose(&backing, 7).unwrap();
        assert!((10..54).contains(&lost), "{lost}: a part");
        assert_eq!(unsynced.lose(&backing, 0).unwrap(), 0);
        std::fs::remove_file(&path).unwrap();
    }
}
