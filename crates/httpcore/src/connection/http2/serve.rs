//! The task of a connection: its driver from the preface to the end.
//!
//! Invariant: no value of an idle connection is in its task twice.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::rc::Rc;

use logs::Level;
use runtime::Seat;
use runtime::timing::{Kind, spawn};
use wire::http2::SessionConfig;

use crate::client::Client;
use crate::connection::{panic_guard, tls_handshake};
use crate::responder::Responder;
use crate::settings::connections::Lingering;
use crate::transport::http1::Link;
use crate::transport::http2::Http2Connection;

use super::driver::{Driver, Finish, default_location, default_server};
use super::figures::Http2Counters;

/// Serves a connection to its end, in a task of its own: that which has found out what its client speaks ends with all that
/// HTTP/1 needs. A panic ends only this connection, with one line that names the client.
pub fn start<R: Responder>(client: &Rc<Client>, seat: Seat, link: Link) {
    client.loop_.figures.of::<Http2Counters>().connections[0].add(1);
    let Link {
        mut wire, place, ..
    } = link;
    let unread = wire.take_unread();
    let owner = Rc::clone(wire.owner());
    let (config, read_max) = begin(client);
    let connection = Http2Connection::new(wire.stream, place, owner, config);
    let client = Rc::clone(client);
    drop(spawn(Kind::Connection, async move {
        let run = pin!(run::<R>(&client, &connection, seat, unread, read_max));
        if let Err(words) = panic_guard::guard(&client, run).await {
            let text = format!("{words}, the connection is closed");
            client.log(&client.generation(), Level::Alert, &text);
        }
    }));
}

#[expect(
    clippy::manual_async_fn,
    reason = "an `async fn` would hold its arguments twice as long as the connection lives"
)]
fn run<R: Responder>(
    client: &Rc<Client>,
    connection: &Rc<Http2Connection>,
    seat: Seat,
    unread: Vec<u8>,
    read_max: usize,
) -> impl Future<Output = ()> {
    async move {
        let mut driver = Driver::new(connection, client, unread, read_max);
        let mut idle = None;
        let finish = poll_fn(|context| {
            let polled = driver.poll::<R>(&mut idle, context);
            connection.count();
            polled
        })
        .await;
        drop(idle);
        connection.close();
        if finish == Finish::Orderly && lingers(client) {
            // Boxed: an open connection does not keep its room.
            Box::pin(driver.linger()).await;
        }
        tls_handshake::count_fault(client, &connection.stream);
        drop(seat);
        connection.stream.close_notify();
        let _ = connection.stream.shutdown_write();
    }
}

/// What the session of a new connection is begun with, and the bytes to be read at once.
fn begin(client: &Client) -> (SessionConfig, usize) {
    let generation = client.generation();
    let Some(server) = default_server(client, &generation) else {
        return (SessionConfig::default(), usize::MAX);
    };
    let config = SessionConfig {
        limits: server.limits,
        ..server.http2.session()
    };
    (config, server.http2.http2_recv_buffer_size.bytes())
}

fn lingers(client: &Client) -> bool {
    let generation = client.generation();
    let location = default_location(client, &generation);
    location.is_some_and(|it| it.settings.closing.lingering_close != Lingering::Off)
}
