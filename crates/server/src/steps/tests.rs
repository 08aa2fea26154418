//! Responses as values: requests without a socket go through the real steps and the real sender.

use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use config::Recorded;
use disk::{Disk, OpenFile};
use logs::Logs;
use message::response::ClientAbort;
use message::{Body, BodyError, Chunk, Header, Source};
use runtime::listen::Address;
use runtime::{Ledger, Listener, Loop, Shared, SocketType};
use wire::http1::request_parser::{HeadLimits, ParsedRequest, parse_head};
use wire::http1::response_parser::{ParsedResponse, ResponseParser};

use super::Steps;
use crate::process::load::{Loaded, Origin, load};
use crate::process::pools::define_pools;
use crate::settings::circumstances::Circumstances;
use httpcore::Response;
use httpcore::client::Client;
use httpcore::connection::send::{self, Started};
use httpcore::http_loop::HttpLoop;
use httpcore::http_loop::generation::Generation;
use httpcore::outcome::Start;
use httpcore::request::Request;
use httpcore::responder::Responder as _;
use httpcore::status_zone;
use httpcore::transport::{TestClient, Transport};
use proxy::response::early_hints;

const ADDRESS: &str = "127.0.0.1:8080";

/// The configuration of one server.
fn loaded(lines: &str) -> Loaded {
    let text =
        format!("events {{}} http {{ access_log off; server {{ listen {ADDRESS}; {lines} }} }}");
    let root = PathBuf::from("/nowhere/nginx.conf");
    let mut source = Recorded {
        files: HashMap::from([(root.clone(), text.into())]),
        ..Recorded::default()
    };
    let origin = Origin {
        prefix: "/nowhere/".into(),
        root,
        globals: None,
    };
    let loaded = load(&origin, &Circumstances::here(), &mut source, &[]);
    loaded.expect("it is right")
}

/// A server on a loop of the test's own thread.
struct Site {
    client: Rc<Client>,
    generation: Rc<Generation>,
}

fn on_a_loop(lines: &str, work: impl AsyncFnOnce(Site)) {
    let loaded = loaded(lines);
    let shared = Shared {
        logs: Logs::start().unwrap(),
        disk: Disk::new(Disk::prepare()),
        ledger: Arc::<Ledger>::default(),
    };
    define_pools(&loaded.main.processes, &shared.disk);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .build_local(tokio::runtime::LocalOptions::default())
        .unwrap();
    runtime.block_on(async {
        let loop_ = Loop::alone(&shared).unwrap();
        let generation = Generation::new(1, Arc::clone(&loaded.settings));
        let zones = status_zone::zones(&shared.ledger);
        Steps::install(&loop_);
        let http = HttpLoop::new(&loop_, generation, zones);
        let generation = http.generation();
        let local: SocketAddr = ADDRESS.parse().unwrap();
        let address = Address::Inet(local);
        let listener = Arc::new(Listener {
            address,
            socket_type: SocketType::Stream,
        });
        let client = Client::new(loop_, http, 1, Some(local), Some(local), listener);
        let client = Rc::new(client);
        work(Site { client, generation }).await;
    });
}

impl Site {
    /// A request with these lines, as it comes from this client.
    fn request(&self, lines: &str, client: TestClient) -> Box<Request> {
        let text = format!("{lines}\r\nHost: a\r\n\r\n");
        let ParsedRequest::Complete(head, _) = parse_head(text.as_bytes(), &HeadLimits::default())
        else {
            panic!("no head: {text}");
        };
        let entry = self.client.entry(&self.generation).unwrap();
        let server = self.generation.settings.listens.entries()[entry].default;
        let transport = Transport::Test(Box::new(client));
        let (client, generation) = (Rc::clone(&self.client), Rc::clone(&self.generation));
        Request::new(transport, client, generation, head, server)
    }

    /// The client after the answer to a request with these lines.
    async fn answer(&self, lines: &str, client: TestClient) -> Box<TestClient> {
        let mut request = self.request(lines, client);
        let response = respond(&mut request).await;
        deliver(&mut request, response).await;
        assert!(request.is_complete);
        assert_eq!(
            request.sent.get().bytes,
            client_of(&request).body.borrow().len() as u64
        );
        taken(request)
    }
}

async fn respond(request: &mut Request) -> Box<Response> {
    let response = Steps::respond(request, Start::Fresh).await;
    response.expect("it is answered")
}

async fn deliver(request: &mut Request, response: Box<Response>) {
    if let Started::Left(left) = send::start(request, response) {
        send::go_on(request, left).await;
    }
}

fn client_of(request: &Request) -> &TestClient {
    match &request.transport {
        Transport::Test(client) => client,
        _ => panic!("the transport of a test"),
    }
}

fn taken(request: Box<Request>) -> Box<TestClient> {
    match request.transport {
        Transport::Test(client) => client,
        _ => panic!("the transport of a test"),
    }
}

/// Pieces with a trailer behind them; without any, the next one never comes.
struct Pieces(VecDeque<&'static str>);

impl Source<Rc<OpenFile>> for Pieces {
    fn poll_next(
        &mut self,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Chunk<Rc<OpenFile>>, BodyError>>> {
        match self.0.pop_front() {
            Some("") => Poll::Ready(None),
            Some(piece) => {
                Poll::Ready(Some(Ok(Chunk::Bytes(Bytes::from_static(piece.as_bytes())))))
            }
            None => Poll::Pending,
        }
    }

    fn trailers(&mut self) -> Vec<Header> {
        vec![Header::new("X-Own", "1")]
    }
}

fn pieces(pieces: &[&'static str]) -> Body<Rc<OpenFile>> {
    Body::Stream(Box::new(Pieces(pieces.iter().copied().collect())))
}

#[test]
#[expect(
    clippy::disallowed_methods,
    reason = "the loop of the test is not running yet"
)]
fn files_their_ranges_and_heads() {
    let directory = tempfile::tempdir().unwrap();
    let large = "0123456789".repeat(30_000);
    std::fs::write(directory.path().join("small"), "0123456789").unwrap();
    std::fs::write(directory.path().join("large"), &large).unwrap();
    let lines = format!("root {};", directory.path().display());
    on_a_loop(&lines, async |site| {
        let none = TestClient::default;
        let small = (200, Some(10), "0123456789".into());
        let first = site.answer("GET /small HTTP/1.1", none()).await;
        assert_eq!(first.whole(), small);
        let prepared = site.answer("GET /small HTTP/1.1", none()).await;
        assert_eq!(prepared.whole(), small);
        assert_eq!(prepared.writes.get(), 1, "head and body go together");
        let whole = site.answer("GET /large HTTP/1.1", none()).await;
        assert_eq!(whole.whole(), (200, Some(300_000), large));
        let part = site
            .answer("GET /small HTTP/1.1\r\nRange: bytes=2-4", none())
            .await;
        assert_eq!(part.whole(), (206, Some(3), "234".into()));
        let head = part.head.as_ref().unwrap();
        assert_eq!(head.headers.get(b"Content-Range").unwrap(), "bytes 2-4/10");
        let head = site.answer("HEAD /large HTTP/1.1", none()).await;
        assert_eq!(head.whole(), (200, Some(300_000), String::new()));
    });
}

#[test]
fn error_pages_and_redirects() {
    let lines = "error_page 403 /sorry; location = /sorry { return 200 sorry; } location /no { deny all; } \
                 location /there { return 301 /here; } location /gone { return 410; }";
    on_a_loop(lines, async |site| {
        let none = TestClient::default;
        let page = site.answer("GET /no HTTP/1.1", none()).await;
        assert_eq!(page.whole(), (403, Some(5), "sorry".into()));
        let page = site.answer("GET /gone HTTP/1.1", none()).await;
        assert_eq!(page.head.as_ref().unwrap().status, 410);
        assert!(page.whole().2.contains("410 Gone"));
        let moved = site.answer("GET /there HTTP/1.1", none()).await;
        let location = moved.head.as_ref().unwrap().location.clone();
        assert_eq!(location.unwrap(), "http://a:8080/here");
    });
}

#[test]
fn trailers_of_the_body_and_of_the_configuration() {
    on_a_loop("add_trailer X-Late $status; return 200;", async |site| {
        let mut request = site.request("GET / HTTP/1.1", TestClient::default());
        let mut response = respond(&mut request).await;
        response.body = pieces(&["a", "bc", ""]);
        response.content_length = None;
        deliver(&mut request, response).await;
        let client = taken(request);
        assert_eq!(client.whole(), (200, None, "abc".into()));
        let trailers = [Header::new("X-Own", "1"), Header::new("X-Late", "200")];
        assert_eq!(client.trailers, trailers);
    });
}

#[test]
fn a_step_reads_the_body() {
    on_a_loop(
        "client_body_early_read 1; return 200 $request_body;",
        async |site| {
            let client = TestClient::with_body(&["abc", "def"]);
            let lines = "POST / HTTP/1.1\r\nContent-Length: 6\r\nExpect: 100-continue";
            let client = site.answer(lines, client).await;
            assert!(client.is_invited);
            assert_eq!(client.whole(), (200, Some(6), "abcdef".into()));
        },
    );
}

#[test]
fn early_hints_come_before_the_head() {
    let lines = "location / { early_hints 1; proxy_pass http://127.0.0.1:1; }";
    on_a_loop(lines, async |site| {
        let mut request = site.request("GET / HTTP/1.1", TestClient::default());
        // Nobody listens there.
        let response = respond(&mut request).await;
        let hints = b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n";
        let ParsedResponse::Complete(hints, _) = ResponseParser::new(4096).advance(hints) else {
            panic!("no head");
        };
        let passed = early_hints::pass(&mut request, &hints).await;
        assert!(passed.is_ok());
        assert!(client_of(&request).head.is_none());
        deliver(&mut request, response).await;
        let client = taken(request);
        assert_eq!(client.interims, [(103, vec![Header::new("Link", "</a>")])]);
        assert_eq!(client.head.as_ref().unwrap().status, 502);
    });
}

#[test]
fn a_client_that_leaves_ends_what_is_made_for_it_alone() {
    on_a_loop("return 200;", async |site| {
        for delays_head in [false, true] {
            let mut request = site.request("GET / HTTP/1.1", TestClient::that_left());
            let mut response = respond(&mut request).await;
            response.body = pieces(&[]);
            response.content_length = None;
            response.client_abort = ClientAbort::EndsBody;
            response.delays_head = delays_head;
            deliver(&mut request, response).await;
            assert!(!request.is_complete);
            let client = taken(request);
            assert_eq!(
                (client.head.is_none(), client.is_ended),
                (delays_head, false)
            );
        }
    });
}
