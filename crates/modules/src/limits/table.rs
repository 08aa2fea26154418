//! A hash table of keys and their state, bounded in bytes, which are counted as in nginx's zones.
//!
//! Not here: the state of a key, and when a key is removed. Every operation takes the same short time, however large
//! the table is: entries are never moved or rehashed, since all loops share a table behind one lock. Invariant: a
//! slot is not given out again until it is given back.

use std::hash::BuildHasher;

use hashbrown::DefaultHashBuilder;
use smallvec::SmallVec;

/// Bytes of a page: smaller entries share one in equal parts, larger ones take whole pages.
const PAGE_BYTES: u64 = 4096;
/// Bytes of nginx's own data for each page, beside the page.
const PAGE_HEAD_BYTES: u64 = 24;
/// Maximum number of keys of one table.
const KEYS_MAX: u64 = 1 << 31;
/// Maximum length in bytes of a key that needs no allocation of its own.
const KEY_INLINE: usize = 16;
/// No slot.
const NONE: u32 = u32::MAX;

/// The slot of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slot(u32);

/// How full a table is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Room {
    /// Keys in it.
    pub keys: u64,
    /// Bytes that they take.
    pub bytes: u64,
    /// Maximum number of bytes that they may take.
    pub bytes_max: u64,
}

/// The error for a table that would need more memory than there is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TooLarge;

/// Hashes keys, in each table differently, so that a client cannot choose keys that collide.
#[derive(Debug, Default)]
pub(crate) struct Hasher(DefaultHashBuilder);

impl Hasher {
    /// The hash of a key.
    #[must_use]
    pub(crate) fn hash(&self, key: &[u8]) -> u64 {
        self.0.hash_one(key)
    }
}

#[derive(Debug)]
struct Node<V> {
    key: SmallVec<[u8; KEY_INLINE]>,
    hash: u64,
    value: V,
    /// The next node of the same bucket; in a free slot, the next free one.
    next: u32,
    /// Neighbours in the order of last use.
    newer: u32,
    older: u32,
}

/// A table of keys, with a state for each.
#[derive(Debug)]
pub(crate) struct Table<V> {
    /// The first node of each bucket; a power of two.
    buckets: Vec<u32>,
    nodes: Vec<Node<V>>,
    free: u32,
    newest: u32,
    oldest: u32,
    /// Bytes of a node in nginx, its key not counted.
    node_bytes: usize,
    keys: u64,
    bytes: u64,
    bytes_max: u64,
}

impl<V: Copy> Table<V> {
    /// An empty table in a zone of this many bytes, for nodes of `node_bytes` and their keys.
    ///
    /// # Errors
    /// [`TooLarge`].
    pub(crate) fn new(zone_bytes: u64, node_bytes: usize) -> Result<Self, TooLarge> {
        let pages = (zone_bytes / (PAGE_BYTES + PAGE_HEAD_BYTES)).saturating_sub(1);
        let bytes_max = pages * PAGE_BYTES;
        let keys_max = bytes_max / cost(node_bytes, 1);
        if keys_max > KEYS_MAX {
            return Err(TooLarge);
        }
        let keys_max = usize::try_from(keys_max).map_err(|_| TooLarge)?;
        let (mut buckets, mut nodes) = (Vec::new(), Vec::new());
        let width = keys_max.next_power_of_two();
        buckets.try_reserve_exact(width).map_err(|_| TooLarge)?;
        buckets.resize(width, NONE);
        // The kernel gives this memory only when it is used.
        nodes.try_reserve_exact(keys_max).map_err(|_| TooLarge)?;
        Ok(Self {
            buckets,
            nodes,
            free: NONE,
            newest: NONE,
            oldest: NONE,
            node_bytes,
            keys: 0,
            bytes: 0,
            bytes_max,
        })
    }

    /// The slot of a key.
    #[must_use]
    pub(crate) fn find(&self, hash: u64, key: &[u8]) -> Option<Slot> {
        let mut at = self.buckets[self.bucket(hash)];
        while at != NONE {
            let node = &self.nodes[at as usize];
            if node.hash == hash && node.key[..] == *key {
                return Some(Slot(at));
            }
            at = node.next;
        }
        None
    }

    /// Adds a new key, as the most recently used; `None`: the table is full.
    pub(crate) fn insert(&mut self, hash: u64, key: &[u8], value: V) -> Option<Slot> {
        let bytes = self.bytes + cost(self.node_bytes, key.len());
        let is_full = self.free == NONE && self.nodes.len() == self.nodes.capacity();
        if bytes > self.bytes_max || is_full {
            return None;
        }
        self.bytes = bytes;
        self.keys += 1;
        let bucket = self.bucket(hash);
        let node = Node {
            key: SmallVec::from_slice(key),
            hash,
            value,
            next: self.buckets[bucket],
            newer: NONE,
            older: NONE,
        };
        let at = if self.free == NONE {
            self.nodes.push(node);
            u32::try_from(self.nodes.len() - 1).expect("there are at most KEYS_MAX")
        } else {
            let at = self.free;
            self.free = self.nodes[at as usize].next;
            self.nodes[at as usize] = node;
            at
        };
        self.buckets[bucket] = at;
        self.put_first(at);
        Some(Slot(at))
    }

    /// Removes a key.
    pub(crate) fn remove(&mut self, slot: Slot) {
        self.take_out_of_order(slot.0);
        let hash = self.nodes[slot.0 as usize].hash;
        let next = self.nodes[slot.0 as usize].next;
        let bucket = self.bucket(hash);
        let mut at = self.buckets[bucket];
        if at == slot.0 {
            self.buckets[bucket] = next;
        } else {
            while self.nodes[at as usize].next != slot.0 {
                at = self.nodes[at as usize].next;
            }
            self.nodes[at as usize].next = next;
        }
        let node = &mut self.nodes[slot.0 as usize];
        self.bytes -= cost(self.node_bytes, node.key.len());
        self.keys -= 1;
        node.key = SmallVec::new();
        node.next = self.free;
        self.free = slot.0;
    }

    /// Makes a key the most recently used.
    pub(crate) fn touch(&mut self, slot: Slot) {
        self.take_out_of_order(slot.0);
        self.put_first(slot.0);
    }

    /// The least recently used key.
    #[must_use]
    pub(crate) fn oldest(&self) -> Option<Slot> {
        (self.oldest != NONE).then_some(Slot(self.oldest))
    }

    /// The state of a key.
    #[must_use]
    pub(crate) fn get(&self, slot: Slot) -> V {
        self.nodes[slot.0 as usize].value
    }

    /// The state of a key, mutable.
    pub(crate) fn get_mut(&mut self, slot: Slot) -> &mut V {
        &mut self.nodes[slot.0 as usize].value
    }

    /// How full it is.
    #[must_use]
    pub(crate) fn room(&self) -> Room {
        Room {
            keys: self.keys,
            bytes: self.bytes,
            bytes_max: self.bytes_max,
        }
    }

    fn bucket(&self, hash: u64) -> usize {
        // The low half is enough: there are fewer buckets.
        (hash & (self.buckets.len() as u64 - 1)) as usize
    }

    fn put_first(&mut self, at: u32) {
        let before = std::mem::replace(&mut self.newest, at);
        let node = &mut self.nodes[at as usize];
        (node.newer, node.older) = (NONE, before);
        match before {
            NONE => self.oldest = at,
            before => self.nodes[before as usize].newer = at,
        }
    }

    fn take_out_of_order(&mut self, at: u32) {
        let Node { newer, older, .. } = self.nodes[at as usize];
        match newer {
            NONE => self.newest = older,
            newer => self.nodes[newer as usize].older = older,
        }
        match older {
            NONE => self.oldest = newer,
            older => self.nodes[older as usize].newer = newer,
        }
    }
}

/// Bytes that a node takes in nginx's zone: the next power of two up to half a page, else whole pages.
fn cost(node_bytes: usize, key_bytes: usize) -> u64 {
    let bytes = (node_bytes + key_bytes) as u64;
    if bytes > PAGE_BYTES / 2 {
        bytes.next_multiple_of(PAGE_BYTES)
    } else {
        bytes.next_power_of_two()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_found_until_they_are_taken_out() {
        let hasher = Hasher::default();
        let mut table: Table<u32> = Table::new(32 << 10, 36).expect("there is memory");
        let key = |number: u32| format!("key {number}").into_bytes();
        let mut slots = Vec::new();
        for number in 0.. {
            let key = key(number);
            match table.insert(hasher.hash(&key), &key, number) {
                Some(slot) => slots.push(slot),
                None => break,
            }
        }
        // Six pages with 64 nodes of 64 bytes each.
        assert_eq!(slots.len(), 6 * 64);
        let full = Room {
            keys: 6 * 64,
            bytes: 6 * 4096,
            bytes_max: 6 * 4096,
        };
        assert_eq!(table.room(), full);
        for (number, slot) in (0_u32..).zip(&slots) {
            let key = key(number);
            assert_eq!(table.find(hasher.hash(&key), &key), Some(*slot));
            assert_eq!(table.get(*slot), number);
        }
        assert_eq!(table.oldest(), Some(slots[0]));
        table.touch(slots[0]);
        assert_eq!(table.oldest(), Some(slots[1]));
        for slot in slots.iter().rev() {
            table.remove(*slot);
        }
        assert_eq!(table.oldest(), None);
        assert_eq!((table.room().keys, table.room().bytes), (0, 0));
        assert_eq!(table.find(hasher.hash(b"key 7"), b"key 7"), None);
        assert!(table.insert(hasher.hash(b"again"), b"again", 1).is_some());
    }

    #[test]
    fn long_keys_take_whole_pages() {
        assert_eq!(cost(80, 4), 128);
        assert_eq!(cost(80, 48), 128);
        assert_eq!(cost(80, 49), 256);
        assert_eq!(cost(80, 2000), 4096);
        assert_eq!(cost(80, 65_535), 17 * 4096);
        let mut table: Table<()> = Table::new(32 << 10, 80).expect("there is memory");
        assert_eq!(table.insert(0, &[b'a'; 65_535], ()), None);
    }

    #[test]
    fn what_cannot_be_is_no_panic() {
        assert_eq!(Table::<u32>::new(u64::MAX, 36).map(drop), Err(TooLarge));
    }
}
