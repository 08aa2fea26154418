//! `set_real_ip_from`: the client's address as a trusted proxy reports it. nginx-drop-in 50.
//!
//! All later steps see the new address: access rules, limits, logs and the requests to upstreams. Not here: how
//! addresses are parsed and which proxies are trusted ([`httpcore::trusted_proxies`]). Invariant: the address is replaced
//! at most once, and only for the request and its sub-requests.

use std::cell::{Cell, OnceCell};
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;

use bytes::Bytes;
use config::{Error, Flag, List, Placed, Problem, Scope, Value, Word, directives};
use disk::metrics::Number;
use message::HeaderId;
use runtime::timing::counters::{COUNTERS, sums};
use runtime::{families, label_values};
use slots::slotted;
use smallvec::SmallVec;

use httpcore::client::Client;
use httpcore::handler::metrics::ModuleMetrics;
use httpcore::request::Request;
use httpcore::request::state::State;
use httpcore::settings::Location;
use httpcore::trusted_proxies::{self, Trusted};
use httpcore::variables::append::port;

/// The source of the address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Header {
    /// `X-Forwarded-For`, whose lines form one list.
    XForwardedFor,
    /// The header of the PROXY protocol.
    ProxyProtocol,
    /// The first line of this name.
    Named(Bytes),
}

impl Value for Header {
    const SYNTAX: &'static str = "field | X-Real-IP | X-Forwarded-For | proxy_protocol";

    fn parse(args: &[Word], _: &mut Scope) -> Result<Self, Problem> {
        Ok(match &args[0].bytes()[..] {
            b"X-Forwarded-For" => Self::XForwardedFor,
            b"proxy_protocol" => Self::ProxyProtocol,
            _ => Self::Named(args[0].bytes().clone()),
        })
    }
}

directives! {
    /// Client address behind proxies (real_ip).
    pub struct RealIp in Location {
        /// Trusts the client address given by proxies with this address, in this network, or connected through a unix
        /// socket. A host name stands for all its addresses. A level with lines of its own inherits none.
        set_real_ip_from: List<Placed<Trusted>> = none, [HTTP | SERVER | LOCATION] 1;
        /// Sets the header field from which the client address is taken. Of a list (`X-Forwarded-For`) the last address
        /// is used. `proxy_protocol` takes it from the PROXY protocol (`listen … proxy_protocol`).
        real_ip_header: Header = "X-Real-IP", [HTTP | SERVER | LOCATION] 1;
        /// Uses the last address of the list that is not itself trusted.
        real_ip_recursive: Flag = "off", [HTTP | SERVER | LOCATION] FLAG;
    }
}

httpcore::variables! {
    /// The address of the connection's client, regardless of `real_ip_header`.
    "realip_remote_addr" => fresh(append_address);
    /// The port of the connection's client, regardless of `real_ip_header`.
    "realip_remote_port" => fresh(|request, out| port(connected(request).port(), out));
}

/// The outcome for a request and its sub-requests.
#[derive(Default)]
struct RealIpState {
    /// The client of the connection itself, once `real_ip_header` has named the one behind it; and that one.
    clients: OnceCell<(Rc<Client>, Rc<Client>)>,
    /// Whether a trusted proxy named something that is no address, and that was counted.
    is_misnamed: Cell<bool>,
}

impl State for RealIpState {}

/// Resolves the trusted proxies that are given by host name.
///
/// # Errors
/// A host that is not found, at its line.
pub fn settle(
    locations: &[Location],
    resolve: &mut dyn FnMut(&str) -> Vec<IpAddr>,
) -> Result<(), Error> {
    for location in locations {
        for line in location.own::<RealIp>().set_real_ip_from.iter() {
            let settled = line.value.settle(resolve);
            settled.map_err(|sentence| line.error(sentence))?;
        }
    }
    Ok(())
}

/// Whether a location has trusted proxies.
#[must_use]
pub fn is_on(location: &Location) -> bool {
    !location.own::<RealIp>().set_real_ip_from.is_empty()
}

/// Replaces the client's address, if a trusted client names another one.
pub fn run(request: &mut Request) {
    let settings = request.location().own::<RealIp>();
    if settings.set_real_ip_from.is_empty() {
        return;
    }
    // It may have been named in a sub-request.
    let known = clients(request).map(|(_, named)| Rc::clone(named));
    if let Some(named) = known {
        request.client = named;
        return;
    }
    let address = match named(request, settings) {
        Ok(address) => address,
        Err(NoAddress { is_invalid }) => {
            let state = request.family_states().get_or_default::<RealIpState>();
            if is_invalid && !state.is_misnamed.replace(true) {
                count(request, HeaderOutcome::Invalid);
            }
            return;
        }
    };
    count(request, HeaderOutcome::Replaced);
    let client = Rc::new(request.client.behind(address));
    let connected = std::mem::replace(&mut request.client, Rc::clone(&client));
    let state = request.family_states().get_or_default::<RealIpState>();
    state.clients.get_or_init(|| (connected, client));
}

/// Counts for the client's request only: its sub-requests are the same request.
fn count(request: &Request, came: HeaderOutcome) {
    if !request.is_subrequest() {
        let counters = request.client.loop_.figures.of::<NamedCounters>();
        counters.0[came as usize].add(1);
    }
}

label_values! {
    /// The outcome of a header in which a trusted proxy names its client.
    enum HeaderOutcome {
        /// The client's address was replaced.
        Replaced = "replaced",
        /// There is no address in it.
        Invalid = "invalid",
    }
}

/// The counters of one loop.
#[derive(Debug, Default)]
struct NamedCounters([Number; HeaderOutcome::ALL.len()]);

slotted!(COUNTERS: NamedCounters);

families! {
    /// The families of these counters.
    FAMILIES;
    REAL_IP Counter "freewheel_real_ip_requests" "" ["outcome"] "Requests for which a trusted proxy (set_real_ip_from) gave a client address: replaced, or not an address (invalid).";
}

/// How they are shown.
pub static METRICS: ModuleMetrics = ModuleMetrics {
    families: FAMILIES,
    show: |shown, page| {
        let counts = sums(&shown.loops::<NamedCounters>(), |counters| &counters.0);
        let uses = |location: &Location| !location.own::<RealIp>().set_real_ip_from.is_empty();
        if counts != [0; HeaderOutcome::ALL.len()] || shown.is_any_location(uses) {
            for (came, count) in HeaderOutcome::ALL.iter().zip(counts) {
                page.whole(&REAL_IP, &[came.name()], count);
            }
        }
    },
};

/// No address was named, or the client that named it is not trusted.
struct NoAddress {
    /// Whether a trusted client sent a value that is not an address.
    is_invalid: bool,
}

/// The address that a trusted client names.
fn named(request: &Request, settings: &RealIp) -> Result<SocketAddr, NoAddress> {
    let head = &request.head;
    let proxied = request.client.proxied();
    let lines: SmallVec<[&[u8]; 4]> = match &settings.real_ip_header {
        Header::XForwardedFor => head.get_each(HeaderId::XForwardedFor).collect(),
        Header::ProxyProtocol => proxied
            .iter()
            .map(|said| &said.source.address[..])
            .collect(),
        Header::Named(name) => head.get_all(name).take(1).collect(),
    };
    let found = trusted_proxies::find(
        request.client.peer,
        &lines,
        &settings.set_real_ip_from,
        settings.real_ip_recursive,
    );
    let found = found.ok_or_else(|| NoAddress {
        is_invalid: !lines.is_empty()
            && trusted_proxies::is_trusted(request.client.peer, &settings.set_real_ip_from),
    })?;
    Ok(match (&settings.real_ip_header, proxied) {
        (Header::ProxyProtocol, Some(said)) => SocketAddr::new(found.ip(), said.source.port),
        _ => found,
    })
}

fn append_address(request: &Request, out: &mut Vec<u8>) -> bool {
    connected(request).append_remote_addr(out);
    true
}

/// The peer of the connection itself.
#[must_use]
pub fn connected(request: &Request) -> &Client {
    clients(request).map_or(&request.client, |(connected, _)| connected)
}

/// The client of the connection, and the one behind it.
fn clients(request: &Request) -> Option<&(Rc<Client>, Rc<Client>)> {
    let state = request.family_states_if_any()?.get::<RealIpState>()?;
    state.clients.get()
}
