//! The address of an OCSP responder: `http://HOST[:PORT][/PATH]`.
//!
//! Not here: talking to it. Invariant: parsing resolves no name.

use std::net::{IpAddr, SocketAddr};

use runtime::listen::Address;

use crate::resolver::address::ServerAddress;

/// The port of a responder that names none.
const DEFAULT_PORT: u16 = 80;
const SCHEME: &str = "http://";

/// A responder.
#[derive(Clone, Debug)]
pub struct Responder {
    /// The host, with its port where that is not 80: the value of `Host`.
    host: String,
    address: ServerAddress,
    path: String,
    /// Addresses, where it is named by one or its name has been looked up.
    known: Vec<SocketAddr>,
}

impl Responder {
    /// Reads an address.
    ///
    /// # Errors
    /// nginx's sentence: what is wrong, and ` in OCSP responder "URL"`.
    pub fn parse(url: &str) -> Result<Responder, String> {
        let told = |what: &str, url: &str| format!("{what} in OCSP responder \"{url}\"");
        let scheme = url.get(..SCHEME.len()).filter(|_| url.len() > SCHEME.len());
        if !scheme.is_some_and(|scheme| scheme.eq_ignore_ascii_case(SCHEME)) {
            return Err(told("invalid URL prefix", url));
        }
        let url = &url[SCHEME.len()..];
        if url.bytes().any(|byte| !byte.is_ascii_graphic()) {
            return Err(told("invalid host", url));
        }
        let end = url.find(['/', '?', '#']).unwrap_or(url.len());
        let (host, path) = url.split_at(end);
        let address = ServerAddress::parse(host, DEFAULT_PORT).map_err(|what| told(what, url))?;
        let known = match &address {
            ServerAddress::Known(Address::Unix(_)) => return Err(told("invalid host", url)),
            ServerAddress::Known(address) => address.inet().into_iter().collect(),
            ServerAddress::Name(..) => Vec::new(),
        };
        Ok(Responder {
            host: host.to_owned(),
            address,
            path: base_of(path),
            known,
        })
    }

    /// Looks its name up while the configuration is built, as nginx does with a responder that stands in it.
    ///
    /// # Errors
    /// nginx's sentence: it is not found.
    pub fn settle(&mut self, resolve: &mut dyn FnMut(&str) -> Vec<IpAddr>) -> Result<(), String> {
        let found = self.address.addresses(resolve);
        let found = found
            .map_err(|what| format!("{what} in OCSP responder \"{}{}\"", self.host, self.path))?;
        self.known = found.iter().filter_map(Address::inet).collect();
        Ok(())
    }

    /// The value of `Host`, by which logs name it, too.
    pub(super) fn host(&self) -> &str {
        &self.host
    }

    /// The name and the port, where it is named by a name.
    pub(super) fn name(&self) -> Option<(&str, u16)> {
        match &self.address {
            ServerAddress::Name(name, port) => Some((name, *port)),
            ServerAddress::Known(_) => None,
        }
    }

    /// Its addresses, as far as they are known without name servers.
    pub(super) fn known(&self) -> &[SocketAddr] {
        &self.known
    }

    /// The target of a GET that asks it (RFC 6960, A.1).
    pub(super) fn target(&self, request: &[u8]) -> String {
        format!("{}{}", self.path, tls::ocsp::path(request))
    }

    /// What stands for it among others: the same text is the same responder.
    pub(super) fn identity(&self) -> String {
        format!("{}{}", self.host, self.path)
    }
}

/// The path that a request is appended to: it begins and ends with a slash, and has no fragment.
fn base_of(path: &str) -> String {
    let path = path.split_once('#').map_or(path, |(path, _)| path);
    let begin = if path.starts_with('/') { "" } else { "/" };
    let end = if path.ends_with('/') || path.is_empty() {
        ""
    } else {
        "/"
    };
    format!("{begin}{path}{end}")
}
