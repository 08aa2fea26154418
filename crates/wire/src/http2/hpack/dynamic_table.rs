//! The dynamic table of a decoder (RFC 7541, 2.3.2 and 4).
//!
//! Entries are lines `name: value CRLF` one behind the other, so that an indexed field is one copy into a head. A line
//! is shorter than the size that RFC 7541 counts for it. Invariant: what is counted never exceeds `size_max`, which
//! never exceeds [`TABLE_SIZE_MAX`].

use std::collections::VecDeque;

use crate::http2::field_class::NameKind;

/// Maximum size in bytes of a table (RFC 7541, 4.1): what every endpoint starts with (RFC 9113, 6.5.2), and what is
/// never raised here.
pub const TABLE_SIZE_MAX: usize = 4096;
/// Bytes counted for an entry beside its name and value (RFC 7541, 4.1).
const ENTRY_OVERHEAD: usize = 32;
/// Bytes of evicted lines that are left in place at least, before the rest is moved.
const DEAD_MIN: usize = 512;

/// An entry of the table.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// Offset of its line since the table was made, modulo 2^32.
    start: u32,
    /// Length of the name in bytes.
    name_len: u16,
    /// Length of the value in bytes.
    value_len: u16,
    /// What the name is.
    pub kind: NameKind,
    /// Whether the value is valid.
    pub is_value_valid: bool,
}

impl Entry {
    /// Length of the name in bytes.
    pub fn name_len(&self) -> usize {
        usize::from(self.name_len)
    }

    /// Length of the value in bytes.
    pub fn value_len(&self) -> usize {
        usize::from(self.value_len)
    }

    fn size(&self) -> usize {
        self.name_len() + self.value_len() + ENTRY_OVERHEAD
    }

    fn line_len(&self) -> usize {
        self.name_len() + self.value_len() + 4
    }
}

/// The table; its memory grows with its use.
#[derive(Debug)]
pub struct DynamicTable {
    /// The lines, oldest first; before them, lines that were evicted.
    bytes: Vec<u8>,
    /// Offset of the first of `bytes` since the table was made, modulo 2^32.
    base: u32,
    /// Oldest first.
    entries: VecDeque<Entry>,
    size: usize,
    size_max: usize,
}

impl Default for DynamicTable {
    fn default() -> DynamicTable {
        DynamicTable {
            bytes: Vec::new(),
            base: 0,
            entries: VecDeque::new(),
            size: 0,
            size_max: TABLE_SIZE_MAX,
        }
    }
}

impl DynamicTable {
    /// The entry at `index`, the youngest being 0, and its line.
    #[inline]
    pub fn get(&self, index: usize) -> Option<(Entry, &[u8])> {
        let place = self.entries.len().checked_sub(index + 1)?;
        let entry = *self.entries.get(place)?;
        let start = entry.start.wrapping_sub(self.base) as usize;
        let line = self.bytes.get(start..start + entry.line_len())?;
        Some((entry, line))
    }

    /// Adds a line as the youngest entry, and evicts the oldest ones that leave no room for it.
    pub fn insert(&mut self, line: &[u8], name_len: usize, kind: NameKind, is_value_valid: bool) {
        let value_len = line.len() - name_len - 4;
        let size = name_len + value_len + ENTRY_OVERHEAD;
        if size > self.size_max {
            // RFC 7541, 4.4: not an error, but the table is empty afterwards.
            return self.evict(0);
        }
        self.evict(self.size_max - size);
        self.compact();
        self.entries.push_back(Entry {
            start: self.base.wrapping_add(self.bytes.len() as u32),
            name_len: name_len as u16,
            value_len: value_len as u16,
            kind,
            is_value_valid,
        });
        self.bytes.extend_from_slice(line);
        self.size += size;
    }

    /// Changes the maximum size in bytes; at most [`TABLE_SIZE_MAX`].
    pub fn resize(&mut self, size_max: usize) {
        self.size_max = size_max.min(TABLE_SIZE_MAX);
        self.evict(self.size_max);
    }

    /// Evicts the oldest entries until at most `size` bytes are counted.
    fn evict(&mut self, size: usize) {
        while self.size > size {
            let Some(entry) = self.entries.pop_front() else {
                break;
            };
            self.size -= entry.size();
        }
    }

    /// Removes the lines that were evicted, if they are as many bytes as those that must be moved.
    fn compact(&mut self) {
        let dead = match self.entries.front() {
            Some(oldest) => oldest.start.wrapping_sub(self.base) as usize,
            None => self.bytes.len(),
        };
        if dead >= (self.bytes.len() - dead).max(DEAD_MIN) {
            self.bytes.drain(..dead);
            self.base = self.base.wrapping_add(dead as u32);
        }
    }

    /// Number of bytes counted (RFC 7541, 4.1).
    pub fn size(&self) -> usize {
        self.size
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn insert(table: &mut DynamicTable, name: &str, value: &str) {
        let line = format!("{name}: {value}\r\n");
        table.insert(line.as_bytes(), name.len(), NameKind::Odd, true);
    }

    #[test]
    fn the_oldest_make_room() {
        let mut table = DynamicTable::default();
        table.resize(100);
        insert(&mut table, "a", "1");
        insert(&mut table, "b", "2");
        assert_eq!((table.size(), table.get(2).is_none()), (68, true));
        assert_eq!(table.get(1).unwrap().1, b"a: 1\r\n");
        insert(&mut table, "c", "3");
        assert_eq!(table.get(0).unwrap().1, b"c: 3\r\n");
        assert!(table.get(2).is_none());
        insert(&mut table, "d", &"4".repeat(67));
        assert_eq!(table.size(), 100);
        insert(&mut table, "e", &"5".repeat(68));
        assert_eq!((table.size(), table.get(0).is_none()), (0, true));
        insert(&mut table, "f", "");
        table.resize(0);
        insert(&mut table, "f", "");
        assert!(table.get(0).is_none());
        table.resize(1 << 20);
        assert_eq!(table.size_max, TABLE_SIZE_MAX);
    }

    proptest! {
        #[test]
        fn as_a_simple_list(values in prop::collection::vec(0usize..1200, 0..200)) {
            let mut table = DynamicTable::default();
            let mut list: Vec<String> = Vec::new();
            for (count, len) in values.into_iter().enumerate() {
                let value = format!("{count}{}", "x".repeat(len));
                insert(&mut table, "n", &value);
                list.insert(0, value);
                while list.iter().map(|value| value.len() + 33).sum::<usize>() > TABLE_SIZE_MAX {
                    list.pop();
                }
                prop_assert!(table.bytes.len() <= 3 * TABLE_SIZE_MAX);
                prop_assert!(table.get(list.len()).is_none());
                for (index, value) in list.iter().enumerate() {
                    let (_, line) = table.get(index).unwrap();
                    let wanted = format!("n: {value}\r\n");
                    prop_assert_eq!(line, wanted.as_bytes());
                }
            }
        }
    }
}
