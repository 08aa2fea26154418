//! A loop, a pool and a store on a directory.

use bytes::Bytes;
use cache::Description;
use cache::KnownKey;
use cache::store::{LookupOutcome, StoreKind, StoreSettings, Uses};
use cache::{Error, Key, Levels, Lifetime, Store};
use disk::{Access, Disk, Local, Pool};
use message::HeaderId;
use rustix::time::ClockId;
use std::time::{SystemTime, UNIX_EPOCH};

/// Of the index: room for 33 million keys.
const ZONE_BYTES: u64 = 4 << 30;
/// The tag of entries that have one.
const TAG: &[u8] = b"tagged";

/// See the module.
pub struct Bench {
    pub local: Local,
    pub pool: Pool,
    settings: StoreSettings,
}

/// Runs on a loop of its own.
pub fn block_on<F: Future>(future: F) -> F::Output {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let runtime = builder.enable_all().build_local(Default::default());
    runtime
        .expect("a runtime needs only descriptors")
        .block_on(future)
}

/// Seconds since 1970.
pub fn now() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(0, |now| now.as_secs() as i64)
}

/// Seconds of CPU of the process so far.
pub fn cpu() -> f64 {
    let time = rustix::time::clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

impl Bench {
    pub fn new(dir: &str, kind: StoreKind, max_bytes: Option<u64>) -> Result<Self, String> {
        std::fs::create_dir_all(dir).map_err(|error| format!("{dir}: {error}"))?;
        let disk = Disk::new(Disk::prepare());
        let pool = disk.define_pool("default", 32, 65_536);
        Ok(Self {
            local: Local::new(&disk),
            settings: StoreSettings {
                directory: dir.as_bytes().to_vec(),
                levels: Levels::parse("1:2").ok_or("levels")?,
                zone_bytes: ZONE_BYTES,
                max_bytes,
                min_free_bytes: 0,
                inactive: 86_400,
                kind,
                device: None,
                pool: pool.clone(),
            },
            pool,
        })
    }

    pub async fn open(&self) -> Result<Store, String> {
        let opened = Store::open(&self.local, self.settings.clone()).await;
        Ok(opened.map_err(|error| error.to_string())?.0)
    }

    /// Stores a body of one piece, as an upstream's answer comes.
    pub async fn fill(
        &self,
        store: &Store,
        key_text: &[u8],
        body: Bytes,
    ) -> Result<KnownKey, Error> {
        self.fill_with(store, key_text, body, false).await
    }

    /// The same, with a tag or without.
    pub async fn fill_with(
        &self,
        store: &Store,
        key_text: &[u8],
        body: Bytes,
        is_tagged: bool,
    ) -> Result<KnownKey, Error> {
        let (main, now) = (Key::of(key_text), now());
        let description = Description {
            key: main,
            main,
            variant: main,
            tag: 0,
            key_text,
            vary: b"",
            status: 200,
            status_line: b"200 OK",
            lifetime: Lifetime {
                date: now,
                expires: now + 86_400,
                ..Lifetime::default()
            },
        };
        let lines: [(&[u8], &[u8], HeaderId); 4] = [
            (b"Date", b"Sat, 21 Nov 2026 20:00:00 GMT", HeaderId::Other),
            (
                b"Content-Type",
                b"application/octet-stream",
                HeaderId::Other,
            ),
            (b"Cache-Control", b"max-age=86400", HeaderId::Other),
            (b"ETag", b"\"0123456789abcdef\"", HeaderId::Other),
        ];
        let expected = body.len() as u64;
        let tag: (&[u8], &[u8], HeaderId) = (b"Surrogate-Key", TAG, HeaderId::Other);
        let lines = lines.into_iter().chain(is_tagged.then_some(tag));
        let mut writing = store
            .begin(
                &self.local,
                &description,
                lines,
                expected,
                now,
                store.moment(),
            )
            .await?;
        writing.push(&self.local, body).await?;
        writing.finish(&self.local).await
    }

    /// Finds an entry and reads its body, as a hit does.
    pub async fn find(&self, store: &Store, key_text: &[u8]) -> Result<Option<Bytes>, Error> {
        let access = Access {
            noatime: true,
            ..Access::new(&self.pool)
        };
        let (key, none) = ((Key::of(key_text), key_text), std::iter::empty());
        match store
            .find(&self.local, &access, key, none, now(), Uses::Count)
            .await?
        {
            LookupOutcome::Hit(hit) => {
                let body = hit.entry.body();
                let len = (body.end - body.start) as usize;
                let start = hit.base + body.start;
                let bytes = self.local.read(&hit.file, start, len, &access).await?;
                Ok(Some(bytes))
            }
            _ => Ok(None),
        }
    }
}
