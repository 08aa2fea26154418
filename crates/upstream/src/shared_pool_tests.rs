//! Who opens a connection of HTTP/2, who waits for it, and how many of each there may be.

use std::net::TcpListener;
use std::pin::Pin;
use std::task::Context;

use runtime::listen::address::Address;
use wire::KernelTimer;
use wire::connect::{ConnectOptions, ConnectTo, connect};

use super::*;
use crate::keepalive::Protocol;

/// Longer than any wait here.
const LONG: Duration = Duration::from_secs(60);

fn key(port: u16) -> ConnectionKey {
    ConnectionKey {
        address: Address::Inet(([127, 0, 0, 1], port).into()),
        options: ConnectOptions::default(),
        protocol: Protocol::Http2,
        tls: None,
        owner: 0,
    }
}

/// An upstream that keeps connections.
fn upstream() -> std::sync::Arc<Upstream> {
    let mut all =
        crate::upstreams_tests::upstreams("upstream a { server 127.0.0.1:81; keepalive 8; }");
    all.link(b"a", 80, &mut |_| Vec::new())
        .expect("it is declared")
}

fn polled<F: Future>(future: &mut Pin<Box<F>>) -> Poll<F::Output> {
    future
        .as_mut()
        .poll(&mut Context::from_waker(Waker::noop()))
}

/// What a request is told that asks now.
fn asked(pool: &SharedPool, upstream: &Upstream, port: u16, wheel: &Rc<Wheel>) -> Option<Turn> {
    let wanted = key(port);
    let mut asking = Box::pin(pool.begin(upstream, &wanted, wheel));
    match polled(&mut asking) {
        Poll::Ready(turn) => Some(turn),
        Poll::Pending => None,
    }
}

#[test]
fn one_opens_and_the_others_wait_for_it() {
    let (pool, upstream, wheel) = (SharedPool::default(), upstream(), Wheel::new());
    let opening = asked(&pool, &upstream, 1, &wheel);
    assert!(matches!(opening, Some(Turn::Opens(_))));
    let wanted = key(1);
    let mut waiting = Box::pin(pool.begin(&upstream, &wanted, &wheel));
    assert!(polled(&mut waiting).is_pending());
    let elsewhere = asked(&pool, &upstream, 2, &wheel);
    assert!(matches!(elsewhere, Some(Turn::Opens(_))), "another server");
    drop(opening);
    assert!(matches!(polled(&mut waiting), Poll::Ready(Turn::Again)));
    let next = asked(&pool, &upstream, 1, &wheel);
    assert!(matches!(next, Some(Turn::Opens(_))), "it was over");
}

#[test]
fn so_many_wait_for_a_start_that_never_ends_and_those_that_leave_give_their_places_back() {
    let (pool, upstream, wheel) = (SharedPool::default(), upstream(), Wheel::new());
    let opening = asked(&pool, &upstream, 1, &wheel);
    let wanted = key(1);
    let mut waiting: Vec<_> = (0..WAITING_MAX)
        .map(|_| Box::pin(pool.begin(&upstream, &wanted, &wheel)))
        .collect();
    assert!(waiting.iter_mut().all(|one| polled(one).is_pending()));
    // A place that is asked again stays one place.
    assert!(waiting.iter_mut().all(|one| polled(one).is_pending()));
    let more = || asked(&pool, &upstream, 1, &wheel);
    assert!(matches!(more(), Some(Turn::Alone)));
    drop(waiting.pop());
    assert!(more().is_none(), "it waits, and leaves");
    assert!(more().is_none());
    drop(opening);
    let all = waiting.iter_mut().map(polled);
    assert_eq!(
        all.filter(|turn| matches!(turn, Poll::Ready(Turn::Again)))
            .count(),
        WAITING_MAX - 1
    );
}

#[test]
fn so_many_start_at_a_time() {
    let (pool, upstream, wheel) = (SharedPool::default(), upstream(), Wheel::new());
    let mut starting: Vec<Turn> = (0..STARTING_MAX as u16)
        .map(|port| asked(&pool, &upstream, 1000 + port, &wheel).expect("none is waited for"))
        .collect();
    assert!(starting.iter().all(|turn| matches!(turn, Turn::Opens(_))));
    assert!(matches!(
        asked(&pool, &upstream, 1, &wheel),
        Some(Turn::Alone)
    ));
    assert!(
        asked(&pool, &upstream, 1000, &wheel).is_none(),
        "of those, one is waited for"
    );
    drop(starting.pop());
    assert!(matches!(
        asked(&pool, &upstream, 1, &wheel),
        Some(Turn::Opens(_))
    ));
}

fn on_a_loop<T>(test: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .build()
        .expect("a runtime");
    tokio::task::LocalSet::new().block_on(&runtime, test)
}

#[test]
fn a_start_that_takes_too_long_is_waited_for_no_longer() {
    on_a_loop(async {
        let wheel = Wheel::new();
        let timer = KernelTimer::new().expect("a timer");
        tokio::task::spawn_local(Rc::clone(&wheel).run(timer));
        let start = Start::default();
        let turn = start.wait(&wheel, Duration::from_millis(1)).await;
        assert!(matches!(turn, Turn::Alone));
        assert!(start.waiting.borrow().is_empty());
    });
}

#[test]
fn so_many_are_kept() {
    on_a_loop(async {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let address = listener.local_addr().expect("it listens");
        let owner = wire::Loop::new();
        let options = ConnectOptions::default();
        let opened = connect(ConnectTo::Inet(address), &options, LONG, &owner).await;
        let Ok(opened) = opened else {
            panic!("it is not connected");
        };
        let (connection, _driver) = SharedConnection::new(opened, 4096, 8);
        let (pool, upstream, connection) = (SharedPool::default(), upstream(), Rc::new(connection));
        for _ in 0..=OPEN_MAX {
            pool.put(&upstream, &connection, key(1));
        }
        assert_eq!(pool.len(), OPEN_MAX);
        for framing in [Framing::None, Framing::Length(1 << 30), Framing::Chunked] {
            assert!(pool.take(&upstream, &key(1), framing).is_some());
            assert!(pool.take(&upstream, &key(2), framing).is_none());
        }
        assert!(pool.clear_idle());
        assert_eq!(pool.len(), 0);
    });
}
