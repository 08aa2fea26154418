//! gRPC: `grpc_pass`, HTTP/2 on both sides, trailers, streams both ways, and what goes wrong.

use std::net::Ipv4Addr;
use std::time::Duration;

use blackbox::http2_origin::{Http2Origin, Windows, block_on, send};
use blackbox::{PATIENCE, Reply, Server};
use bytes::Bytes;
use h2::RecvStream;
use h2::client::SendRequest;
use http::{HeaderMap, Request};
use tokio::net::TcpStream;

const WIDE: Windows = Windows(1 << 20);

/// A server that passes all requests to `%O%`, and its origin.
fn servers(windows: Windows, text: &str) -> (Http2Origin, Server) {
    let origin = Http2Origin::start(windows);
    let text = text.replace("%O%", &origin.address());
    (origin, Server::start(&text))
}

const PLAIN: &str =
    "server { listen 127.0.0.1:%PORT%; http2 on; location / { grpc_pass grpc://%O%; } }";

fn post(server: &Server, path: &str, body: &str) -> Reply {
    let mut connection = server.connect();
    connection.send(format!(
        "POST {path} HTTP/1.1\r\nHost: h\r\nTE: trailers\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    ));
    connection.reply()
}

/// A client of HTTP/2.
pub(super) async fn client(server: &Server) -> SendRequest<Bytes> {
    let socket = TcpStream::connect((Ipv4Addr::LOCALHOST, server.site().port(0))).await;
    let socket = socket.expect("the server listens");
    let (client, connection) = h2::client::handshake(socket).await.expect("HTTP/2");
    tokio::spawn(async move {
        let _ = connection.await;
    });
    client
}

fn request(path: &str) -> Request<()> {
    let request = Request::post(format!("http://h{path}")).header("te", "trailers");
    let request = request.header("content-type", "application/grpc");
    request.body(()).expect("a request")
}

/// The rest of a body, and its trailers.
async fn rest(mut body: RecvStream) -> (Vec<u8>, HeaderMap) {
    let mut whole = Vec::new();
    while let Some(piece) = body.data().await {
        let piece = piece.expect("a whole body");
        let _ = body.flow_control().release_capacity(piece.len());
        whole.extend_from_slice(&piece);
    }
    let trailers = body.trailers().await.expect("a whole message");
    (whole, trailers.unwrap_or_default())
}

fn within<T>(work: impl Future<Output = T>) -> T {
    block_on(async { tokio::time::timeout(PATIENCE, work).await }).expect("it comes in time")
}

#[test]
fn http1_clients_get_trailers_behind_chunks() {
    let (origin, server) = servers(WIDE, PLAIN);
    let reply = post(&server, "/unary", "hello");
    assert_eq!((reply.status, reply.text().as_str()), (200, "hello"));
    assert_eq!(reply.header("content-type"), Some("application/grpc"));
    let reply = post(&server, "/unary", "hi");
    let trailer = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    assert_eq!(
        reply.trailers,
        [trailer("grpc-status", "0"), trailer("x-sum", "2")]
    );
    assert_eq!(
        origin.count("connection"),
        2,
        "nothing is kept without keepalive"
    );
}

#[test]
fn trailers_come_also_behind_a_body_of_known_length() {
    let (_origin, server) = servers(WIDE, PLAIN);
    let reply = post(&server, "/counted", "hello");
    assert_eq!((reply.text().as_str(), reply.trailers.len()), ("hello", 2));
    within(async {
        let mut client = client(&server).await;
        let (answer, mut body) = client.send_request(request("/counted"), false).unwrap();
        send(&mut body, Bytes::from_static(b"hello")).await.unwrap();
        body.send_data(Bytes::new(), true).unwrap();
        let (body, trailers) = rest(answer.await.unwrap().into_body()).await;
        assert_eq!((&body[..], trailers.len()), (&b"hello"[..], 2));
    });
}

#[test]
fn the_fields_of_a_request() {
    let (origin, server) = servers(
        WIDE,
        "server { listen 127.0.0.1:%PORT%; grpc_set_header X-Set $arg_a; grpc_set_header X-No ''; proxy_method PUT;
         location / { grpc_pass %O%; }
         location /fields { grpc_pass grpc://%O%; grpc_set_header Host other; grpc_set_header TE ''; } }",
    );
    let ask = |path: &str| {
        let lines =
            "Connection: x-hop\r\nX-Hop: 1\r\nX-No: 1\r\nTE: trailers, gzip\r\nUpper: Case\r\n";
        server.get_with(path, lines).text()
    };
    let (address, te) = (origin.address(), "te: trailers\n");
    assert_eq!(
        ask("/x/../fields?a=b"),
        format!("GET http://other/x/../fields?a=b\nx-no: 1\nupper: Case\n")
    );
    let inherited = ask("/FIELDS?a=b");
    assert_eq!(
        inherited,
        format!("GET http://{address}/FIELDS?a=b\n{te}x-set: b\nupper: Case\n")
    );
}

#[test]
fn the_path_of_a_changed_uri_is_escaped() {
    let (origin, server) = servers(
        WIDE,
        "server { listen 127.0.0.1:%PORT%;
         location / { rewrite ^ /fields/a%41 break; grpc_pass %O%; } }",
    );
    let fields = server.get_with("/x", "").text();
    let first = format!("GET http://{}/fields/a%2541", origin.address());
    assert_eq!(fields.lines().next(), Some(first.as_str()));
}

#[test]
fn a_kept_connection_carries_the_next_request() {
    let (origin, server) = servers(
        WIDE,
        "upstream u { server %O%; keepalive 1; }
         server { listen 127.0.0.1:%PORT%; location / { grpc_pass grpc://u; } }",
    );
    for path in [
        "/unary",
        "/stream",
        "/trailers-only",
        "/large/100000",
        "/unary",
    ] {
        assert_eq!(post(&server, path, "x").status, 200, "{path}");
    }
    assert_eq!(origin.count("connection"), 1, "{:?}", origin.events());
    assert_eq!(post(&server, "/leave", "x").text(), "x");
    assert_eq!(post(&server, "/unary", "x").text(), "x");
    assert_eq!(origin.count("connection"), 2, "{:?}", origin.events());
}

#[test]
fn streams_of_both_sides() {
    let (_origin, server) = servers(WIDE, PLAIN);
    within(async {
        let mut client = client(&server).await;
        let (response, mut stream) = client.send_request(request("/echo"), false).expect("open");
        let response = response.await.expect("the head comes before any data");
        let mut body = response.into_body();
        for piece in ["one", "two", "three"] {
            send(&mut stream, Bytes::from_static(piece.as_bytes()))
                .await
                .expect("open");
            let came = body.data().await.expect("an echo").expect("open");
            assert_eq!(came, piece, "each before the next one is sent");
        }
        stream.send_data(Bytes::new(), true).expect("open");
        let (rest, trailers) = rest(body).await;
        assert_eq!(
            (rest.len(), &trailers["x-sum"]),
            (0, &"11".parse().expect("a value"))
        );
    });
}

#[test]
fn a_stream_from_the_client_and_one_from_the_server() {
    let (_origin, server) = servers(WIDE, PLAIN);
    within(async {
        let mut client = client(&server).await;
        let (response, mut stream) = client.send_request(request("/unary"), false).expect("open");
        for _ in 0..5 {
            send(&mut stream, Bytes::from_static(b"piece"))
                .await
                .expect("open");
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        stream.send_data(Bytes::new(), true).expect("open");
        let (whole, trailers) = rest(response.await.expect("a head").into_body()).await;
        assert_eq!(
            (whole.len(), trailers["grpc-status"].as_bytes()),
            (25, &b"0"[..])
        );
        let (response, _) = client.send_request(request("/stream"), true).expect("open");
        let (whole, trailers) = rest(response.await.expect("a head").into_body()).await;
        assert_eq!(
            (&whole[..], trailers.len()),
            (&b"onetwothreefourfive"[..], 2)
        );
        let (response, _) = client
            .send_request(request("/trailers-only"), true)
            .expect("open");
        let response = response.await.expect("a head");
        assert_eq!(response.headers()["grpc-status"], "12");
        assert!(rest(response.into_body()).await.0.is_empty());
    });
}

#[test]
fn large_bodies_through_small_windows() {
    let (_origin, server) = servers(
        Windows(1000),
        "client_max_body_size 20m; upstream u { server %O%; }
         server { listen 127.0.0.1:%PORT%; http2 on; location / { grpc_pass u; } }",
    );
    // An origin of the crate `h2` that took data before its own, smaller window was known gives no room any more.
    post(&server, "/trailers-only", "");
    let body = "y".repeat(300_000);
    let reply = post(&server, "/unary", &body);
    assert_eq!((reply.status, reply.body.len()), (200, body.len()));
    assert_eq!(post(&server, "/large/3000000", "").body.len(), 3_000_000);
    within(async {
        let mut client = client(&server).await;
        let (response, mut stream) = client.send_request(request("/echo"), false).expect("open");
        let sending = tokio::spawn(async move {
            send(&mut stream, vec![b'z'; 200_000].into())
                .await
                .expect("open");
            stream.send_data(Bytes::new(), true).expect("open");
        });
        let (whole, _) = rest(response.await.expect("a head").into_body()).await;
        assert_eq!(whole.len(), 200_000);
        sending.await.expect("it was sent");
    });
}

#[test]
fn a_client_that_cancels_cancels_upstream() {
    let (origin, server) = servers(WIDE, PLAIN);
    within(async {
        let mut client = client(&server).await;
        let (response, mut stream) = client.send_request(request("/hang"), true).expect("open");
        while origin.count("/hang") == 0 {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        stream.send_reset(h2::Reason::CANCEL);
        drop(response);
        while origin.count("reset 8") == 0 {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    });
    drop(server);
}

#[test]
fn a_body_that_ends_too_early_is_broken() {
    for (pass, scheme) in [
        ("grpc_pass", "grpc"),
        ("proxy_http_version 2; proxy_pass", "http"),
    ] {
        let text = format!(
            "server {{ listen 127.0.0.1:%PORT%; location / {{ {pass} {scheme}://%O%; }} }}"
        );
        let (_origin, server) = servers(WIDE, &text);
        let reply = server.raw("GET /short HTTP/1.0\r\n\r\n");
        assert!(reply.contains("Content-Length: 8\r\n"), "{reply}");
        assert!(reply.ends_with("\r\n\r\npart"), "{reply}");
        let told = "upstream sent a body of another length";
        server.wait_for(told, "a length that is not the body's");
        server.forget_log();
    }
}

/// The next server would take what is left for all of it.
#[test]
fn a_stream_that_is_refused_behind_a_part_of_its_body_goes_to_no_other_server() {
    let second = Http2Origin::start(WIDE);
    let (first, server) = servers(
        WIDE,
        &"upstream u { server %O%; server %2% backup; }
         server { listen 127.0.0.1:%PORT%; http2 on; location / { grpc_pass u; grpc_next_upstream error invalid_header non_idempotent; }
         location /proxied/ { proxy_pass http://u/; proxy_http_version 2; proxy_request_buffering off;
             proxy_next_upstream error invalid_header non_idempotent; } }"
            .replace("%2%", &second.address()),
    );
    for (number, path) in ["/refused-late", "/proxied/refused-late"]
        .iter()
        .enumerate()
    {
        let mut client = server.connect_http2();
        let stream = client.begin("POST", path, &[], false);
        client.body(stream, b"first", false);
        assert_eq!(client.reply(stream).status, 502);
        assert_eq!(first.count("/refused-late"), number + 1);
    }
    assert_eq!(second.count("connection"), 0);
    server.forget_log();
}

#[test]
fn refused_streams_and_timeouts_go_to_the_next_server() {
    let second = Http2Origin::start(WIDE);
    let (first, server) = servers(
        WIDE,
        &"upstream u { server %O% max_fails=0; server %2% max_fails=0 backup; }
         server { listen 127.0.0.1:%PORT%; location / { grpc_pass u; grpc_next_upstream invalid_header non_idempotent; }
         location /hang { grpc_pass u; grpc_read_timeout 50ms; grpc_intercept_errors on; error_page 504 = @late; }
         location @late { add_header grpc-status 4; return 204; } }"
            .replace("%2%", &second.address()),
    );
    assert_eq!(post(&server, "/refused", "").status, 502, "of both");
    assert_eq!((first.count("/refused"), second.count("/refused")), (1, 1));
    let told = "upstream rejected request with error 7 while reading response header";
    server.wait_for(told, "refused streams");
    let reply = post(&server, "/hang", "");
    assert_eq!(
        (reply.status, reply.header("grpc-status")),
        (204, Some("4"))
    );
    first.wait("reset 8");
    server.forget_log();
}
