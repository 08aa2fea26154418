//! Writing an answer to its cache while it is being fetched.
//!
//! Invariant: whatever the disk does, the followers get the answer.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use cache::Description;
use cache::FetchMoment;
use cache::fill::{Fill, Follower, NextPiece, Unindexed};
use cache::freshness::stored_fields;
use cache::store::EntryWriter;
use cache::{Error, Key, Lifetime, Store};
use disk::memory::{Charge, Holder, charge};
use disk::{Local, in_place};
use message::ResponseHead;
use wire::Wheel;

use crate::caching::caches::open_cache::Cache;
use crate::caching::write_backpressure::WritePermit;

/// Interval at which it is checked whether a file that is to be given up is still read.
const LOOK: Duration = Duration::from_millis(100);
/// Maximum number of these checks: a client that is slower is cut off.
const LOOKS_MAX: u32 = 600;

/// An entry to be written, and its means of writing.
pub(super) struct EntryToWrite {
    /// The cache.
    pub cache: Arc<Cache>,
    /// Its store.
    pub store: Store,
    /// The loop's part of the disk layer.
    pub local: Local,
    /// The loop's timeouts.
    pub wheel: Rc<Wheel>,
    /// The body.
    pub body: BodySource,
    /// The head.
    pub head: Arc<ResponseHead>,
    /// The key that it is stored under.
    pub key: Key,
    /// The key without what `Vary` adds.
    pub main: Key,
    /// Its variant.
    pub variant: Key,
    /// The text that the key is made of.
    pub key_text: Bytes,
    /// Its `Vary`.
    pub vary: Bytes,
    /// Header lines that are not stored.
    pub without: Vec<Vec<u8>>,
    /// Its freshness lifetime.
    pub lifetime: Lifetime,
    /// Length of the body in bytes, if the head says it; else 0.
    pub expected: u64,
    /// When the origin was asked.
    pub moment: FetchMoment,
    /// Its permit: other responses wait for it.
    pub permit: Option<WritePermit>,
}

/// A body that is to be written.
pub(super) enum BodySource {
    /// A body that arrives at the follower that writes it.
    Follower(Follower),
    /// A body that is here completely.
    Whole(Bytes, Unindexed),
}

impl BodySource {
    fn fill(&self) -> &Fill {
        match self {
            Self::Follower(saver) => saver.fill(),
            Self::Whole(_, unfound) => unfound.fill(),
        }
    }
}

/// The result of writing a body.
enum WriteEnd {
    Whole,
    GivenUp,
}

/// Upper bound of the bytes of a response that are in memory until they are written.
struct UnsavedBytes {
    cache: Arc<Cache>,
    noted: u64,
    charge: Charge,
    /// Maximum of bytes that are collected before they are written.
    max: u64,
}

impl UnsavedBytes {
    fn new(cache: &Arc<Cache>, store: &Store, expected: u64) -> Self {
        let mut unsaved = Self {
            cache: Arc::clone(cache),
            noted: 0,
            charge: charge(Holder::Fills, 0),
            max: store.collected_max(expected) as u64,
        };
        unsaved.note(expected);
        unsaved
    }

    /// Sets the number of bytes that have arrived or will.
    fn note(&mut self, bytes: u64) {
        let more = bytes.min(self.max).saturating_sub(self.noted);
        self.cache.backpressure.begin_saving(more);
        self.noted += more;
        self.charge
            .set(usize::try_from(self.noted).unwrap_or(usize::MAX));
    }
}

impl Drop for UnsavedBytes {
    fn drop(&mut self) {
        self.cache.backpressure.end_saving(self.noted);
    }
}

/// Writes an entry. Its steps are boxed one by one: the allocator is slow beyond a kilobyte.
pub(super) async fn run(mut saving: Box<EntryToWrite>) {
    let mut unsaved = UnsavedBytes::new(&saving.cache, &saving.store, saving.expected);
    let mut writing = match in_place::boxed(|| saving.begin()).await {
        Ok(writing) => writing,
        Err(error) => return saving.tell(&error),
    };
    let outcome = match saving.write(&mut writing, &mut unsaved).await {
        Ok(WriteEnd::Whole) => in_place::boxed(|| writing.publish(&saving.local))
            .await
            .map(|_| WriteEnd::Whole),
        other => other,
    };
    let because = match outcome {
        // It can be found without the fill only from now on: the index knows it.
        Ok(WriteEnd::Whole) => return,
        // The reason was logged where it was given up.
        Ok(WriteEnd::GivenUp) => None,
        Err(error) => {
            saving.tell(&error);
            Some(error)
        }
    };
    let EntryToWrite {
        local,
        wheel,
        body,
        permit,
        ..
    } = *saving;
    drop(permit);
    let fill = body.fill().clone();
    drop(body);
    in_place::boxed(|| wait_for_readers(&fill, &wheel)).await;
    // A sweep removes what is left of it.
    let _ = in_place::boxed(|| writing.abandon(&local, because.as_ref())).await;
}

/// Slow followers read the file for as long as they need.
async fn wait_for_readers(fill: &Fill, wheel: &Rc<Wheel>) {
    for _ in 0..LOOKS_MAX {
        if !fill.is_file_needed() {
            return;
        }
        wheel.sleep(LOOK).await;
    }
}

impl EntryToWrite {
    async fn begin(&self) -> Result<EntryWriter, Error> {
        let head = &self.head;
        let description = Description {
            key: self.key,
            main: self.main,
            variant: self.variant,
            tag: 0,
            key_text: &self.key_text,
            vary: &self.vary,
            status: head.status,
            status_line: head.status_line.of(&head.bytes),
            lifetime: self.lifetime,
        };
        let fields = stored_fields(head.iter(), &self.without);
        let now = self.lifetime.date;
        let begun = self
            .store
            .begin(
                &self.local,
                &description,
                fields,
                self.expected,
                now,
                self.moment.clone(),
            )
            .await;
        let writing = begun?;
        self.body.fill().set_written_body(writing.written_body());
        Ok(writing)
    }

    async fn write(
        &mut self,
        writing: &mut EntryWriter,
        unsaved: &mut UnsavedBytes,
    ) -> Result<WriteEnd, Error> {
        let saver = match &mut self.body {
            BodySource::Follower(saver) => saver,
            BodySource::Whole(bytes, _) => {
                writing.push(&self.local, std::mem::take(bytes)).await?;
                return Ok(WriteEnd::Whole);
            }
        };
        loop {
            match saver.next().await {
                NextPiece::Bytes(bytes) => {
                    unsaved.note(writing.body_len() + bytes.len() as u64);
                    writing.push(&self.local, bytes).await?;
                }
                NextPiece::Flush => in_place::boxed(|| writing.flush(&self.local)).await?,
                NextPiece::End => return Ok(WriteEnd::Whole),
                NextPiece::Alone | NextPiece::Broken | NextPiece::Written(_) => {
                    return Ok(WriteEnd::GivenUp);
                }
            }
            saver.written(writing.written());
        }
    }

    fn tell(&self, error: &Error) {
        let is_expected = matches!(error, Error::Purged | Error::Superseded)
            || self.cache.is_given_up() && matches!(error, Error::InUse);
        if !is_expected {
            self.cache.tell("an answer is not stored", error);
        }
    }
}
