//! The connections of clients, the answering of their requests, and the sending of responses.
//!
//! Not here: what a request means (`server::steps`), the protocol of a request ([`crate::transport`]), bytes on the
//! socket (`wire`). Invariant: between two requests a connection holds no buffer and no request; everything of a request
//! is in one box that goes with it.

pub mod absolute_redirect;
mod answer;
mod finish;
mod http1;
pub mod http2;
pub mod panic_guard;
pub mod post_action;
pub mod proxy_protocol;
pub mod send;
mod send_error;
mod send_file;
mod send_instead;
mod send_rest;
mod send_stream;
pub mod tls_handshake;
mod zones;

use std::pin::pin;
use std::rc::Rc;

use logs::Level;
use runtime::{Accepted, Loop, Serving};
use wire::Stream;

use crate::client::Client;
use crate::http_loop::HttpLoop;
use crate::responder::Responder;
use crate::transport::http1::Link;

pub use answer::{Refusal, Reply, Started, capture_server_name};
pub use http1::read;

/// Serves a connection to its end. A panic ends only this connection, with one line that names the client.
pub fn serve<R: Responder>(loop_: Rc<Loop>, http: Rc<HttpLoop>, accepted: Accepted) -> Serving {
    let Accepted {
        seat,
        socket,
        peer,
        listener,
        number,
    } = accepted;
    let stream = match Stream::from_accepted(socket, peer.is_some()) {
        Ok(stream) => stream,
        Err(error) => {
            loop_.tell_unwatched(&error);
            return Box::pin(async {});
        }
    };
    // As nginx: only behind a wildcard does the kernel know more than the listener.
    let local = match listener.address.is_wildcard() {
        true => stream.local_addr().ok().flatten(),
        false => listener.address.inet(),
    };
    let link = Box::new(Link {
        wire: wire::Connection::new(stream, &loop_.wire),
        place: loop_.idle.place(),
        is_pipelined: false,
    });
    let client = Rc::new(Client::new(loop_, http, number, peer, local, listener));
    // An idle connection is this block and what it holds: no value is in it twice.
    Box::pin(async move {
        let run = pin!(http1::run::<R>(&client, seat, Some(link)));
        if let Err(words) = panic_guard::guard(&client, run).await {
            let text = format!("{words}, the connection is closed");
            client.log(&client.generation(), Level::Alert, &text);
        }
    })
}
