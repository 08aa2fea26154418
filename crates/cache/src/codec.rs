//! Fields of fixed length, numbers little-endian. Reading is from untrusted bytes: it may fail, and never goes past the end.

/// Reads from the front of a slice.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FieldReader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> FieldReader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    /// Bytes read so far.
    pub(crate) fn at(&self) -> usize {
        self.at
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.at == self.bytes.len()
    }

    /// The next `len` bytes; None if there are fewer.
    pub(crate) fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let end = self.at.checked_add(len)?;
        let part = self.bytes.get(self.at..end)?;
        self.at = end;
        Some(part)
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }

    pub(crate) fn u8(&mut self) -> Option<u8> {
        self.array().map(u8::from_le_bytes)
    }

    pub(crate) fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_le_bytes)
    }

    pub(crate) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    pub(crate) fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    pub(crate) fn i64(&mut self) -> Option<i64> {
        self.array().map(i64::from_le_bytes)
    }
}

/// Writes fields one behind the other into a buffer that has room for them.
pub(crate) struct FieldWriter<'a>(&'a mut [u8]);

impl<'a> FieldWriter<'a> {
    pub(crate) fn new(out: &'a mut [u8]) -> Self {
        Self(out)
    }

    /// Appends a field.
    ///
    /// # Panics
    /// There is no room for it.
    pub(crate) fn put<const LEN: usize>(&mut self, field: [u8; LEN]) {
        let left = std::mem::take(&mut self.0).split_first_chunk_mut();
        let (place, rest) = left.expect("the buffer has the length of all fields");
        *place = field;
        self.0 = rest;
    }
}
