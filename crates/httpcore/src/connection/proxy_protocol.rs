//! The header of the PROXY protocol that a connection begins with (`listen … proxy_protocol`), read and counted.
//!
//! Not here: its format ([`crate::client::proxy_protocol`]).

use disk::metrics::Number;
use logs::Level;
use runtime::timing::counters::{COUNTERS, sums};
use runtime::{Waiting, families, label_values};
use slots::slotted;

use crate::client::Client;
use crate::client::proxy_protocol::{HEADER_BYTES_MAX, Parsed, parse};
use crate::handler::metrics::ModuleMetrics;
use crate::http_loop::generation::Generation;
use crate::transport::http1::Link;

/// Whether the client's listener expects a header first.
pub fn is_due(client: &Client) -> bool {
    let generation = client.generation();
    let entry = client.entry(&generation);
    entry.is_some_and(|entry| {
        generation.settings.listens.entries()[entry]
            .protocols
            .has_proxy_protocol
    })
}

/// Reads the header; `false`: the connection is over.
pub async fn read(link: &mut Link, client: &Client) -> bool {
    let Link { wire, place, .. } = link;
    let generation = client.generation();
    let Some(entry) = client.entry(&generation) else {
        return false;
    };
    let settings = &generation.settings;
    let server = settings.server(settings.listens.entries()[entry].default);
    let timeout = server.settings.client_header_timeout.duration();
    let max = server
        .limits
        .client_header_buffer_size
        .max(HEADER_BYTES_MAX);
    let idle = place.enter(Waiting::New);
    let parse = |bytes: &[u8]| match parse(bytes, max) {
        Parsed::More => None,
        Parsed::Header(length, said) => Some((length, Ok(said))),
        Parsed::Broken(why) => Some((0, Err(why))),
    };
    let outcome = tokio::select! {
        biased;
        outcome = wire.read_prologue(timeout, parse) => outcome,
        () = idle.told() => return false,
    };
    let came = match &outcome {
        Ok(Ok(_)) => Prologue::Read,
        Ok(Err(_)) => Prologue::Broken,
        Err(_) => Prologue::Missing,
    };
    let counters = client.loop_.figures.of::<PrologueCounters>();
    counters.0[came as usize].add(1);
    let tell = |level: Level, text: &str| tell(client, &generation, level, text);
    match outcome {
        Ok(Ok(said)) => {
            if let Some(said) = said {
                client.set_proxied(said);
            }
            return true;
        }
        Ok(Err(Some(why))) => tell(Level::Error, &why),
        Ok(Err(None)) => {}
        Err(wire::Error::Closed) => tell(Level::Info, "client closed connection"),
        Err(wire::Error::Timeout) => {
            tell(Level::Info, "client timed out (110: Connection timed out)");
        }
        Err(wire::Error::Io(error)) => tell(Level::Info, &wire::call_failed("recv", &error)),
        Err(error) => tell(Level::Info, &error.to_string()),
    }
    false
}

fn tell(client: &Client, generation: &Generation, level: Level, text: &str) {
    client.log(
        generation,
        level,
        &format!("{text} while reading PROXY protocol"),
    );
}

label_values! {
    /// What came before the first request of a connection.
    enum Prologue {
        /// A header of the PROXY protocol.
        Read = "read",
        /// Something else.
        Broken = "broken",
        /// Not enough, and then nothing more.
        Missing = "missing",
    }
}

/// The counters of one loop.
#[derive(Debug, Default)]
struct PrologueCounters([Number; Prologue::ALL.len()]);

slotted!(COUNTERS: PrologueCounters);

families! {
    /// The families of these counters.
    FAMILIES;
    PROXY_PROTOCOL Counter "freewheel_proxy_protocol_connections" "" ["outcome"] "Beginning of connections with the PROXY protocol: its header (read), other data (broken), nothing in time (missing).";
}

/// How they are shown.
pub static METRICS: ModuleMetrics = ModuleMetrics {
    families: FAMILIES,
    show: |shown, page| {
        let counts = sums(&shown.loops::<PrologueCounters>(), |counters| &counters.0);
        let is_used = shown.settings.is_some_and(|settings| {
            let mut entries = settings.listens.entries().iter();
            entries.any(|entry| entry.protocols.has_proxy_protocol)
        });
        if is_used || counts != [0; Prologue::ALL.len()] {
            for (came, count) in Prologue::ALL.iter().zip(counts) {
                page.whole(&PROXY_PROTOCOL, &[came.name()], count);
            }
        }
    },
};
