//! One request of an HTTP/2 connection, in a task of its own, from its head to its log lines.

use std::pin::pin;
use std::rc::Rc;

use logs::Level;
use message::RequestHead;
use runtime::timing::{Kind, current_request, spawn_begun};
use wire::http2::StreamKey;

use crate::client::Client;
use crate::connection::answer::{self, Counted, Started};
use crate::connection::{finish, panic_guard, zones};
use crate::failure::CLOSED;
use crate::http_loop::generation::Generation;
use crate::request::Request;
use crate::responder::Responder;
use crate::route::ServerId;
use crate::transport::Transport;
use crate::transport::http2::{Ending, Http2, Http2Connection};

use super::figures::{Http2Counters, Reset};

/// A request whose head has come.
pub(super) struct Opened {
    pub(super) key: StreamKey,
    pub(super) head: Box<RequestHead>,
    pub(super) server: ServerId,
    pub(super) start: Started,
    /// When it had been read, with the others of the same read (CLOCK_MONOTONIC, ns): what is looked at for one of them
    /// holds for all.
    pub(super) moment: u64,
}

/// Maximum size in bytes of the task of a request: what is larger is beyond the allocator's cache (glibc, tcache), and
/// costs a tenth of a request more.
const TASK_BYTES_MAX: usize = 1032;

/// What the task of a request begins with. Boxed: a future holds its arguments several times.
struct Beginning {
    connection: Rc<Http2Connection>,
    client: Rc<Client>,
    generation: Rc<Generation>,
    opened: Opened,
}

/// Answers a request, at once as far as it does not have to wait. A panic ends only its stream, with one line that names
/// the client.
pub(super) fn begin<R: Responder>(
    connection: &Rc<Http2Connection>,
    client: &Rc<Client>,
    generation: &Rc<Generation>,
    opened: Opened,
) {
    let beginning = Box::new(Beginning {
        connection: Rc::clone(connection),
        client: Rc::clone(client),
        generation: Rc::clone(generation),
        opened,
    });
    let named = Rc::clone(client);
    spawn_begun(Kind::Connection, || {
        let running = async move {
            let run = pin!(answer::<R>(beginning));
            if let Err(words) = panic_guard::guard(&named, run).await {
                let text = format!("{words}, the stream is reset");
                named.log(&named.generation(), Level::Alert, &text);
            }
        };
        let bytes = size_of_val(&running);
        debug_assert!(bytes <= TASK_BYTES_MAX, "a task has {bytes} bytes");
        running
    });
}

/// Counts a stream as open while it lives.
struct OpenStream(Rc<Client>);

impl Drop for OpenStream {
    fn drop(&mut self) {
        let counters = self.0.loop_.figures.of::<Http2Counters>();
        counters.open[0].sub(1);
    }
}

async fn answer<R: Responder>(beginning: Box<Beginning>) {
    let Beginning {
        connection,
        client,
        generation,
        opened,
    } = *beginning;
    // The worker waits for it, also where the connection has ended.
    let errand = client.loop_.begin_errand();
    let counters = client.loop_.figures.of::<Http2Counters>();
    counters.streams[0].add(1);
    counters.open[0].add(1);
    let _open = OpenStream(Rc::clone(&client));
    let _in_flight = connection.place.begin_request();
    let mut counted = Counted::begin(&client.loop_);
    counted.answer();
    client.requests.set(client.requests.get() + 1);
    current_request::begin(opened.head.line());
    let stream = Http2::new(Rc::clone(&connection), opened.key, &opened.head);
    let transport = Transport::Http2(Box::new(stream));
    let (head, server, moment) = (opened.head, opened.server, opened.moment);
    let mut request = Request::arrived(transport, client, generation, head, server, moment);
    counted.zone = zones::begin(&request);
    let start = answer::capture_server_name(&request, opened.start);
    let after = answer::answer::<R>(&mut request, start).await;
    if request.silent_status == Some(CLOSED)
        && let Transport::Http2(stream) = &request.transport
    {
        stream.refuse();
    }
    finish::finish::<R>(&mut request, after).await;
    count_reset(&request);
    drop(errand);
}

/// Counts a response that did not reach its end.
fn count_reset(request: &Request) {
    let Transport::Http2(stream) = &request.transport else {
        return;
    };
    let by = match stream.ending() {
        Ending::Whole | Ending::Gone => return,
        Ending::TimedOut => Reset::TimedOut,
        Ending::Refused | Ending::Broken => Reset::Broken,
    };
    let counters = request.client.loop_.figures.of::<Http2Counters>();
    counters.resets[by as usize].add(1);
}
