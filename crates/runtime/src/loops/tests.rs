//! The loop threads from outside: a service that echoes bytes, clients over loopback.

#![expect(clippy::disallowed_methods, reason = "a test may wait for a disk")]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::accept::Source;
use super::loop_threads::{Command, LoopThreads, Plan};
use super::sums;
use super::{
    Accepted, Configuration, Datagrams, Listener, Loop, LoopHandle, Seat, Service, Serving, Shared,
    SocketType, Start, Waiting,
};
use crate::listen::{Address, SocketOptions, bind};
use nix::unistd::Pid;

/// A service without a protocol: it tells each client the loop's index.
struct TellIndex(Rc<Loop>);

impl Service for TellIndex {
    fn may_accept(&self, _: &Listener) -> bool {
        true
    }

    fn serve(&self, accepted: Accepted) -> Serving {
        let is_served = self.0.begin_errand();
        let telling = tell_index(Rc::clone(&self.0), accepted);
        Box::pin(async move {
            telling.await;
            drop(is_served);
        })
    }

    fn receive(&self, datagrams: Datagrams) -> Serving {
        let index = u8::try_from(self.0.index).unwrap();
        Box::pin(async move {
            let socket = datagrams.socket.try_clone().unwrap();
            let socket = tokio::net::UdpSocket::from_std(socket.into()).unwrap();
            loop {
                let (_, client) = socket.recv_from(&mut [0]).await.unwrap();
                socket.send_to(&[index], client).await.unwrap();
            }
        })
    }

    fn configure(&self, _: u64, configuration: Configuration) {
        if let Some(takers) = configuration.downcast_ref::<Takers>() {
            takers.lock().unwrap().push(self.0.index);
        }
        if let Some(affinities) = configuration.downcast_ref::<Affinities>() {
            let now = nix::sched::sched_getaffinity(Pid::from_raw(0)).unwrap();
            affinities.lock().unwrap().push(now);
        }
        if let Some(late) = configuration.downcast_ref::<Late>() {
            let late = late.lock().unwrap().take().unwrap();
            let inbox = &self.0.handle.inbox;
            let retired = std::sync::mpsc::channel().0;
            inbox.send(Command::Retire(retired)).unwrap();
            inbox.send(Command::Keep(late)).unwrap();
        }
    }
}

/// A configuration that knows which loops have taken it.
type Takers = Mutex<Vec<usize>>;
/// One that knows where its loops may run.
type Affinities = Mutex<Vec<nix::sched::CpuSet>>;
/// One whose loop is told to end, and then gets this connection.
type Late = Mutex<Option<Accepted>>;

/// What a loop that is asked for [`HOLD`] waits for.
static HELD: Mutex<()> = Mutex::new(());
static IS_HELD: AtomicBool = AtomicBool::new(false);
/// Of the tests that hold loops one runs at a time.
static HOLDING: Mutex<()> = Mutex::new(());
const HOLD: u8 = b'h';

fn tells_index() -> Start {
    Arc::new(|loop_, _, _| Box::new(TellIndex(Rc::clone(loop_))))
}

/// Answers every byte with the loop's index, and ends the connection when the loop leaves.
fn tell_index(loop_: Rc<Loop>, accepted: Accepted) -> Serving {
    Box::pin(async move {
        let _seat = accepted.seat;
        let stream = std::net::TcpStream::from(accepted.socket);
        let stream = tokio::net::TcpStream::from_std(stream).unwrap();
        let place = loop_.idle.place();
        loop {
            let idle = place.enter(Waiting::Kept);
            let is_closed = std::future::poll_fn(|context| {
                if idle.poll_close(context).is_ready() {
                    return std::task::Poll::Ready(true);
                }
                stream.poll_read_ready(context).map(|ready| ready.is_err())
            });
            if is_closed.await {
                return;
            }
            drop(idle);
            let mut byte = [0];
            match stream.try_read(&mut byte) {
                Ok(0) => return,
                Ok(_) => {
                    if byte[0] == HOLD {
                        IS_HELD.store(true, Relaxed);
                        drop(HELD.lock());
                        IS_HELD.store(false, Relaxed);
                    }
                    let _ = stream.try_write(&[u8::try_from(loop_.index).unwrap()]);
                    if loop_.is_leaving() {
                        return;
                    }
                }
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                Err(_) => return,
            }
        }
    })
}

/// What all loops share, with a log that is discarded.
fn shared() -> Shared {
    let logs = logs::Logs::start().unwrap();
    let disk = disk::Disk::new(disk::Disk::prepare());
    let ledger = Arc::default();
    Shared { logs, disk, ledger }
}

/// A socket that listens on a free port.
fn listening() -> (OwnedFd, SocketAddr, Arc<Listener>) {
    let any = Address::Inet("127.0.0.1:0".parse().unwrap());
    let socket = bind::open(&any, &SocketOptions::default()).unwrap();
    let address = socket2::SockRef::from(&socket).local_addr().unwrap();
    let address = address.as_socket().unwrap();
    let listener = Arc::new(Listener {
        address: Address::Inet(address),
        socket_type: SocketType::Stream,
    });
    (socket, address, listener)
}

/// The first plan of a worker.
fn plan(configuration: Configuration, loops: usize, sources: Vec<Source>) -> Plan {
    Plan {
        stall_ns: 0,
        number: 1,
        configuration,
        loops,
        connections_max: 10_000,
        sources,
        cpus: Vec::new(),
    }
}

struct Site {
    threads: LoopThreads,
    plan: Plan,
    address: SocketAddr,
}

fn open(loops: usize, sockets: usize) -> Site {
    let options = SocketOptions::default();
    let (first, address, listener) = listening();
    let more = (1..sockets).map(|_| bind::reserve(&listener.address, &options).unwrap());
    let source = |socket: OwnedFd| Source {
        listener: Arc::clone(&listener),
        socket: Arc::new(socket),
        backlog: options.backlog,
    };
    let sources: Vec<_> = [first].into_iter().chain(more).map(source).collect();
    let plan = plan(Arc::new(()), loops, sources);
    let mut threads = LoopThreads::new(tells_index(), shared());
    threads.apply(&plan).unwrap();
    Site {
        threads,
        plan,
        address,
    }
}

fn ask(stream: &mut TcpStream) -> Option<u8> {
    let mut byte = [0];
    stream.write_all(b"?").ok()?;
    stream.read_exact(&mut byte).ok().map(|()| byte[0])
}

fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !is_so() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::yield_now();
    }
}

fn assert_even(loops: usize, sockets: usize) {
    let site = open(loops, sockets);
    let mut clients: Vec<_> = (0..1000)
        .map(|_| TcpStream::connect(site.address).unwrap())
        .collect();
    let mut counts = vec![0; loops];
    for client in &mut clients {
        counts[usize::from(ask(client).unwrap())] += 1;
    }
    let busiest = counts.iter().max().unwrap();
    assert!(busiest * 4 * loops <= 1000 * 5, "{counts:?}");
}

#[test]
fn a_thousand_connections_are_spread_evenly() {
    assert_even(2, 2);
    assert_even(16, 16);
}

#[test]
fn one_socket_is_spread_over_all_loops() {
    assert_even(16, 1);
}

#[test]
fn loops_shrink_and_grow_and_no_request_is_lost() {
    let mut site = open(8, 8);
    let mut kept: Vec<_> = (0..64)
        .map(|_| TcpStream::connect(site.address).unwrap())
        .collect();
    for client in &mut kept {
        ask(client).unwrap();
    }
    for loops in [2, 8, 1, 8] {
        let plan = Plan {
            number: site.plan.number + 1,
            loops,
            ..site.plan.clone()
        };
        site.threads.apply(&plan).unwrap();
        site.plan = plan;
        let asked: Vec<_> = (0..64)
            .map(|_| {
                let mut client = TcpStream::connect(site.address).unwrap();
                usize::from(ask(&mut client).expect("an answer"))
            })
            .collect();
        assert!(asked.iter().all(|&index| index < loops), "{asked:?}");
    }
    assert!(
        kept.iter_mut().all(|client| ask(client).is_some()),
        "a kept connection answers once more"
    );
}

#[test]
fn shutdown_closes_idle_connections_and_ends_all_loops() {
    let mut site = open(2, 2);
    let mut client = TcpStream::connect(site.address).unwrap();
    ask(&mut client).unwrap();
    site.threads.shut_down();
    assert_eq!(client.read(&mut [0]).unwrap(), 0);
    wait_until("all loops end", || !site.threads.is_running());
}

#[test]
fn a_connection_that_is_handed_to_a_loop_after_its_last_look_is_served() {
    let mut site = open(1, 1);
    let listening = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let mut client = TcpStream::connect(listening.local_addr().unwrap()).unwrap();
    let (socket, _) = listening.accept().unwrap();
    socket.set_nonblocking(true).unwrap();
    let (inbox, _commands) = tokio::sync::mpsc::unbounded_channel();
    let elsewhere = Arc::new(LoopHandle {
        connections: 0.into(),
        work: 0.into(),
        inbox,
        is_shedding: AtomicBool::new(false),
    });
    let late = Accepted {
        // As if it were counted only after the loop has looked.
        seat: Seat::at(&elsewhere),
        socket: socket.into(),
        peer: None,
        listener: Arc::clone(&site.plan.sources[0].listener),
        number: 1,
    };
    client.write_all(b"?").unwrap();
    site.plan.number = 2;
    site.plan.configuration = Arc::new(Late::new(Some(late)));
    site.threads.apply(&site.plan).unwrap();
    assert_eq!(client.read(&mut [0]).unwrap(), 1);
    wait_until("the loop ends", || !site.threads.is_running());
}

#[test]
fn a_loop_runs_where_it_is_told_and_without_that_where_the_process_may() {
    let mut site = open(1, 1);
    let process = nix::sched::sched_getaffinity(nix::unistd::getpid()).unwrap();
    let is_allowed = |cpu: &usize| process.is_set(*cpu) == Ok(true);
    let one = (0..nix::sched::CpuSet::count()).find(is_allowed).unwrap();
    let affinities = Arc::new(Affinities::default());
    site.plan.configuration = Arc::clone(&affinities) as Configuration;
    for cpus in [vec![vec![one]], Vec::new()] {
        site.plan.number += 1;
        site.plan.cpus = cpus;
        site.threads.apply(&site.plan).unwrap();
    }
    let mut pinned = nix::sched::CpuSet::new();
    pinned.set(one).unwrap();
    assert_eq!(*affinities.lock().unwrap(), [pinned, process]);
}

#[test]
fn when_places_run_out_the_longest_idle_connection_is_closed() {
    let mut site = open(1, 1);
    let plan = Plan {
        number: 2,
        connections_max: 2,
        ..site.plan.clone()
    };
    site.threads.apply(&plan).unwrap();
    let mut clients: Vec<_> = (0..3)
        .map(|_| {
            let mut client = TcpStream::connect(site.address).unwrap();
            ask(&mut client).expect("an answer");
            client
        })
        .collect();
    assert_eq!(clients[0].read(&mut [0]).unwrap(), 0);
    assert!(ask(&mut clients[2]).is_some());
}

#[test]
fn figures_count_connections_and_polls() {
    let site = open(1, 1);
    let mut client = TcpStream::connect(site.address).unwrap();
    for _ in 0..100 {
        ask(&mut client).unwrap();
    }
    let report = &sums::by_number(site.threads.ledger())[&0];
    assert_eq!((report.connections, report.accepted), (1, 1));
    assert!(report.polls.count() > 2);
    assert!(report.blocked.quantile_ns(0.5) <= report.blocked.quantile_ns(0.99));
    assert!(report.longest.is_some() && report.longest_ns > 0);
}

#[test]
fn each_loop_receives_the_datagrams_of_its_own_sockets() {
    let mut site = open(2, 2);
    let sockets = [0, 1].map(|_| UdpSocket::bind("127.0.0.1:0").unwrap());
    let address = site.plan.sources[0].listener.address.clone();
    let sources = sockets.iter().map(|socket| {
        socket.set_nonblocking(true).unwrap();
        let listener = Listener {
            address: address.clone(),
            socket_type: SocketType::Datagram,
        };
        Source {
            listener: Arc::new(listener),
            socket: Arc::new(socket.try_clone().unwrap().into()),
            backlog: 0,
        }
    });
    site.plan.sources.extend(sources);
    site.threads.apply(&site.plan).unwrap();
    let client = UdpSocket::bind("127.0.0.1:0").unwrap();
    client
        .set_read_timeout(Some(Duration::from_secs(60)))
        .unwrap();
    let ask = |socket: &UdpSocket| {
        let mut byte = [0];
        client.send_to(b"?", socket.local_addr().unwrap()).unwrap();
        client.recv(&mut byte).unwrap();
        byte[0]
    };
    assert_eq!([0, 1, 0].map(|at| ask(&sockets[at])), [0, 1, 0]);
    site.threads.shut_down();
    wait_until("all loops end", || !site.threads.is_running());
}

/// One of two loops stands still while a configuration is handed out.
#[test]
fn a_configuration_is_taken_by_all_loops_or_by_none() {
    let _alone = HOLDING.lock();
    for (held, is_taken) in [(0, false), (1, true)] {
        let mut site = open(2, 2);
        let takers = Arc::new(Takers::default());
        site.plan.configuration = Arc::clone(&takers) as Configuration;
        site.plan.number = 2;
        site.threads.patience = Duration::from_secs(2);
        let client = loop {
            let mut client = TcpStream::connect(site.address).unwrap();
            if ask(&mut client) == Some(held) {
                break client;
            }
        };
        let hold = HELD.lock().unwrap();
        (&client).write_all(&[HOLD]).unwrap();
        wait_until("the loop is held", || IS_HELD.load(Relaxed));
        assert_eq!(site.threads.apply(&site.plan).is_ok(), is_taken);
        drop(hold);
        (&client).read_exact(&mut [0]).unwrap();
        // What the loop was told before the byte was answered is carried out before the next one is.
        let mut other = loop {
            let mut client = TcpStream::connect(site.address).unwrap();
            if ask(&mut client) == Some(held) {
                break client;
            }
        };
        assert_eq!(ask(&mut other), Some(held));
        if is_taken {
            wait_until("both have", || takers.lock().unwrap().len() == 2);
        }
        assert_eq!(takers.lock().unwrap().is_empty(), !is_taken, "{held}");
    }
}

/// Whether this process has a thread of this name.
fn has_thread(name: &str) -> bool {
    let threads = std::fs::read_dir("/proc/self/task").unwrap();
    let mut names = threads
        .flatten()
        .filter_map(|thread| std::fs::read_to_string(thread.path().join("comm")).ok());
    names.any(|comm| comm.trim_end() == name)
}

#[test]
fn a_configuration_that_is_refused_leaves_nothing_behind() {
    let _alone = HOLDING.lock();
    let mut site = open(1, 1);
    let served = site.threads.configuration().unwrap();
    site.threads.patience = Duration::from_millis(100);
    let mut client = TcpStream::connect(site.address).unwrap();
    ask(&mut client).unwrap();
    let refused = Plan {
        number: 2,
        configuration: Arc::new(Takers::default()),
        // More than any other test has.
        loops: 20,
        ..site.plan.clone()
    };
    let hold = HELD.lock().unwrap();
    client.write_all(&[HOLD]).unwrap();
    wait_until("the loop is held", || IS_HELD.load(Relaxed));
    assert!(site.threads.apply(&refused).is_err());
    drop(hold);
    client.read_exact(&mut [0]).unwrap();
    let kept = site.threads.configuration().unwrap();
    assert!(
        Arc::ptr_eq(&kept, &served),
        "the last one is the served one"
    );
    drop((kept, served, refused));
    wait_until("the new loops end", || !has_thread("loop 19"));
    wait_until("the refused configuration is free", || {
        site.threads.forget_old();
        !site.threads.has_old()
    });
    ask(&mut client).expect("the loop goes on");
}

#[test]
fn connections_that_the_kernel_does_not_watch_are_told_of_once_a_second() {
    let told = Arc::new(Mutex::new(Vec::new()));
    let lines = Arc::clone(&told);
    logs::process_log::set_sink(Box::new(move |_, text| {
        lines.lock().unwrap().push(text.to_string());
    }));
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_io().build_local(Default::default()).unwrap();
    runtime.block_on(async {
        let loop_ = Loop::alone(&shared()).unwrap();
        // A regular file is refused.
        let file = std::fs::File::open("/proc/self/exe").unwrap();
        let flags = rustix::fs::OFlags::NONBLOCK;
        rustix::fs::fcntl_setfl(&file, flags).unwrap();
        let error = wire::Stream::from_accepted(file.into(), true).unwrap_err();
        for second in [5, 5, 5, 6] {
            wire::loop_clock::remember(second * 1_000_000_000);
            loop_.tell_unwatched(&error);
        }
    });
    let told = told.lock().unwrap();
    let line = "epoll_ctl() failed (1: Operation not permitted), a new connection is closed";
    assert_eq!(
        told.iter().filter(|told| *told == line).count(),
        2,
        "{told:?}"
    );
}
