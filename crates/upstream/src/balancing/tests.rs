//! Choices, held against what nginx was recorded to choose (`recorded.txt`), and what recordings cannot show.

use std::collections::HashSet;
use std::sync::Arc;

use bytes::Bytes;

use super::group::Moved;
use super::{
    Asker, BalancingMethod, Choice, LeastTime, Now, Peer, PeerGroup, PeerOutcome, PeerTimes,
    Standing,
};
use crate::resolver::address::ServerAddress;

const RECORDED: &str = include_str!("recorded.txt");
/// How long an answer takes beside the delay that a step sets, and what lies between two steps.
const STEP_MS: u64 = 5;

/// A group, servers that may be away or slow, and a clock.
struct Play {
    group: Arc<PeerGroup>,
    is_away: [bool; 12],
    delay_ms: [u64; 12],
    waiting: Vec<Choice>,
    now_ms: u64,
}

fn address(number: usize) -> String {
    match number {
        10 => "unix:/tmp/freewheel-balancing-10.sock".into(),
        11 => "127.0.0.2".into(),
        _ => format!("127.0.0.1:{}", 18_901 + number),
    }
}

fn local() -> Asker {
    Asker {
        address: "127.0.0.1".parse().ok(),
        ..Asker::default()
    }
}

fn peer(server: &str) -> Peer {
    let parsed = ServerAddress::parse(server, 80).unwrap();
    let address = parsed.addresses(&mut |_| Vec::new()).unwrap().remove(0);
    Peer::new(address, server.as_bytes()).with_sid()
}

fn number_of(peer: &Peer) -> usize {
    (0..12)
        .find(|number| peer.server == address(*number).into_bytes().into())
        .unwrap()
}

fn method(text: &str) -> BalancingMethod {
    let least_time = |to_last_byte, counts_inflight| {
        BalancingMethod::LeastTime(LeastTime {
            to_last_byte,
            counts_inflight,
        })
    };
    match text
        .trim_end_matches("sticky cookie s")
        .trim_end_matches("; ")
    {
        "" => BalancingMethod::RoundRobin,
        "least_conn" => BalancingMethod::LeastConn,
        "ip_hash" => BalancingMethod::IpHash,
        "hash $arg_k" => BalancingMethod::Hash,
        "hash $arg_k consistent" => BalancingMethod::Consistent,
        "random" => BalancingMethod::Random,
        "least_time header" => least_time(false, false),
        "least_time header inflight" => least_time(false, true),
        "least_time last_byte" => least_time(true, false),
        "least_time last_byte inflight" => least_time(true, true),
        other => panic!("{other}"),
    }
}

fn group(method_text: &str, servers: &str) -> PeerGroup {
    let (mut primary, mut backup) = (Vec::new(), Vec::new());
    for server in servers.split(", ") {
        let (number, parameters) = server.split_once('}').unwrap();
        let mut made = peer(&address(number[1..].parse().unwrap()));
        let mut is_backup = false;
        for parameter in parameters.split_whitespace() {
            match parameter.split_once('=') {
                None if parameter == "down" => made.standing = Standing::Down,
                None if parameter == "drain" => made.standing = Standing::Draining,
                None => is_backup = true,
                Some(("weight", value)) => made.weight = value.parse().unwrap(),
                Some(("max_conns", value)) => made.max_conns = value.parse().unwrap(),
                Some(("max_fails", value)) => made.max_fails = value.parse().unwrap(),
                Some((_, value)) => {
                    made.fail_timeout = value.trim_end_matches('s').parse().unwrap()
                }
            }
        }
        if is_backup { &mut backup } else { &mut primary }.push(made);
    }
    PeerGroup::new("u", method(method_text), primary, backup)
}

impl Play {
    fn new(group: PeerGroup) -> Play {
        Play {
            group: Arc::new(group),
            is_away: [false; 12],
            delay_ms: [0; 12],
            waiting: Vec::new(),
            now_ms: 1_000_000_100,
        }
    }

    fn now(&self) -> Now {
        Now {
            seconds: (self.now_ms / 1000).try_into().unwrap(),
            ms: self.now_ms,
        }
    }

    /// Asks peer after peer until one is there; returns the choice, and the peers tried.
    fn ask(&mut self, asker: &Asker) -> (Choice, String) {
        let mut choice = Choice::new(&self.group, asker);
        let mut tried = Vec::new();
        loop {
            let Some(peer) = choice.next(self.now()) else {
                tried.push("-".to_owned());
                return (choice, tried.join(">"));
            };
            let number = number_of(peer);
            tried.push(number.to_string());
            if !self.is_away[number] {
                return (choice, tried.join(">"));
            }
            choice.give_back(PeerOutcome::Failed, PeerTimes::default(), self.now());
            if choice.tries_left() == 0 {
                return (choice, tried.join(">"));
            }
        }
    }

    fn get(&mut self, asker: &Asker) -> String {
        let (mut choice, tried) = self.ask(asker);
        if let Some(peer) = choice.taken() {
            let took = self.delay_ms[number_of(peer)];
            self.now_ms += took;
            choice.note_header(took, self.now());
            let times = PeerTimes {
                header_ms: Some(took),
                response_ms: took,
            };
            choice.give_back(PeerOutcome::Answered, times, self.now());
        }
        tried
    }

    fn step(&mut self, step: &str) -> Option<String> {
        let (kind, rest) = step.split_at(1);
        let number = || rest.parse().unwrap_or(0);
        let mut found = None;
        match kind {
            "g" => {
                found = Some(self.get(&Asker {
                    key: Bytes::copy_from_slice(rest.as_bytes()),
                    ..local()
                }))
            }
            "c" => {
                let address = rest.parse().ok();
                found = Some(self.get(&Asker {
                    address,
                    ..Asker::default()
                }));
            }
            "k" => {
                let sid = Bytes::copy_from_slice(&peer(&address(number())).sid);
                found = Some(self.get(&Asker { sid, ..local() }));
            }
            "h" => {
                let (choice, tried) = self.ask(&local());
                self.waiting.push(choice);
                found = tried.rsplit('>').next().map(str::to_owned);
            }
            "u" => {
                self.waiting.remove(number()).give_back(
                    PeerOutcome::Answered,
                    PeerTimes::default(),
                    self.now(),
                );
            }
            "d" => self.is_away[number()] = true,
            "a" => self.is_away[number()] = false,
            "w" => {
                let (number, seconds) = rest.split_once(',').unwrap();
                self.delay_ms[number.parse::<usize>().unwrap()] = ms(seconds);
            }
            _ => self.now_ms += ms(rest),
        }
        self.now_ms += STEP_MS;
        found
    }
}

fn ms(seconds: &str) -> u64 {
    let (whole, part) = seconds.split_once('.').unwrap_or((seconds, "0"));
    whole.parse::<u64>().unwrap() * 1000 + format!("{part:0<3}").parse::<u64>().unwrap()
}

#[test]
fn the_peers_are_those_that_nginx_chose() {
    for line in RECORDED.lines().filter(|line| !line.starts_with('#')) {
        let columns: Vec<&str> = line.split('|').map(str::trim).collect();
        let [method, servers, steps, expected] = columns[..] else {
            panic!("{line}")
        };
        let mut play = Play::new(group(method, servers));
        let found: Vec<String> = steps
            .split_whitespace()
            .filter_map(|step| play.step(step))
            .collect();
        assert_eq!(found.join(" "), expected, "{method} {servers}: {steps}");
    }
}

#[test]
fn every_peer_of_many_is_tried_once_and_then_the_backup() {
    for name in [
        "",
        "least_conn",
        "ip_hash",
        "hash $arg_k",
        "hash $arg_k consistent",
        "random",
    ] {
        let peers = |first: u16, count: u16| {
            let servers = (first..first + count).map(|port| peer(&format!("127.0.0.1:{port}")));
            servers.collect::<Vec<_>>()
        };
        let group = PeerGroup::new("u", method(name), peers(1000, 150), peers(2000, 70));
        let group = Arc::new(group);
        let asker = Asker {
            address: "10.1.2.3".parse().ok(),
            key: Bytes::from_static(b"k"),
            ..Asker::default()
        };
        let mut choice = Choice::new(&group, &asker);
        assert_eq!(choice.tries_left(), 220);
        let (mut seen, now) = (
            Vec::new(),
            Now {
                seconds: 5,
                ms: 5000,
            },
        );
        while let Some(peer) = choice.next(now) {
            seen.push(peer.name.clone());
            choice.give_back(PeerOutcome::Unwanted, PeerTimes::default(), now);
        }
        assert_eq!((seen.len(), choice.tries_left()), (220, 0), "{name}");
        assert_eq!(seen.iter().collect::<HashSet<_>>().len(), 220, "{name}");
        assert!(
            seen[..150]
                .iter()
                .all(|name| name.starts_with("127.0.0.1:1")),
            "{name}"
        );
        assert_eq!(group.connections(), [0; 220], "{name}");
    }
}

#[test]
fn a_choice_that_is_dropped_gives_its_peer_back() {
    for name in ["", "least_conn", "least_time header inflight"] {
        let group = Arc::new(group(name, "{0} max_conns=1, {1} down"));
        let now = Now {
            seconds: 5,
            ms: 5000,
        };
        let mut first = Choice::new(&group, &Asker::default());
        assert!(first.next(now).is_some(), "{name}");
        assert!(
            Choice::new(&group, &Asker::default()).next(now).is_none(),
            "{name}"
        );
        assert_eq!(group.connections(), [1, 0]);
        drop(first);
        assert_eq!(group.connections(), [0, 0]);
        assert!(
            Choice::new(&group, &Asker::default()).next(now).is_some(),
            "{name}"
        );
    }
}

#[test]
fn a_group_that_loses_its_backup_peers_gives_no_primary_one_in_their_place() {
    let now = Now {
        seconds: 5,
        ms: 5000,
    };
    let with_backup = Arc::new(group("", "{0}, {1} backup"));
    let mut choice = Choice::new(&with_backup, &Asker::default());
    assert_eq!(choice.next(now).map(number_of), Some(0));
    choice.give_back(PeerOutcome::Failed, PeerTimes::default(), now);
    assert_eq!(choice.next(now).map(number_of), Some(1));
    let moved = |backup| Moved {
        primary: vec![Some(0)],
        backup,
    };
    let mut elders = Vec::new();
    let without = with_backup.replace(group("", "{0}"), moved(vec![None]), &mut elders);
    choice.give_back(PeerOutcome::Failed, PeerTimes::default(), now);
    assert_eq!(choice.next(now).map(number_of), None);
    let last = without.replace(group("", "{0}"), moved(vec![]), &mut elders);
    drop(choice);
    assert_eq!(last.connections(), [0]);
}

/// Two peers, of which the second one takes so long for a head.
fn second_is_slow(header_ms: u64, now: Now) -> Arc<PeerGroup> {
    let group = Arc::new(group("least_time header inflight", "{0}, {1}"));
    let slow = Asker {
        sid: Bytes::copy_from_slice(&peer(&address(1)).sid),
        ..Asker::default()
    };
    let mut choice = Choice::new(&group, &slow);
    assert_eq!(choice.next(now).map(number_of), Some(1));
    choice.note_header(header_ms, now);
    choice.give_back(PeerOutcome::Answered, PeerTimes::default(), now);
    group
}

fn first_of(group: &Arc<PeerGroup>, now: Now) -> Choice {
    let first = Asker {
        sid: Bytes::copy_from_slice(&peer(&address(0)).sid),
        ..Asker::default()
    };
    let mut choice = Choice::new(group, &first);
    assert_eq!(choice.next(now).map(number_of), Some(0));
    choice
}

#[test]
fn what_a_request_took_is_forgotten_with_it_however_it_ends() {
    let at = |ms: u64| Now { seconds: 5, ms };
    // Its time is not told.
    let slow = second_is_slow(3000, at(0));
    let (mut one, _other) = (first_of(&slow, at(0)), first_of(&slow, at(0)));
    one.give_back(PeerOutcome::Answered, PeerTimes::default(), at(1000));
    let mut next = Choice::new(&slow, &Asker::default());
    assert_eq!(next.next(at(1000)).map(number_of), Some(0));
    // It is given up. The real clock: none is told.
    let now = Now::read();
    let slow = second_is_slow(4900, now);
    let before = Now {
        ms: now.ms.saturating_sub(4000),
        ..now
    };
    let (one, _other) = (first_of(&slow, before), first_of(&slow, now));
    drop(one);
    let mut next = Choice::new(&slow, &Asker::default());
    assert_eq!(next.next(now).map(number_of), Some(0));
}

#[test]
fn a_peer_is_disabled_by_its_last_failure_only() {
    let group = Arc::new(group("", "{0} max_fails=2, {1}"));
    let now = Now {
        seconds: 5,
        ms: 5000,
    };
    let disabled: Vec<(usize, bool)> = (0..4)
        .map(|_| {
            let mut choice = Choice::new(&group, &Asker::default());
            let number = number_of(choice.next(now).unwrap());
            let outcome = if number == 0 {
                PeerOutcome::Failed
            } else {
                PeerOutcome::Answered
            };
            (number, choice.give_back(outcome, PeerTimes::default(), now))
        })
        .collect();
    assert_eq!(disabled, [(0, false), (1, false), (0, true), (1, false)]);
}

#[test]
fn random_choices_follow_the_weights_and_two_follow_the_load() {
    let now = Now {
        seconds: 5,
        ms: 5000,
    };
    let counts = |group: &Arc<PeerGroup>| {
        let mut counts = [0u32; 3];
        for _ in 0..6000 {
            let mut choice = Choice::new(group, &Asker::default());
            counts[number_of(choice.next(now).unwrap())] += 1;
        }
        counts
    };
    let [a, b, c] = counts(&Arc::new(group(
        "random",
        "{0} weight=3, {1} weight=2, {2}",
    )));
    assert!((2850..3150).contains(&a) && (1850..2150).contains(&b) && (850..1150).contains(&c));
    let servers = ["127.0.0.1:18901", "127.0.0.1:18902", "127.0.0.1:18903"].map(peer);
    let group = Arc::new(PeerGroup::new(
        "u",
        BalancingMethod::RandomTwo,
        servers.to_vec(),
        Vec::new(),
    ));
    let mut kept: Vec<Choice> = Vec::new();
    for _ in 0..300 {
        let mut choice = Choice::new(&group, &Asker::default());
        choice.next(now).unwrap();
        kept.push(choice);
    }
    let loads = group.connections();
    assert!(
        loads.iter().all(|load| (90..=110).contains(load)),
        "{loads:?}"
    );
    // The busiest of the three is never chosen, while it is.
    let busiest = number_of(kept[0].taken().unwrap());
    kept.retain(|choice| number_of(choice.taken().unwrap()) == busiest);
    assert_eq!(counts(&group)[busiest], 0);
}

#[test]
fn many_threads_lose_no_connection() {
    let group = Arc::new(group("least_conn", "{0} weight=2, {1}, {2} max_conns=3"));
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let group = &group;
            scope.spawn(move || {
                for candidates in 0..2000 {
                    let now = Now {
                        seconds: candidates / 500,
                        ms: 0,
                    };
                    let mut choice = Choice::new(group, &Asker::default());
                    let outcome = match (candidates + thread) % 5 {
                        0 => PeerOutcome::Failed,
                        _ => PeerOutcome::Answered,
                    };
                    if choice.next(now).is_some() && candidates % 3 != 0 {
                        choice.give_back(outcome, PeerTimes::default(), now);
                    }
                    assert!(group.connections()[2] <= 3);
                }
            });
        }
    });
    assert_eq!(group.connections(), [0, 0, 0]);
}
