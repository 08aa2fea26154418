//! `load`: the load of the benchmarks, where what a general tool measures is not the question: latency from the *intended* start,
//! several kinds of clients at once, kept and fresh connections, thousands of idle or slow ones.
//!
//! Not a benchmark by itself: the scripts beside it start servers, call it and judge. One thread, so that it is pinned to one core.
//! Invariant: every request that was sent is accounted for, as an answer or as one kind of failure. Prints one JSON object.

mod client;
mod figures;
mod group;
mod hold;
mod http2;
mod link;
mod protocol;
mod run;

use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::Duration;

const USAGE: &str = "\
usage: load [--tls] [--http2] VERB …
         over TLS, with a full handshake for each connection; HTTP/2, one stream of a connection at a time
       load run ADDRESS SECONDS[+GRACE] GROUP…
         for SECONDS; what is open then may still be answered for GRACE more (1)
         GROUP = name=N,connections=C,targets=FILE[,fresh|opened][,order=random|turn][,rate=R][,seed=S][,exact][,check][,count=M][,within=N]
         closed loop, or R requests per second in all whatever the answers take, evenly or by chance (seed); M requests at most;
         exact: started to the microsecond, busy; check: bodies compared with the origin's; within: counted under that name, too;
         opened: all connections are there before the run begins; targets: one request target per line
       load once ADDRESS CONNECTIONS TARGET [check]
         one request over each of them, all at the same moment
       load idle ADDRESS CONNECTIONS TARGET
         one kept connection each, after one answer; prints `ready`; holds them until standard input ends
       load slow ADDRESS CONNECTIONS TARGET
         readers that take 1 KiB per second from a small window; else as idle
       load drip ADDRESS CONNECTIONS TARGET BYTES_PER_SECOND
         one answer each, TARGET with the reader's number behind it, taken at that rate from a small window and compared with the origin's";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("the system gives an epoll descriptor");
    match runtime.block_on(dispatch(protocol::take(&arguments))) {
        Ok(json) => {
            println!("{json}");
            ExitCode::SUCCESS
        }
        Err(message) => {
            eprintln!("load: {message}");
            ExitCode::FAILURE
        }
    }
}

async fn dispatch(arguments: &[String]) -> Result<serde_json::Value, String> {
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["run", address, seconds, groups @ ..] if !groups.is_empty() => {
            let (seconds, grace) = seconds.split_once('+').unwrap_or((seconds, "1"));
            let (seconds, grace) = (
                Duration::from_secs_f64(number(seconds)?),
                Duration::from_secs_f64(number(grace)?),
            );
            let groups = groups
                .iter()
                .map(|text| group::Group::parse(text))
                .collect::<Result<Vec<_>, _>>()?;
            run::run(parse_address(address)?, seconds, grace, groups).await
        }
        ["once", address, connections, target, check @ ..] if matches!(check, [] | ["check"]) => {
            let is_checked = !check.is_empty();
            run::once(
                parse_address(address)?,
                number(connections)?,
                target,
                is_checked,
            )
            .await
        }
        ["idle", address, connections, target] => {
            hold::idle(parse_address(address)?, number(connections)?, target).await
        }
        ["slow", address, connections, target] => {
            hold::slow(parse_address(address)?, number(connections)?, target).await
        }
        ["drip", address, connections, target, rate] => {
            let rate = number(rate)?;
            hold::drip(parse_address(address)?, number(connections)?, target, rate).await
        }
        _ => Err(USAGE.to_owned()),
    }
}

fn parse_address(text: &str) -> Result<SocketAddr, String> {
    text.parse()
        .map_err(|_| format!("{text}: not ADDRESS:PORT"))
}

fn number<T: std::str::FromStr>(text: &str) -> Result<T, String> {
    text.parse().map_err(|_| format!("{text}: not a number"))
}
