//! A loop, a pool and a store on a directory, as in a worker.

use bytes::Bytes;
use cache::Description;
use cache::freshness::FieldLine;
use cache::store::{Checks, Hit, LookupOutcome, StoreSettings, Uses};
use cache::{Error, Key, Levels, Lifetime, Store};
use disk::{Access, Disk, Local, Pool};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;

/// The time of every operation.
pub const NOW: i64 = 1_000;

pub struct Bench {
    pub local: Local,
    pub pool: Pool,
    pub store: Store,
}

pub fn block_on<F: Future>(future: F) -> F::Output {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let runtime = builder.enable_all().build_local(Default::default());
    runtime.unwrap().block_on(future)
}

impl Bench {
    /// A store on a directory, with settings that the test changes.
    pub async fn open(directory: &Path, change: impl Fn(&mut StoreSettings)) -> Self {
        let disk = Disk::new(Disk::prepare());
        let pool = disk.define_pool("test", 8, 1000);
        let local = Local::new(&disk);
        let mut settings = StoreSettings {
            directory: directory.as_os_str().as_bytes().to_vec(),
            levels: Levels::parse("1").unwrap(),
            zone_bytes: 1 << 20,
            max_bytes: None,
            min_free_bytes: 0,
            inactive: 1 << 40,
            kind: cache::store::StoreKind::Files,
            device: None,
            pool: pool.clone(),
        };
        change(&mut settings);
        let store = loop {
            match Store::open(&local, settings.clone()).await {
                // The last owner's lock is released when its last thread has ended.
                Err(Error::InUse) => tokio::time::sleep(Duration::from_millis(1)).await,
                opened => break opened.unwrap().0,
            }
        };
        Self { local, pool, store }
    }

    pub fn access(&self) -> Access<'_> {
        Access::new(&self.pool)
    }

    pub async fn walk(&self) {
        let mut walk = cache::store::DirectoryWalk::new(&self.store);
        while !walk.step(&self.local, &self.access(), NOW).await.unwrap() {}
    }

    pub async fn find(&self, text: &str) -> Result<Option<Hit>, Error> {
        let (access, none) = (self.access(), std::iter::empty());
        let key = (Key::of(text.as_bytes()), text.as_bytes());
        let found = self
            .store
            .find(&self.local, &access, key, none, NOW, Uses::Count);
        Ok(match found.await? {
            LookupOutcome::Hit(hit) => Some(hit),
            _ => None,
        })
    }

    /// The body of a hit, every block verified.
    pub async fn read(&self, hit: &Hit) -> Result<Vec<u8>, Error> {
        let all = 0..hit.entry.body_len();
        let mut checks = Checks::of(hit);
        self.store
            .verify(&self.local, &self.access(), hit, &mut checks, &all)
            .await?;
        let (mut bytes, range) = (Vec::new(), hit.entry.body());
        while (bytes.len() as u64) < range.end - range.start {
            let at = range.start + bytes.len() as u64;
            let (len, at) = ((range.end - at) as usize, hit.base + at);
            let more = self.local.read(&hit.file, at, len, &self.access()).await?;
            assert!(!more.is_empty(), "the file is shorter than it says");
            bytes.extend_from_slice(&more);
        }
        Ok(bytes)
    }

    /// Stores a response whose length the origin gave, or not.
    pub async fn fill(
        &self,
        text: &str,
        lines: &[FieldLine<'_>],
        body: Vec<u8>,
        is_length_known: bool,
    ) -> Result<(), Error> {
        let main = Key::of(text.as_bytes());
        let description = Description {
            key: main,
            main,
            variant: main,
            tag: 0,
            key_text: text.as_bytes(),
            vary: b"",
            status: 200,
            status_line: b"200 OK",
            lifetime: lifetime(0),
        };
        let body = Bytes::from(body);
        let expected = if is_length_known {
            body.len() as u64
        } else {
            0
        };
        let lines = lines.iter().copied();
        let mut writing = self
            .store
            .begin(
                &self.local,
                &description,
                lines,
                expected,
                NOW,
                self.store.moment(),
            )
            .await?;
        for at in (0..body.len()).step_by(50_000) {
            let piece = body.slice(at..body.len().min(at + 50_000));
            if let Err(error) = writing.push(&self.local, piece).await {
                // After a failure, its temp file may not be deletable either.
                let _ = writing.abandon(&self.local, Some(&error)).await;
                return Err(error);
            }
        }
        writing.finish(&self.local).await.map(|_| ())
    }
}

/// The lifetime of an entry after so many renewals.
pub fn lifetime(times: u64) -> Lifetime {
    Lifetime {
        date: NOW + times as i64,
        expires: 1_000_000 + times as i64,
        ..Lifetime::default()
    }
}
