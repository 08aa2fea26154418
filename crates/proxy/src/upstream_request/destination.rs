//! Where a request is passed on to: the servers, and the URI that they get.
//!
//! Not here: which server of them (`exchange`).

use std::sync::Arc;

use bytes::Bytes;
use logs::Level;

use crate::settings::family::Family;
use crate::settings::proxy_pass::{PassSettings, PassTarget};
use crate::settings::url::{self, Url, with_slash};
use crate::state::upstream_state;
use crate::upstream_request::resolve::{self, Unresolved};
use httpcore::Failure;
use httpcore::outcome::Outcome;
use httpcore::request::Request;
use upstream::{Upstream, Upstreams};

/// The upstream of one request.
#[derive(Debug, Clone)]
pub struct Destination {
    /// The servers; none yet, where a name is to be resolved first.
    pub upstream: Arc<Upstream>,
    /// That name.
    pub unresolved: Option<Unresolved>,
    /// The URI that replaces the location's prefix, or (`is_whole`) the whole URI; empty: none.
    pub uri: Bytes,
    /// Whether the URI was made from variables and is sent unchanged.
    pub is_whole: bool,
    /// The name of the host that is asked over TLS; `None`: in clear.
    pub tls_host: Option<Bytes>,
}

/// The upstream for this request.
///
/// # Errors
/// The variables gave no valid URL.
pub fn destination(request: &mut Request, passing: &PassSettings) -> Result<Destination, Failure> {
    match &passing.target {
        PassTarget::Fixed { url, upstream } => {
            upstream_state::begin(request, url);
            Ok(Destination {
                upstream: Arc::clone(upstream),
                unresolved: None,
                uri: url.uri.clone(),
                is_whole: false,
                tls_host: tls_host(url),
            })
        }
        PassTarget::Made(template) => {
            let whole = request.evaluate(template);
            let url = passing.url(&whole).map_err(|why| refuse(request, &why))?;
            upstream_state::begin(request, &url);
            let upstreams = request.settings().made::<Upstreams>();
            if passing.family != Family::Proxy
                && let url::Host::Inet { name, port: None } = &url.host
                && upstreams.find(name, None).is_none()
            {
                let why = format!("no port in upstream \"{}\"", url.shown_place());
                return Err(refuse(request, &why));
            }
            let (upstream, unresolved) = resolve::upstream(upstreams, &url);
            Ok(Destination {
                tls_host: tls_host(&url),
                upstream,
                unresolved,
                uri: with_slash(url.uri),
                is_whole: true,
            })
        }
    }
}

fn tls_host(url: &Url) -> Option<Bytes> {
    url.has_tls.then(|| url.host_name().clone())
}

/// The servers behind a name.
///
/// # Errors
/// 502: it cannot be resolved; the log says why.
pub async fn resolved(request: &Request, name: &Unresolved) -> Result<Arc<Upstream>, Outcome> {
    let wheel = &request.client.loop_.wire.wheel;
    let found = name.resolve(request.location(), wheel).await;
    found.map_err(|why| {
        refuse(request, &why);
        Outcome::Failed(Failure::new(502))
    })
}

fn refuse(request: &Request, why: &str) -> Failure {
    request.log(Level::Error, &|out| out.extend_from_slice(why.as_bytes()));
    Failure::new(500)
}
