//! Resolving the host of a URL that was made from variables.
//!
//! Not here: how names are looked up (`resolver`). Invariant: the look-up does not hold the request, so something else
//! may answer it meanwhile.

use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use runtime::listen::Address;
use wire::Wheel;

use httpcore::settings::Location;
use upstream::resolver::Resolving;
use upstream::{Upstream, Upstreams};

use crate::settings::url::{Host, Url};

/// A host that no configuration names, and that is no address.
#[derive(Debug, Clone)]
pub struct Unresolved {
    name: String,
    port: u16,
    /// The URL, which names the upstream.
    text: Bytes,
}

/// The upstream that a URL names. One without servers comes with the name, where that is to be resolved first.
#[must_use]
pub(crate) fn upstream(upstreams: &Upstreams, url: &Url) -> (Arc<Upstream>, Option<Unresolved>) {
    if let Host::Inet { name, port } = &url.host {
        let known = match port {
            None => upstreams
                .find(name, None)
                .or_else(|| upstreams.find(name, Some(url.port()))),
            Some(port) => upstreams.find(name, Some(*port)),
        };
        if let Some(known) = known {
            return (Arc::clone(known), None);
        }
    }
    let (addresses, unresolved) = match (&url.host, url.host.ip()) {
        (Host::Unix(path), _) => (vec![Address::Unix(path.clone())], None),
        (Host::Inet { .. }, Some(ip)) => {
            let address = Address::Inet((ip, url.port()).into());
            (vec![address], None)
        }
        (Host::Inet { name, .. }, None) => {
            let unresolved = Unresolved {
                name: String::from_utf8_lossy(name).into_owned(),
                port: url.port(),
                text: url.text.clone(),
            };
            (Vec::new(), Some(unresolved))
        }
    };
    let upstream = Upstream::of_addresses(&url.text, addresses);
    (Arc::new(upstream), unresolved)
}

impl Unresolved {
    /// Resolves the name with the location's resolver.
    ///
    /// # Errors
    /// The reason for the log.
    pub async fn resolve(
        &self,
        location: &Location,
        wheel: &Rc<Wheel>,
    ) -> Result<Arc<Upstream>, String> {
        let Self { name, port, text } = self;
        let settings = location.own::<Resolving>();
        let Some(resolver) = settings.get() else {
            return Err(format!("no resolver defined to resolve {name}"));
        };
        let timeout = settings.resolver_timeout.duration();
        let found = resolver.resolve(name, timeout, wheel).await;
        let found = found.map_err(|error| format!("{name} could not be resolved {error}"))?;
        let at = |ip| Address::Inet((ip, *port).into());
        let addresses = found.into_iter().map(at).collect();
        Ok(Arc::new(Upstream::of_addresses(text, addresses)))
    }
}
