//! Groups of clients against one address for some seconds: closed loop, or at a rate, where the latency counts from the moment at
//! which the request *should* have started (so that a server that stalls cannot hide it by being asked less).

use crate::client::{Answer, Client, Drain, Failure};
use crate::figures::Figures;
use crate::group::{Group, Order};
use bench::content::Bytes;
use serde_json::{Map, Value};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;
use tokio::task::LocalSet;
use tokio::time::{Instant, sleep_until, timeout_at};

/// How much earlier than its moment an exact request wakes up: the timer's tick is 1 ms.
const SPIN: Duration = Duration::from_micros(2500);
/// Requests by chance of one run.
const ARRIVALS_MAX: u64 = 20_000_000;
/// Wrong answers of a group that are told one by one.
const WRONG_SHOWN: u64 = 10;
/// How long before the run its connections are there: a server takes a while to accept those that the kernel has opened, and the clients to begin.
const SETTLED: Duration = Duration::from_millis(500);
/// How long the requests of `once` may take.
const ONCE_MAX: Duration = Duration::from_secs(60);

/// A group as its clients see it.
struct Shared {
    group: Group,
    address: SocketAddr,
    start: Instant,
    /// Moved forward when the run is interrupted.
    end: Cell<Instant>,
    /// How long after the end an open request may still be answered.
    grace: Duration,
    /// Requests begun: gives each its turn and its intended start.
    begun: Cell<u64>,
    random: Cell<u64>,
    /// Of requests by chance: when each comes, from the start.
    arrivals: Vec<Duration>,
    expected: Option<Rc<Bytes>>,
    figures: RefCell<Figures>,
}

/// Runs all groups at once; the report of each by name, and of those together that are within something.
pub async fn run(
    address: SocketAddr,
    duration: Duration,
    grace: Duration,
    groups: Vec<Group>,
) -> Result<Value, String> {
    let opened = open_all(&groups, address).await?;
    let is_checked = groups.iter().any(|group| group.is_checked);
    let expected = is_checked.then(|| Rc::new(Bytes::new()));
    let has_opened = opened.iter().any(|clients| !clients.is_empty());
    let start = Instant::now() + if has_opened { SETTLED } else { Duration::ZERO };
    let local = LocalSet::new();
    let mut running = Vec::new();
    for (index, (group, mut opened)) in groups.into_iter().zip(opened).enumerate() {
        let random = Cell::new(0x9E37_79B9_7F4A_7C15 ^ (index as u64 + 1));
        let shared = Shared {
            address,
            start,
            end: Cell::new(start + duration),
            grace,
            begun: Cell::new(0),
            random,
            arrivals: arrivals(&group, duration),
            expected: expected.clone().filter(|_| group.is_checked),
            figures: RefCell::default(),
            group,
        };
        let shared = Rc::new(shared);
        let clients: Vec<_> = (0..shared.group.connections)
            .map(|index| local.spawn_local(client(Rc::clone(&shared), index, opened.pop())))
            .collect();
        running.push((shared, clients));
    }
    let (mut report, mut sums) = (Map::new(), BTreeMap::<String, Figures>::new());
    let all: Vec<_> = running
        .iter()
        .map(|(shared, _)| Rc::clone(shared))
        .collect();
    local.spawn_local(async move {
        if tokio::signal::ctrl_c().await.is_ok() {
            all.iter()
                .for_each(|shared| shared.end.set(shared.end.get().min(Instant::now())));
        }
    });
    local
        .run_until(async {
            for (shared, clients) in running {
                for client in clients {
                    client.await.map_err(|error| error.to_string())?;
                }
                let figures = shared.figures.take();
                if let Some(name) = &shared.group.within {
                    sums.entry(name.clone()).or_default().add(&figures);
                }
                report.insert(
                    shared.group.name.clone(),
                    figures.report(shared.end.get() - start),
                );
            }
            let elapsed = start.elapsed().min(duration);
            report.extend(
                sums.into_iter()
                    .map(|(name, sum)| (name, sum.report(elapsed))),
            );
            Ok(Value::Object(report))
        })
        .await
}

/// The connections of each group that are to be there before the run begins.
async fn open_all(groups: &[Group], address: SocketAddr) -> Result<Vec<Vec<Client>>, String> {
    let mut opened = Vec::new();
    for group in groups {
        let count = if group.is_opened {
            group.connections
        } else {
            0
        };
        opened.push(open(count, address).await?);
    }
    Ok(opened)
}

/// So many connections.
async fn open(count: usize, address: SocketAddr) -> Result<Vec<Client>, String> {
    let mut opened = Vec::with_capacity(count);
    for at in 0..count {
        let client = Client::connect(address, None).await;
        opened.push(client.map_err(|failure| format!("connection {at}: {}", failure.name()))?);
    }
    Ok(opened)
}

/// One request over each connection, all at once; the figures.
pub async fn once(
    address: SocketAddr,
    connections: usize,
    target: &str,
    is_checked: bool,
) -> Result<Value, String> {
    let expected = is_checked.then(|| Rc::new(Bytes::new()));
    let clients = open(connections, address).await?;
    let figures = Rc::new(RefCell::new(Figures::default()));
    let start = Instant::now();
    let asking = clients.into_iter().map(|mut client| {
        let (figures, target) = (Rc::clone(&figures), target.to_owned());
        let expected = expected.clone();
        async move {
            let mut drain = expected.map_or_else(Drain::new, Drain::checking);
            let answer = client.exchange(&target, false, &mut drain);
            let outcome = timeout_at(start + ONCE_MAX, answer).await;
            let mut figures = figures.borrow_mut();
            match outcome {
                Ok(Ok(a)) => {
                    let took = start.elapsed();
                    figures.answer(a.status, a.bytes, a.first - start, took, took);
                }
                Ok(Err(failure)) => {
                    figures.failure(failure.name());
                }
                Err(_) => figures.left_open(start.elapsed()),
            }
        }
    });
    let local = LocalSet::new();
    let tasks: Vec<_> = asking.map(|one| local.spawn_local(one)).collect();
    local
        .run_until(async {
            for task in tasks {
                task.await.map_err(|error| error.to_string())?;
            }
            Ok(figures.take().report(start.elapsed()))
        })
        .await
}

async fn client(shared: Rc<Shared>, index: usize, mut kept: Option<Client>) {
    let mut mine = index;
    let mut drain = shared
        .expected
        .clone()
        .map_or_else(Drain::new, Drain::checking);
    sleep_until(shared.start).await;
    while let Some((target, intended)) = shared.next(&mut mine) {
        shared.wait_for(intended).await;
        let Ok(outcome) = timeout_at(
            shared.end.get() + shared.grace,
            ask(&shared, &mut kept, &target, &mut drain),
        )
        .await
        else {
            shared.figures.borrow_mut().left_open(intended.elapsed());
            break;
        };
        match outcome {
            Ok(answer) => shared.figures.borrow_mut().answer(
                answer.status,
                answer.bytes,
                answer.first.saturating_duration_since(intended),
                intended.elapsed(),
                shared.start.elapsed(),
            ),
            Err(failure) => {
                let count = shared.figures.borrow_mut().failure(failure.name());
                if failure == Failure::Wrong && count <= WRONG_SHOWN {
                    eprintln!("wrong: {target} at {:?}", shared.start.elapsed());
                }
                // A server that refuses is asked again soon, not in a loop that starves everyone else.
                sleep_until(Instant::now() + Duration::from_millis(10)).await;
            }
        }
    }
}

/// One request, over the kept connection if there is one; once more over a new one when the kept one turned out to be closed.
async fn ask(
    shared: &Shared,
    kept: &mut Option<Client>,
    target: &str,
    drain: &mut Drain,
) -> Result<Answer, Failure> {
    let is_fresh = shared.group.is_fresh;
    if let Some(mut client) = kept.take() {
        match client.exchange(target, is_fresh, drain).await {
            Err(Failure::Closed) => shared.figures.borrow_mut().reopened(),
            Err(failure) => return Err(failure),
            Ok(answer) => {
                *kept = (!answer.is_last).then_some(client);
                return Ok(answer);
            }
        }
    }
    let mut client = Client::connect(shared.address, None).await?;
    let answer = client.exchange(target, is_fresh, drain).await?;
    *kept = (!is_fresh && !answer.is_last).then_some(client);
    Ok(answer)
}

impl Shared {
    /// The next target and when it should be asked for; none when the run is over. `mine`: the client's next request by chance.
    fn next(&self, mine: &mut usize) -> Option<(String, Instant)> {
        if self.group.seed.is_some() {
            return self.next_by_chance(mine);
        }
        let turn = self.begun.get();
        let intended = match self.group.rate {
            Some(rate) => self.start + Duration::from_secs_f64(turn as f64 / rate),
            None => Instant::now(),
        };
        if intended >= self.end.get() || self.group.count.is_some_and(|count| turn >= count) {
            return None;
        }
        self.begun.set(turn + 1);
        Some((self.target(turn, || draw(&self.random)), intended))
    }

    /// The n-th request belongs to one client, as those of a real open loop do: a connection that hangs holds up all of its own.
    fn next_by_chance(&self, mine: &mut usize) -> Option<(String, Instant)> {
        let intended = self.start + *self.arrivals.get(*mine)?;
        if intended >= self.end.get() {
            return None;
        }
        let turn = *mine as u64;
        *mine += self.group.connections;
        let seed = self.group.seed.unwrap_or(0);
        let drawn = || draw(&Cell::new(mixed(seed ^ mixed(turn))));
        Some((self.target(turn, drawn), intended))
    }

    fn target(&self, turn: u64, drawn: impl FnOnce() -> u64) -> String {
        let count = self.group.targets.len() as u64;
        let index = match self.group.order {
            Order::Turn => turn % count,
            Order::Random => drawn() % count,
        };
        self.group.targets[usize::try_from(index).expect("an index fits")].clone()
    }

    async fn wait_for(&self, intended: Instant) {
        // A timer's tick is 1 ms: who need not wait must not ask it.
        let wake = if self.group.is_exact {
            intended - SPIN
        } else {
            intended
        };
        if wake > Instant::now() {
            sleep_until(wake).await;
        }
        while self.group.is_exact && Instant::now() < intended {
            tokio::task::yield_now().await;
        }
    }
}

/// Exponential distances: a Poisson process, the same for the same seed.
fn arrivals(group: &Group, duration: Duration) -> Vec<Duration> {
    let (Some(rate), Some(seed)) = (group.rate, group.seed) else {
        return Vec::new();
    };
    let state = Cell::new(mixed(seed));
    let mut at = 0.0;
    let next = || {
        let share = draw(&state) as f64 / (1_u64 << 53) as f64;
        at -= (1.0 - share).ln() / rate;
        (at < duration.as_secs_f64()).then(|| Duration::from_secs_f64(at))
    };
    let most = group.count.unwrap_or(ARRIVALS_MAX).min(ARRIVALS_MAX);
    std::iter::from_fn(next)
        .take(usize::try_from(most).unwrap_or(usize::MAX))
        .collect()
}

/// 53 bits by xorshift64*: repeatable runs, and no dependency.
fn draw(state: &Cell<u64>) -> u64 {
    let mut x = state.get();
    x ^= x >> 12;
    x ^= x << 25;
    x ^= x >> 27;
    state.set(x);
    x.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 11
}

/// A state for `draw` of a seed: not zero, and far from its neighbour's.
fn mixed(seed: u64) -> u64 {
    (seed + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1
}
