//! The listening sockets that the master holds.
//!
//! Not here: how one is bound ([`runtime::listen::bind`]). Invariant: a socket stays open as long as a configuration
//! listens on its address, whatever happens to workers; a unix socket's file is removed together with the last
//! configuration that listens on it, unless another program has the socket open.
#![expect(
    clippy::disallowed_methods,
    reason = "the master waits for an address, and runs no loop"
)]

use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use logs::process_log::{Level, error_log};
use runtime::listen::bind::{self, BindError};
use runtime::listen::{Address, SocketOptions, Table};

use super::obstacles;

/// How often an address in use is tried, as nginx does.
const TRIES: u32 = 5;
/// Between two tries.
const PAUSE: Duration = Duration::from_millis(500);

/// The sockets of one address.
#[derive(Debug, Clone)]
pub(crate) struct Bound {
    /// The address.
    pub address: Address,
    /// The options that they were bound with; `None`: by another program, which had its own.
    pub options: Option<SocketOptions>,
    /// Whether sockets that are in use have yet to get these options: not before the configuration is served.
    is_due: bool,
    /// Whether new connections go to one of the sockets, by [`Sockets::leave_to`].
    is_steered: bool,
    /// One per loop with TCP (more after a reload with fewer loops); one with a unix address.
    pub sockets: Vec<Arc<OwnedFd>>,
}

/// The sockets of a configuration.
#[derive(Debug, Clone, Default)]
pub(crate) struct Sockets(pub Vec<Bound>);

/// The sockets that other programs have open, by the numbers of their inodes; `None`: that is not known.
pub(crate) type Held = Option<HashSet<u64>>;

/// An address cannot be had, which was told; what helps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CannotBind(pub Option<String>);

impl Sockets {
    /// Adds sockets that listen already. Those that cannot be used are closed here; where the program before this one has
    /// them, they stay open there.
    pub(crate) fn add(&mut self, sockets: impl IntoIterator<Item = Arc<OwnedFd>>) {
        for socket in sockets {
            let address = match bind::adopt(&socket) {
                Ok(address) => address,
                Err(error) => {
                    let error = wire::errno(&error);
                    error_log(
                        Level::Notice,
                        format_args!("an inherited socket is not used ({error})"),
                    );
                    continue;
                }
            };
            match self.0.iter_mut().find(|bound| bound.address == address) {
                Some(bound) => bound.sockets.push(socket),
                None => self.0.push(Bound {
                    address,
                    options: None,
                    is_due: false,
                    is_steered: false,
                    sockets: vec![socket],
                }),
            }
        }
    }

    /// All of them, address by address.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Arc<OwnedFd>> {
        self.0.iter().flat_map(|bound| &bound.sockets)
    }

    /// Their inodes' numbers.
    #[must_use]
    pub(crate) fn inodes(&self) -> HashSet<u64> {
        self.all()
            .filter_map(|socket| rustix::fs::fstat(socket).ok())
            .map(|stat| stat.st_ino)
            .collect()
    }

    /// The address among them that leaves no room for this one: its wildcard, or one that it is the wildcard of.
    #[must_use]
    pub(crate) fn in_the_way_of(&self, address: SocketAddr) -> Option<SocketAddr> {
        let meets = |ours: &SocketAddr| {
            let (any, one) = if ours.ip().is_unspecified() {
                (*ours, address)
            } else {
                (address, *ours)
            };
            // The wildcard of IPv6 may be that of IPv4, too.
            ours.port() == address.port()
                && any.ip().is_unspecified()
                && (any.is_ipv6() || one.is_ipv4())
        };
        let mut ours = self.0.iter().filter_map(|bound| bound.address.inet());
        ours.find(meets)
    }

    /// Where other programs have some of an address's sockets and not all: new connections go to one that they have.
    /// Returns whether there is such an address: the others' queues are to be emptied before they are closed.
    #[must_use]
    pub(crate) fn leave_to(&mut self, held: &Held) -> bool {
        let Some(held) = held else { return false };
        let is_held = |socket: &Arc<OwnedFd>| is_one_of(socket, held);
        let mut is_any = false;
        for bound in self.0.iter_mut().filter(|bound| bound.sockets.len() > 1) {
            let first = bound.sockets.iter().position(is_held);
            let Some(first) = first.and_then(|index| u32::try_from(index).ok()) else {
                continue;
            };
            if bound.sockets.iter().all(is_held) {
                continue;
            }
            is_any = true;
            bound.is_steered = true;
            if let Err(error) = sys::process::steer_to(&bound.sockets[0], first) {
                let error = wire::errno(&error);
                error_log(
                    Level::Alert,
                    format_args!(
                        "connections of {} cannot be steered, some may be lost ({error})",
                        bound.address
                    ),
                );
            }
        }
        is_any
    }

    /// Connections go to all sockets of each address again.
    pub(crate) fn serve_all(&mut self) {
        for bound in &mut self.0 {
            if std::mem::take(&mut bound.is_steered) {
                // An error where it could not begin. What was begun would outlive this process.
                let _ = sys::process::end_steering(&bound.sockets[0]);
            }
        }
    }

    /// Closes all of them but those that [`Sockets::serve_all`] is still needed for and that other programs have, too: once no
    /// process has the others any more, it has nothing to lose.
    pub(crate) fn let_go(&mut self, held: &Held) {
        for bound in &mut self.0 {
            let is_held =
                |socket: &Arc<OwnedFd>| held.as_ref().is_some_and(|held| is_one_of(socket, held));
            let is_steered = bound.is_steered;
            bound.sockets.retain(|socket| is_steered && is_held(socket));
        }
        self.0.retain(|bound| !bound.sockets.is_empty());
    }

    /// The sockets for `wanted`: those that are there are kept, others are bound. Further ones of an address that is listened
    /// on get no connections before a loop watches them. What fails is logged.
    ///
    /// # Errors
    /// One cannot be bound; everything that was newly bound is closed again.
    pub(crate) fn next(&self, wanted: &Table, loops: usize) -> Result<Self, CannotBind> {
        let mut next = Self::default();
        let outcome = self.fill(&mut next, wanted, loops);
        if outcome.is_err() {
            self.remove_files_of_others(&next);
        }
        outcome.map(|()| next)
    }

    fn fill(&self, next: &mut Self, wanted: &Table, loops: usize) -> Result<(), CannotBind> {
        let bound = self.0.iter().map(|bound| (&bound.address, bound));
        let known: HashMap<&Address, &Bound> = bound.collect();
        let mut done = HashSet::new();
        let mut hint = None;
        for attempt in 0..TRIES {
            if attempt > 0 {
                error_log(
                    Level::Notice,
                    format_args!("try again to bind() after 500ms"),
                );
                std::thread::sleep(PAUSE);
            }
            let mut is_in_use = false;
            for entry in wanted.sockets() {
                if done.contains(&entry.address) {
                    continue;
                }
                let known = known.get(&entry.address).map(|bound| Bound::clone(bound));
                match bind_all(known, &entry.address, &entry.options, loops) {
                    Ok(bound) => {
                        next.0.push(bound);
                        done.insert(&entry.address);
                    }
                    Err(error) => {
                        error_log(Level::Emerg, format_args!("{error}"));
                        if !error.is_in_use() {
                            return Err(CannotBind(obstacles::about_address(&error, self)));
                        }
                        if attempt + 1 == TRIES {
                            hint = obstacles::about_address(&error, self);
                        }
                        is_in_use = true;
                    }
                }
            }
            if !is_in_use {
                return Ok(());
            }
        }
        error_log(Level::Emerg, format_args!("still could not bind()"));
        Err(CannotBind(hint))
    }

    /// Removes the files of those unix sockets that `self` does not have.
    pub(crate) fn remove_files_of_others(&self, others: &Self) {
        self.gone_of(others).for_each(|(_, path)| remove(path));
    }

    /// The same at a reload, of which nginx tells; a socket that another program has open keeps its file.
    pub(crate) fn replace(&self, others: &Self, held: &Held) {
        for (bound, path) in self.gone_of(others) {
            if bound.is_all_ours(held) {
                error_log(
                    Level::Warn,
                    format_args!("deleting socket {}", path.display()),
                );
                remove(path);
            }
        }
    }

    fn gone_of<'a>(&'a self, others: &'a Self) -> impl Iterator<Item = (&'a Bound, &'a Path)> {
        let is_kept = |bound: &Bound| self.0.iter().any(|kept| kept.address == bound.address);
        let paths = others.0.iter();
        let paths = paths.filter_map(|bound| Some((bound, bound.address.unix_path()?)));
        paths.filter(move |(bound, _)| !is_kept(bound))
    }

    /// Gives sockets that were in use before the options of this configuration, which is served now. What fails is logged.
    pub(crate) fn settle(&mut self) {
        for bound in &mut self.0 {
            let options = bound.options.as_ref().filter(|_| bound.is_due);
            for socket in options.iter().flat_map(|_| &bound.sockets) {
                let set = options.map(|options| bind::set_options(socket, &bound.address, options));
                if let Some(Err(error)) = set {
                    error_log(Level::Emerg, format_args!("{error}"));
                }
            }
            bound.is_due = false;
        }
    }

    /// Removes the files of all unix sockets that no other program has open.
    pub(crate) fn remove_files(&self, held: &Held) {
        let own = self.0.iter().filter(|bound| bound.is_all_ours(held));
        own.filter_map(|bound| bound.address.unix_path())
            .for_each(remove);
    }
}

impl Bound {
    /// Whether no other program has one of these sockets.
    fn is_all_ours(&self, held: &Held) -> bool {
        let held = held.as_ref();
        held.is_some_and(|held| !self.sockets.iter().any(|socket| is_one_of(socket, held)))
    }
}

/// Whether the number of a socket's inode is one of these.
fn is_one_of(socket: &Arc<OwnedFd>, inodes: &HashSet<u64>) -> bool {
    rustix::fs::fstat(socket).is_ok_and(|stat| inodes.contains(&stat.st_ino))
}

fn remove(path: &Path) {
    let _ = std::fs::remove_file(path);
}

fn bind_all(
    known: Option<Bound>,
    address: &Address,
    options: &SocketOptions,
    loops: usize,
) -> Result<Bound, BindError> {
    let is_served = known.is_some();
    let mut bound = match known {
        Some(bound) => bound,
        None => {
            let first = Arc::new(bind::open(address, options)?);
            Bound {
                address: address.clone(),
                options: Some(options.clone()),
                is_due: false,
                is_steered: false,
                sockets: vec![first],
            }
        }
    };
    if bound.options.as_ref() != Some(options) {
        bound.is_due = true;
        bound.options = Some(options.clone());
    }
    if address.unix_path().is_none() {
        while bound.sockets.len() < loops {
            let another = bind::reserve(address, options)?;
            if !is_served {
                bind::listen(&another, address, options.backlog)?;
            }
            bound.sockets.push(Arc::new(another));
        }
    }
    Ok(bound)
}

#[cfg(test)]
mod tests {
    use runtime::listen::Listen;

    use super::*;
    use std::os::fd::AsRawFd;

    fn table(lines: &[String]) -> Table {
        let mut table = Table::default();
        for (server, line) in (0..).zip(lines) {
            let listen = Listen::parse(&[line.as_bytes()]).unwrap();
            table.add(&listen, server, &mut |_| Vec::new()).unwrap();
        }
        table
    }

    fn free_port() -> u16 {
        std::net::TcpListener::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap()
            .port()
    }

    #[test]
    fn known_sockets_are_kept_and_only_added_to() {
        let wanted = table(&[format!("127.0.0.1:{}", free_port())]);
        let two = Sockets::default().next(&wanted, 2).unwrap();
        let four = two.next(&wanted, 4).unwrap();
        let one = four.next(&wanted, 1).unwrap();
        let numbers = |sockets: &Sockets| -> Vec<_> {
            sockets.0[0].sockets.iter().map(|s| s.as_raw_fd()).collect()
        };
        assert_eq!(numbers(&two).len(), 2);
        assert_eq!(numbers(&four)[..2], numbers(&two));
        assert_eq!(
            numbers(&one),
            numbers(&four),
            "a socket that may have connections queued is not closed"
        );
    }

    /// The sockets that connections come at, of 64.
    fn taken_by(sockets: &[Arc<OwnedFd>], to: SocketAddr) -> Vec<bool> {
        let _clients: Vec<_> = (0..64)
            .map(|_| std::net::TcpStream::connect(to).unwrap())
            .collect();
        let accepts = |socket: &Arc<OwnedFd>| {
            let mut any = false;
            while rustix::net::accept(socket).is_ok() {
                any = true;
            }
            any
        };
        sockets.iter().map(accepts).collect()
    }

    #[test]
    fn steering_to_another_program_s_socket_ends_with_this_program() {
        let to = SocketAddr::from(([127, 0, 0, 1], free_port()));
        let mut ours = Sockets::default()
            .next(&table(&[to.to_string()]), 3)
            .unwrap();
        let mut theirs = vec![Arc::clone(&ours.0[0].sockets[1])];
        let inode = rustix::fs::fstat(&theirs[0]).unwrap().st_ino;
        let held = Some(HashSet::from([inode]));
        assert!(ours.leave_to(&held));
        let all = ours.0[0].sockets.clone();
        assert_eq!(taken_by(&all, to), [false, true, false]);
        drop(all);
        ours.let_go(&held);
        let bound = &ours.0[0];
        let options = bound.options.clone().unwrap();
        let more = bind::reserve(&bound.address, &options).unwrap();
        bind::listen(&more, &bound.address, options.backlog).unwrap();
        theirs.push(Arc::new(more));
        assert_ne!(taken_by(&theirs, to), [true, true], "one has them all");
        ours.serve_all();
        assert_eq!(taken_by(&theirs, to), [true, true]);
        ours.let_go(&held);
        assert!(ours.0.is_empty());
    }

    #[test]
    fn the_file_of_a_unix_socket_stays_while_another_program_has_it() {
        let path = std::env::temp_dir().join(format!("freewheel-held-{}", std::process::id()));
        let wanted = table(&[format!("unix:{}", path.display())]);
        let sockets = Sockets::default().next(&wanted, 1).unwrap();
        for held in [None, Some(sockets.inodes())] {
            sockets.remove_files(&held);
            Sockets::default().replace(&sockets, &held);
            assert!(path.exists());
        }
        sockets.remove_files(&Some(HashSet::new()));
        assert!(!path.exists());
    }

    #[test]
    fn a_unix_socket_has_one_socket_and_its_file_goes_with_it() {
        let path = std::env::temp_dir().join(format!("freewheel-sockets-{}", std::process::id()));
        let wanted = table(&[format!("unix:{}", path.display())]);
        let sockets = Sockets::default().next(&wanted, 4).unwrap();
        assert_eq!(sockets.0[0].sockets.len(), 1);
        sockets.remove_files_of_others(&sockets);
        assert!(path.exists());
        Sockets::default().remove_files_of_others(&sockets);
        assert!(!path.exists());
    }
}
