//! `$acme_certificate` and `$acme_certificate_key`: what `ssl_certificate` and `ssl_certificate_key` take.

use httpcore::request::Request;
use httpcore::variables::append::put;

httpcore::variables! {
    /// The certificate of `acme_certificate` for `ssl_certificate`: `data:` and PEM. Without one it has no value.
    "acme_certificate" => fresh(|request, out| {
        texts(request).is_some_and(|(certificate, _)| put(&certificate, out))
    });
    /// The key of `$acme_certificate` for `ssl_certificate_key`: `data:` and PEM. Without one it has no value.
    "acme_certificate_key" => fresh(|request, out| {
        texts(request).is_some_and(|(_, key)| put(&key, out))
    });
}

fn texts(request: &Request) -> Option<(bytes::Bytes, bytes::Bytes)> {
    let tls = request.server().tls.as_ref()?;
    tls.acme.as_ref()?.texts()
}
