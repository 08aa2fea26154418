//! The header lines of a response, in order.

use bytes::Bytes;

/// One header line of a response. Static names and values need no allocation (`Bytes::from_static`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// The name, in the case in which it is written.
    pub name: Bytes,
    /// The value.
    pub value: Bytes,
}

impl Header {
    /// A header line.
    pub fn new(name: impl Into<Bytes>, value: impl Into<Bytes>) -> Header {
        Header {
            name: name.into(),
            value: value.into(),
        }
    }

    /// Whether the line has this name, in any case.
    pub fn is(&self, name: &[u8]) -> bool {
        self.name.eq_ignore_ascii_case(name)
    }
}

/// An ordered list of header lines.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Headers(Vec<Header>);

impl Headers {
    /// An empty list.
    pub const fn new() -> Headers {
        Headers(Vec::new())
    }

    /// Appends a line.
    pub fn push(&mut self, name: impl Into<Bytes>, value: impl Into<Bytes>) {
        self.0.push(Header::new(name, value));
    }

    /// Inserts lines before all others.
    pub fn prepend(&mut self, lines: Vec<Header>) {
        self.0.splice(0..0, lines);
    }

    /// The value of the first line with this name.
    pub fn get(&self, name: &[u8]) -> Option<&Bytes> {
        self.0
            .iter()
            .find(|header| header.is(name))
            .map(|header| &header.value)
    }

    /// The values of every line with this name.
    pub fn get_all<'a>(&'a self, name: &'a [u8]) -> impl Iterator<Item = &'a Bytes> {
        self.0
            .iter()
            .filter(move |header| header.is(name))
            .map(|header| &header.value)
    }

    /// Removes every line with this name and appends one.
    pub fn set(&mut self, name: impl Into<Bytes>, value: impl Into<Bytes>) {
        let name = name.into();
        self.remove(&name);
        self.push(name, value);
    }

    /// Sets the value of the first line with this name and removes the others; appends a line if there is none.
    pub fn replace(&mut self, name: impl Into<Bytes>, value: Bytes) {
        let name = name.into();
        let mut value = Some(value);
        self.0.retain_mut(|header| {
            !header.is(&name) || value.take().map(|value| header.value = value).is_some()
        });
        if let Some(value) = value {
            self.push(name, value);
        }
    }

    /// Removes every line with this name; returns whether there was one.
    pub fn remove(&mut self, name: &[u8]) -> bool {
        let before = self.0.len();
        self.0.retain(|header| !header.is(name));
        self.0.len() != before
    }

    /// The lines, in order.
    pub fn iter(&self) -> std::slice::Iter<'_, Header> {
        self.0.iter()
    }

    /// Keeps the lines for which `keep` returns true.
    pub fn retain(&mut self, keep: impl FnMut(&Header) -> bool) {
        self.0.retain(keep);
    }

    /// Keeps the lines for which `keep` returns true; `keep` may change them.
    pub fn retain_mut(&mut self, keep: impl FnMut(&mut Header) -> bool) {
        self.0.retain_mut(keep);
    }

    /// The number of lines.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is no line.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl<'a> IntoIterator for &'a Headers {
    type Item = &'a Header;
    type IntoIter = std::slice::Iter<'a, Header>;
    fn into_iter(self) -> Self::IntoIter {
        self.0.iter()
    }
}
