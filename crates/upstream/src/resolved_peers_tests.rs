//! Servers whose names are resolved periodically: what a new answer changes, and what it leaves.

use std::net::IpAddr;
use std::sync::Arc;

use config::{Grammar, Scope};
use logs::getaddrinfo::Hosts;

use super::block::{self, UpstreamBlocks};
use super::{Asker, Choice, Now, PeerOutcome, PeerTimes, Upstream, Upstreams};
use crate::resolver::ResolvedName;
use crate::resolver::cache::{ResolvedAddress, ServiceServer};

const NOW: Now = Now {
    seconds: 100,
    ms: 100_000,
};

fn upstreams(lines: &str) -> Upstreams {
    let text = format!("http {{ upstream u {{ zone z 1m; {lines} }} }}");
    let tree = config::parse_bytes(text.as_bytes()).unwrap();
    let mut tables = block::tables();
    tables.push(super::block_tests::http());
    Grammar::new(tables).check(&tree).unwrap();
    let (mut blocks, mut scope) = (UpstreamBlocks::default(), Scope::new());
    for line in tree.directives[0].children() {
        blocks.read(line, &mut scope, &mut |_| Vec::new()).unwrap();
    }
    Upstreams::new(blocks.finish().unwrap(), Hosts::default())
}

fn u(all: &Upstreams) -> Arc<Upstream> {
    Arc::clone(all.find(b"u", None).unwrap())
}

/// A host's addresses by their last number.
fn hosts(last: &[u8]) -> ResolvedName {
    let target = |last: &u8| ResolvedAddress {
        ip: IpAddr::from([127, 0, 0, *last]),
        server: None,
    };
    ResolvedName {
        targets: last.iter().map(target).collect(),
        valid_s: 500,
        ..ResolvedName::default()
    }
}

/// A service's servers: the last number of the address, priority and weight.
fn servers(list: &[(u8, u16, u16)]) -> ResolvedName {
    let target = |(last, priority, weight): &(u8, u16, u16)| ResolvedAddress {
        ip: IpAddr::from([127, 0, 0, *last]),
        server: Some(Arc::new(ServiceServer {
            name: format!("s{last}.test"),
            port: 8000,
            priority: *priority,
            weight: *weight,
        })),
    };
    ResolvedName {
        targets: list.iter().map(target).collect(),
        valid_s: 500,
        ..ResolvedName::default()
    }
}

fn names(upstream: &Upstream) -> String {
    let group = upstream.group();
    let peers: Vec<String> = group
        .peers()
        .map(|peer| match peer.weight {
            1 => peer.name.to_string(),
            weight => format!("{}*{weight}", peer.name),
        })
        .collect();
    peers.join(" ")
}

fn next(choice: &mut Choice) -> String {
    choice
        .next(NOW)
        .map_or("none".into(), |peer| peer.name.to_string())
}

fn answer(upstream: &Upstream) -> String {
    let mut choice = upstream.choose(&Asker::default());
    let name = next(&mut choice);
    choice.give_back(PeerOutcome::Answered, PeerTimes::default(), NOW);
    name
}

#[test]
fn peers_come_and_go_with_answers() {
    let all = upstreams(
        "server 127.0.0.9:90; server a.test:81 resolve max_fails=2; server b.test resolve weight=2;",
    );
    let upstream = u(&all);
    assert_eq!(names(&upstream), "127.0.0.9:90");
    upstream.found(0, &hosts(&[1, 2]));
    upstream.found(1, &hosts(&[3]));
    assert_eq!(
        names(&upstream),
        "127.0.0.9:90 127.0.0.1:81 127.0.0.2:81 127.0.0.3:80*2"
    );
    let group = upstream.group();
    upstream.found(0, &hosts(&[2, 1]));
    assert!(
        Arc::ptr_eq(&group, &upstream.group()),
        "the same, in another order"
    );
    upstream.found(0, &hosts(&[4, 2]));
    assert_eq!(
        names(&upstream),
        "127.0.0.9:90 127.0.0.2:81 127.0.0.3:80*2 127.0.0.4:81"
    );
    upstream.found(0, &hosts(&[]));
    upstream.found(1, &hosts(&[]));
    assert_eq!(names(&upstream), "127.0.0.9:90");
}

#[test]
fn without_an_answer_there_is_no_peer() {
    for method in [
        "",
        "ip_hash;",
        "hash $uri;",
        "hash $uri consistent;",
        "random two;",
        "least_conn;",
    ] {
        let all = upstreams(&format!("{method} server a.test resolve;"));
        assert_eq!(answer(&u(&all)), "none", "{method}");
        u(&all).found(0, &hosts(&[1]));
        assert_eq!(answer(&u(&all)), "127.0.0.1:80", "{method}");
    }
}

#[test]
fn a_service_has_ports_weights_and_stand_ins() {
    let all = upstreams("server a.test service=http resolve;");
    u(&all).found(0, &servers(&[(1, 1, 5), (2, 2, 1), (3, 1, 1)]));
    assert_eq!(
        names(&u(&all)),
        "127.0.0.1:8000*5 127.0.0.3:8000 127.0.0.2:8000"
    );
    for _ in 0..10 {
        assert_ne!(answer(&u(&all)), "127.0.0.2:8000", "it stands in only");
    }
    u(&all).found(0, &servers(&[(2, 2, 1)]));
    assert_eq!(answer(&u(&all)), "127.0.0.2:8000");
    let all = upstreams("server a.test service=http resolve weight=3;");
    u(&all).found(0, &servers(&[(1, 1, 5)]));
    assert_eq!(names(&u(&all)), "127.0.0.1:8000*3");
    let all = upstreams("hash $uri; server a.test service=http resolve;");
    u(&all).found(0, &servers(&[(1, 1, 1), (2, 2, 1)]));
    assert_eq!(
        names(&u(&all)),
        "127.0.0.1:8000",
        "the method knows no stand-ins"
    );
}

#[test]
fn requests_on_their_way_go_on_among_the_peers_that_are_there_now() {
    let all = upstreams("server a.test resolve max_conns=1; server b.test resolve backup;");
    let upstream = u(&all);
    upstream.found(0, &hosts(&[1, 2]));
    upstream.found(1, &hosts(&[9]));
    let mut one = upstream.choose(&Asker::default());
    let mut two = upstream.choose(&Asker::default());
    assert_eq!(
        (next(&mut one), next(&mut two)),
        ("127.0.0.1:80".into(), "127.0.0.2:80".into())
    );
    upstream.found(0, &hosts(&[2, 3]));
    // 2 is busy still, 1 is gone, 3 is new.
    let mut three = upstream.choose(&Asker::default());
    assert_eq!(next(&mut three), "127.0.0.3:80");
    assert_eq!(answer(&upstream), "127.0.0.9:80", "the one that stands in");
    two.give_back(PeerOutcome::Answered, PeerTimes::default(), NOW);
    assert_eq!(upstream.group().connections(), [0, 1, 0]);
    assert_eq!(answer(&upstream), "127.0.0.2:80");
    one.give_back(PeerOutcome::Failed, PeerTimes::default(), NOW);
    assert_eq!(
        next(&mut one),
        "127.0.0.2:80",
        "a try among those that are there now"
    );
    drop(one);
    drop(three);
    assert_eq!(upstream.group().connections(), [0, 0, 0]);
}

#[test]
fn what_failed_is_remembered_over_an_answer() {
    let all = upstreams("server a.test resolve;");
    u(&all).found(0, &hosts(&[1, 2]));
    let mut choice = u(&all).choose(&Asker::default());
    assert_eq!(next(&mut choice), "127.0.0.1:80");
    u(&all).found(0, &hosts(&[1, 2, 3]));
    assert!(
        choice.give_back(PeerOutcome::Failed, PeerTimes::default(), NOW),
        "it is disabled"
    );
    for _ in 0..6 {
        assert_ne!(answer(&u(&all)), "127.0.0.1:80");
    }
    assert_ne!(next(&mut choice), "127.0.0.1:80", "it was tried");
}

#[test]
fn a_long_request_keeps_no_group_in_between() {
    let all = upstreams("server a.test resolve max_conns=1;");
    u(&all).found(0, &hosts(&[1, 2]));
    let mut long = u(&all).choose(&Asker::default());
    assert_eq!(next(&mut long), "127.0.0.1:80");
    u(&all).found(0, &hosts(&[1, 3]));
    let between = Arc::downgrade(&u(&all).group());
    u(&all).found(0, &hosts(&[4, 1]));
    u(&all).found(0, &hosts(&[5, 4, 1]));
    assert!(between.upgrade().is_none());
    assert_eq!(u(&all).group().connections(), [1, 0, 0]);
    long.give_back(PeerOutcome::Answered, PeerTimes::default(), NOW);
    assert_eq!(u(&all).group().connections(), [0, 0, 0]);
}

#[test]
fn a_reload_keeps_stand_ins_only_where_answers_can_replace_them() {
    let first = upstreams("least_conn; server b.test service=http resolve;");
    u(&first).found(0, &servers(&[(5, 1, 2), (6, 2, 1)]));
    assert_eq!(names(&u(&first)), "127.0.0.5:8000*2 127.0.0.6:8000");
    let second = upstreams("hash a; server b.test service=http resolve;");
    second.follow(&first);
    assert_eq!(names(&u(&second)), "127.0.0.5:8000*2");
    // A line that was a backup, and is none any more.
    let line = "server 127.0.0.9:90; server b.test service=http resolve";
    let backup = upstreams(&format!("{line} backup;"));
    u(&backup).found(0, &servers(&[(5, 1, 2), (6, 2, 1)]));
    let primary = upstreams(&format!("{line};"));
    primary.follow(&backup);
    assert_eq!(names(&u(&primary)), "127.0.0.9:90 127.0.0.5:8000*2");
    let answers: Vec<String> = (0..10).map(|_| answer(&u(&primary))).collect();
    assert!(
        answers.contains(&"127.0.0.5:8000".to_owned()),
        "{answers:?}"
    );
}

#[test]
fn a_reload_begins_with_the_addresses_known() {
    let first = upstreams("server a.test:81 resolve; server b.test service=http resolve;");
    u(&first).found(0, &hosts(&[1, 2]));
    u(&first).found(1, &servers(&[(5, 1, 2), (6, 2, 1)]));
    let second = upstreams(
        "server a.test:82 resolve weight=2; server b.test service=http resolve; server c.test resolve;",
    );
    second.follow(&first);
    assert_eq!(
        names(&u(&second)),
        "127.0.0.1:82*2 127.0.0.2:82*2 127.0.0.5:8000*2 127.0.0.6:8000"
    );
    let third = upstreams(
        "server a.test:82 resolve weight=2; server b.test service=http resolve; server c.test resolve;",
    );
    third.follow(&second);
    assert!(
        Arc::ptr_eq(&u(&second).group(), &u(&third).group()),
        "nothing changed"
    );
}
