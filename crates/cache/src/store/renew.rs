//! What a 304 does to an entry.

use super::{Checks, Hit, Store};
use crate::entry::Description;
use crate::error::{Error, Fault};
use crate::freshness::Line;
use crate::index::Known;
use crate::journal::Record;
use crate::lifetime::Lifetime;
use disk::{Access, Local};
use message::date::Seconds;

impl Store {
    /// An entry was found unchanged, header lines and all: the index says so at once and the journal soon; the file stays as it is.
    ///
    /// # Errors
    /// [`Error::Disk`]; the index knows all the same.
    pub async fn renew(
        &self,
        local: &Local,
        known: &Known,
        lifetime: Lifetime,
    ) -> Result<(), Error> {
        let (key, tag) = (known.key, known.place.file);
        let ticket = self
            .0
            .journal
            .ticket(&[Record::Renew { key, tag, lifetime }]);
        if !self.0.index.renew(&key, tag, lifetime) {
            return Ok(());
        }
        let pool = &self.0.settings.pool;
        Ok(local.change(vec![ticket.step()], pool).await?)
    }

    /// An entry was found unchanged but for its header lines ([`crate::freshness::updated_fields`]): it is written anew, each block
    /// checked on the way, and takes the old one's place. Whoever reads the old one goes on doing so.
    ///
    /// # Errors
    /// As [`Store::begin`] and [`Store::verify`]; the old entry stays, unless it is damaged.
    pub async fn rewrite<'a>(
        &self,
        local: &Local,
        access: &Access<'_>,
        hit: &Hit,
        lifetime: Lifetime,
        fields: impl Iterator<Item = Line<'a>>,
        now: Seconds,
    ) -> Result<Known, Error> {
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
        let body_len = entry.body_len();
        let mut writing = self
            .begin(local, &description, fields, body_len, now)
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
                // What failed is told, not that its remains cannot be deleted either.
                let _ = writing.abandon(local).await;
                return Err(error);
            }
        }
        if writing.body_len() != body_len {
            let _ = writing.abandon(local).await;
            return Err(Fault::Damaged("length").into());
        }
        writing.finish(local).await
    }
}
