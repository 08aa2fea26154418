//! Names of hosts in `listen`, looked up while a configuration is built: by the master, and by the
//! worker on a helper thread.
//!
//! Not here: names that are looked up while serving. Invariant: never called on a loop.
#![expect(
    clippy::disallowed_types,
    reason = "called by the master and on helper threads only"
)]

use std::net::{IpAddr, ToSocketAddrs};

/// All addresses of a host; none when it is not found.
pub fn host(name: &str) -> Vec<IpAddr> {
    let found = (name, 0)
        .to_socket_addrs()
        .map(|all| all.map(|address| address.ip()).collect());
    let mut addresses: Vec<IpAddr> = found.unwrap_or_default();
    addresses.dedup();
    addresses
}
