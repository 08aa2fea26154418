//! Look-ups at name servers that the tests play.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use super::cache::{Query, ResolveError, Resolver, ResolverRules, now_s};

const SOON: Duration = Duration::from_secs(20);

/// The code of an answer that is never given.
const SILENCE: u8 = 255;

/// What a name server says of a name and a kind: its code, and records of kind, TTL and data.
type Zone = fn(&str, u16) -> (u8, Vec<(u16, u32, Vec<u8>)>);

/// A name server, and how often it was asked.
struct Server {
    address: SocketAddr,
    asked: Arc<AtomicUsize>,
}

fn server(zone: Zone) -> Server {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let asked = Arc::new(AtomicUsize::new(0));
    let server = Server {
        address: socket.local_addr().unwrap(),
        asked: Arc::clone(&asked),
    };
    std::thread::spawn(move || {
        let mut buffer = [0; 512];
        while let Ok((len, from)) = socket.recv_from(&mut buffer) {
            asked.fetch_add(1, Ordering::SeqCst);
            let answer = answer(&buffer[..len], zone);
            if answer[3] != SILENCE {
                let _ = socket.send_to(&answer, from);
            }
        }
    });
    server
}

fn answer(question: &[u8], zone: Zone) -> Vec<u8> {
    let mut name = String::new();
    let mut at = 12;
    while question[at] != 0 {
        let end = at + 1 + usize::from(question[at]);
        if !name.is_empty() {
            name.push('.');
        }
        name += std::str::from_utf8(&question[at + 1..end]).unwrap();
        at = end;
    }
    let kind = u16::from_be_bytes([question[at + 1], question[at + 2]]);
    let (code, records) = zone(&name, kind);
    let mut out = question.to_vec();
    out[2] = 0x81;
    out[3] = code;
    out[7] = u8::try_from(records.len()).unwrap();
    for (kind, ttl, data) in records {
        out.extend([0xc0, 12]);
        out.extend(kind.to_be_bytes());
        out.extend([0, 1]);
        out.extend(ttl.to_be_bytes());
        out.extend(u16::try_from(data.len()).unwrap().to_be_bytes());
        out.extend(data);
    }
    out
}

fn wire_name(name: &str) -> Vec<u8> {
    let mut out = Vec::new();
    for label in name.split('.') {
        out.push(u8::try_from(label.len()).unwrap());
        out.extend(label.as_bytes());
    }
    out.push(0);
    out
}

fn zone(name: &str, kind: u16) -> (u8, Vec<(u16, u32, Vec<u8>)>) {
    let service = |priority: u8, weight: u8, port: u8, name: &str| {
        let mut data = vec![0, priority, 0, weight, 0, port];
        data.extend(wire_name(name));
        (33, 300, data)
    };
    let found = match (name, kind) {
        ("one.test", 1) => vec![(1, 300, vec![127, 0, 0, 1])],
        ("three.test", 1) => (1..4).map(|last| (1, 300, vec![127, 0, 0, last])).collect(),
        ("three.test", 28) => vec![(28, 300, vec![0; 16])],
        ("short.test", 1) => vec![(1, 0, vec![127, 0, 0, 9])],
        ("alias.test", 1 | 28) => vec![(5, 300, wire_name("one.test"))],
        ("circle.test", 1 | 28) => vec![(5, 300, wire_name("arc.test"))],
        ("arc.test", 1 | 28) => vec![(5, 300, wire_name("circle.test"))],
        ("mixed.test", 1) => vec![(28, 0, vec![0; 16]), (1, 300, vec![127, 0, 0, 7])],
        ("mixed.test", 28) => vec![(1, 0, vec![127, 0, 0, 8]), (28, 300, vec![0; 16])],
        ("strange.test", 1) => vec![(28, 300, vec![0; 16])],
        ("loop.test", 1 | 28) => vec![(5, 300, wire_name("loop.test"))],
        ("_http._tcp.one.test", 33) => vec![
            service(2, 1, 82, "one.test"),
            service(1, 5, 81, "three.test"),
            service(1, 1, 80, "gone.test"),
        ],
        ("_http._tcp.half.test", 33) => (1..=9)
            .map(|number| match number {
                5 => service(1, 1, 80, "one.test"),
                number => service(1, 1, 80, &format!("{number}.silent.test")),
            })
            .collect(),
        (name, _) if name.ends_with(".silent.test") => return (SILENCE, Vec::new()),
        ("broken.test", _) => return (2, Vec::new()),
        ("refused.test", _) => return (5, Vec::new()),
        ("one.test" | "short.test", _) => Vec::new(),
        _ => return (3, Vec::new()),
    };
    (0, found)
}

fn resolver(servers: &[&Server], ipv6: bool) -> Arc<Resolver> {
    Resolver::new(ResolverRules {
        servers: servers.iter().map(|server| server.address).collect(),
        valid_s: None,
        ipv4: true,
        ipv6,
    })
}

async fn find(resolver: &Arc<Resolver>, name: &str) -> Result<Vec<IpAddr>, ResolveError> {
    let found = resolver.find(Query::host(name), SOON).await?;
    Ok(found.targets.iter().map(|target| target.ip).collect())
}

fn last(ip: &IpAddr) -> u8 {
    match ip {
        IpAddr::V4(ip) => ip.octets()[3],
        IpAddr::V6(_) => 0,
    }
}

#[tokio::test]
async fn names_have_addresses_or_a_reason() {
    let server = server(zone);
    let resolver = resolver(&[&server], true);
    for (name, expected) in [
        ("one.test", Ok(vec![1])),
        ("ONE.test.", Ok(vec![1])),
        ("three.test", Ok(vec![1, 2, 3, 0])),
        ("alias.test", Ok(vec![1])),
        ("loop.test", Err("(3: Host not found)")),
        ("none.test", Err("(3: Host not found)")),
        ("bad..name", Err("(3: Host not found)")),
        ("broken.test", Err("(2: Server failure)")),
        ("refused.test", Err("(5: Operation refused)")),
    ] {
        let found = find(&resolver, name).await;
        let found = found.map(|all| all.iter().map(last).collect::<Vec<u8>>());
        let found = found.map_err(|unresolved| unresolved.to_string());
        assert_eq!(found, expected.map_err(str::to_owned), "{name}");
    }
}

#[tokio::test]
async fn answers_are_kept_for_their_time_and_failures_are_not() {
    let server = server(zone);
    let resolver = resolver(&[&server], false);
    let both = tokio::join!(find(&resolver, "one.test"), find(&resolver, "one.test"));
    assert!(both.0.is_ok() && both.0 == both.1);
    assert!(find(&resolver, "One.Test").await.is_ok());
    assert_eq!(server.asked.load(Ordering::SeqCst), 1);
    for _ in 0..2 {
        assert!(find(&resolver, "none.test").await.is_err());
    }
    assert_eq!(server.asked.load(Ordering::SeqCst), 3);
}

#[tokio::test]
async fn the_time_of_an_answer_does_not_depend_on_the_clock_that_may_be_set() {
    let server = server(zone);
    let resolver = resolver(&[&server], false);
    let before = now_s();
    let found = resolver.find(Query::host("one.test"), SOON).await.unwrap();
    assert!((before + 300..=now_s() + 300).contains(&found.valid_s));
}

#[tokio::test]
async fn a_chain_of_aliases_that_leads_back_ends_there() {
    let server = server(zone);
    let resolver = resolver(&[&server], false);
    for (name, asked) in [("circle.test", 2), ("loop.test", 3)] {
        assert_eq!(find(&resolver, name).await, Err(ResolveError::NOT_FOUND));
        assert_eq!(server.asked.load(Ordering::SeqCst), asked, "{name}");
    }
}

#[tokio::test]
async fn records_of_another_type_than_the_query_are_not_used() {
    let server = server(zone);
    let found = find(&resolver(&[&server], false), "mixed.test").await;
    let found: Vec<u8> = found.unwrap().iter().map(last).collect();
    assert_eq!(found, [7], "without IPv6");
    let both = resolver(&[&server], true);
    let found: Vec<u8> = find(&both, "mixed.test")
        .await
        .unwrap()
        .iter()
        .map(last)
        .collect();
    assert_eq!(found, [7, 0]);
    let asked = server.asked.load(Ordering::SeqCst);
    assert!(find(&both, "mixed.test").await.is_ok());
    assert_eq!(
        server.asked.load(Ordering::SeqCst),
        asked,
        "it holds for the TTL of its own"
    );
    let only = resolver(&[&server], false);
    assert_eq!(
        find(&only, "strange.test").await,
        Err(ResolveError::NOT_FOUND)
    );
}

#[tokio::test]
async fn a_service_leads_to_its_servers() {
    let server = server(zone);
    let resolver = resolver(&[&server], false);
    let question = Query::service("http", "one.test");
    let found = resolver.find(question, SOON).await.unwrap();
    let targets = found.targets.iter().map(|target| {
        let server = target.server.as_ref().unwrap();
        (
            last(&target.ip),
            server.port,
            server.priority,
            server.weight,
        )
    });
    let targets: Vec<_> = targets.collect();
    assert_eq!(
        targets,
        [(1, 81, 1, 5), (2, 81, 1, 5), (3, 81, 1, 5), (1, 82, 2, 1)]
    );
    assert_eq!(
        found.lost,
        [("gone.test".to_owned(), ResolveError::NOT_FOUND)]
    );
    let whole = Query::service("_sip._udp", "one.test");
    assert_eq!(whole.name(), "_sip._udp.one.test");
    assert_eq!(
        resolver.find(whole, SOON).await,
        Err(ResolveError::NOT_FOUND)
    );
}

#[tokio::test]
async fn servers_of_a_service_that_are_not_found_in_time_take_none_with_them() {
    let server = server(zone);
    let resolver = resolver(&[&server], false);
    let question = Query::service("http", "half.test");
    let found = resolver.find(question, Duration::from_secs(4)).await;
    let found = found.unwrap();
    let targets: Vec<u8> = found.targets.iter().map(|at| last(&at.ip)).collect();
    assert_eq!(targets, [1]);
    assert_eq!(found.lost.len(), 8);
    let is_late = |lost: &(String, ResolveError)| lost.1 == ResolveError::TimedOut;
    assert!(found.lost.iter().all(is_late));
}

#[tokio::test]
async fn a_server_that_is_away_is_passed_over() {
    let server = server(zone);
    let address = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr();
    let away = Server {
        address: address.unwrap(), // closed again
        asked: Arc::default(),
    };
    let resolver = resolver(&[&away, &server], false);
    assert_eq!(find(&resolver, "one.test").await.unwrap().len(), 1);
}

#[tokio::test]
async fn silence_times_out() {
    let silent = UdpSocket::bind("127.0.0.1:0").unwrap();
    let resolver = Resolver::new(ResolverRules {
        servers: vec![silent.local_addr().unwrap()],
        valid_s: None,
        ipv4: true,
        ipv6: true,
    });
    let found = resolver.find(Query::host("a.test"), Duration::from_millis(20));
    assert_eq!(
        found.await.unwrap_err().to_string(),
        "(110: Operation timed out)"
    );
}
