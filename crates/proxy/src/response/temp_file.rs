//! The temporary file of a response that is read ahead: written by the location's pool, and read from while it grows.
//!
//! Not here: what is written, and when (`read_ahead`). Invariants: the file has no name, so nothing is left of it
//! whatever happens; a disk that failed is not used again for this response; disks' errors are told by at most one line
//! a minute.

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};
use std::task::{Context, Poll};

use bytes::Bytes;
use disk::{OpenFile, Output, Retention, Spooled};
use logs::Level;
use logs::wall_clock::Moment;

use httpcore::files;

use crate::response::response_body::BodyAttempt;
use crate::settings::directives::ProxyAnswers;

/// Default of `proxy_max_temp_file_size`, as nginx.
const FILE_BYTES_MAX: u64 = 1 << 30;
/// Permissions of a temporary file.
const MODE: u32 = 0o600;
/// Maximum time for one part to be written; after that the disk counts as too slow.
const SLOW_MS: u64 = 1000;
/// Minimum time between two log lines about disks, in seconds, for all responses together.
const PAUSE: i64 = 60;

/// The second of the last line.
static TOLD: AtomicI64 = AtomicI64::new(0);
/// Errors since then.
static UNTOLD: AtomicU64 = AtomicU64::new(0);

type Job = Pin<Box<dyn Future<Output = Result<Option<Spooled>, disk::Error>>>>;

/// The temporary file of a response.
pub(crate) struct TempFile {
    stage: Stage,
    file: Option<Rc<OpenFile>>,
    /// For the log: the directory until there is a file.
    path: Vec<u8>,
    len: u64,
    len_max: u64,
    /// Bytes that are written at once.
    part_max: usize,
}

enum Stage {
    /// There is no file yet.
    Empty,
    Idle(Output),
    Writing(Part),
    /// It is full, or not allowed, or its disk refuses.
    Over,
}

/// A part that is being written.
struct Part {
    job: Job,
    /// The file, unless the job makes it.
    output: Option<Output>,
    len: usize,
    begun_ms: u64,
    was_told: bool,
}

impl TempFile {
    /// A temporary file with a location's settings.
    pub(crate) fn of(settings: &ProxyAnswers) -> TempFile {
        let max = settings.proxy_max_temp_file_size.as_ref();
        let part = settings.proxy_temp_file_write_size.as_ref();
        TempFile {
            stage: Stage::Empty,
            file: None,
            path: Vec::new(),
            len: 0,
            len_max: max.map_or(FILE_BYTES_MAX, |size| size.value.0),
            part_max: part.map_or(usize::MAX, |size| {
                usize::try_from(size.value.0).unwrap_or(usize::MAX)
            }),
        }
    }

    /// Bytes that are in the file.
    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    /// The file, as far as it is written.
    pub(crate) fn file(&mut self) -> Option<Rc<OpenFile>> {
        let file = self.file.as_mut()?;
        if file.meta().len < self.len {
            *file = Rc::new(file.grown(self.len));
        }
        Some(Rc::clone(file))
    }

    /// Starts to write the first of these bytes; false: nothing more is written.
    pub(crate) fn begin(&mut self, bytes: &Bytes, of: &BodyAttempt) -> bool {
        let room = usize::try_from(self.len_max - self.len).unwrap_or(usize::MAX);
        let len = bytes.len().min(self.part_max).min(room);
        let Some(pool) = of.pool().filter(|_| len > 0) else {
            self.stage = Stage::Over;
            return false;
        };
        let part = bytes.slice(..len);
        let disk = of.upstream_request.context.loop_().disk.clone();
        let (job, output): (Job, _) = match std::mem::replace(&mut self.stage, Stage::Over) {
            Stage::Over | Stage::Writing(_) => return false,
            Stage::Empty => {
                let place = of.upstream_request.context.temporary_place();
                self.path = place.directory.to_vec();
                let spool = async move {
                    let spooled = disk.spool(&place, Retention::Nameless, part, MODE, &pool);
                    spooled.await.map(Some)
                };
                (Box::pin(spool), None)
            }
            Stage::Idle(output) => {
                let to = output.clone();
                let append =
                    async move { disk.append(&to, vec![part], &pool).await.map(|()| None) };
                (Box::pin(append), Some(output))
            }
        };
        self.stage = Stage::Writing(Part {
            job,
            output,
            len,
            begun_ms: wire::loop_clock::monotonic_ms(),
            was_told: false,
        });
        true
    }

    /// Whether a part is being written.
    pub(crate) fn is_writing(&self) -> bool {
        matches!(self.stage, Stage::Writing(_))
    }

    /// Number of bytes written since it was begun; none: the disk has refused them.
    pub(crate) fn poll_written(&mut self, cx: &mut Context<'_>, of: &BodyAttempt) -> Poll<usize> {
        let Stage::Writing(part) = &mut self.stage else {
            return Poll::Ready(0);
        };
        let Poll::Ready(outcome) = part.job.as_mut().poll(cx) else {
            let waited_ms = wire::loop_clock::monotonic_ms().saturating_sub(part.begun_ms);
            if waited_ms >= SLOW_MS && !std::mem::replace(&mut part.was_told, true) {
                let path = self.path.escape_ascii();
                let what = format!("temporary file \"{path}\" is written too slowly");
                tell(Level::Warn, &what, of);
            }
            return Poll::Pending;
        };
        let Stage::Writing(part) = std::mem::replace(&mut self.stage, Stage::Over) else {
            return Poll::Ready(0);
        };
        let output = match outcome {
            Ok(Some(Spooled { file, open })) => {
                let path = String::from_utf8_lossy(file.path());
                let what = format!("an upstream response is buffered to a temporary file {path}");
                of.log(Level::Warn, &what);
                self.path = file.path().to_vec();
                self.file = Some(open);
                Some(file.output.clone())
            }
            Ok(None) => part.output,
            Err(error) => {
                let level = match error {
                    disk::Error::System { .. } => Level::Crit,
                    _ => Level::Warn,
                };
                let what = files::error_text(&error, &self.path);
                tell(level, &String::from_utf8_lossy(&what), of);
                return Poll::Ready(0);
            }
        };
        self.len += part.len as u64;
        self.stage = output.map_or(Stage::Over, Stage::Idle);
        Poll::Ready(part.len)
    }

    /// Ends writing: data in the file can still be read.
    pub(crate) fn close(&mut self) {
        if let Stage::Idle(_) = self.stage {
            self.stage = Stage::Over;
        }
    }
}

/// Logs why a server is held back, unless a line was logged within the last minute.
fn tell(level: Level, what: &str, of: &BodyAttempt) {
    let now = Moment::now().second();
    let told = TOLD.load(Relaxed);
    let is_due = told == 0 || now >= told + PAUSE;
    if !is_due || TOLD.compare_exchange(told, now, Relaxed, Relaxed).is_err() {
        UNTOLD.fetch_add(1, Relaxed);
        return;
    }
    let more = match UNTOLD.swap(0, Relaxed) {
        0 => String::new(),
        untold => format!(" ({untold} more since the last such line)"),
    };
    of.log(
        level,
        &format!("{what}, so the server waits for the client{more}"),
    );
}
