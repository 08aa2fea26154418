//! All upstreams of a configuration: those of `upstream` blocks, and those that `proxy_pass http://HOST` stands for.
//!
//! Not here: the choice of a peer ([`super::Choice`]), connections. Invariant: names are resolved while the
//! configuration is built, never on a loop; the states of the peers outlive a reload that does not change their
//! upstream.

use std::borrow::Cow;
use std::io;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use bytes::Bytes;
use config::{Error, Msec, Placed, Problem, Template, TextPlace};
use hashbrown::HashMap;
use logs::getaddrinfo::Hosts;
use logs::template::{Variables, expand};
use parking_lot::{Mutex, RwLock};
use runtime::listen::Address;
use slots::slotted;
use smallvec::SmallVec;

use super::balancing::{Asker, BalancingMethod, Choice, Peer, PeerGroup};
use super::keepalive::KeepaliveLimits;
use super::re_resolve::{self, Watching};
use super::resolved_peers::{LookedUp, ResolvedPeers};
use super::sticky::{Sticky, StickySession};
use crate::resolver::address::{ServerAddress, split_port};
use crate::resolver::directives::ResolverLine;
use crate::resolver::{ResolvedName, Resolving, thread};

/// Maximum number of upstreams of a configuration.
pub(crate) const UPSTREAMS_MAX: usize = 10_000;

/// The declaration of an upstream.
#[derive(Debug)]
pub(crate) struct Declaration {
    /// Its name: the host in `proxy_pass`.
    pub name: Bytes,
    /// The port, where no block declares it.
    pub port: Option<u16>,
    /// The load-balancing method.
    pub method: BalancingMethod,
    /// The key of `hash`.
    pub key: Option<Template>,
    /// The limits of its kept connections.
    pub kept: KeepaliveLimits,
    /// Its primary peers.
    pub primary: Vec<Peer>,
    /// Its backup peers.
    pub backup: Vec<Peer>,
}

/// The servers whose names are resolved again and again, and the name servers for them.
#[derive(Debug)]
pub(crate) struct Lookups {
    /// The servers.
    pub servers: Vec<LookedUp>,
    /// The group's own name servers.
    pub resolver: Option<Placed<ResolverLine>>,
    /// The group's own `resolver_timeout`.
    pub timeout: Option<Msec>,
    /// Where the block is.
    pub place: TextPlace,
    /// The effective settings.
    pub watching: OnceLock<Watching>,
}

/// An upstream: its declaration and its live state.
#[derive(Debug)]
pub struct Upstream {
    declared: Declaration,
    lookups: Option<Box<Lookups>>,
    sticky: Option<Box<Sticky>>,
    live: OnceLock<Arc<Live>>,
}

/// The state that survives a reload.
#[derive(Debug)]
pub(crate) struct Live {
    /// The key of a loop's kept connections: the same for the upstream of this name in the next configuration.
    id: u64,
    /// The group that it began with.
    first: Arc<PeerGroup>,
    /// For an upstream whose servers are resolved.
    changing: Option<Changing>,
}

/// The live state where answers of name servers replace the group.
#[derive(Debug)]
struct Changing {
    group: RwLock<Arc<PeerGroup>>,
    roster: Mutex<ResolvedPeers>,
    /// Replaced groups that requests still hold.
    elders: Mutex<Vec<Weak<PeerGroup>>>,
    is_watched: AtomicBool,
}

impl Live {
    /// Expiry of a resolved server's answer, in seconds.
    #[must_use]
    pub(crate) fn valid_s(&self, server: usize) -> i64 {
        let changing = self.changing.as_ref();
        changing.map_or(0, |changing| changing.roster.lock().valid_s(server))
    }

    /// Applies a resolved server's answer.
    pub(crate) fn update(&self, number: usize, server: &LookedUp, found: &ResolvedName) {
        let Some(changing) = &self.changing else {
            return;
        };
        let mut roster = changing.roster.lock();
        let Some(moved) = roster.update(number, server, found) else {
            return;
        };
        let before = Arc::clone(&changing.group.read());
        let (primary, backup) = roster.peers();
        let next = PeerGroup::new(before.name(), before.method.clone(), primary, backup);
        let next = before.replace(next, moved, &mut changing.elders.lock());
        *changing.group.write() = next;
    }
}

impl Upstream {
    /// An upstream that is not in use yet.
    #[must_use]
    pub(crate) fn new(declared: Declaration) -> Upstream {
        Upstream {
            declared,
            lookups: None,
            sticky: None,
            live: OnceLock::new(),
        }
    }

    /// An upstream for one request that resolved its servers itself (`proxy_pass` with variables): nothing of it is
    /// kept.
    #[must_use]
    pub fn of_addresses(name: &[u8], addresses: Vec<Address>) -> Upstream {
        let peer = |address| Peer::new(address, name);
        let primary: Vec<Peer> = addresses.into_iter().map(peer).collect();
        let shown = String::from_utf8_lossy(name).into_owned();
        let live = Live {
            id: new_id(),
            first: Arc::new(PeerGroup::of_request(shown, primary.clone())),
            changing: None,
        };
        let upstream = Upstream::new(Declaration {
            name: Bytes::copy_from_slice(name),
            port: None,
            method: BalancingMethod::RoundRobin,
            key: None,
            kept: KeepaliveLimits::NONE,
            primary,
            backup: Vec::new(),
        });
        let _ = upstream.live.set(Arc::new(live)); // it was made just now
        upstream
    }

    /// Adds servers whose names are resolved again and again, or the name servers alone.
    #[must_use]
    pub(crate) fn with_lookups(self, lookups: Lookups) -> Upstream {
        let is_used = !lookups.servers.is_empty() || lookups.resolver.is_some();
        let lookups = is_used.then(|| Box::new(lookups));
        Upstream { lookups, ..self }
    }

    /// Adds sticky sessions.
    #[must_use]
    pub(crate) fn with_sticky(self, sticky: Option<Sticky>) -> Upstream {
        let sticky = sticky.map(Box::new);
        Upstream { sticky, ..self }
    }

    /// The sticky sessions, if there are any.
    #[must_use]
    pub fn sticky(&self) -> Option<&Sticky> {
        self.sticky.as_deref()
    }

    /// Its declaration.
    #[must_use]
    pub(crate) fn declared(&self) -> &Declaration {
        &self.declared
    }

    /// Its name for metrics and logs.
    #[must_use]
    pub fn name(&self) -> Cow<'_, str> {
        String::from_utf8_lossy(&self.declared.name)
    }

    /// The peers and their states.
    #[must_use]
    pub fn group(&self) -> Arc<PeerGroup> {
        let live = self.live();
        match &live.changing {
            None => Arc::clone(&live.first),
            Some(changing) => Arc::clone(&changing.group.read()),
        }
    }

    /// What the choice for a request depends on: its client's address, its session, the key of `hash`.
    #[must_use]
    pub fn asker(
        &self,
        address: Option<IpAddr>,
        session: Option<&StickySession>,
        request: &impl Variables,
    ) -> Asker {
        let key = self.declared.key.as_ref();
        Asker {
            address,
            key: key.map_or_else(Bytes::new, |key| expand(key, request)),
            sid: session.map_or_else(Bytes::new, |session| session.sid.clone()),
        }
    }

    /// Begins the choice for one request: [`Choice::next`] gives its first peer.
    #[must_use]
    pub fn choose(&self, asker: &Asker) -> Choice {
        Choice::new(&self.group(), asker)
    }

    /// The key of kept connections: unique in the process, and the same after a reload.
    #[must_use]
    pub(crate) fn id(&self) -> u64 {
        self.live().id
    }

    fn live(&self) -> &Arc<Live> {
        self.live
            .get_or_init(|| Arc::new(self.born(new_id(), self.roster())))
    }

    fn roster(&self) -> Option<ResolvedPeers> {
        let count = Some(self.looked_up().len()).filter(|count| *count > 0)?;
        let Declaration {
            primary, backup, ..
        } = &self.declared;
        Some(ResolvedPeers::new(primary, backup, count))
    }

    fn born(&self, id: u64, roster: Option<ResolvedPeers>) -> Live {
        let declared = &self.declared;
        let (primary, backup) = match &roster {
            Some(roster) => roster.peers(),
            None => (declared.primary.clone(), declared.backup.clone()),
        };
        let (name, method) = (self.name(), declared.method.clone());
        let first = Arc::new(PeerGroup::new(name, method, primary, backup));
        let changing = roster.map(|roster| Changing {
            group: RwLock::new(Arc::clone(&first)),
            roster: Mutex::new(roster),
            elders: Mutex::default(),
            is_watched: AtomicBool::new(false),
        });
        Live {
            id,
            first,
            changing,
        }
    }

    /// Takes over the live state of `former`, its equivalent in the previous configuration.
    fn follow(&self, former: &Upstream) {
        if let (Some(own), Some(theirs)) = (&self.sticky, &former.sticky) {
            own.follow(theirs);
        }
        let (old, new) = (&former.declared, &self.declared);
        let is_same = old.method == new.method
            && old.primary == new.primary
            && old.backup == new.backup
            && self.looks_up_as(former);
        let live = match former.live.get() {
            Some(live) if is_same => Arc::clone(live),
            Some(live) => {
                let mut roster = self.roster();
                let theirs = live.changing.as_ref();
                if let (Some(roster), Some(theirs)) = (&mut roster, theirs) {
                    let theirs = &theirs.roster.lock();
                    roster.inherit(self.looked_up(), theirs, former.looked_up());
                }
                Arc::new(self.born(live.id, roster))
            }
            None => return,
        };
        let _ = self.live.set(live); // set before: it is in use already
    }

    fn looked_up(&self) -> &[LookedUp] {
        self.lookups
            .as_ref()
            .map_or(&[], |lookups| &lookups.servers[..])
    }

    fn looks_up_as(&self, other: &Upstream) -> bool {
        let watching =
            |upstream: &Upstream| Some(upstream.lookups.as_ref()?.watching.get().cloned());
        self.looked_up() == other.looked_up() && watching(self) == watching(other)
    }

    /// Finds the name servers for `resolve`: the group's own, which must be there also where nothing asks them, else
    /// those of `http`.
    fn settle(
        &self,
        of_http: &Resolving,
        resolve: &mut dyn FnMut(&str) -> Vec<IpAddr>,
    ) -> Result<(), Error> {
        let Some(lookups) = &self.lookups else {
            return Ok(());
        };
        let Some(line) = lookups.resolver.as_ref().or(of_http.resolver.as_ref()) else {
            let name = self.name();
            let sentence =
                format!("no resolver defined to resolve names at run time in upstream \"{name}\"");
            return Err(Error::at(sentence, &lookups.place));
        };
        let settled = line.value.settle(resolve);
        settled.map_err(|sentence| line.error(sentence))?;
        if let Some(resolver) = line.value.get()
            && !lookups.servers.is_empty()
        {
            let timeout = lookups.timeout.unwrap_or(of_http.resolver_timeout);
            let _ = lookups.watching.set(Watching {
                resolver: Arc::clone(resolver),
                timeout: timeout.duration(),
            });
        }
        Ok(())
    }

    /// Applies the answer for the resolved server of this number.
    #[cfg(test)]
    pub(super) fn found(&self, number: usize, found: &ResolvedName) {
        self.live().update(number, &self.looked_up()[number], found);
    }

    /// Starts to resolve its servers, unless that goes on since the previous configuration.
    fn watch(&self) -> io::Result<()> {
        let Some(lookups) = &self.lookups else {
            return Ok(());
        };
        let live = self.live();
        let (Some(watching), Some(changing)) = (lookups.watching.get(), &live.changing) else {
            return Ok(());
        };
        thread::begin()?;
        if !changing.is_watched.swap(true, Ordering::Relaxed) {
            re_resolve::begin(live, &lookups.servers, watching);
        }
        Ok(())
    }
}

fn new_id() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

slotted!(config::made::WHOLE: Upstreams);

/// The upstreams of a configuration.
#[derive(Debug, Default)]
pub struct Upstreams {
    list: Vec<Arc<Upstream>>,
    /// Indices in the list, by name in lower case.
    by_name: HashMap<Box<[u8]>, SmallVec<[usize; 1]>>,
    hosts: Hosts,
    /// The keepalive limits of each, by its number.
    limits: OnceLock<Arc<HashMap<u64, KeepaliveLimits>>>,
}

impl Upstreams {
    /// The upstreams of `upstream` blocks. `hosts`: resolves the names of servers.
    #[must_use]
    pub fn new(blocks: Vec<Upstream>, hosts: Hosts) -> Upstreams {
        let mut all = Upstreams {
            hosts,
            ..Upstreams::default()
        };
        for upstream in blocks {
            all.add(upstream);
        }
        all
    }

    /// The resolver for server names of this configuration.
    #[must_use]
    pub fn hosts(&self) -> &Hosts {
        &self.hosts
    }

    /// The upstream that `HOST[:PORT]`, `[IPV6][:PORT]` or `unix:PATH` stands for: a block's, or one made of all
    /// addresses of the host. Looks names up by `resolve`, so not on a loop.
    ///
    /// # Errors
    /// nginx's sentence: a bad address, a port at the name of a block, a host that is not found.
    pub fn link(
        &mut self,
        place: &[u8],
        default_port: u16,
        resolve: &mut dyn FnMut(&str) -> Vec<IpAddr>,
    ) -> Result<Arc<Upstream>, Problem> {
        let refuse =
            |reason: &str, name: &str| Problem::new(format!("{reason} in upstream \"{name}\""));
        let text = &String::from_utf8_lossy(place);
        let address =
            ServerAddress::parse(text, default_port).map_err(|reason| refuse(reason, text))?;
        let (name, has_port) = split_port(text);
        // The rest after the name is a port, so both are equally long.
        let exact = &place[..place.len() - (text.len() - name.len())];
        let port = address.port();
        if let Some(known) = self.find(exact, None) {
            if has_port {
                let port = port.unwrap_or(0);
                let sentence = format!("upstream \"{name}\" may not have port {port}");
                return Err(Problem::new(sentence));
            }
            return Ok(Arc::clone(known));
        }
        if let Some(known) = self.find(exact, port) {
            return Ok(Arc::clone(known));
        }
        if self.list.len() == UPSTREAMS_MAX {
            return Err(Problem::new(format!("more than {UPSTREAMS_MAX} upstreams")));
        }
        if port == Some(0) {
            return Err(refuse("no port", name));
        }
        let found = address
            .addresses(resolve)
            .map_err(|reason| refuse(reason, name))?;
        let peer = |address| Peer::new(address, exact);
        Ok(self.add(Upstream::new(Declaration {
            name: Bytes::copy_from_slice(exact),
            port: Some(port.unwrap_or(0)),
            method: BalancingMethod::RoundRobin,
            key: None,
            kept: KeepaliveLimits::NONE,
            primary: found.into_iter().map(peer).collect(),
            backup: Vec::new(),
        })))
    }

    /// The upstream of this name, case-insensitive: without a port a block's, else one that [`Upstreams::link`] made.
    #[must_use]
    pub fn find(&self, name: &[u8], port: Option<u16>) -> Option<&Arc<Upstream>> {
        let name: SmallVec<[u8; 64]> = name.iter().map(u8::to_ascii_lowercase).collect();
        let places = self.by_name.get(&name[..])?;
        let mut same = places.iter().map(|place| &self.list[*place]);
        same.find(|upstream| upstream.declared.port == port)
    }

    /// All upstreams.
    #[must_use]
    pub fn list(&self) -> &[Arc<Upstream>] {
        &self.list
    }

    /// Takes over the live state of the previous configuration. To be called once, before a loop uses these.
    pub fn follow(&self, former: &Upstreams) {
        for upstream in &self.list {
            let declared = &upstream.declared;
            if let Some(before) = former.find(&declared.name, declared.port) {
                upstream.follow(before);
            }
        }
    }

    /// Finds the name servers of every upstream that needs some.
    ///
    /// # Errors
    /// There are none, or one is not found.
    pub fn settle(
        &self,
        of_http: &Resolving,
        resolve: &mut dyn FnMut(&str) -> Vec<IpAddr>,
    ) -> Result<(), Error> {
        let mut all = self.list.iter();
        all.try_for_each(|upstream| upstream.settle(of_http, resolve))
    }

    /// The keepalive limits of each, by its number. Made on first use, after [`Upstreams::follow`] and before a
    /// loop asks: there may be thousands.
    pub fn limits(&self) -> &Arc<HashMap<u64, KeepaliveLimits>> {
        let limit = |upstream: &Arc<Upstream>| (upstream.id(), upstream.declared.kept);
        self.limits
            .get_or_init(|| Arc::new(self.list.iter().map(limit).collect()))
    }

    /// Starts to resolve the servers with `resolve`. To be called once, in the process that serves, after
    /// [`Upstreams::follow`].
    ///
    /// # Errors
    /// The thread for that cannot be started.
    pub fn watch(&self) -> io::Result<()> {
        self.list.iter().try_for_each(|upstream| upstream.watch())
    }

    fn add(&mut self, upstream: Upstream) -> Arc<Upstream> {
        let upstream = Arc::new(upstream);
        let name = upstream.declared.name.to_ascii_lowercase();
        let places = self.by_name.entry(name.into());
        places.or_default().push(self.list.len());
        self.list.push(Arc::clone(&upstream));
        upstream
    }
}
