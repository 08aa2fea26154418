//! The peers of an upstream whose servers' names are resolved periodically (`resolve`).
//!
//! Pure. Not here: the queries ([`super::re_resolve`]). Invariant: a peer that a new answer still has keeps its state;
//! the peers of one server stand together where they came, new ones at the end, as in nginx.

use runtime::listen::Address;

use super::balancing::{Moved, Peer};
use super::server::{Lookup, ServerLine};
use crate::resolver::ResolvedName;
use crate::resolver::cache::ResolvedAddress;

/// A `server` line with `resolve`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LookedUp {
    /// The line, as a template of its peers.
    pub line: ServerLine,
    /// The name to be resolved.
    pub lookup: Lookup,
    /// Whether the group's method supports `backup`.
    pub allows_backup: bool,
}

/// A peer, and the number of the resolved server that it came with; none when it is fixed.
#[derive(Clone, Debug, PartialEq, Eq)]
struct ResolvedPeer {
    peer: Peer,
    server: Option<usize>,
}

/// The current peers.
#[derive(Clone, Debug, Default)]
pub(crate) struct ResolvedPeers {
    primary: Vec<ResolvedPeer>,
    backup: Vec<ResolvedPeer>,
    /// Expiry of each resolved server's answer, in seconds of the resolver's clock.
    valid_s: Vec<i64>,
}

impl ResolvedPeers {
    /// The fixed peers, and that many servers that are not resolved yet.
    #[must_use]
    pub(crate) fn new(primary: &[Peer], backup: &[Peer], servers: usize) -> ResolvedPeers {
        let fixed = |peers: &[Peer]| {
            let member = |peer: &Peer| ResolvedPeer {
                peer: peer.clone(),
                server: None,
            };
            peers.iter().map(member).collect()
        };
        ResolvedPeers {
            primary: fixed(primary),
            backup: fixed(backup),
            valid_s: vec![0; servers],
        }
    }

    /// The peers.
    #[must_use]
    pub(crate) fn peers(&self) -> (Vec<Peer>, Vec<Peer>) {
        let peers =
            |members: &[ResolvedPeer]| members.iter().map(|member| member.peer.clone()).collect();
        (peers(&self.primary), peers(&self.backup))
    }

    /// Expiry of a server's answer, in seconds.
    #[must_use]
    pub(crate) fn valid_s(&self, server: usize) -> i64 {
        self.valid_s.get(server).copied().unwrap_or(0)
    }

    /// Takes over the answer for a server from the previous configuration's peers, where they have one for the same
    /// name.
    pub(crate) fn inherit(
        &mut self,
        own: &[LookedUp],
        before: &ResolvedPeers,
        theirs: &[LookedUp],
    ) {
        for (number, server) in own.iter().enumerate() {
            let is_same = |other: &LookedUp| {
                other.lookup.host == server.lookup.host
                    && other.lookup.service == server.lookup.service
            };
            let Some(other) = theirs.iter().position(is_same) else {
                continue;
            };
            if let Some(valid_s) = self.valid_s.get_mut(number) {
                *valid_s = before.valid_s(other);
            }
            let of_other = |member: &&ResolvedPeer| member.server == Some(other);
            let adopt = |member: &ResolvedPeer| {
                let mut address = member.peer.address.clone();
                if let (None, Address::Inet(inet)) = (&server.lookup.service, &mut address) {
                    inet.set_port(server.lookup.port);
                }
                let (name, weight) = match server.lookup.service {
                    None => (&server.line.name, server.line.weight_of(1)),
                    Some(_) => (&member.peer.server, member.peer.weight),
                };
                ResolvedPeer {
                    peer: server.line.peer(address, name, weight),
                    server: Some(number),
                }
            };
            let (first, stand_ins) = match theirs[other].line.is_backup {
                true => (&before.backup, None),
                false => (&before.primary, Some(&before.backup)),
            };
            let first = first.iter().filter(of_other).map(adopt);
            match server.line.is_backup {
                true => self.backup.extend(first),
                false => self.primary.extend(first),
            }
            // Where `update` puts none, none would ever go.
            if server.allows_backup && !server.line.is_backup {
                let stand_ins = stand_ins.into_iter().flatten();
                self.backup.extend(stand_ins.filter(of_other).map(adopt));
            }
        }
    }

    /// Applies a server's answer. Returns the new indices of the peers that remain; `None`: nothing changed.
    pub(crate) fn update(
        &mut self,
        number: usize,
        server: &LookedUp,
        found: &ResolvedName,
    ) -> Option<Moved> {
        if let Some(valid_s) = self.valid_s.get_mut(number) {
            *valid_s = found.valid_s;
        }
        let priority = |target: &ResolvedAddress| target.server.as_ref().map_or(0, |s| s.priority);
        let first = found.targets.iter().map(priority).min().unwrap_or(0);
        let wanted = |of_backup: bool| {
            let targets = found.targets.iter();
            let targets = targets.filter(move |target| (priority(target) != first) == of_backup);
            targets
                .map(|target| server.member(number, target))
                .collect()
        };
        let (own, stand_in) = match server.line.is_backup {
            true => (&mut self.backup, None),
            false if server.allows_backup => (&mut self.primary, Some(&mut self.backup)),
            false => (&mut self.primary, None),
        };
        let (own_moved, mut is_changed) = replace(own, number, wanted(false));
        let other_moved = stand_in.map(|members| {
            let (moved, is_other_changed) = replace(members, number, wanted(true));
            is_changed |= is_other_changed;
            moved
        });
        let unmoved = |members: &[ResolvedPeer]| (0..members.len()).map(Some).collect();
        let moved = match server.line.is_backup {
            true => Moved {
                primary: unmoved(&self.primary),
                backup: own_moved,
            },
            false => Moved {
                primary: own_moved,
                backup: other_moved.unwrap_or_else(|| unmoved(&self.backup)),
            },
        };
        is_changed.then_some(moved)
    }
}

impl LookedUp {
    fn member(&self, number: usize, target: &ResolvedAddress) -> ResolvedPeer {
        let peer = match &target.server {
            None => {
                let address = Address::Inet((target.ip, self.lookup.port).into());
                self.line
                    .peer(address, &self.line.name, self.line.weight_of(1))
            }
            Some(server) => {
                let address = Address::Inet((target.ip, server.port).into());
                let weight = self.line.weight_of(server.weight);
                self.line.peer(address, server.name.as_bytes(), weight)
            }
        };
        ResolvedPeer {
            peer,
            server: Some(number),
        }
    }
}

/// Replaces the peers of a server; those in both answers stay. Returns the new indices of the previous ones, and
/// whether anything changed.
fn replace(
    members: &mut Vec<ResolvedPeer>,
    number: usize,
    mut wanted: Vec<ResolvedPeer>,
) -> (Vec<Option<usize>>, bool) {
    let mut moved = Vec::with_capacity(members.len());
    let mut kept = Vec::with_capacity(members.len());
    for member in members.drain(..) {
        let is_kept = member.server != Some(number)
            || match wanted.iter().position(|one| *one == member) {
                Some(place) => {
                    wanted.remove(place);
                    true
                }
                None => false,
            };
        moved.push(is_kept.then_some(kept.len()));
        if is_kept {
            kept.push(member);
        }
    }
    let is_changed = !wanted.is_empty() || moved.contains(&None);
    kept.append(&mut wanted);
    *members = kept;
    (moved, is_changed)
}
