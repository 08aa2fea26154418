//! `gzip_static`: a file that lies there compressed already (`FILE.gz`).

use bytes::Bytes;
use config::directives;
use disk::{Errno, Kind};
use message::{HeaderId, Method, Version};

use crate::path::{self, Mapped};
use crate::request::Request;
use crate::respond::Outcome;

use super::{files, static_files};

config::choices! {
    /// When a compressed file is sent.
    pub enum Use {
        /// Never.
        Off = "off",
        /// To clients that accept it.
        On = "on",
        /// To every client.
        Always = "always",
    }
}

directives! {
    /// Files that lie there compressed.
    pub struct GzipStatic in Location {
        /// Sends `FILE.gz` in place of `FILE`, where there is one, to clients that accept gzip (`on`) or to all (`always`).
        gzip_static: Use = "off", [HTTP | SERVER | LOCATION] 1;
    }
}

impl GzipStatic {
    /// Is a compressed file ever sent?
    #[must_use]
    pub fn is_on(&self) -> bool {
        self.gzip_static != Use::Off
    }
}

/// Answers with the compressed file, where there is one and the client takes it.
pub async fn make(request: &mut Request) -> Option<Outcome> {
    let when = request.location().settings.gzip_static.gzip_static;
    if when == Use::Off || !matches!(request.method, Method::Get | Method::Head) {
        return None;
    }
    if when == Use::On && !may_have_gzip(request) {
        return None;
    }
    let mut mapped = Mapped::default();
    path::map(request, &mut mapped).ok()?;
    mapped.path.extend_from_slice(b".gz");
    let access = match files::access(request, &mapped.path) {
        Ok(access) => access,
        Err(failure) => return Some(Outcome::Failed(failure)),
    };
    let file = match request.client.loop_.disk.open(&mapped.path, &access).await {
        Ok(file) if file.meta().kind == Kind::File => file,
        Ok(_) => return None,
        Err(error) => {
            let is_missing = matches!(
                error.errno(),
                Some(Errno::NOENT | Errno::NOTDIR | Errno::NAMETOOLONG)
            );
            if !is_missing {
                let _logged = files::failure(request, &error, &mapped.path);
            }
            return None;
        }
    };
    let mut response = match static_files::of_file(request, &file, &mapped).await {
        Ok(response) => response,
        Err(failure) => return Some(Outcome::Failed(failure)),
    };
    response.content_encoding = Some(Bytes::from_static(b"gzip"));
    Some(Outcome::Answer(response))
}

/// Whether the client takes gzip and is neither old nor behind a proxy: unless they are set, nginx's `gzip_http_version` is 1.1 and
/// its `gzip_proxied` off.
fn may_have_gzip(request: &Request) -> bool {
    request.head.version >= Version::HTTP_11
        && request.head.get(HeaderId::Via).is_none()
        && accepts_gzip(request)
}

/// Whether `Accept-Encoding` names gzip with a quality over 0 (RFC 9110, 12.5.3; nginx does not take `*` for it).
pub fn accepts_gzip(request: &Request) -> bool {
    request
        .head
        .get_each(HeaderId::AcceptEncoding)
        .any(|value| {
            value.split(|c| *c == b',').any(|member| {
                let mut parts = member.split(|c| *c == b';');
                let name = parts.next().unwrap_or_default().trim_ascii();
                let is_gzip = name.eq_ignore_ascii_case(b"gzip");
                is_gzip && !parts.any(|part| is_zero_quality(part.trim_ascii()))
            })
        })
}

fn is_zero_quality(part: &[u8]) -> bool {
    let Some(quality) = part
        .strip_prefix(b"q=")
        .or_else(|| part.strip_prefix(b"Q="))
    else {
        return false;
    };
    !quality.is_empty() && quality.iter().all(|c| matches!(c, b'0' | b'.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quality_zero_refuses() {
        assert!(is_zero_quality(b"q=0"));
        assert!(is_zero_quality(b"q=0.000"));
        assert!(!is_zero_quality(b"q=0.001"));
        assert!(!is_zero_quality(b"level=0"));
    }
}
