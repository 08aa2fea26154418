//! Thousands of connections that are only held, idle or slow, while the scripts weigh the server.

use crate::client::{Client, Drain};
use bench::content::Bytes;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::Read;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;
use tokio::task::LocalSet;
use tokio::time::{Instant, sleep};

/// Receive buffer of a slow reader, in bytes, before the kernel doubles it (socket(7)).
const SLOW_WINDOW: u32 = 4096;
const SLOW_BYTES: u64 = 1024;

/// Opens `count` connections, has one answer over each, holds them until standard input ends.
pub async fn idle(address: SocketAddr, count: usize, target: &str) -> Result<Value, String> {
    let mut drain = Drain::new();
    let mut clients = Vec::with_capacity(count);
    for at in 0..count {
        let mut client = Client::connect(address, None)
            .await
            .map_err(|failure| format!("connection {at}: {}", failure.name()))?;
        let answer = client
            .exchange(target, false, &mut drain)
            .await
            .map_err(|failure| format!("request {at}: {}", failure.name()))?;
        if answer.status != 200 || answer.is_last {
            return Err(format!(
                "request {at}: status {}, closing: {}",
                answer.status, answer.is_last
            ));
        }
        clients.push(client);
    }
    hold(async {}).await?;
    let open = clients
        .iter_mut()
        .filter_map(|client| client.is_open().then_some(()))
        .count();
    Ok(json!({"connections": count, "still_open": open}))
}

/// Opens `count` connections that take a large answer 1 KiB per second each.
pub async fn slow(address: SocketAddr, count: usize, target: &str) -> Result<Value, String> {
    let mut drain = Drain::new();
    let mut clients = Vec::with_capacity(count);
    for at in 0..count {
        let mut client = Client::connect(address, Some(SLOW_WINDOW))
            .await
            .map_err(|failure| format!("connection {at}: {}", failure.name()))?;
        client
            .send(target, false)
            .await
            .map_err(|failure| format!("request {at}: {}", failure.name()))?;
        let head = client
            .take_head(&mut drain)
            .await
            .map_err(|failure| format!("answer {at}: {}", failure.name()))?;
        if head.status != 200 {
            return Err(format!("request {at}: status {}", head.status));
        }
        clients.push(client);
    }
    let mut cut = 0_usize;
    let reading = async {
        loop {
            sleep(Duration::from_secs(1)).await;
            for client in &mut clients {
                cut += usize::from(client.discard(SLOW_BYTES, &mut drain).await.is_err());
            }
        }
    };
    hold(reading).await?;
    Ok(json!({"connections": count, "cut": cut}))
}

/// Has `count` answers, of a target each, and takes each of them at `rate` bytes per second to its end. What came otherwise than the origin
/// makes it is counted by its failure.
pub async fn drip(
    address: SocketAddr,
    count: usize,
    target: &str,
    rate: u64,
) -> Result<Value, String> {
    let expected = Rc::new(Bytes::new());
    let local = LocalSet::new();
    let tasks: Vec<_> = (0..count)
        .map(|at| {
            let (target, expected) = (format!("{target}{at}"), Rc::clone(&expected));
            local.spawn_local(async move {
                let mut drain = Drain::checking(expected).paced(rate);
                let mut client = Client::connect(address, Some(SLOW_WINDOW)).await?;
                client.exchange(&target, true, &mut drain).await
            })
        })
        .collect();
    let mut failures = BTreeMap::<&str, u64>::new();
    let mut statuses = BTreeMap::<u16, u64>::new();
    let begun = Instant::now();
    local
        .run_until(async {
            for task in tasks {
                match task.await.map_err(|error| error.to_string())? {
                    Ok(answer) => *statuses.entry(answer.status).or_default() += 1,
                    Err(failure) => *failures.entry(failure.name()).or_default() += 1,
                }
            }
            Ok::<_, String>(())
        })
        .await?;
    Ok(json!({
        "connections": count, "statuses": statuses, "failures": failures, "seconds": begun.elapsed().as_secs_f64(),
    }))
}

/// Says that all stand, and goes on with `meanwhile` until standard input ends.
async fn hold(meanwhile: impl Future<Output = ()>) -> Result<(), String> {
    println!("ready");
    let (ended, end) = tokio::sync::oneshot::channel();
    std::thread::spawn(move || {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        let _ = ended.send(());
    });
    tokio::select! {
        () = async { meanwhile.await; std::future::pending().await } => Ok(()),
        done = end => done.map_err(|_| "the thread that reads standard input died".to_owned()),
    }
}
