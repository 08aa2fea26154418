//! Connections of HTTP/2 to servers that requests share (`grpc_pass`, `proxy_http_version 2`, `keepalive_streams`).

use std::time::Duration;

use super::grpc::client;
use blackbox::http2_origin::{Http2Origin, Windows, block_on, send};
use blackbox::{PATIENCE, Server};
use bytes::Bytes;
use h2::client::{ResponseFuture, SendRequest};
use h2::{RecvStream, SendStream};
use http::Request;

const WIDE: Windows = Windows(1 << 20);

/// A server that passes all requests to the group `u`, of one origin, with these lines.
fn server(origin: &Http2Origin, lines: &str) -> Server {
    server_of(&format!("server {}; {lines}", origin.address()))
}

/// The same for a group of these lines.
fn server_of(group: &str) -> Server {
    Server::start(&format!(
        "upstream u {{ {group} }}
         server {{ listen 127.0.0.1:%PORT%; http2 on; client_max_body_size 0; grpc_send_timeout 10m; location / {{ grpc_pass u; }} }}"
    ))
}

/// A request whose body is open.
async fn begin(client: &mut SendRequest<Bytes>, path: &str) -> (ResponseFuture, SendStream<Bytes>) {
    let request = Request::post(format!("http://h{path}")).header("te", "trailers");
    let request = request.body(()).expect("a request");
    let mut ready = client.clone().ready().await.expect("room");
    ready.send_request(request, false).expect("open")
}

/// Conversations of so many requests at a time, all of them open before any goes on; each ends whole.
async fn talk(client: &mut SendRequest<Bytes>, path: &str, count: usize) {
    let mut all = Vec::new();
    for _ in 0..count {
        let (response, stream) = begin(client, path).await;
        all.push((response, stream));
    }
    let mut open = Vec::new();
    for (response, stream) in all {
        open.push((response.await.expect("a head").into_body(), stream));
    }
    for (number, (body, stream)) in open.iter_mut().enumerate() {
        let text = Bytes::from(format!("piece of {number}"));
        send(stream, text.clone()).await.expect("open");
        assert_eq!(next(body).await, text, "its own");
    }
    for (body, stream) in &mut open {
        stream.send_data(Bytes::new(), true).expect("open");
        let trailers = body.trailers().await.expect("a whole message");
        assert_eq!(trailers.expect("trailers")["grpc-status"], "0");
    }
}

async fn next(body: &mut RecvStream) -> Bytes {
    let piece = body.data().await.expect("a piece").expect("open");
    let _ = body.flow_control().release_capacity(piece.len());
    piece
}

fn within<T>(work: impl Future<Output = T>) -> T {
    block_on(async { tokio::time::timeout(PATIENCE, work).await }).expect("it comes in time")
}

#[test]
fn requests_at_a_time_share_a_connection() {
    let origin = Http2Origin::start(WIDE);
    let server = server(&origin, "");
    within(async {
        let mut client = client(&server).await;
        talk(&mut client, "/echo", 40).await;
        talk(&mut client, "/echo", 40).await;
    });
    assert_eq!(origin.count("connection"), 1, "{:?}", origin.events());
}

#[test]
fn a_connection_has_as_many_as_either_side_allows() {
    let origin = Http2Origin::start(WIDE);
    let one_at_a_time = server(&origin, "keepalive_streams 1;");
    within(async {
        let mut client = client(&one_at_a_time).await;
        talk(&mut client, "/echo", 6).await;
    });
    assert_eq!(origin.count("connection"), 6, "as in nginx");
    let origin = Http2Origin::start_with_streams(WIDE, 4);
    let server = server(&origin, "");
    within(async {
        let mut client = client(&server).await;
        talk(&mut client, "/echo", 10).await;
    });
    assert_eq!(origin.count("connection"), 3, "of four each");
}

#[test]
fn without_keepalive_each_request_has_its_own() {
    let origin = Http2Origin::start(WIDE);
    let server = server(&origin, "keepalive 0;");
    within(async {
        let mut client = client(&server).await;
        talk(&mut client, "/echo", 3).await;
    });
    assert_eq!(origin.count("connection"), 3);
}

#[test]
fn a_connection_that_is_full_of_requests_gives_way_to_another() {
    let origin = Http2Origin::start(WIDE);
    let server = server(&origin, "keepalive_requests 5;");
    within(async {
        let mut client = client(&server).await;
        for _ in 0..3 {
            talk(&mut client, "/echo", 5).await;
        }
    });
    assert_eq!(origin.count("connection"), 3);
}

/// The server ends a connection in good order while requests are on it, and more come.
#[test]
fn goaway_loses_no_request() {
    let origin = Http2Origin::start(WIDE);
    let server = server(&origin, "");
    within(async {
        let mut client = client(&server).await;
        for _ in 0..20 {
            talk(&mut client, "/leave-late", 3).await;
            talk(&mut client, "/echo", 3).await;
        }
    });
    assert_eq!(server.error_log().matches("[error]").count(), 0);
}

/// A connection that breaks is one failure of its server, however many requests were on it.
#[test]
fn a_connection_that_breaks_is_one_failure() {
    let (origin, spare) = (Http2Origin::start(WIDE), Http2Origin::start(WIDE));
    let server = server_of(&format!(
        "server {} max_fails=2 fail_timeout=1h; server {} backup;",
        origin.address(),
        spare.address()
    ));
    within(async {
        let mut client = client(&server).await;
        let mut all = Vec::new();
        for number in 1..=4 {
            all.push(begin(&mut client, "/hang").await);
            origin_has(&origin, "/hang", number).await;
        }
        assert_eq!(origin.count("connection"), 1, "{:?}", origin.events());
        all.push(begin(&mut client, "/abort").await);
        for (response, _stream) in all {
            assert_eq!(response.await.expect("a head").status(), 502);
        }
        talk(&mut client, "/echo", 1).await;
    });
    assert_eq!((origin.count("/echo"), spare.count("connection")), (1, 0));
    server.forget_log();
}

/// What a slow client does not read fills the window of its stream, and that of no other.
#[test]
fn a_slow_reader_holds_back_no_other() {
    let origin = Http2Origin::start(Windows(8 << 20));
    let server = server(&origin, "");
    within(async {
        let mut slow = client(&server).await;
        let (response, mut stream) = begin(&mut slow, "/large/30000000").await;
        stream.send_data(Bytes::new(), true).expect("open");
        let mut held = response.await.expect("a head").into_body();
        let mut other = client(&server).await;
        for _ in 0..5 {
            talk(&mut other, "/echo", 8).await;
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        let mut sum = 0;
        while let Some(piece) = held.data().await {
            let piece = piece.expect("open");
            let _ = held.flow_control().release_capacity(piece.len());
            sum += piece.len();
        }
        assert_eq!(sum, 30_000_000, "whole, all the same");
    });
    assert_eq!(origin.count("connection"), 1, "{:?}", origin.events());
}

/// Sends an upload, and returns the length that came at the origin.
async fn upload(client: &mut SendRequest<Bytes>, path: &str, len: usize) -> Option<String> {
    let (response, mut stream) = begin(client, path).await;
    let sending = async {
        // Its answer may come first.
        let _ = send(&mut stream, vec![b'x'; len].into()).await;
        let _ = stream.send_data(Bytes::new(), true);
    };
    let (response, ()) = tokio::join!(response, sending);
    let response = response.expect("a head");
    let sum = response.headers().get("content-length");
    sum.map(|sum| sum.to_str().expect("a number").to_owned())
}

/// All uploads of a connection share its window, and the server keeps what it does not read of one.
#[test]
fn an_upload_that_is_not_read_holds_back_no_other() {
    let origin = Http2Origin::start(WIDE);
    let server = server(&origin, "");
    within(async {
        let mut client = client(&server).await;
        let (unread, mut stream) = begin(&mut client, &format!("/hold/{}", WIDE.0)).await;
        let other = client.clone();
        let sending = async {
            // More than the windows of both sides.
            send(&mut stream, vec![b'x'; 8 << 20].into()).await
        };
        let others = async {
            origin_has(&origin, "full", 1).await;
            let mut other = other;
            for _ in 0..20 {
                let sum = upload(&mut other, "/counted", 10_000).await;
                assert_eq!(sum.as_deref(), Some("10000"));
            }
        };
        tokio::select! {
            () = others => {}
            sent = sending => panic!("it is not read: {sent:?}"),
        }
        // Its client leaves: that ends it, though nothing of it can be sent.
        drop((unread, stream));
        origin_has(&origin, "given up", 1).await;
    });
    assert_eq!(origin.count("connection"), 2, "{:?}", origin.events());
}

/// A server that answers an upload before its end need not give back what the connection's window lost by it.
#[test]
fn a_connection_whose_window_is_lost_takes_no_more_uploads_and_ends() {
    let origin = Http2Origin::start(WIDE);
    let server = server(&origin, "");
    within(async {
        let mut client = client(&server).await;
        for _ in 0..40 {
            upload(&mut client, "/keep", 100_000).await;
            let sum = upload(&mut client, "/counted", 10_000).await;
            assert_eq!(sum.as_deref(), Some("10000"));
        }
    });
    origin.wait("end");
}

/// Waits until something has happened so often at the origin, beside what else a test does.
async fn origin_has(origin: &Http2Origin, event: &str, count: usize) {
    while origin.count(event) < count {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

#[test]
fn uploads_at_a_time_go_through_small_windows() {
    let origin = Http2Origin::start(Windows(2000));
    let server = server(&origin, "");
    within(async {
        let mut client = client(&server).await;
        // An origin of the crate `h2` that took data before its own, smaller window was known gives no room any more.
        talk(&mut client, "/echo", 1).await;
        let upload = |number: usize| {
            let mut client = client.clone();
            async move {
                let (response, mut stream) = begin(&mut client, "/unary").await;
                let body = vec![b'a' + number as u8; 100_000 + number];
                send(&mut stream, body.into()).await.expect("open");
                stream.send_data(Bytes::new(), true).expect("open");
                let mut body = response.await.expect("a head").into_body();
                let mut sum = 0;
                while let Some(piece) = body.data().await {
                    let piece = piece.expect("open");
                    let _ = body.flow_control().release_capacity(piece.len());
                    assert!(piece.iter().all(|byte| *byte == b'a' + number as u8));
                    sum += piece.len();
                }
                assert_eq!(sum, 100_000 + number);
            }
        };
        let tasks: Vec<_> = (0..8).map(|number| tokio::spawn(upload(number))).collect();
        for task in tasks {
            task.await.expect("whole");
        }
    });
    assert_eq!(origin.count("connection"), 1, "{:?}", origin.events());
}
