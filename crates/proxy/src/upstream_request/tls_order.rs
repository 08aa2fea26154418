//! TLS as a request asks for it: the server's name and the own certificate, where they are made of variables.
//!
//! Not here: handshakes (`upstream::peer_tls`).

use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use config::Template;
use httpcore::request::Request;
use upstream::peer_tls::TlsOrder;

use crate::settings::peer_tls::without_port;
use crate::settings::proxy_pass::PassSettings;

/// The order for connections to `host`; `None`: its location has no TLS.
pub(super) fn of(request: &Request, passing: &PassSettings, host: &Bytes) -> Option<Rc<TlsOrder>> {
    let tls = Arc::clone(passing.tls.as_ref()?);
    let ssl = &passing.groups.ssl;
    let name = match (tls.needs_name(), &ssl.proxy_ssl_name) {
        (false, _) => Bytes::new(),
        (true, Some(line)) => request.evaluate(&line.value),
        (true, None) => host.clone(),
    };
    let certificate = match (&ssl.proxy_ssl_certificate, &ssl.proxy_ssl_certificate_key) {
        (Some(certificate), Some(key)) => names(request, [&certificate.value, &key.value]),
        _ => None,
    };
    Some(Rc::new(TlsOrder {
        tls,
        name: String::from_utf8_lossy(without_port(&name)).into(),
        certificate,
    }))
}

/// The names of certificate and key, where one of them has variables. An empty name is no certificate.
fn names(request: &Request, templates: [&Template; 2]) -> Option<Arc<(String, String)>> {
    if templates
        .iter()
        .all(|template| template.literal().is_some())
    {
        return None;
    }
    let prefix = &request.settings().conf_prefix;
    let [certificate, key] = templates.map(|template| request.evaluate(template));
    let name = |text: &Bytes| httpcore::tls::full_name(prefix, &String::from_utf8_lossy(text));
    (!certificate.is_empty()).then(|| Arc::new((name(&certificate), name(&key))))
}
