//! The live streams of a connection, in slots (RFC 9113, 5.1), and how the last ones ended.
//!
//! Idle and closed streams have no slot. Invariant: at most [`SLOTS_MAX`] slots, which are used again; once they are
//! there, a stream costs no allocation.

use super::ErrorCode;
use super::flow::{RecvWindow, SendWindow};
use super::priority::SLOTS_MAX;

/// Number of closed streams that are remembered, so that late frames are told from wrong ones.
const CLOSED_MAX: usize = SLOTS_MAX;
/// Number of these that an idle connection remembers: of those before, nothing is on its way.
const CLOSED_KEPT: usize = 8;
/// Number of places in the table that finds slots by stream identifiers.
const HINTS: usize = 2 * SLOTS_MAX;
/// Number of slots from which on that table is kept: fewer are looked through.
const HINTED_MIN: usize = 8;
/// Set in the identifier of a closed stream that we have reset.
const BY_US: u32 = 1 << 31;

/// A live stream, for the caller to keep: the identifier, and the slot, which no other live stream has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct StreamKey {
    id: u32,
    slot: u8,
}

impl StreamKey {
    /// The stream identifier.
    pub fn id(self) -> u32 {
        self.id
    }

    /// The slot: below [`SLOTS_MAX`], and of no other live stream.
    pub fn slot(self) -> usize {
        usize::from(self.slot)
    }
}

/// What a side of a stream has come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    /// No head (of a request, or the final one of a response) yet.
    Head,
    /// DATA, then perhaps trailers.
    Body,
    /// END_STREAM.
    Ended,
}

/// What is done with a body that is received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sink {
    /// It is given to the caller.
    Caller,
    /// It is dropped.
    Nobody,
}

/// A live stream.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stream {
    pub(super) id: u32,
    /// What we send.
    pub(super) local: Side,
    /// What the peer sends.
    pub(super) remote: Side,
    pub(super) send: SendWindow,
    pub(super) recv: RecvWindow,
    /// Bytes that `Content-Length` announced and that have not come.
    pub(super) length_left: Option<u64>,
    pub(super) sink: Sink,
    /// The code to reset the stream with a while after our side has ended.
    pub(super) reset_after: Option<ErrorCode>,
    /// Whether a response has no body, whatever its length (to HEAD).
    pub(super) is_head_request: bool,
    /// Bytes of memory of its request's head.
    pub(super) head: u32,
    /// The number of the read that brought its request.
    pub(super) read: u32,
}

/// How a stream was closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Closed {
    /// The peer had sent END_STREAM or RST_STREAM: nothing more may come.
    ByPeer,
    /// We have sent RST_STREAM: more may be on its way.
    ByUs,
}

/// The slots.
#[derive(Debug, Default)]
pub(super) struct Streams {
    slots: Vec<Option<Stream>>,
    /// Slots that are free, the last one used first.
    free: Vec<u8>,
    /// A slot for each identifier, as a first guess; empty for few slots.
    hints: Vec<u8>,
    /// The streams closed last, as a ring, with [`BY_US`].
    closed: Vec<u32>,
    closed_next: usize,
    live: usize,
}

fn hint(id: u32) -> usize {
    (id >> 1) as usize % HINTS
}

impl Streams {
    /// Number of live streams.
    pub(super) fn len(&self) -> usize {
        self.live
    }

    /// Takes a new stream; `None` if all slots are in use.
    pub(super) fn insert(&mut self, stream: Stream) -> Option<StreamKey> {
        let slot = match self.free.pop() {
            Some(slot) => usize::from(slot),
            None if self.slots.len() < SLOTS_MAX => {
                self.slots.push(None);
                self.slots.len() - 1
            }
            None => return None,
        };
        self.slots[slot] = Some(stream);
        if slot >= HINTED_MIN && self.hints.is_empty() {
            self.hints.resize(HINTS, 0);
        }
        if let Some(guess) = self.hints.get_mut(hint(stream.id)) {
            *guess = slot as u8;
        }
        self.live += 1;
        Some(StreamKey {
            id: stream.id,
            slot: slot as u8,
        })
    }

    /// The live stream with this identifier.
    #[inline]
    pub(super) fn find(&self, id: u32) -> Option<StreamKey> {
        let is_it = |slot: &Option<Stream>| slot.is_some_and(|stream| stream.id == id);
        let guess = self.hints.get(hint(id)).copied().map(usize::from);
        let guess = guess.filter(|slot| self.slots.get(*slot).is_some_and(is_it));
        let slot = match guess {
            Some(slot) => slot,
            None => self.slots.iter().position(is_it)?,
        };
        Some(StreamKey {
            id,
            slot: slot as u8,
        })
    }

    /// The stream of a key, unless it is closed.
    #[inline]
    pub(super) fn get(&mut self, key: StreamKey) -> Option<&mut Stream> {
        let slot = self.slots.get_mut(key.slot())?.as_mut();
        slot.filter(|stream| stream.id == key.id)
    }

    /// The stream in a slot.
    pub(super) fn at(&self, slot: usize) -> Option<&Stream> {
        self.slots.get(slot)?.as_ref()
    }

    /// The key of the stream in a slot.
    pub(super) fn key_at(&self, slot: usize) -> Option<StreamKey> {
        self.at(slot).map(|stream| StreamKey {
            id: stream.id,
            slot: slot as u8,
        })
    }

    /// Frees a slot, and remembers how the stream was closed.
    pub(super) fn close(&mut self, key: StreamKey, closed: Closed) -> Option<Stream> {
        self.get(key)?;
        let stream = self.slots[key.slot()].take();
        self.free.push(key.slot() as u8);
        self.live -= 1;
        self.remember(key.id, closed);
        stream
    }

    /// Remembers how a stream was closed.
    pub(super) fn remember(&mut self, id: u32, closed: Closed) {
        let entry = match closed {
            Closed::ByPeer => id,
            Closed::ByUs => id | BY_US,
        };
        if self.closed.len() < CLOSED_MAX {
            return self.closed.push(entry);
        }
        self.closed[self.closed_next] = entry;
        self.closed_next = (self.closed_next + 1) % CLOSED_MAX;
    }

    /// How a stream was closed, if that was not long ago.
    pub(super) fn closed(&self, id: u32) -> Option<Closed> {
        let mut closed = self.closed.iter();
        let entry = closed.find(|entry| **entry & !BY_US == id)?;
        match entry & BY_US {
            0 => Some(Closed::ByPeer),
            _ => Some(Closed::ByUs),
        }
    }

    /// Frees the memory of slots where no stream lives.
    pub(super) fn release(&mut self) {
        if self.live > 0 {
            return;
        }
        (self.slots, self.free, self.hints) = Default::default();
        if let Some(more) = self.closed.len().checked_sub(CLOSED_KEPT) {
            self.closed.rotate_left(self.closed_next);
            self.closed_next = 0;
            self.closed.drain(..more);
            self.closed.shrink_to_fit();
        }
    }

    /// Every live stream.
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Stream> {
        self.slots.iter_mut().flatten()
    }

    /// The keys of all live streams.
    pub(super) fn keys(&self) -> impl Iterator<Item = StreamKey> {
        (0..self.slots.len()).filter_map(|slot| self.key_at(slot))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stream(id: u32) -> Stream {
        Stream {
            id,
            local: Side::Head,
            remote: Side::Body,
            send: SendWindow::new(1),
            recv: RecvWindow::new(1, 1),
            length_left: None,
            sink: Sink::Caller,
            reset_after: None,
            is_head_request: false,
            head: 0,
            read: 0,
        }
    }

    #[test]
    fn slots_are_used_again_and_streams_found() {
        let mut streams = Streams::default();
        let keys: Vec<StreamKey> = (0..SLOTS_MAX as u32)
            .map(|n| streams.insert(stream(2 * n + 1)).unwrap())
            .collect();
        assert!(streams.insert(stream(999)).is_none());
        assert_eq!(streams.len(), SLOTS_MAX);
        for key in &keys {
            assert_eq!(streams.find(key.id()), Some(*key));
        }
        assert!(streams.close(keys[5], Closed::ByUs).is_some());
        assert!(streams.close(keys[5], Closed::ByPeer).is_none());
        assert_eq!(streams.closed(11), Some(Closed::ByUs));
        // Its hint is that of another stream.
        let far = streams.insert(stream(1 + 2 * HINTS as u32)).unwrap();
        assert_eq!(far.slot(), keys[5].slot());
        assert_eq!(streams.find(1), Some(keys[0]));
        assert_eq!(
            (streams.get(keys[5]).is_none(), streams.find(11)),
            (true, None)
        );
        assert_eq!(streams.keys().count(), SLOTS_MAX);
        let remember = |streams: &mut Streams, ids: std::ops::Range<u32>| {
            ids.for_each(|id| streams.remember(id, Closed::ByPeer));
        };
        remember(&mut streams, 1000..1000 + CLOSED_MAX as u32 + 3);
        assert_eq!(streams.closed(11), None, "long ago");
        streams.release();
        assert_eq!(streams.closed.len(), CLOSED_MAX, "streams live");
        let live: Vec<StreamKey> = streams.keys().collect();
        for key in live {
            streams.close(key, Closed::ByUs);
        }
        remember(&mut streams, 2000..2010);
        streams.release();
        assert_eq!(streams.closed.capacity(), CLOSED_KEPT);
        let kept: Vec<u32> = (1990..2020)
            .filter(|id| streams.closed(*id).is_some())
            .collect();
        assert_eq!(kept, Vec::from_iter(2002..2010), "the last ones, in order");
        remember(&mut streams, 3000..3000 + CLOSED_MAX as u32);
        assert_eq!(streams.closed(2009), None);
    }
}
