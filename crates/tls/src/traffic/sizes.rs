//! How large records are: a client shows nothing of a record before its last byte has come.
//!
//! A connection that was idle begins with records that fit into one packet, so that a page's first bytes can be used at
//! once; what is large gets large records soon, which cost less. Not here: `rest` is called by whoever knows the time.

use crate::traffic::record::PLAIN_BYTES_MAX;

/// Contents of a record that fits into one packet.
pub const SMALL_BYTES: usize = 1400;
/// Bytes in small records after a rest.
pub const GROWN_BYTES: usize = 64 * 1024;

/// The sizes of a connection's records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sizes {
    /// `ssl_buffer_size`, where it is given.
    Fixed(usize),
    /// Small ones for the first [`GROWN_BYTES`], of which so many are left.
    Growing(usize),
}

impl Default for Sizes {
    fn default() -> Self {
        Self::Growing(GROWN_BYTES)
    }
}

impl Sizes {
    /// The contents of the next record, in bytes.
    pub(crate) fn next(self) -> usize {
        match self {
            Self::Fixed(size) => size.clamp(1, PLAIN_BYTES_MAX),
            Self::Growing(0) => PLAIN_BYTES_MAX,
            Self::Growing(_) => SMALL_BYTES,
        }
    }

    pub(crate) fn smallest(self) -> usize {
        self.next()
    }

    pub(crate) fn sent(&mut self, bytes: usize) {
        if let Self::Growing(left) = self {
            *left = left.saturating_sub(bytes);
        }
    }

    pub(crate) fn rest(&mut self) {
        if let Self::Growing(left) = self {
            *left = GROWN_BYTES;
        }
    }
}

/// Parts of an answer, taken record by record.
pub(crate) struct Parts<'a> {
    parts: &'a [&'a [u8]],
    /// What is taken of the first one.
    at: usize,
}

impl<'a> Parts<'a> {
    pub(crate) fn new(parts: &'a [&'a [u8]]) -> Self {
        Self { parts, at: 0 }
    }

    /// Takes up to `size` bytes; `None` if nothing is left.
    pub(crate) fn gather(&mut self, size: usize, gathered: &mut Vec<&'a [u8]>) -> Option<usize> {
        gathered.clear();
        let mut length = 0;
        while let [first, others @ ..] = self.parts {
            let rest = &first[self.at..];
            let taken = rest.len().min(size - length);
            if taken > 0 {
                gathered.push(&rest[..taken]);
            }
            length += taken;
            self.at += taken;
            if self.at < first.len() {
                break;
            }
            (self.parts, self.at) = (others, 0);
        }
        (length > 0).then_some(length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_grow_and_rest() {
        let mut sizes = Sizes::default();
        let mut small = 0;
        while sizes.next() == SMALL_BYTES {
            sizes.sent(SMALL_BYTES);
            small += 1;
        }
        assert_eq!((small, sizes.next()), (47, PLAIN_BYTES_MAX));
        sizes.rest();
        assert_eq!(sizes.next(), SMALL_BYTES);
        assert_eq!(Sizes::Fixed(0).next(), 1);
    }

    #[test]
    fn parts_are_gathered_over_their_ends() {
        let parts: [&[u8]; 4] = [b"abc", b"", b"defgh", b"i"];
        let mut taken = Parts::new(&parts);
        let mut gathered = Vec::new();
        let mut records = Vec::new();
        while let Some(length) = taken.gather(4, &mut gathered) {
            let record = gathered.concat();
            assert_eq!(record.len(), length);
            records.push(record);
        }
        assert_eq!(records, [&b"abcd"[..], b"efgh", b"i"]);
    }
}
