//! The clients: so many tasks, each with a connection after the other.

use crate::connect::{Addresses, Connection};
use crate::{dav, exchange, findings, pipeline, tunnel};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

/// Requests of a connection, and streams at a time.
const REQUESTS_MAX: usize = 30;
const STREAMS_MAX: usize = 16;
/// The location where files are put.
const DAV: &str = "/dav/";
/// After a connection that could not be made.
const PAUSE: Duration = Duration::from_millis(20);

/// Locations, and where they are.
struct Plan {
    addresses: Addresses,
    locations: Vec<String>,
}

/// Goes on for so many seconds, and prints what was found.
#[expect(clippy::disallowed_methods, reason = "no client runs yet")]
pub async fn run(
    seconds: &str,
    tasks: &str,
    addresses: [&str; 3],
    locations: &str,
) -> Result<(), String> {
    let seconds: f64 = seconds
        .parse()
        .map_err(|_| format!("{seconds}: no number"))?;
    let tasks: usize = tasks.parse().map_err(|_| format!("{tasks}: no number"))?;
    let mut found = Vec::new();
    for address in addresses {
        let address: SocketAddr = address
            .parse()
            .map_err(|_| format!("{address}: no address"))?;
        found.push(address);
    }
    let text = std::fs::read_to_string(locations).map_err(|e| format!("{locations}: {e}"))?;
    let plan = Arc::new(Plan {
        addresses: [found[0], found[1], found[2]],
        locations: text.lines().map(str::to_owned).collect(),
    });
    let until = Instant::now() + Duration::from_secs_f64(seconds);
    let mut clients = JoinSet::new();
    for _ in 0..tasks {
        clients.spawn(client(Arc::clone(&plan), until));
    }
    while clients.join_next().await.is_some() {}
    println!("{}", findings::report());
    Ok(())
}

async fn client(plan: Arc<Plan>, until: Instant) {
    while Instant::now() < until {
        match fastrand::u8(..20) {
            0 => pipeline::run(plan.addresses[0]).await,
            1 => tunnel::run(&plan.addresses).await,
            _ => match Connection::open(&plan.addresses).await {
                Ok(connection) => talk(&plan, connection, until).await,
                Err(error) => {
                    findings::count(format!("no connection: {error}"));
                    sleep(PAUSE).await;
                }
            },
        }
    }
}

/// Some requests: one after the other, or several at a time.
async fn talk(plan: &Arc<Plan>, connection: Connection, until: Instant) {
    let mut left = fastrand::usize(1..=REQUESTS_MAX);
    let mut kept = Some(connection);
    while let Some(connection) = kept.take()
        && left > 0
        && Instant::now() < until
    {
        let at_a_time = fastrand::usize(1..=STREAMS_MAX.min(left));
        let mut streams = JoinSet::new();
        for _ in 0..at_a_time {
            let Some(another) = connection.another() else {
                break;
            };
            streams.spawn(ask(Arc::clone(plan), another));
        }
        if streams.is_empty() {
            left -= 1;
            kept = ask(Arc::clone(plan), connection).await;
            continue;
        }
        left -= at_a_time;
        while streams.join_next().await.is_some() {}
        kept = connection.is_open().then_some(connection);
    }
}

async fn ask(plan: Arc<Plan>, connection: Connection) -> Option<Connection> {
    let location = &plan.locations[fastrand::usize(..plan.locations.len())];
    if location == DAV {
        dav::ask(connection, location).await
    } else {
        exchange::ask(connection, location).await
    }
}
