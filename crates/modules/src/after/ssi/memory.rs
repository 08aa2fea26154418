//! State that the pages of one answer share: variables, blocks, and the captures of a regular expression.
//!
//! Invariant: bounded, whatever a page does: at most [`VARIABLES_MAX`] values of [`VALUES_MAX`] bytes in total, at most
//! [`BLOCKS_MAX`] blocks of [`BLOCK_BYTES_MAX`] bytes in total. A value is a copy of its own, which keeps nothing larger
//! alive; all that show a block share its text.

use std::cell::RefCell;

use bytes::Bytes;
use slots::slotted;

use httpcore::regex::Spans;
use httpcore::subrequest::include::{self, Whole};

/// Maximum variables of the pages of one answer.
const VARIABLES_MAX: usize = 1024;
/// Maximum bytes of all their values.
const VALUES_MAX: usize = 4 << 20;
/// Maximum blocks of the pages of one answer.
const BLOCKS_MAX: usize = 1024;
/// Maximum bytes of all blocks.
const BLOCK_BYTES_MAX: usize = 4 << 20;

/// The shared state of the pages of one answer.
#[derive(Debug, Default)]
pub(super) struct Memory {
    /// By their names in lower case.
    variables: Vec<(Box<[u8]>, Bytes)>,
    value_bytes: usize,
    blocks: Vec<Block>,
    block_bytes: usize,
    captures: Option<(Bytes, Spans)>,
}

#[derive(Debug)]
struct Block {
    name: Box<[u8]>,
    /// What was there when the block was shown last.
    text: Bytes,
    /// What came since.
    more: Vec<u8>,
}

/// The memory of an answer's pages, in the place that all of them have in common.
#[derive(Debug, Default)]
struct Shared(RefCell<Memory>);

slotted!(include::WHOLE: Shared);

/// The memory of an answer's pages, made on first use.
pub(super) fn of(whole: &Whole) -> &RefCell<Memory> {
    &whole.state.get_or_init(Shared::default).0
}

/// The memory is full.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct MemoryFull;

impl Memory {
    /// A value that a page set or captured, by its name in lower case.
    #[must_use]
    pub(super) fn get(&self, name: &[u8]) -> Option<Bytes> {
        if let [digit @ b'0'..=b'9'] = name
            && let Some(captured) = self.captured(usize::from(digit - b'0'))
        {
            return Some(captured);
        }
        let known = self.variables.iter().find(|(known, _)| **known == *name);
        known.map(|(_, value)| value.clone())
    }

    fn captured(&self, number: usize) -> Option<Bytes> {
        let (subject, spans) = self.captures.as_ref()?;
        let count = spans.iter().rposition(Option::is_some)? + 1;
        (number < count).then(|| match &spans[number] {
            Some(span) => subject.slice(span.start as usize..span.end as usize),
            None => Bytes::new(),
        })
    }

    /// Sets a variable.
    ///
    /// # Errors
    /// There are too many, or their values are too long.
    pub(super) fn set(&mut self, name: &[u8], value: &[u8]) -> Result<(), MemoryFull> {
        let known = self
            .variables
            .iter()
            .position(|(known, _)| **known == *name);
        let old = known.map_or(0, |at| self.variables[at].1.len());
        let bytes = self.value_bytes - old + value.len();
        if bytes > VALUES_MAX {
            return Err(MemoryFull);
        }
        let value = Bytes::copy_from_slice(value);
        match known {
            Some(at) => self.variables[at].1 = value,
            None if self.variables.len() == VARIABLES_MAX => return Err(MemoryFull),
            None => self.variables.push((name.into(), value)),
        }
        self.value_bytes = bytes;
        Ok(())
    }

    /// Stores the captures of a regular expression.
    pub(super) fn capture(&mut self, subject: Bytes, spans: Spans) {
        self.captures = Some((subject, spans));
    }

    /// Begins a block.
    ///
    /// # Errors
    /// There are too many.
    pub(super) fn begin_block(&mut self, name: &[u8]) -> Result<(), MemoryFull> {
        if self.blocks.len() == BLOCKS_MAX {
            return Err(MemoryFull);
        }
        self.blocks.push(Block {
            name: name.into(),
            text: Bytes::new(),
            more: Vec::new(),
        });
        Ok(())
    }

    /// Appends to the block that was begun last.
    ///
    /// # Errors
    /// The blocks are too long in total.
    pub(super) fn add_to_block(&mut self, text: &[u8]) -> Result<(), MemoryFull> {
        let bytes = self.block_bytes + text.len();
        if bytes > BLOCK_BYTES_MAX {
            return Err(MemoryFull);
        }
        if let Some(block) = self.blocks.last_mut() {
            block.more.extend_from_slice(text);
            self.block_bytes = bytes;
        }
        Ok(())
    }

    /// The text of the first block of this name.
    #[must_use]
    pub(super) fn block(&mut self, name: &[u8]) -> Option<Bytes> {
        let block = self.blocks.iter_mut().find(|block| *block.name == *name)?;
        if !block.more.is_empty() {
            let text = [&block.text[..], &block.more].concat();
            block.text = text.into();
            block.more = Vec::new();
        }
        Some(block.text.clone())
    }
}

#[cfg(test)]
mod tests {
    use smallvec::smallvec;

    use super::*;

    #[test]
    fn variables_and_captures() {
        let mut memory = Memory::default();
        assert_eq!(memory.get(b"a"), None);
        memory.set(b"a", b"1").unwrap();
        memory.set(b"a", b"2").unwrap();
        assert_eq!(memory.get(b"a").unwrap(), "2");
        memory.set(b"3", b"three").unwrap();
        memory.capture("xyz".into(), smallvec![Some(0..3), None, Some(1..2), None]);
        assert_eq!(memory.get(b"0").unwrap(), "xyz");
        assert_eq!(memory.get(b"1").unwrap(), "");
        assert_eq!(memory.get(b"2").unwrap(), "y");
        assert_eq!(memory.get(b"3").unwrap(), "three");
        assert_eq!(memory.get(b"4"), None);
    }

    #[test]
    fn blocks() {
        let mut memory = Memory::default();
        memory.begin_block(b"a").unwrap();
        memory.add_to_block(b"x").unwrap();
        memory.add_to_block(b"y").unwrap();
        memory.begin_block(b"a").unwrap();
        memory.add_to_block(b"z").unwrap();
        assert_eq!(memory.block(b"a").unwrap(), "xy");
        assert_eq!(memory.block(b"b"), None);
    }

    #[test]
    fn a_value_keeps_nothing_else_alive() {
        let mut memory = Memory::default();
        let subject = Bytes::from(vec![b'x'; 1 << 20]);
        memory.set(b"a", &subject[..1]).unwrap();
        assert!(subject.is_unique());
        assert_eq!(memory.get(b"a").unwrap(), "x");
    }

    #[test]
    fn a_block_is_shown_without_copies() {
        let mut memory = Memory::default();
        memory.begin_block(b"a").unwrap();
        memory.add_to_block(b"x").unwrap();
        let (one, other) = (memory.block(b"a").unwrap(), memory.block(b"a").unwrap());
        assert_eq!(one.as_ptr(), other.as_ptr());
        memory.add_to_block(b"y").unwrap();
        assert_eq!(
            (memory.block(b"a").unwrap(), one),
            ("xy".into(), "x".into())
        );
    }

    #[test]
    fn memory_is_bounded() {
        let mut memory = Memory::default();
        assert_eq!(memory.set(b"a", &vec![0; VALUES_MAX + 1]), Err(MemoryFull));
        memory.set(b"a", &vec![0; VALUES_MAX]).unwrap();
        assert_eq!(memory.set(b"b", b"x"), Err(MemoryFull));
        memory.set(b"a", b"x").unwrap();
        for number in 1..VARIABLES_MAX {
            memory.set(format!("n{number}").as_bytes(), b"").unwrap();
        }
        assert_eq!(memory.set(b"b", b""), Err(MemoryFull));
        memory.begin_block(b"a").unwrap();
        assert_eq!(
            memory.add_to_block(&vec![0; BLOCK_BYTES_MAX + 1]),
            Err(MemoryFull)
        );
    }
}
