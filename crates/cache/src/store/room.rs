//! The room for an entry that is being written: where it is to lie, and what gives way for it.

use super::entry_writer::WRITE_BYTES;
use super::publish_order::PublishTurn;
use super::removal::{EpochGuard, Removed};
use super::{Store, has_file};
use crate::error::Error;
use crate::index::{Displaced, KeyState, KnownKey};
use crate::segments::ENTRY_BYTES_MAX;
use crate::space::{NoRoom, Reservation};
use disk::{Local, in_place};
use std::sync::atomic::Ordering::Relaxed;

/// Maximum of bytes of an entry for which space is reserved before they have come: where what gives way is small, a
/// large entry would wait for very many deletions.
const RESERVED_AHEAD: u64 = 1 << 20;

/// Where an entry is to lie, when it begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PlannedPlace {
    /// In a segment, if it comes whole.
    Segment,
    /// In a file of its own.
    File,
}

impl Store {
    /// Maximum of bytes of a body of this length (0: not known) that are collected before they are written.
    #[must_use]
    pub fn collected_max(&self, expected: u64) -> usize {
        let segments = self.0.segments.as_ref();
        let is_for_segment = segments.is_some_and(|segments| segments.takes(expected))
            && (1..ENTRY_BYTES_MAX).contains(&expected);
        match is_for_segment {
            true => ENTRY_BYTES_MAX as usize,
            false => WRITE_BYTES,
        }
    }

    /// Where an entry of this length (less its body, if that is not known) is to lie.
    pub(super) fn place_for(&self, entry_len: u64) -> PlannedPlace {
        let segments = self.0.segments.as_ref();
        match segments.is_some_and(|segments| segments.takes(entry_len)) {
            true => PlannedPlace::Segment,
            false => PlannedPlace::File,
        }
    }

    /// Takes over the space of the least recently used entries if none is left for `bytes`: they leave the index at
    /// once, and stay on the disk. None is taken while purges are pending: these could not be forgotten before the
    /// fill's end.
    pub(super) fn make_way(&self, reservation: &mut Reservation, bytes: u64) -> Removed {
        match reservation.grow_to(bytes) {
            Ok(()) => Removed::default(),
            Err(_) if self.purges_pending() > 0 || !self.could_hold(bytes) => Removed::default(),
            Err(NoRoom(lacking)) => {
                self.note_lack();
                // An excess over the limits that a start found is left to a sweep.
                let victims = self.victims(lacking.min(self.0.space.blocks(bytes)));
                let blocks = victims.known.iter();
                let blocks = blocks.map(|known| u64::from(known.extent.blocks));
                reservation.absorb(blocks.sum());
                victims
            }
        }
    }

    /// Grows the reservation of an entry that is to have `bytes` to the first of them, as
    /// [`Store::grow_counting`].
    pub(super) async fn grow_first(
        &self,
        local: &Local,
        reservation: &mut Reservation,
        bytes: u64,
    ) -> Result<(), Error> {
        let first = bytes.min(RESERVED_AHEAD);
        if first < bytes && !self.could_hold(bytes) {
            return Err(NoRoom(self.0.space.blocks(bytes)).into());
        }
        self.grow_counting(local, reservation, first).await
    }

    /// As [`Store::grow`], and reserves space for the journal's records.
    pub(super) async fn grow_counting(
        &self,
        local: &Local,
        reservation: &mut Reservation,
        bytes: u64,
    ) -> Result<(), Error> {
        self.count_journal_ahead(local).await?;
        self.grow(local, reservation, bytes).await
    }

    /// Grows a reservation to `bytes` in all, for which the least recently used entries are evicted. Their space is its
    /// own at once: others would take it while more is deleted.
    pub(super) async fn grow(
        &self,
        local: &Local,
        reservation: &mut Reservation,
        bytes: u64,
    ) -> Result<(), Error> {
        // Terminates: each turn takes entries out of the index.
        while let Err(NoRoom(lacking)) = reservation.grow_to(bytes) {
            if !self.could_hold(bytes) {
                return Err(NoRoom(lacking).into());
            }
            self.note_lack();
            // An excess over the limits is left to a sweep.
            let own = self.0.space.blocks(bytes);
            let own = own.saturating_sub(reservation.blocks());
            let victims = self.victims(lacking.min(own));
            if victims.known.is_empty() {
                return Err(NoRoom(lacking).into());
            }
            let freed = in_place::boxed(|| self.delete_at(local, victims, None)).await?;
            reservation.take_over(freed);
        }
        Ok(())
    }

    /// Whether a file of so many bytes could have room: nothing gives way to one that never fits.
    fn could_hold(&self, bytes: u64) -> bool {
        let (segments, space) = (self.0.segments.as_ref(), &self.0.space);
        let given = segments.map_or(0, |segments| {
            let max_bytes = self.max_bytes().filter(|_| !space.has_min_free());
            segments.could_give(max_bytes)
        });
        space.could_hold(bytes, given)
    }

    /// Notes that a file found no room, which the segments may have.
    fn note_lack(&self) {
        if let Some(segments) = &self.0.segments {
            segments.note_lack();
        }
    }

    /// Deletes the file of an entry in whose place one in a segment is now.
    pub(super) async fn delete_replaced(
        &self,
        local: &Local,
        replaced: Option<KnownKey>,
        turn: &PublishTurn,
    ) {
        let Some(replaced) = replaced.filter(has_file) else {
            return;
        };
        let gone = Removed {
            known: vec![replaced],
            epoch: Some(self.0.epochs.begin()),
        };
        // A file that cannot be deleted now is left to a sweep.
        let _ = in_place::boxed(|| self.delete_at(local, gone, Some(turn))).await;
    }

    /// Frees what a new key displaced from the index.
    pub(super) async fn settle(
        &self,
        local: &Local,
        displaced: Displaced,
        epoch: EpochGuard,
    ) -> Result<(), Error> {
        let Displaced { replaced, evicted } = displaced;
        if let Some(replaced) = &replaced {
            self.leave_segment(replaced);
        }
        // The rename has overwritten the replaced entry's file.
        drop(replaced.and_then(|known| super::blocks_of(&self.0.space, &known)));
        match evicted {
            Some(known) if known.state == KeyState::Stored => {
                self.0.evicted.fetch_add(1, Relaxed);
                let gone = Removed {
                    known: vec![known],
                    epoch: Some(epoch),
                };
                in_place::boxed(|| self.delete(local, gone)).await
            }
            _ => Ok(()),
        }
    }
}
