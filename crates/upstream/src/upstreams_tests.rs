//! Upstreams of a configuration: found by name, made of hosts, carried over a reload.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use config::{Grammar, Scope};
use logs::getaddrinfo::Hosts;

use super::block::{self, UpstreamBlocks};
use super::{Asker, Now, PeerOutcome, PeerTimes, Upstreams};

fn resolve(name: &str) -> Vec<IpAddr> {
    match name {
        "two.test" => vec![Ipv6Addr::LOCALHOST.into(), Ipv4Addr::LOCALHOST.into()],
        _ => Vec::new(),
    }
}

pub(super) fn upstreams(text: &str) -> Upstreams {
    let tree = config::parse_bytes(format!("http {{ {text} }}").as_bytes()).unwrap();
    let mut tables = block::tables();
    tables.push(super::block_tests::http());
    Grammar::new(tables).check(&tree).unwrap();
    let (mut blocks, mut scope) = (UpstreamBlocks::default(), Scope::new());
    for line in tree.directives[0].children() {
        blocks.read(line, &mut scope, &mut resolve).unwrap();
    }
    Upstreams::new(blocks.finish().unwrap(), Hosts::default())
}

fn link(all: &mut Upstreams, text: &str) -> String {
    match all.link(text.as_bytes(), 80, &mut resolve) {
        Ok(found) => {
            let group = found.group();
            let peers: Vec<&str> = group.peers().map(|peer| &peer.name[..]).collect();
            format!("{}: {}", found.name(), peers.join(" "))
        }
        Err(problem) => problem.sentence_for("proxy_pass"),
    }
}

#[test]
fn a_host_is_a_block_or_all_its_addresses() {
    let mut all = upstreams("upstream Back { server 127.0.0.1:81; }");
    for (text, expected) in [
        ("back", "Back: 127.0.0.1:81"),
        ("back:80", "upstream \"back\" may not have port 80"),
        ("two.test", "two.test: 127.0.0.1:80 [::1]:80"),
        ("two.test:81", "two.test: 127.0.0.1:81 [::1]:81"),
        ("127.0.0.1:82", "127.0.0.1: 127.0.0.1:82"),
        ("[::1]", "[::1]: [::1]:80"),
        ("unix:/tmp/x", "unix:/tmp/x: unix:/tmp/x"),
        ("none.test:81", "host not found in upstream \"none.test\""),
        ("a:b", "invalid port in upstream \"a:b\""),
    ] {
        assert_eq!(link(&mut all, text), expected);
    }
    let before = all.list().len();
    link(&mut all, "TWO.test:81");
    assert_eq!(
        all.list().len(),
        before,
        "the same host and port are one upstream"
    );
    assert!(all.find(b"bacK", None).is_some() && all.find(b"back", Some(80)).is_none());
    assert!(all.find(b"two.test", Some(81)).is_some() && all.find(b"two.test", None).is_none());
}

/// How often each of two peers has failed, as far as it shows: a failed one is not asked again.
fn next(all: &Upstreams, outcome: PeerOutcome) -> String {
    let mut choice = all.find(b"u", None).unwrap().choose(&Asker::default());
    let now = Now {
        seconds: 100,
        ms: 100_000,
    };
    let name = choice.next(now).unwrap().name.clone();
    choice.give_back(outcome, PeerTimes::default(), now);
    name.to_string()
}

#[test]
fn what_is_alive_outlives_a_reload_that_does_not_change_it() {
    const TWO: &str = "upstream u { server 127.0.0.1:81; server 127.0.0.1:82; }";
    const THREE: &str =
        "upstream u { server 127.0.0.1:81 weight=3; server 127.0.0.1:82; keepalive 2; }";
    let first = upstreams(TWO);
    assert_eq!(next(&first, PeerOutcome::Failed), "127.0.0.1:81");
    let second = upstreams(TWO);
    second.follow(&first);
    assert_eq!(next(&second, PeerOutcome::Answered), "127.0.0.1:82");
    assert_eq!(
        next(&second, PeerOutcome::Answered),
        "127.0.0.1:82",
        "81 is still disabled"
    );
    let (one, other) = (
        first.find(b"u", None).unwrap(),
        second.find(b"u", None).unwrap(),
    );
    assert!(Arc::ptr_eq(&one.group(), &other.group()) && one.id() == other.id());
    let third = upstreams(THREE);
    third.follow(&second);
    assert_eq!(
        next(&third, PeerOutcome::Answered),
        "127.0.0.1:81",
        "another group"
    );
    let changed = third.find(b"u", None).unwrap();
    assert_eq!(changed.id(), one.id(), "connections are good all the same");
    let fourth = upstreams("");
    fourth.follow(&third);
    assert!(fourth.list().is_empty());
}
