//! `freewheel -t --explain-url URL`: the fate of a request, and the lines of the configuration that decide it.
//!
//! The steps are the server's own ([`crate::steps`]) with an observer, run for a request that comes over a socket pair
//! inside this process. Nothing is sent, no other server is asked and nothing is written. Not here: those steps.
//! Invariant: a step that would ask another server, or change a file, is reported and not carried out.

mod answer;
mod findings;
mod lines;
mod observer;
mod passing;
mod report;
mod tls;
mod values;

use std::io::Write as _;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;

use disk::Disk;
use logs::Logs;
use runtime::listen::Address;
use runtime::{Ledger, Listener, Loop, Shared, SocketType};

use crate::process::load::Loaded;
use crate::process::pools::define_pools;
use crate::steps::Steps;
use crate::steps::respond::respond;
use httpcore::client::{Client, Scheme};
use httpcore::connection::{self, Started};
use httpcore::http_loop::HttpLoop;
use httpcore::http_loop::generation::Generation;
use httpcore::outcome::Start;
use httpcore::request::Request;
use httpcore::responder::Responder as _;
use httpcore::route::ServerId;
use httpcore::status_zone;
use httpcore::transport::http1::Link;
use httpcore::transport::{Http1, Transport};
use lines::Lines;
use observer::Observer;
pub(crate) use report::CacheQuestion;
use report::{Report, shown};

/// Maximum bytes of a request that is explained; it must fit into a socket's buffer.
const REQUEST_BYTES_MAX: usize = 64 << 10;
/// The port from which the request comes.
const CLIENT_PORT: u16 = 50_000;

/// The question: a request to explain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Question {
    /// `http://HOST[:PORT]/PATH?ARGS`, or the same with `https`.
    pub url: String,
    /// The method.
    pub method: String,
    /// Header lines, `Name: value`.
    pub headers: Vec<String>,
    /// The client's address.
    pub from: IpAddr,
}

/// The parts of a URL.
struct UrlParts {
    host: String,
    port: u16,
    target: String,
    is_https: bool,
}

/// Explains a request to a configuration.
///
/// # Errors
/// The URL cannot be parsed, nothing listens there, or this process lacks resources that it needs.
pub(crate) fn explain(loaded: &Loaded, question: &Question) -> Result<String, String> {
    reported(loaded, question).map(Report::into_text)
}

/// What a cache would be asked for a request, and the lines of the configuration that say so; `None`: the request has
/// no cache.
///
/// # Errors
/// As [`explain`].
pub(crate) fn cache_question(
    loaded: &Loaded,
    question: &Question,
) -> Result<(String, Option<CacheQuestion>), String> {
    reported(loaded, question).map(Report::into_cache)
}

fn reported(loaded: &Loaded, question: &Question) -> Result<Report, String> {
    let asked = asked(&question.url)?;
    let bytes = request_of(question, &asked)?;
    let fault = |error: std::io::Error| error.to_string();
    let logs = Logs::start().map_err(fault)?;
    let disk = Disk::new(Disk::prepare());
    define_pools(&loaded.main.processes, &disk);
    let ledger = Arc::<Ledger>::default();
    let shared = Shared { logs, disk, ledger };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .build_local(tokio::runtime::LocalOptions::default())
        .map_err(fault)?;
    runtime.block_on(async {
        let loop_ = Loop::alone(&shared).map_err(fault)?;
        let generation = Generation::new(1, Arc::clone(&loaded.settings));
        Steps::install(&loop_);
        let http = HttpLoop::new(&loop_, generation, status_zone::zones(&shared.ledger));
        told(loaded, question, &asked, &bytes, (loop_, http)).await
    })
}

/// Parses a URL.
fn asked(url: &str) -> Result<UrlParts, String> {
    let parts = url.split_once("://");
    let known = parts.and_then(|(name, rest)| Some((Scheme::named(name.as_bytes())?, rest)));
    let Some((scheme, rest)) = known else {
        return Err(format!("\"{url}\" does not begin with http:// or https://"));
    };
    let port = scheme.default_port();
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, target) = rest.split_at(end);
    let target = target.split('#').next().unwrap_or_default();
    let target = match target.starts_with('/') {
        true => target.to_owned(),
        false => format!("/{target}"),
    };
    let bracket = authority.rfind(']').map_or(0, |at| at + 1);
    let (host, port) = match authority[bracket..].split_once(':') {
        Some((host, port)) => {
            let number = port.parse().map_err(|_| format!("\"{port}\" is no port"))?;
            (format!("{}{host}", &authority[..bracket]), number)
        }
        None => (authority.to_owned(), port),
    };
    if host.is_empty() {
        return Err(format!("\"{url}\" names no host"));
    }
    Ok(UrlParts {
        host,
        port,
        target,
        is_https: scheme == Scheme::Https,
    })
}

/// The request as a client would send it.
fn request_of(question: &Question, asked: &UrlParts) -> Result<Vec<u8>, String> {
    let UrlParts {
        host, port, target, ..
    } = asked;
    let mut text = format!("{} {target} HTTP/1.1\r\n", question.method);
    let has_host = |line: &&String| line.to_ascii_lowercase().starts_with("host:");
    if !question.headers.iter().any(|line| has_host(&line)) {
        match port {
            80 | 443 => text.push_str(&format!("Host: {host}\r\n")),
            _ => text.push_str(&format!("Host: {host}:{port}\r\n")),
        }
    }
    for line in &question.headers {
        if line.contains(['\r', '\n']) || !line.contains(':') {
            return Err(format!("\"{}\" is no header line", line.escape_debug()));
        }
        text.push_str(&format!("{line}\r\n"));
    }
    text.push_str("\r\n");
    if text.len() > REQUEST_BYTES_MAX {
        return Err(format!(
            "the request is longer than {REQUEST_BYTES_MAX} bytes"
        ));
    }
    Ok(text.into_bytes())
}

/// The address that is connected to: one that is listened on at the port; the host itself if it is an address.
fn address(loaded: &Loaded, asked: &UrlParts) -> Result<SocketAddr, String> {
    let entries = loaded.settings.listens.entries();
    let inet = |address: &Address| match address {
        Address::Inet(address) => Some(*address),
        Address::Unix(_) => None,
    };
    let all: Vec<SocketAddr> = entries
        .iter()
        .filter_map(|entry| inet(&entry.address))
        .collect();
    let literal = asked.host.trim_matches(['[', ']']).parse::<IpAddr>().ok();
    if let Some(ip) = literal {
        let local = SocketAddr::new(ip, asked.port);
        if loaded
            .settings
            .listens
            .find(&Address::Inet(local))
            .is_some()
        {
            return Ok(local);
        }
    } else if let Some(found) = all.iter().find(|address| address.port() == asked.port) {
        return Ok(match found.ip().is_unspecified() {
            true => SocketAddr::new([127, 0, 0, 1].into(), found.port()),
            false => *found,
        });
    }
    let known: Vec<String> = entries
        .iter()
        .map(|entry| entry.address.to_string())
        .collect();
    Err(format!(
        "nothing listens on {}:{}: the connection would be refused; there are {}",
        asked.host,
        asked.port,
        known.join(", ")
    ))
}

async fn told(
    loaded: &Loaded,
    question: &Question,
    asked: &UrlParts,
    bytes: &[u8],
    (loop_, http): (Rc<Loop>, Rc<HttpLoop>),
) -> Result<Report, String> {
    let fault = |error: std::io::Error| error.to_string();
    let local = address(loaded, asked)?;
    let (mut client_end, server_end) = std::os::unix::net::UnixStream::pair().map_err(fault)?;
    client_end.set_nonblocking(true).map_err(fault)?;
    client_end.write_all(bytes).map_err(fault)?;
    server_end.set_nonblocking(true).map_err(fault)?;
    let stream = tokio::net::UnixStream::from_std(server_end).map_err(fault)?;
    let mut link = Box::new(Link {
        wire: wire::Connection::new(wire::Stream::from(stream), &loop_.wire),
        place: loop_.idle.place(),
        is_pipelined: false,
    });
    let generation = http.generation();
    let listener = Arc::new(Listener {
        address: Address::Inet(local),
        socket_type: SocketType::Stream,
    });
    let peer = SocketAddr::new(question.from, CLIENT_PORT);
    let client = Rc::new(Client::new(
        loop_,
        http,
        1,
        Some(peer),
        Some(local),
        listener,
    ));
    let entry = client.entry(&generation);
    let is_ssl = |entry: &usize| {
        let entries = generation.settings.listens.entries();
        entries[*entry].protocols.has_ssl
    };
    if let Some(entry) = entry.filter(|entry| asked.is_https && is_ssl(entry)) {
        tls::begin(
            &client,
            &asked.host,
            generation.number,
            &generation.settings,
            entry,
        );
    }
    let read = connection::read(&mut link, &client, &generation).await;
    let (head, server, start) = read.map_err(|error| format!("{error:?}"))?;
    client.requests.set(1);
    let lines = Lines::new(loaded, crate::process::tables());
    let mut report = Report::default();
    report.say("request", shown(head.line()));
    report.say("from", format!("{} to {local}", question.from));
    let transport = Transport::Http1(Http1::new(link, &head, false));
    let mut request = Request::new(transport, client, generation, head, server);
    let start = connection::capture_server_name(&request, start);
    tls::tell(&request, asked.is_https, &lines, &mut report);
    tell_server(&request, server, &lines, &mut report);
    match start {
        Started::Fresh => report = observed(&mut request, &lines, report).await,
        Started::Refused(refusal) => {
            report.say("refused", format!("{}: {}", refusal.status, refusal.why));
        }
    }
    values::tell(&request, &lines, &mut report);
    Ok(report)
}

/// Runs the steps, reports them and the response.
async fn observed(request: &mut Request, lines: &Lines<'_>, report: Report) -> Report {
    let observer = Observer::new(request, lines, report);
    let response = respond(request, Start::Fresh, &observer).await;
    let (mut report, is_made) = observer.into_report();
    match (response, request.silent_status) {
        (Some(response), _) => answer::tell_answer(request, response, lines, &mut report),
        (None, Some(status)) if is_made => {
            let text = format!("none: the connection is closed (logs say {status})");
            report.say("answer", text);
        }
        // The response is not known.
        (None, _) => request.silent_status = None,
    }
    report
}

/// Reports the server, and the address and name that chose it.
fn tell_server(request: &Request, server: ServerId, lines: &Lines<'_>, report: &mut Report) {
    let settings = request.settings();
    let Some(entry) = request.client.entry(&request.generation) else {
        return;
    };
    let entry = &settings.listens.entries()[entry];
    let chain = lines.around(settings, settings.server(server).location);
    let own = chain.last().copied();
    let listens: Vec<_> = own
        .into_iter()
        .flat_map(|block| lines::named(block, &["listen"]))
        .collect();
    report.say_by("listen", entry.address.to_string(), &listens);
    let names: Vec<_> = own
        .into_iter()
        .flat_map(|block| lines::named(block, &["server_name"]))
        .collect();
    let host = request.head.host().unwrap_or_default();
    let found = settings
        .listens
        .entries()
        .iter()
        .position(|one| one == entry);
    let named = found.and_then(|at| settings.names[at].find(host).ok()?);
    let why = match named {
        Some(named) if named.regex.is_some() => {
            "a regular expression among its names matches the host"
        }
        Some(_) => "one of its names is that of the host",
        None if entry.servers.len() == 1 => "the only one at this address",
        None => "the default server of this address, since no name is that of the host",
    };
    let name = &settings.server(server).name;
    let text = format!("\"{}\": {why}, \"{}\"", shown(name), shown(host));
    report.say_by("server", text, own.as_slice());
    report.by(&names);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_taken_apart() {
        let parts = |url: &str| asked(url).map(|asked| (asked.host, asked.port, asked.target));
        let of = |host: &str, port, target: &str| Ok((host.to_owned(), port, target.to_owned()));
        assert_eq!(parts("http://a/b?c#d"), of("a", 80, "/b?c"));
        assert_eq!(parts("https://a"), of("a", 443, "/"));
        assert_eq!(parts("http://a:81?x"), of("a", 81, "/?x"));
        assert_eq!(parts("http://[::1]:8080/"), of("[::1]", 8080, "/"));
        assert!(parts("ftp://a/").is_err());
        assert!(parts("http:///x").is_err());
        assert!(parts("http://a:x/").is_err());
    }
}
