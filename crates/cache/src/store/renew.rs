//! Updating an entry after a 304 (RFC 9111, 4.3.4).

use super::{Checks, Hit, Store};
use crate::entry::Description;
use crate::error::{EntryFault, Error};
use crate::freshness::FieldLine;
use crate::index::{EntryExtent, KnownKey};
use crate::journal::JournalRecord;
use crate::lifetime::Lifetime;
use crate::purge::{FetchMoment, PurgeFilter};
use disk::{Access, BatchStep, Errno, Local};

/// The changes that a 304 makes to an entry.
#[derive(Debug)]
pub struct Renewal<'a> {
    /// The new lifetime.
    pub lifetime: Lifetime,
    /// The updated header lines ([`crate::freshness::updated_fields`]).
    pub fields: Vec<FieldLine<'a>>,
    /// The moment at which the origin was asked.
    pub moment: FetchMoment,
}

impl Store {
    /// Renews an entry whose header lines are unchanged: the index at once, the journal soon; the file stays as it is.
    ///
    /// # Errors
    /// [`Error::Disk`]; the index is renewed all the same.
    pub async fn renew(
        &self,
        local: &Local,
        known: &KnownKey,
        lifetime: Lifetime,
    ) -> Result<(), Error> {
        let (key, tag) = (known.key, known.extent.file);
        if !self.0.index.renew(&key, tag, lifetime) {
            return Ok(());
        }
        let renew = JournalRecord::Renew { key, tag, lifetime };
        self.0.journal.write(local, &[renew]).await
    }

    /// Renews an entry whose header lines have changed. If the new lines fit, they are written over the old ones in one
    /// job. Otherwise the entry is written anew, with each block verified on the way, and replaces the old one. Readers
    /// of the old entry go on: its body is the same, at the same offset. An entry that another request has renewed or
    /// replaced meanwhile is left as it is.
    ///
    /// # Errors
    /// As [`Store::begin`], [`super::EntryWriter::finish`] and [`Store::verify`]; the old entry stays, unless it is
    /// damaged.
    pub async fn rewrite(
        &self,
        local: &Local,
        access: &Access<'_>,
        hit: &Hit,
        renewal: Renewal<'_>,
    ) -> Result<KnownKey, Error> {
        let newer = self.0.index.peek(&hit.known.key);
        if let Some(newer) = newer.filter(|newer| newer.extent.file != hit.known.extent.file) {
            return Ok(newer);
        }
        // In a segment nothing is written over: other programs may be reading it without a lock.
        let patched = match hit.known.extent.is_in_segment() {
            true => None,
            false => self.patch(local, hit, &renewal).await?,
        };
        match patched {
            Some(known) => Ok(known),
            None => self.copy(local, access, hit, renewal).await,
        }
    }

    /// Writes the header lines over the old ones. None: they do not fit.
    async fn patch(
        &self,
        local: &Local,
        hit: &Hit,
        renewal: &Renewal<'_>,
    ) -> Result<Option<KnownKey>, Error> {
        let (entry, old) = (&hit.entry, hit.known.extent.file);
        let Renewal {
            lifetime,
            ref fields,
            ref moment,
        } = *renewal;
        let tag = moment.tag();
        let patch = entry.patch(tag, lifetime, fields.iter().copied())?;
        let Some((now, then)) = patch else {
            return Ok(None);
        };
        let purge_filter = PurgeFilter::of_key(entry.main(), entry.key_text());
        let known = KnownKey {
            lifetime,
            purge_filter: fields
                .iter()
                .fold(purge_filter, |purge_filter, (name, value, _)| {
                    purge_filter.and_line(name, value)
                }),
            extent: EntryExtent {
                file: tag,
                ..hit.known.extent
            },
            ..hit.known
        };
        let vary = entry.vary().clone();
        let put = self
            .0
            .journal
            .ticket(&[JournalRecord::Put { known, vary }])?;
        let path = self.path(&known.key).into();
        let steps = vec![put.step(), BatchStep::Patch { path, now, then }];
        let done = local.change(steps, &self.0.settings.pool).await;
        self.0.journal.ended(known.key, tag);
        match done {
            Ok(()) => {
                self.0.index.set_head(old, &known);
                Ok(Some(known))
            }
            // It was renewed, replaced or evicted meanwhile.
            Err(error) if matches!(error.errno(), Some(Errno::STALE | Errno::NOENT)) => {
                let newer = self.0.index.peek(&known.key);
                Ok(Some(newer.unwrap_or(hit.known)))
            }
            Err(error) => {
                put.defer();
                Err(error.into())
            }
        }
    }

    /// Copies the entry to a new file, with the new header lines.
    async fn copy(
        &self,
        local: &Local,
        access: &Access<'_>,
        hit: &Hit,
        renewal: Renewal<'_>,
    ) -> Result<KnownKey, Error> {
        let Renewal {
            lifetime,
            fields,
            moment,
        } = renewal;
        let entry = &hit.entry;
        let head = entry.head();
        let description = Description {
            key: entry.key(),
            main: entry.main(),
            variant: entry.variant().unwrap_or(entry.key()),
            tag: 0,
            key_text: entry.key_text(),
            vary: entry.vary(),
            status: head.status,
            status_line: head.status_line.of(&head.bytes),
            lifetime,
        };
        let (body_len, fields) = (entry.body_len(), fields.into_iter());
        let mut writing = self
            .begin(local, &description, fields, body_len, lifetime.date, moment)
            .await?;
        writing.clean_of(hit.known.clean_of);
        let mut checks = Checks::of(hit);
        for index in 0..entry.blocks() {
            let block = entry.block(index);
            let start = entry.body().start;
            let range = block.start - start..block.end - start;
            let checked = self.verify(local, access, hit, &mut checks, &range).await;
            let copied = match checked {
                Ok(()) => match super::verify::read(local, access, hit, block).await {
                    Ok(bytes) => writing.push(local, bytes).await,
                    Err(error) => Err(error),
                },
                Err(error) => Err(error),
            };
            if let Err(error) = copied {
                // The first error is reported, not that the temp file cannot be deleted either.
                let _ = writing.abandon(local, Some(&error)).await;
                return Err(error);
            }
        }
        if writing.body_len() != body_len {
            let _ = writing.abandon(local, None).await;
            return Err(EntryFault::Damaged("length").into());
        }
        writing.finish(local).await
    }
}
