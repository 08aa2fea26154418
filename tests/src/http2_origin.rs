//! An origin that speaks HTTP/2 in clear, made with the crate `h2`: what it does, it is told by the path.
//!
//! | path | what it does |
//! |---|---|
//! | `/unary` | takes the whole body, answers it with the trailers `grpc-status: 0` and `x-sum: LENGTH` |
//! | `/counted` | as `/unary`, with the length of the body in the head |
//! | `/echo` | answers at once, and sends each piece back as it comes |
//! | `/echo-ahead` | as `/echo`, and takes pieces of the body whether its client takes the response or not |
//! | `/stream` | five pieces, `one` to `five`, then trailers |
//! | `/trailers-only` | a head that ends the stream, with `grpc-status: 12` |
//! | `/large/N` | `N` bytes |
//! | `/refused` | RST_STREAM(REFUSED_STREAM) |
//! | `/refused-late` | takes a piece of the body, then as `/refused` |
//! | `/broken` | a head, `part`, then RST_STREAM(INTERNAL_ERROR) |
//! | `/short` | a head that announces eight bytes, `part`, and the end behind it |
//! | `/hang` | takes the request, and answers nothing |
//! | `/hold/N` | tells `full` when `N` bytes of the body have come, of whose room it gives nothing back; answers nothing, and tells `given up` |
//! | `/keep` | answers 413 at once, and never gives back the room that the body took |
//! | `/abort` | closes the connection at once |
//! | `/leave` | as `/unary`, and GOAWAY |
//! | `/leave-late` | answers at once, GOAWAY, then as `/echo` |
//! | `/fields` in any case, `/fields/…` | the fields of the request, as lines |

use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use h2::server::SendResponse;
use h2::{Reason, RecvStream, SendStream};
use http::{HeaderMap, Request, Response};
use tokio::net::TcpListener;

use crate::client::PATIENCE;
use crate::server::TICK;

/// The window of a stream and of a connection in bytes.
#[derive(Clone, Copy)]
pub struct Windows(pub u32);

/// The windows, and how many streams of a connection it takes at a time.
#[derive(Clone, Copy)]
struct Limits(Windows, Option<u32>);

/// A running origin; it ends with the test.
pub struct Http2Origin {
    port: u16,
    events: Arc<Mutex<Vec<String>>>,
}

/// What can go wrong with a stream.
type Outcome = Result<(), h2::Error>;

impl Http2Origin {
    /// Starts on a free port.
    ///
    /// # Panics
    /// If there is none.
    pub fn start(windows: Windows) -> Http2Origin {
        Self::begin(Limits(windows, None))
    }

    /// The same, for at most so many streams of a connection at a time.
    ///
    /// # Panics
    /// If there is no free port.
    pub fn start_with_streams(windows: Windows, streams: u32) -> Http2Origin {
        Self::begin(Limits(windows, Some(streams)))
    }

    fn begin(limits: Limits) -> Http2Origin {
        let events = Arc::new(Mutex::new(Vec::new()));
        let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        listener.set_nonblocking(true).expect("a socket");
        let port = listener.local_addr().expect("it is bound").port();
        let told = Arc::clone(&events);
        std::thread::spawn(move || {
            block_on(async move {
                let listener = TcpListener::from_std(listener).expect("a socket");
                tokio::task::LocalSet::new()
                    .run_until(serve(listener, limits, told))
                    .await;
            });
        });
        Http2Origin { port, events }
    }

    /// `127.0.0.1:PORT`.
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// What has happened: `connection`, `PATH`, `reset CODE`, `end` of a connection.
    pub fn events(&self) -> Vec<String> {
        self.events.lock().expect("no test panics in it").clone()
    }

    /// How often that has happened.
    pub fn count(&self, event: &str) -> usize {
        self.events().iter().filter(|one| *one == event).count()
    }

    /// Waits until something has happened.
    ///
    /// # Panics
    /// If it does not.
    pub fn wait(&self, event: &str) {
        let begun = std::time::Instant::now();
        while self.count(event) == 0 {
            assert!(begun.elapsed() < PATIENCE, "{event}: {:?}", self.events());
            std::thread::sleep(TICK);
        }
    }
}

/// Runs a future, with tokio's sockets and times.
///
/// # Panics
/// If there is no runtime.
pub fn block_on<T>(work: impl Future<Output = T>) -> T {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let runtime = builder.enable_all().build().expect("a runtime");
    runtime.block_on(work)
}

type Events = Arc<Mutex<Vec<String>>>;

fn tell(events: &Events, what: impl Into<String>) {
    let mut events = events.lock().expect("no test panics in it");
    events.push(what.into());
}

async fn serve(listener: TcpListener, Limits(windows, streams): Limits, events: Events) {
    while let Ok((socket, _)) = listener.accept().await {
        tell(&events, "connection");
        let (events, ended) = (Arc::clone(&events), Arc::clone(&events));
        tokio::task::spawn_local(async move {
            let mut builder = h2::server::Builder::new();
            builder.initial_window_size(windows.0);
            builder.initial_connection_window_size(windows.0.max(65_535));
            if let Some(streams) = streams {
                builder.max_concurrent_streams(streams);
            }
            let Ok(mut connection) = builder.handshake::<_, Bytes>(socket).await else {
                return;
            };
            while let Some(Ok((request, respond))) = connection.accept().await {
                let path = request.uri().path().to_owned();
                tell(&events, &*path);
                if path == "/abort" {
                    break;
                }
                if path.starts_with("/leave") {
                    connection.graceful_shutdown();
                }
                let events = Arc::clone(&events);
                tokio::task::spawn_local(async move {
                    // A stream that its client has reset is not an error of the test.
                    let _ = answer(&path, request, respond, &events).await;
                });
            }
            tell(&ended, "end");
        });
    }
}

async fn answer(
    path: &str,
    request: Request<RecvStream>,
    mut respond: SendResponse<Bytes>,
    events: &Events,
) -> Outcome {
    let (parts, mut body) = request.into_parts();
    let head = || {
        let head = Response::builder().header("content-type", "application/grpc");
        head.body(()).expect("a head")
    };
    match path {
        "/trailers-only" => {
            let mut head = head();
            head.headers_mut().insert("grpc-status", 12.into());
            respond.send_response(head, true)?;
        }
        "/refused" => respond.send_reset(Reason::REFUSED_STREAM),
        "/refused-late" => {
            let _ = body.data().await;
            respond.send_reset(Reason::REFUSED_STREAM);
        }
        "/broken" | "/short" => break_off(path, head(), respond).await?,
        "/keep" => keep(head(), body, respond).await?,
        "/hang" => {
            let reason = std::future::poll_fn(|cx| respond.poll_reset(cx)).await?;
            tell(events, format!("reset {}", u32::from(reason)));
        }
        "/stream" => {
            let mut stream = respond.send_response(head(), false)?;
            for piece in ["one", "two", "three", "four", "five"] {
                send(&mut stream, Bytes::from_static(piece.as_bytes())).await?;
            }
            stream.send_trailers(trailers(0))?;
        }
        "/echo" | "/echo-ahead" | "/leave-late" => {
            echo(head(), body, respond, path == "/echo-ahead").await?;
        }
        path if path.eq_ignore_ascii_case("/fields")
            || path == "/x/../fields"
            || path.starts_with("/fields/") =>
        {
            let mut stream = respond.send_response(head(), false)?;
            send(&mut stream, lines(&parts).into()).await?;
            stream.send_trailers(trailers(0))?;
        }
        path if path.starts_with("/hold/") => {
            let bytes = path["/hold/".len()..].parse().unwrap_or(0);
            hold(bytes, body, events).await;
        }
        path if path.starts_with("/large/") => {
            let len = path["/large/".len()..].parse().unwrap_or(0);
            let mut stream = respond.send_response(head(), false)?;
            send(&mut stream, vec![b'x'; len].into()).await?;
            stream.send_trailers(trailers(len))?;
        }
        _ => {
            let whole = whole(body).await?;
            let sum = whole.len();
            let mut head = head();
            if path == "/counted" {
                head.headers_mut().insert("content-length", sum.into());
            }
            let mut stream = respond.send_response(head, false)?;
            send(&mut stream, whole).await?;
            stream.send_trailers(trailers(sum))?;
        }
    }
    Ok(())
}

async fn echo(
    head: Response<()>,
    mut body: RecvStream,
    mut respond: SendResponse<Bytes>,
    goes_ahead: bool,
) -> Outcome {
    let mut stream = respond.send_response(head, false)?;
    let mut sum = 0;
    while let Some(piece) = body.data().await {
        let piece = piece?;
        sum += piece.len();
        body.flow_control().release_capacity(piece.len())?;
        match goes_ahead {
            // It keeps what has no room.
            true => stream.send_data(piece, false)?,
            false => send(&mut stream, piece).await?,
        }
    }
    stream.send_trailers(trailers(sum))
}

/// A response before the end of the body, whose data counts as unread for ever.
async fn keep(
    mut head: Response<()>,
    mut body: RecvStream,
    mut respond: SendResponse<Bytes>,
) -> Outcome {
    *head.status_mut() = http::StatusCode::PAYLOAD_TOO_LARGE;
    let first = body.data().await.transpose()?;
    respond.send_response(head, true)?;
    std::mem::forget((body, first));
    Ok(())
}

/// Takes the body, gives no window back, and tells when so many bytes have come.
async fn hold(bytes: usize, mut body: RecvStream, events: &Events) {
    let mut left = bytes;
    while let Some(piece) = body.data().await {
        let Ok(piece) = piece else {
            return tell(events, "given up");
        };
        left -= piece.len();
        if left == 0 {
            tell(events, "full");
        }
    }
}

/// A part of a response.
async fn break_off(
    path: &str,
    mut head: Response<()>,
    mut respond: SendResponse<Bytes>,
) -> Outcome {
    if path == "/short" {
        head.headers_mut().insert("content-length", 8.into());
    }
    let mut stream = respond.send_response(head, false)?;
    send(&mut stream, Bytes::from_static(b"part")).await?;
    while stream.capacity() > 0 {
        tokio::task::yield_now().await;
    }
    match path {
        "/short" => stream.send_data(Bytes::new(), true)?,
        _ => stream.send_reset(Reason::INTERNAL_ERROR),
    }
    Ok(())
}

/// The first line and the fields of a request.
fn lines(parts: &http::request::Parts) -> String {
    let mut text = format!("{} {}\n", parts.method, parts.uri);
    for (name, value) in &parts.headers {
        text += &format!("{name}: {}\n", String::from_utf8_lossy(value.as_bytes()));
    }
    text
}

/// The whole body of a request.
async fn whole(mut body: RecvStream) -> Result<Bytes, h2::Error> {
    let mut whole = Vec::new();
    while let Some(piece) = body.data().await {
        let piece = piece?;
        body.flow_control().release_capacity(piece.len())?;
        whole.extend_from_slice(&piece);
    }
    Ok(whole.into())
}

fn trailers(sum: usize) -> HeaderMap {
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", 0.into());
    trailers.insert("x-sum", sum.into());
    trailers
}

/// Sends data as far as the window allows, until all of it is sent.
///
/// # Errors
/// The stream was reset.
pub async fn send(stream: &mut SendStream<Bytes>, mut data: Bytes) -> Outcome {
    while !data.is_empty() {
        stream.reserve_capacity(data.len());
        let room = std::future::poll_fn(|cx| stream.poll_capacity(cx)).await;
        let Some(room) = room.transpose()? else {
            return Ok(());
        };
        stream.send_data(data.split_to(room.min(data.len())), false)?;
    }
    Ok(())
}
