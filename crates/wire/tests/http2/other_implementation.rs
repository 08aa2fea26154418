//! The crate `h2` at the other end: as a client of our server, and as a server of our client, in memory.

use std::time::Duration;

use bytes::Bytes;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use wire::http2::hpack::encode;
use wire::http2::session::INPUT_MAX;
use wire::http2::{Event, Session, SessionConfig, StreamKey};

/// Length in bytes of the larger body.
const LARGE: usize = 300_000;

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at % 251) as u8).collect()
}

/// Drives a session over a pipe until `turn` says that all is done, or the other end closes.
async fn drive(
    mut pipe: DuplexStream,
    mut session: Session,
    mut turn: impl FnMut(&mut Session, Option<Event<'_>>) -> bool,
) -> Session {
    let mut input = Vec::new();
    loop {
        let mut at = 0;
        session.begin_turn(0);
        loop {
            let (used, event) = session.receive(&input[at..], 0, &mut |_| None);
            at += used;
            match event {
                Event::Partial => break,
                Event::TurnEnds => session.begin_turn(0),
                event => assert!(!turn(&mut session, Some(event)), "only between events"),
            }
        }
        input.drain(..at);
        assert!(input.len() <= INPUT_MAX);
        let is_done = turn(&mut session, None);
        let output = session.output().to_vec();
        pipe.write_all(&output).await.unwrap();
        session.sent(output.len());
        if is_done || pipe.read_buf(&mut input).await.unwrap() == 0 {
            return session;
        }
    }
}

/// A body that is being sent.
struct Sending {
    key: StreamKey,
    body: Vec<u8>,
    at: usize,
}

/// Sends what may be sent of all bodies.
fn send(session: &mut Session, bodies: &mut Vec<Sending>) {
    while let Some(key) = session.next_sender() {
        let place = bodies.iter().position(|body| body.key == key).unwrap();
        let sending = &mut bodies[place];
        let taken = session
            .data(key, &sending.body[sending.at..], false)
            .unwrap();
        sending.at += taken;
        if sending.at == sending.body.len() {
            let trailer = |out: &mut Vec<u8>| encode::field(out, b"x-sum", b"1");
            session.trailers(key, trailer).unwrap();
            bodies.swap_remove(place);
        }
    }
}

/// Answers each request with its own body, or with [`LARGE`] bytes, and a trailer.
fn echo() -> impl FnMut(&mut Session, Option<Event<'_>>) -> bool {
    let mut uploads: Vec<(StreamKey, Vec<u8>)> = Vec::new();
    let mut bodies = Vec::new();
    move |session, event| {
        let mut ended = None;
        match event {
            Some(Event::Request(key, head, is_end)) => {
                assert_eq!(head.host(), Some(&b"example.org"[..]));
                assert_eq!(head.get_all(b"x-field").count(), 1);
                match is_end {
                    true => ended = Some((key, pattern(LARGE))),
                    false => uploads.push((key, Vec::new())),
                }
            }
            Some(Event::Data(key, data, is_end)) => {
                let place = uploads.iter().position(|upload| upload.0 == key).unwrap();
                uploads[place].1.extend_from_slice(data);
                session.consume(key, data.len());
                ended = is_end.then(|| uploads.swap_remove(place));
            }
            Some(event) => panic!("{event:?}"),
            None => send(session, &mut bodies),
        }
        if let Some((key, body)) = ended {
            let write = |out: &mut Vec<u8>| {
                encode::status(out, 200);
                encode::field(out, b"x-answer", b"yes");
            };
            session.respond(key, false, write).unwrap();
            session.set_ready(key, true);
            bodies.push(Sending { key, body, at: 0 });
        }
        false
    }
}

/// Reads a body to its end; whether there were trailers.
async fn read(mut body: h2::RecvStream) -> (Vec<u8>, bool) {
    let mut out = Vec::new();
    while let Some(piece) = body.data().await {
        let piece = piece.unwrap();
        body.flow_control().release_capacity(piece.len()).unwrap();
        out.extend_from_slice(&piece);
    }
    (out, body.trailers().await.unwrap().is_some())
}

fn request(method: &str) -> http::Request<()> {
    let builder = http::Request::builder().method(method);
    let builder = builder.uri("http://example.org/a?b").header("x-field", "1");
    builder.body(()).unwrap()
}

fn run(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let local = tokio::task::LocalSet::new();
    let limited = async { tokio::time::timeout(Duration::from_secs(60), test).await };
    local.block_on(&runtime, limited).expect("it hangs");
}

#[test]
fn its_client_and_our_server() {
    run(async {
        let (ours, theirs) = tokio::io::duplex(10_000);
        let session = Session::server(SessionConfig::default());
        tokio::task::spawn_local(drive(ours, session, echo()));
        let (client, connection) = h2::client::handshake(theirs).await.unwrap();
        tokio::task::spawn_local(connection);
        let mut client = client.ready().await.unwrap();
        // Several times, so that its dynamic table is used.
        for round in 0..5 {
            let mut waiting = Vec::new();
            for _ in 0..10 {
                let (get, _) = client.send_request(request("GET"), true).unwrap();
                waiting.push((get, LARGE));
                let (post, mut sender) = client.send_request(request("POST"), false).unwrap();
                let body = pattern(1000 * (round + 1));
                sender.send_data(Bytes::from(body), true).unwrap();
                waiting.push((post, 1000 * (round + 1)));
            }
            // All at once: they share the connection's window.
            let reading = waiting.into_iter().map(|(response, len)| {
                tokio::task::spawn_local(async move {
                    let response = response.await.unwrap();
                    assert_eq!(response.headers()["x-answer"], "yes");
                    let (body, has_trailers) = read(response.into_body()).await;
                    assert!(body == pattern(len) && has_trailers);
                })
            });
            for one in reading.collect::<Vec<_>>() {
                one.await.unwrap();
            }
        }
    });
}

/// Uploads are larger than any window.
#[test]
fn its_client_uploads() {
    run(async {
        let (ours, theirs) = tokio::io::duplex(5000);
        let session = Session::server(SessionConfig::default());
        tokio::task::spawn_local(drive(ours, session, echo()));
        let (client, connection) = h2::client::handshake(theirs).await.unwrap();
        tokio::task::spawn_local(connection);
        let mut client = client.ready().await.unwrap();
        let (response, mut sender) = client.send_request(request("PUT"), false).unwrap();
        sender.send_data(Bytes::from(pattern(LARGE)), true).unwrap();
        let response = response.await.unwrap();
        let (body, _) = read(response.into_body()).await;
        assert!(body == pattern(LARGE));
    });
}

async fn their_server(pipe: DuplexStream) {
    let mut connection = h2::server::handshake(pipe).await.unwrap();
    while let Some(Ok((request, mut respond))) = connection.accept().await {
        tokio::task::spawn_local(async move {
            assert_eq!(request.uri().path(), "/a");
            let (body, _) = read(request.into_body()).await;
            let response = http::Response::builder().header("x-answer", "yes");
            let mut sender = respond
                .send_response(response.body(()).unwrap(), false)
                .unwrap();
            sender.send_data(Bytes::from(body), false).unwrap();
            sender.send_trailers(http::HeaderMap::new()).unwrap();
        });
    }
}

#[test]
fn our_client_and_its_server() {
    run(async {
        let (ours, theirs) = tokio::io::duplex(10_000);
        tokio::task::spawn_local(their_server(theirs));
        let mut bodies = Vec::new();
        let mut session = Session::client(SessionConfig::default());
        for count in 0..20 {
            let key = session.open(b"POST", false, |out| {
                encode::indexed(out, 3);
                encode::indexed(out, 6);
                encode::field(out, b":path", b"/a");
                encode::field(out, b":authority", b"example.org");
                encode::field(out, b"cookie", b"a=b");
            });
            let (key, body) = (key.unwrap(), pattern(20_000 * count + 1));
            session.set_ready(key, true);
            bodies.push(Sending { key, body, at: 0 });
        }
        let mut received = vec![Vec::new(); 20];
        let mut open = 20;
        let turn = |session: &mut Session, event: Option<Event<'_>>| {
            let place = |key: StreamKey| (key.id() / 2) as usize;
            let is_between = event.is_none();
            match event {
                Some(Event::Response(_, head, _)) => assert_eq!(head.status, 200),
                Some(Event::Data(key, data, is_end)) => {
                    received[place(key)].extend_from_slice(data);
                    session.consume(key, data.len());
                    open -= usize::from(is_end);
                }
                Some(Event::Trailers(..)) => open -= 1,
                Some(event) => panic!("{event:?}"),
                None => send(session, &mut bodies),
            }
            is_between && open == 0
        };
        let session = drive(ours, session, turn).await;
        assert_eq!(session.live(), 0);
        for (count, body) in received.into_iter().enumerate() {
            assert!(body == pattern(20_000 * count + 1), "{count}");
        }
    });
}
