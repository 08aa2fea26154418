//! Queries to name servers: over UDP, over TCP for answers that do not fit, the next server after 5 seconds, aliases
//! followed to their end.
//!
//! Not here: the waiting tasks and their timeouts ([`super::Resolver`]). Invariant: a look-up ends when it is answered
//! or when no task waits any more; an answer that does not match our query by id, name and type is ignored.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use logs::append_os_error;
use logs::process_log::{Level, error_log};
use smallvec::SmallVec;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UdpSocket};
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep_until, timeout_at};

use super::cache::{
    Query, ResolveError, ResolvedAddress, ResolvedName, Resolver, ServiceServer, now_s,
};
use super::dns_message::{self, DnsAnswer, MESSAGE_MAX, RecordData, RecordType};

/// Time after which the next server is asked.
const RESEND: Duration = Duration::from_secs(5);
/// Maximum length of a chain of aliases.
const ALIASES_MAX: usize = 50;
/// Maximum number of records that are used of one answer.
const RECORDS_MAX: usize = 1024;
/// Maximum number of addresses of all servers of a service.
const TARGETS_MAX: usize = 2 * RECORDS_MAX;
/// Maximum number of sockets that are open at a time, each for one question. A further question waits for a socket as
/// it would for its answer.
const SOCKETS_MAX: usize = 1024;
static SOCKETS: Semaphore = Semaphore::const_new(SOCKETS_MAX);

/// Looks a name up and answers the waiting tasks, of which the first one waits for `timeout`.
pub(crate) async fn run(resolver: Arc<Resolver>, question: Query, timeout: Duration) {
    let look_up = LookUp {
        resolver: &resolver,
        question: &question,
    };
    let outcome = match question.is_service() {
        true => look_up.service(Instant::now() + timeout).await,
        false => look_up.host().await,
    };
    if let Some(outcome) = outcome {
        resolver.answer(&question, outcome.map(Arc::new));
    }
}

/// `None`: no task waits any more.
type Answered<T> = Option<Result<T, ResolveError>>;

struct LookUp<'a> {
    resolver: &'a Arc<Resolver>,
    question: &'a Query,
}

/// One question (name and type), and its answer.
struct TypedQuery {
    id: u16,
    kind: RecordType,
    message: Vec<u8>,
    answer: Option<DnsAnswer>,
}

/// The result for one name, without its aliases.
struct NameRecords {
    targets: Vec<RecordData>,
    alias: Option<String>,
    ttl: u32,
}

impl LookUp<'_> {
    async fn host(&self) -> Answered<ResolvedName> {
        let rules = &self.resolver.rules;
        let mut kinds = SmallVec::<[RecordType; 2]>::new();
        kinds.extend(rules.ipv4.then_some(RecordType::A));
        kinds.extend(rules.ipv6.then_some(RecordType::Aaaa));
        let (records, valid_s) = match self.follow(&kinds).await? {
            Ok(found) => found,
            Err(unresolved) => return Some(Err(unresolved)),
        };
        let targets = records.iter().filter_map(|data| match data {
            RecordData::A(ip) => Some(IpAddr::from(*ip)),
            RecordData::Aaaa(ip) => Some(IpAddr::from(*ip)),
            RecordData::Alias(_) | RecordData::Srv { .. } | RecordData::Other => None,
        });
        let target = |ip| ResolvedAddress { ip, server: None };
        Some(Ok(ResolvedName {
            targets: targets.map(target).collect(),
            lost: Vec::new(),
            valid_s,
        }))
    }

    /// The servers of a service. Their names are looked up at the same time; those that are not found in time for the
    /// tasks that wait are lost, and no other.
    async fn service(&self, deadline: Instant) -> Answered<ResolvedName> {
        let (records, valid_s) = match self.follow(&[RecordType::Srv]).await? {
            Ok(found) => found,
            Err(unresolved) => return Some(Err(unresolved)),
        };
        let mut servers: Vec<ServiceServer> = records.into_iter().filter_map(server).collect();
        servers.sort_by_key(|server| server.priority);
        let mut found = ResolvedName {
            valid_s,
            ..ResolvedName::default()
        };
        let left = deadline.saturating_duration_since(Instant::now());
        let part = (left - left / 4).min(RESEND * 2);
        let asked = servers.into_iter().map(|server| {
            let question = Query::host(&server.name);
            (server, self.resolver.ask(question, part))
        });
        let asked: Vec<_> = asked.collect();
        let deadline = Instant::now() + part;
        for (server, reply) in asked {
            if found.targets.len() >= TARGETS_MAX {
                break;
            }
            match reply.by(deadline).await {
                Ok(addresses) => {
                    found.valid_s = found.valid_s.min(addresses.valid_s);
                    let server = Some(Arc::new(server));
                    found
                        .targets
                        .extend(addresses.targets.iter().map(|target| ResolvedAddress {
                            ip: target.ip,
                            server: server.clone(),
                        }));
                }
                Err(unresolved) => found.lost.push((server.name, unresolved)),
            }
        }
        found.targets.truncate(TARGETS_MAX);
        if found.targets.is_empty() {
            let reasons = found.lost.iter().map(|(_, reason)| *reason);
            let first = reasons.clone().next().unwrap_or(ResolveError::NOT_FOUND);
            let is_gone = reasons.into_iter().any(|r| r == ResolveError::NOT_FOUND);
            return Some(Err(if is_gone {
                ResolveError::NOT_FOUND
            } else {
                first
            }));
        }
        Some(Ok(found))
    }

    /// The records of the name or of its alias, and the time until which they hold. A chain of aliases that leads back
    /// ends there.
    async fn follow(&self, kinds: &[RecordType]) -> Answered<(Vec<RecordData>, i64)> {
        let mut name = self.question.name().to_owned();
        let mut seen = Vec::new();
        let mut ttl = u32::MAX;
        for _ in 0..=ALIASES_MAX {
            let step = match self.step(&name, kinds).await? {
                Ok(step) => step,
                Err(unresolved) => return Some(Err(unresolved)),
            };
            ttl = ttl.min(step.ttl);
            match step.alias {
                Some(alias) if step.targets.is_empty() => {
                    seen.push(std::mem::replace(&mut name, alias));
                    if seen.contains(&name) {
                        break;
                    }
                }
                _ if step.targets.is_empty() => break,
                _ => {
                    let holds_s = self.resolver.rules.valid_s.unwrap_or(i64::from(ttl));
                    let valid_s = now_s().saturating_add(holds_s);
                    return Some(Ok((step.targets, valid_s)));
                }
            }
        }
        Some(Err(ResolveError::NOT_FOUND))
    }

    /// Asks one server after the other for one name.
    async fn step(&self, name: &str, kinds: &[RecordType]) -> Answered<NameRecords> {
        let mut parts = SmallVec::<[TypedQuery; 2]>::new();
        for kind in kinds {
            let id = random_id();
            let Some(message) = dns_message::question(id, name, *kind) else {
                return Some(Err(ResolveError::NOT_FOUND));
            };
            parts.push(TypedQuery {
                id,
                kind: *kind,
                message,
                answer: None,
            });
        }
        let servers = &self.resolver.rules.servers;
        let mut turn = self.resolver.next_server();
        let mut failures = 0;
        while self.resolver.is_awaited(self.question) {
            let server = servers[turn % servers.len()];
            turn += 1;
            let deadline = Instant::now() + RESEND;
            match timeout_at(deadline, converse(server, name, &mut parts)).await {
                Ok(Ok(())) => return Some(weigh(parts)),
                Ok(Err(error)) => {
                    tell_failure(&error, name, server);
                    failures += 1;
                    if failures % servers.len() == 0 {
                        sleep_until(deadline).await; // all of them: do not ask without a pause
                    }
                }
                Err(_) => {}
            }
        }
        None
    }
}

/// Asks one server for the parts that are not answered yet.
async fn converse(server: SocketAddr, name: &str, parts: &mut [TypedQuery]) -> io::Result<()> {
    let _place = SOCKETS.acquire().await.map_err(io::Error::other)?;
    let from: SocketAddr = match server {
        SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    };
    // A socket of its own for each look-up: its port is as hard to guess as the query's id.
    let socket = UdpSocket::bind(from).await?;
    socket.connect(server).await?;
    for part in parts.iter().filter(|part| part.answer.is_none()) {
        socket.send(&part.message).await?;
    }
    let mut buffer = vec![0; MESSAGE_MAX];
    while parts.iter().any(|part| part.answer.is_none()) {
        let len = socket.recv(&mut buffer).await?;
        let Some((part, answer)) = sort_in(&buffer[..len], name, parts, server) else {
            continue;
        };
        if answer.is_truncated {
            let long = over_tcp(server, &part.message).await?;
            if let Some((part, whole)) = sort_in(&long, name, parts, server)
                && !whole.is_truncated
            {
                part.answer = Some(whole);
            }
        } else {
            part.answer = Some(answer);
        }
    }
    Ok(())
}

/// The question of ours that this message answers, and the answer; any other message is logged and ignored.
fn sort_in<'a>(
    message: &[u8],
    name: &str,
    parts: &'a mut [TypedQuery],
    server: SocketAddr,
) -> Option<(&'a mut TypedQuery, DnsAnswer)> {
    let tell = |reason: &str| {
        error_log(Level::Error, format_args!("{reason}, resolver: {server}"));
    };
    let answer = match dns_message::answer(message) {
        Ok(answer) => answer,
        Err(reason) => {
            tell(reason);
            return None;
        }
    };
    let mut open = parts.iter_mut().filter(|part| part.answer.is_none());
    let Some(part) = open.find(|part| answer.is_to(part.id, name, part.kind)) else {
        tell(&format!("unexpected DNS response for {}", answer.name));
        return None;
    };
    let mut kinds = answer.records.iter().filter_map(|one| one.data.kind());
    if let Some(kind) = kinds.find(|kind| *kind != part.kind) {
        tell(&format!("unexpected {kind} record in DNS response"));
    }
    // As in nginx: another server may know better.
    if answer.code == 1 || answer.code > 5 {
        let reason = ResolveError::Code(answer.code);
        tell(&format!("DNS error {reason}, name: \"{name}\""));
        return None;
    }
    Some((part, answer))
}

async fn over_tcp(server: SocketAddr, question: &[u8]) -> io::Result<Vec<u8>> {
    let mut stream = TcpStream::connect(server).await?;
    let len = u16::try_from(question.len()).map_err(io::Error::other)?;
    let mut framed = len.to_be_bytes().to_vec();
    framed.extend_from_slice(question);
    stream.write_all(&framed).await?;
    let len = stream.read_u16().await?;
    let mut answer = vec![0; usize::from(len)];
    stream.read_exact(&mut answer).await?;
    Ok(answer)
}

/// Combines the answers. As in nginx, an error in one family's answer is an error, an empty answer is not.
fn weigh(parts: SmallVec<[TypedQuery; 2]>) -> Result<NameRecords, ResolveError> {
    let mut step = NameRecords {
        targets: Vec::new(),
        alias: None,
        ttl: u32::MAX,
    };
    for part in parts {
        let Some(answer) = part.answer else { continue };
        if answer.code != 0 {
            return Err(ResolveError::Code(answer.code));
        }
        for record in answer.records.into_iter().take(RECORDS_MAX) {
            match record.data {
                RecordData::Alias(name) => step.alias = Some(name),
                // Not one that the rules exclude (`ipv6=off`), nor one of no query of ours.
                data if data.kind() == Some(part.kind) => step.targets.push(data),
                RecordData::Other => {}
                RecordData::A(_) | RecordData::Aaaa(_) | RecordData::Srv { .. } => continue,
            }
            step.ttl = step.ttl.min(record.ttl);
        }
    }
    Ok(step)
}

fn server(data: RecordData) -> Option<ServiceServer> {
    match data {
        RecordData::Srv {
            priority,
            weight,
            port,
            name,
        } => Some(ServiceServer {
            name,
            port,
            priority,
            weight: weight.max(1),
        }),
        RecordData::A(_) | RecordData::Aaaa(_) | RecordData::Alias(_) | RecordData::Other => None,
    }
}

fn tell_failure(error: &io::Error, name: &str, server: SocketAddr) {
    let mut reason = Vec::new();
    append_os_error(&mut reason, error);
    let reason = String::from_utf8_lossy(&reason);
    error_log(
        Level::Error,
        format_args!("recv() failed{reason} while resolving \"{name}\", resolver: {server}"),
    );
}

/// A query id that an attacker off the path cannot guess.
fn random_id() -> u16 {
    let mut bytes = [0; 2];
    match rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::NONBLOCK) {
        Ok(2) => u16::from_ne_bytes(bytes),
        // Before the kernel has its first entropy: the standard library's keys of hash tables.
        _ => u16::try_from(RandomState::new().hash_one(0) & 0xffff).unwrap_or(0),
    }
}
