//! `acme_issuer` blocks, and the certificates that servers have of each.

use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;

use acme::keys::KeyKind;
use acme::{AccountKey, Authorities, ExternalAccount, Issuer, ORDERS_MAX, Order, Url};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use config::{Directive, Error, Placed, Problem, Scope, Section, parse_size};
use httpcore::settings::server::Names;
use httpcore::tls::{AcmeSlot, acme as shown, full_name};
use upstream::resolver::{Resolver, Resolving};
use zeroize::Zeroizing;

use super::directives::{AcmeServer, IssuerLines, contacts};
use super::orders;
use crate::settings::named_files::from_disk;

/// Maximum number of issuers of a configuration; each has a thread.
const ISSUERS_MAX: usize = 64;
/// Minimum size of a shared zone in bytes: nginx's eight pages.
const ZONE_BYTES_MIN: u64 = 8 * 4096;
/// Files in which distributions keep the authorities that they trust.
const SYSTEM: &[&str] = &[
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

slots::slotted!(config::made::WHOLE: Acme);

/// The issuers of a configuration.
#[derive(Debug, Default)]
pub(crate) struct Acme {
    /// In their order.
    pub issuers: Vec<Declared>,
    blocks: Vec<(IssuerLines, Directive)>,
    has_zone: bool,
}

/// Where a configuration is, and who reads it.
#[derive(Clone, Copy)]
pub(crate) struct Places<'a> {
    /// The prefix (`-p`).
    pub prefix: &'a Path,
    /// The directory of the configuration.
    pub conf_prefix: &'a Path,
    /// Whether it is a worker: that orders nothing, and has no file of an issuer.
    pub is_worker: bool,
}

/// An issuer as declared.
#[derive(Debug, Clone)]
pub(crate) struct Declared {
    /// Its name.
    pub name: String,
    /// What the master needs to ask it; `None` in a worker, which has no keys of accounts.
    pub issuer: Option<Arc<Issuer>>,
    /// The certificates that servers have of it, each once.
    pub orders: Vec<Order>,
}

impl Acme {
    /// Reads an `acme_issuer` block.
    ///
    /// # Errors
    /// The fault, at its place.
    pub(crate) fn read_issuer(
        &mut self,
        block: &Directive,
        scope: &mut Scope,
    ) -> Result<(), Error> {
        let name = block.args[0].display().into_owned();
        if self.issuers.iter().any(|known| known.name == name) {
            return Err(block.error(&Problem::duplicate()));
        }
        if self.issuers.len() == ISSUERS_MAX {
            let sentence = format!("more than {ISSUERS_MAX} issuers");
            return Err(block.error(&Problem::new(sentence)));
        }
        if name.is_empty() || name.contains('/') {
            return Err(block.error(&Problem::directive("invalid value").at(0)));
        }
        let mut raw = <IssuerLines as Section>::Raw::default();
        for line in block.children() {
            IssuerLines::set(&mut raw, line, scope)?;
        }
        self.blocks
            .push((IssuerLines::finish(raw, scope)?, block.clone()));
        self.issuers.push(Declared {
            name,
            issuer: None,
            orders: Vec::new(),
        });
        Ok(())
    }

    /// Reads `acme_shared_zone`.
    ///
    /// # Errors
    /// nginx-acme's sentences.
    pub(crate) fn read_zone(&mut self, line: &Directive, scope: &mut Scope) -> Result<(), Error> {
        if std::mem::replace(&mut self.has_zone, true) {
            return Err(line.error(&Problem::duplicate()));
        }
        let word = &line.args[0];
        let failed = |sentence: String| line.error(&Problem::new(sentence).at(0));
        let Some(zone) = word.bytes().strip_prefix(b"zone=") else {
            return Err(failed(
                "\"acme_shared_zone\" must have \"zone\" parameter".to_owned(),
            ));
        };
        let told = String::from_utf8_lossy(zone).into_owned();
        let colon = zone.iter().position(|byte| *byte == b':');
        let size = colon.and_then(|colon| parse_size(&zone[colon + 1..]));
        let name = told.split(':').next().unwrap_or_default();
        match size {
            None => Err(failed(format!(
                "acme_shared_zone: invalid zone size \"{told}\""
            ))),
            Some(..ZONE_BYTES_MIN) => Err(failed(format!(
                "acme_shared_zone: zone {name} is too small"
            ))),
            Some(bytes) => scope
                .name_zone(name.as_bytes(), bytes, "acme_shared_zone")
                .map_err(|problem| line.error(&problem.at(0))),
        }
    }

    /// The place of a server's certificate.
    ///
    /// # Errors
    /// Names that are none, or an issuer that there is not.
    pub(crate) fn place(
        &mut self,
        server: &AcmeServer,
        names: &Names,
        scope: &mut Scope,
    ) -> Result<Option<Arc<AcmeSlot>>, Error> {
        let Some(words) = &server.acme_certificate else {
            return Ok(None);
        };
        let order = orders::order(words, names, scope)?;
        let mut issuers = self.issuers.iter_mut();
        let Some(issuer) = issuers.find(|issuer| issuer.name == words.issuer) else {
            let sentence = format!("issuer \"{}\" is missing", words.issuer);
            return Err(Error::at(sentence, &words.place));
        };
        let slot = shown::slot(&issuer.name, &order.id());
        if !issuer.orders.contains(&order) {
            if issuer.orders.len() == ORDERS_MAX {
                let sentence = format!("more than {ORDERS_MAX} certificates of an issuer");
                return Err(Error::at(sentence, &words.place));
            }
            issuer.orders.push(order);
        }
        Ok(Some(slot))
    }

    /// Finishes the issuers, once the whole of `http` is read.
    ///
    /// # Errors
    /// What an issuer lacks, or a file that cannot be used.
    pub(crate) fn finish(
        &mut self,
        resolving: &Resolving,
        places: Places<'_>,
        host: &mut dyn FnMut(&str) -> Vec<IpAddr>,
        scope: &mut Scope,
    ) -> Result<(), Error> {
        for ((lines, block), declared) in self.blocks.drain(..).zip(&mut self.issuers) {
            let failed =
                |sentence: &str| block.error(&Problem::new(format!("acme_issuer: {sentence}")));
            let Some(line) = &resolving.resolver else {
                return Err(failed("\"resolver\" is not configured"));
            };
            let settled = line.value.settle(host);
            settled.map_err(|sentence| line.error(sentence))?;
            let resolver = line.value.get();
            let resolver = resolver.ok_or_else(|| failed("\"resolver\" is not configured"))?;
            let Some(uri) = &lines.uri else {
                return Err(failed("\"uri\" is missing"));
            };
            let url = url(uri, scope)?;
            if places.is_worker {
                continue;
            }
            let resolving = (resolver, resolving);
            let issuer = issuer(&declared.name, url, &lines, resolving, places)?;
            declared.issuer = Some(Arc::new(issuer));
        }
        Ok(())
    }
}

fn url(line: &Placed<bytes::Bytes>, scope: &mut Scope) -> Result<Url, Error> {
    let text = String::from_utf8_lossy(&line.value);
    let url = Url::parse(&text);
    let url = url.ok_or_else(|| line.error(format!("invalid URI \"{text}\" in \"uri\"")))?;
    if !url.is_https && !matches!(url.host.as_str(), "localhost" | "127.0.0.1" | "::1") {
        let sentence = "an ACME server without \"https\" can be anybody (RFC 8555, 6.1)";
        scope.warn(line.error(sentence));
    }
    Ok(url)
}

fn issuer(
    name: &str,
    uri: Url,
    lines: &IssuerLines,
    (resolver, resolving): (&Arc<Resolver>, &Resolving),
    places: Places<'_>,
) -> Result<Issuer, Error> {
    let timeout = resolving.resolver_timeout.duration();
    let (asked, text) = (
        Arc::clone(resolver),
        format!("{:?} {timeout:?}", resolver.rules),
    );
    let external = lines.external_account_key.as_ref();
    Ok(Issuer {
        name: name.to_owned(),
        uri,
        account_key: account_key(lines, places.conf_prefix)?,
        challenge: lines.challenge.0,
        has_common_name: lines.common_name_in_csr,
        contacts: contacts(&lines.contact)?,
        external_account: external
            .map(|line| {
                let key = external_key(&line.key, places.conf_prefix)?;
                let kid = line.kid.clone();
                Ok(ExternalAccount { kid, key })
            })
            .transpose()?,
        preferred_chain: lines
            .preferred_chain
            .as_ref()
            .map(|name| String::from_utf8_lossy(name).into_owned()),
        profile: lines.profile.as_ref().map(|line| line.0.clone()),
        authorities: authorities(lines, places.conf_prefix)?,
        state_path: match lines.state_path.as_ref().map(|line| &line.value[..]) {
            Some(b"off") => None,
            Some(path) => Some(places.prefix.join(&*String::from_utf8_lossy(path))),
            None => Some(places.prefix.join(format!("acme_{name}"))),
        },
        accepts_terms: lines.accept_terms_of_service.is_some(),
        resolver: text,
        resolve: Arc::new(move |host| {
            let found = asked.wait_for(host, timeout);
            found.map_err(|error| error.to_string())
        }),
    })
}

fn account_key(lines: &IssuerLines, conf_prefix: &Path) -> Result<AccountKey, Error> {
    let Some(line) = &lines.account_key else {
        return Ok(AccountKey::Made(KeyKind::default()));
    };
    let word = String::from_utf8_lossy(&line.value);
    let kind = KeyKind::parse(&word);
    if let Some(kind) = kind.map_err(|sentence| line.error(format!("account_key: {sentence}")))? {
        return Ok(AccountKey::Made(kind));
    }
    let path = full_name(conf_prefix, &word);
    let failed = |reason: String| {
        line.error(format!(
            "acme_issuer: cannot load account key \"{path}\": {reason}"
        ))
    };
    let bytes = from_disk(&path).map_err(|error| failed(error.to_string()))?;
    let key = AccountKey::given(bytes.to_vec());
    key.ok_or_else(|| {
        failed("it is no ECDSA key of P-256, P-384 or P-521, nor an RSA key".to_owned())
    })
}

/// The key that an account is bound by, out of base64url.
fn external_key(
    line: &Placed<bytes::Bytes>,
    conf_prefix: &Path,
) -> Result<Zeroizing<Vec<u8>>, Error> {
    let text = match line.value.strip_prefix(b"data:") {
        Some(data) => data.to_vec(),
        None => {
            let path = full_name(conf_prefix, &String::from_utf8_lossy(&line.value));
            let read = from_disk(&path);
            let read = read.map_err(|error| {
                line.error(format!(
                    "external_account_key: cannot load \"{path}\": {error}"
                ))
            })?;
            read.to_vec()
        }
    };
    let text = Zeroizing::new(text);
    let trimmed = text.trim_ascii();
    let padded = trimmed
        .iter()
        .rposition(|byte| *byte != b'=')
        .map_or(0, |last| last + 1);
    let key = URL_SAFE_NO_PAD.decode(&trimmed[..padded]);
    let key = key.ok().filter(|key| !key.is_empty());
    key.map(Zeroizing::new).ok_or_else(|| {
        line.error("\"external_account_key\" directive invalid base64url encoded value")
    })
}

fn authorities(lines: &IssuerLines, conf_prefix: &Path) -> Result<Authorities, Error> {
    if !lines.ssl_verify {
        return Ok(Authorities::Unverified);
    }
    let Some(line) = &lines.ssl_trusted_certificate else {
        return Ok(Authorities::System(SYSTEM));
    };
    let path = full_name(conf_prefix, &String::from_utf8_lossy(&line.value.0));
    let read = |path: &str| from_disk(path).map(|bytes| bytes.to_vec());
    let trusted = tls::keys::trusted(&path, &read);
    trusted.map_err(|error| line.error(error.to_string()))?;
    let bytes = from_disk(&path).map_err(|error| line.error(error.to_string()))?;
    Ok(Authorities::Given(bytes))
}
