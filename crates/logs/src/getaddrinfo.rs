//! Host names in a configuration, looked up once: by the master, which sends the addresses along, so that the worker
//! listens on and connects to the same ones, whatever system files it can read.
//!
//! Not here: names that are looked up while serving. Invariant: never called on a loop.

use std::collections::BTreeMap;
use std::ffi::CString;
use std::net::IpAddr;
use std::sync::Arc;

use parking_lot::Mutex;

/// The names of one configuration. Clones share what is known.
#[derive(Debug, Clone, Default)]
pub struct Hosts(Arc<Mutex<BTreeMap<String, Vec<IpAddr>>>>);

impl Hosts {
    /// With these known.
    #[must_use]
    pub fn known(all: BTreeMap<String, Vec<IpAddr>>) -> Self {
        Self(Arc::new(Mutex::new(all)))
    }

    /// All that are known.
    #[must_use]
    pub fn all(&self) -> BTreeMap<String, Vec<IpAddr>> {
        self.0.lock().clone()
    }

    /// All addresses of a host; none when it is not found.
    #[must_use]
    pub fn of(&self, name: &str) -> Vec<IpAddr> {
        let mut known = self.0.lock();
        if let Some(addresses) = known.get(name) {
            return addresses.clone();
        }
        let addresses = look_up(name);
        known.insert(name.to_owned(), addresses.clone());
        addresses
    }

    /// The same with an address in the place of those that were not found, and their names: for judging the rest of a
    /// configuration on a machine that does not know them.
    #[must_use]
    pub fn assuming(&self, address: IpAddr) -> (Self, Vec<String>) {
        let mut all = self.all();
        let mut names = Vec::new();
        for (name, addresses) in &mut all {
            if addresses.is_empty() {
                addresses.push(address);
                names.push(name.clone());
            }
        }
        (Self::known(all), names)
    }

    /// The same as a function.
    pub fn asking(&self) -> impl FnMut(&str) -> Vec<IpAddr> + use<> {
        let hosts = self.clone();
        move |name| hosts.of(name)
    }
}

/// As nginx: a machine whose addresses, besides those of its loopback, are of one family is given that family's alone.
#[expect(
    clippy::disallowed_methods,
    reason = "called by the master and on helper threads only"
)]
fn look_up(name: &str) -> Vec<IpAddr> {
    let name = CString::new(name).ok();
    let found = name.and_then(|name| sys::addresses_of(&name).ok());
    let mut addresses = found.unwrap_or_default();
    addresses.dedup();
    addresses
}
