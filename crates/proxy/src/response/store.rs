//! `proxy_store`: complete responses are kept as files, for a server of files.
//!
//! A task of its own carries the response from its server to the file and to the client, and goes on when the client
//! has left. Not here: a cache, which knows the age of its entries. Invariants: only a complete body gets the final
//! name; a disk that fails or does not keep up costs the file, not the response.

use std::cell::Cell;
use std::future::poll_fn;
use std::os::unix::ffi::OsStrExt;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use disk::{OpenFile, Pool, ReplaceOptions, Temporary};
use logs::Level;
use message::{Body, BodyError, Chunk, Header, HeaderId, ResponseFraming, ResponseHead, Source};
use message::{Method, date};
use runtime::{Kind, Seat, spawn};
use tokio::sync::mpsc;

use crate::response::accel;
use crate::response::response_body::BodyStream;
use crate::response::response_head;
use crate::response::upstream_response::UpstreamBody;
use crate::settings::proxy_pass::PassSettings;
use crate::settings::store::{ProxyStore, StoreTo};
use crate::state::upstream_state::UpstreamState;
use crate::upstream_request::log_context::LogContext;
use httpcore::file_mode::Permissions;
use httpcore::files;
use httpcore::files::path;
use httpcore::request::Request;

/// Maximum time that a response waits for the disk of its file.
const PATIENCE: Duration = Duration::from_secs(1);
const READING: &str = "reading upstream";

/// Whether responses may be stored. If so, the client is not watched for leaving.
#[must_use]
pub(crate) fn is_on(passing: &PassSettings) -> bool {
    !matches!(passing.groups.store.proxy_store.value, StoreTo::Off)
}

/// Whether this response is to be stored.
#[must_use]
pub(crate) fn is_wanted(request: &Request, passing: &PassSettings, head: &ResponseHead) -> bool {
    is_on(passing)
        && head.status == 200
        && !request.is_head()
        && request.method != Method::Head
        && !accel::has_redirect(passing, head)
        && accel::is_buffered(request.location(), head)
}

/// Stores the body, and gives it to the client.
///
/// # Errors
/// It is not stored: it has no path, or too many others are being stored.
pub(crate) async fn body(
    request: &mut Request,
    passing: &PassSettings,
    head: &Arc<ResponseHead>,
    body: UpstreamBody,
) -> Result<Body<Rc<OpenFile>>, UpstreamBody> {
    let Some(saving) = StoredFile::of(request, passing, head) else {
        return Err(body);
    };
    match body {
        UpstreamBody::Whole(whole) => {
            drop(spawn(Kind::Module("store"), keep(whole.clone(), saving)));
            Ok(match whole.is_empty() {
                true => Body::Empty,
                false => Body::bytes(whole),
            })
        }
        UpstreamBody::Stream(mut stream) => {
            stream.buffer(request);
            // The available part goes with the head, or shows that there is no response.
            let first = match poll_fn(|cx| Poll::Ready(stream.poll_piece(cx))).await {
                Poll::Ready(Some(first)) => Some(first),
                Poll::Ready(None) | Poll::Pending => None,
            };
            let (pieces, coming) = mpsc::channel(1);
            let takes_request = Rc::new(Cell::new(stream.takes_request()));
            let to_client = ToClient {
                pieces,
                takes_request: Rc::clone(&takes_request),
            };
            if !matches!(&first, Some(Err(_))) {
                let begun = match &first {
                    Some(Ok(bytes)) => bytes.clone(),
                    _ => Bytes::new(),
                };
                let carried = carry(stream, begun, saving, to_client);
                drop(spawn(Kind::Module("store"), carried));
            }
            Ok(Body::Stream(Box::new(StoredBody {
                first,
                coming,
                takes_request,
                trailers: Vec::new(),
                is_over: false,
            })))
        }
    }
}

async fn keep(whole: Bytes, mut saving: StoredFile) {
    saving.write(whole).await;
    saving.finish().await;
}

/// A message to the client's side.
enum Piece {
    Bytes(Bytes),
    /// The end of the body.
    End(Vec<Header>),
    /// The body broke off, for this reason.
    Broken(BodyError),
}

/// The way to the client's side.
struct ToClient {
    pieces: mpsc::Sender<Piece>,
    /// Whether the response's server is to get more of the request's body, which the client's side moves.
    takes_request: Rc<Cell<bool>>,
}

/// Writes a body to its file, and sends the part after `begun` to the client as long as it is there.
async fn carry(
    mut stream: Box<BodyStream>,
    begun: Bytes,
    mut saving: StoredFile,
    to_client: ToClient,
) {
    let ToClient {
        pieces,
        takes_request,
    } = to_client;
    let mut has_client = true;
    if !begun.is_empty() {
        saving.write(begun).await;
    }
    while let Some(piece) = stream.piece().await {
        takes_request.set(stream.takes_request());
        let bytes = match piece {
            Ok(bytes) => bytes,
            Err(error) => {
                let _ = pieces.send(Piece::Broken(error)).await; // The receiver may be gone.
                return;
            }
        };
        if has_client {
            let given = pieces.send(Piece::Bytes(bytes.clone()));
            has_client = stream.ahead_of(given, || true).await.is_ok();
        }
        saving.write(bytes).await;
        if !has_client && saving.is_given_up() {
            return;
        }
    }
    let _ = pieces.send(Piece::End(stream.trailers())).await; // The receiver may be gone.
    drop(pieces);
    saving.finish().await;
}

/// The client's side of a body that is being stored.
struct StoredBody {
    /// Arrived before the first poll.
    first: Option<Result<Bytes, BodyError>>,
    coming: mpsc::Receiver<Piece>,
    /// Whether the response's server was to get more of the request's body when it gave the last piece.
    takes_request: Rc<Cell<bool>>,
    trailers: Vec<Header>,
    is_over: bool,
}

impl Source<Rc<OpenFile>> for StoredBody {
    fn poll_next(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Chunk<Rc<OpenFile>>, BodyError>>> {
        if self.is_over {
            return Poll::Ready(None);
        }
        if let Some(first) = self.first.take() {
            return Poll::Ready(Some(first.map(Chunk::Bytes)));
        }
        Poll::Ready(match ready!(self.coming.poll_recv(cx)) {
            Some(Piece::Bytes(bytes)) => Some(Ok(Chunk::Bytes(bytes))),
            Some(Piece::End(trailers)) => {
                self.trailers = trailers;
                self.is_over = true;
                None
            }
            Some(Piece::Broken(error)) => Some(Err(error)),
            None => Some(Err(BodyError::Logged)),
        })
    }

    fn takes_request(&self) -> bool {
        self.takes_request.get()
    }

    fn trailers(&mut self) -> Vec<Header> {
        std::mem::take(&mut self.trailers)
    }
}

/// A file that is being written.
struct StoredFile {
    context: LogContext,
    /// The server, for the log.
    upstream: Bytes,
    path: Bytes,
    mtime: Option<i64>,
    /// The body's length, where the head gives it.
    length: Option<u64>,
    written: u64,
    stage: Stage,
    pool: Pool,
    /// Its place in `worker_connections`, also after its client has left.
    _seat: Seat,
}

enum Stage {
    /// Whether no data has arrived.
    Waiting,
    Writing(Temporary),
    GivenUp,
}

impl StoredFile {
    fn of(
        request: &mut Request,
        passing: &PassSettings,
        head: &Arc<ResponseHead>,
    ) -> Option<StoredFile> {
        let path = place(request, passing, head)?;
        let pool = files::pool(request).ok()?.clone();
        let loop_ = &request.client.loop_;
        let seat = loop_.take_seat()?;
        let state = request.states.get::<UpstreamState>();
        let has_tls = state.is_some_and(|state| state.has_tls.get());
        let scheme = passing.family.scheme(has_tls);
        let tries = state.map(|state| &state.tries);
        let address = tries.and_then(|tries| Some(Arc::clone(&tries.borrow_mut().last()?.address)));
        Some(StoredFile {
            context: LogContext::new(request),
            upstream: address.map_or_else(Bytes::new, |address| {
                [scheme.as_bytes(), address.as_bytes()].concat().into()
            }),
            path,
            mtime: head.get(HeaderId::LastModified).and_then(date::parse),
            length: match head.framing {
                ResponseFraming::Length(length) => Some(length),
                ResponseFraming::Chunked | ResponseFraming::UntilClose => None,
            },
            written: 0,
            stage: Stage::Waiting,
            pool,
            _seat: seat,
        })
    }

    fn is_given_up(&self) -> bool {
        matches!(self.stage, Stage::GivenUp)
    }

    /// Writes a piece, unless the file was given up.
    async fn write(&mut self, bytes: Bytes) {
        self.begin().await;
        let Stage::Writing(file) = &self.stage else {
            return;
        };
        self.written += bytes.len() as u64;
        if bytes.is_empty() {
            return;
        }
        let disk = self.context.loop_().disk.clone();
        let written = disk.append(&file.output, vec![bytes], &self.pool);
        if self.in_time(written).await.is_none() {
            self.stage = Stage::GivenUp;
        }
    }

    async fn begin(&mut self) {
        if !matches!(self.stage, Stage::Waiting) {
            return;
        }
        let disk = self.context.loop_().disk.clone();
        let mode = self.access().of_directories();
        let begun = disk.begin_beside(&self.path, mode, &self.pool);
        self.stage = match self.in_time(begun).await {
            Some(file) => Stage::Writing(file),
            None => Stage::GivenUp,
        };
    }

    /// Called at the end of the body: if that is complete, the file is put in its place.
    async fn finish(mut self) {
        if self.length.is_some_and(|length| length != self.written) {
            return;
        }
        self.begin().await;
        let Stage::Writing(file) = std::mem::replace(&mut self.stage, Stage::GivenUp) else {
            return;
        };
        let placing = ReplaceOptions {
            mode: self.access().of_files(),
            mtime: self.mtime,
        };
        let disk = self.context.loop_().disk.clone();
        let put = disk.put_in_place(file, &self.path, placing, &self.pool);
        if let Err(error) = put.await {
            self.tell(&error);
        }
    }

    fn access(&self) -> Permissions {
        let settings = self.context.location().groups();
        settings.own::<ProxyStore>().proxy_store_access
    }

    /// Waits for the disk for a limited time; a timeout is logged.
    async fn in_time<T>(&self, work: impl Future<Output = Result<T, disk::Error>>) -> Option<T> {
        let mut timer = self.context.loop_().wire.wheel.timer();
        match timer.guard(PATIENCE, work).await {
            Ok(Ok(done)) => Some(done),
            Ok(Err(error)) => {
                self.tell(&error);
                None
            }
            Err(_) => {
                self.log(&format!(
                    "\"{}\" is not stored, since its disk does not keep up",
                    self.path.escape_ascii()
                ));
                None
            }
        }
    }

    fn tell(&self, error: &disk::Error) {
        self.log(&String::from_utf8_lossy(&files::error_text(
            error, &self.path,
        )));
    }

    fn log(&self, text: &str) {
        self.context.log(Level::Crit, text, READING, &self.upstream);
    }
}

/// The path for the response to the request; none: it is not stored.
fn place(request: &mut Request, passing: &PassSettings, head: &Arc<ResponseHead>) -> Option<Bytes> {
    let path = match &passing.groups.store.proxy_store.value {
        StoreTo::Off => return None,
        StoreTo::Place => {
            let mut mapped = path::Mapped::default();
            path::map(request, &mut mapped).ok()?;
            Bytes::copy_from_slice(&mapped.path)
        }
        StoreTo::File(template) => {
            response_head::with_head(request, passing, head, |request| request.evaluate(template))
        }
    };
    if path.is_empty() || path.contains(&0) {
        return None;
    }
    if path.starts_with(b"/") {
        return Some(path);
    }
    let prefix = request.settings().prefix.as_os_str().as_bytes();
    Some([prefix, &path].concat().into())
}
