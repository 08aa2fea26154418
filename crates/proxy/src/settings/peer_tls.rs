//! TLS to servers, made of the values of its directives.
//!
//! It reads files and works on keys: done in the master (to check) and on the worker's helper thread. Not here: where the
//! bytes of files come from (a function is given). Invariant: a value that cannot be obeyed is an error in nginx's words;
//! what is asked for beside others and cannot be offered is one warning.

use std::hash::{Hash, Hasher};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use config::{Error, PathText, Placed, Scope, Template, TextPlace};
use hashbrown::{HashMap, HashSet};
use httpcore::tls::full_name;
use tls::certificates::Pair;
use tls::configure::{Client, ClientOptions};
use tls::handshake::can_be_sent;
use tls::keys::{self, Password};
use tls::suites::Protocols;
use tls::suites::conf_command::Commands;
use tls::verify::Trust;
use upstream::peer_tls::{PeerTls, PeerTlsValues, RequestCertificates};

use crate::settings::family::Family;
use crate::settings::ssl::ProxySsl;

/// Reads a file whole.
type FileReading = dyn Fn(&str) -> io::Result<Vec<u8>>;

/// The making of one configuration's TLS to servers.
pub struct PeerTlsMaking {
    conf_prefix: PathBuf,
    file: Box<FileReading>,
    /// What was made already, by the address of the settings, which are kept so that it stays theirs.
    made: HashMap<(usize, bool), (Arc<ProxySsl>, Arc<PeerTls>)>,
    /// By the names of both files and the depth.
    trusts: HashMap<(String, Option<String>, u64), Arc<Trust>>,
    /// Warnings that were given: what locations inherit is told once.
    told: HashSet<String>,
    /// Names of the files of passwords that were checked.
    checked: HashSet<String>,
}

/// One family's settings, under their names in messages.
struct FamilySsl<'s> {
    family: Family,
    settings: &'s ProxySsl,
    is_http2: bool,
}

/// The bytes of files that decide about a connection, beside names and flags.
#[derive(Default)]
struct FilesHash(std::hash::DefaultHasher);

impl PeerTlsMaking {
    /// With the directory of the configuration, and a function that reads files.
    #[must_use]
    pub fn new(conf_prefix: &Path, file: impl Fn(&str) -> io::Result<Vec<u8>> + 'static) -> Self {
        Self {
            conf_prefix: conf_prefix.to_owned(),
            file: Box::new(file),
            made: HashMap::new(),
            trusts: HashMap::new(),
            told: HashSet::new(),
            checked: HashSet::new(),
        }
    }

    /// Reads the file of passwords that a family's settings name, also where nothing is passed on over TLS. Its fault goes to
    /// `scope`, once.
    pub fn check_passwords(&mut self, settings: &ProxySsl, scope: &mut Scope) {
        let Some(named) = &settings.proxy_ssl_password_file else {
            return;
        };
        if self.checked.insert(self.name(&named.value.0)) {
            sound(self.passwords(settings), scope);
        }
    }

    /// What handshakes use under these settings of a family; with HTTP/2 its name is offered (ALPN). Warnings go to `scope`.
    ///
    /// # Errors
    /// nginx's sentence, at the place of the directive, or without one where a directive is missing.
    pub fn make(
        &mut self,
        (family, is_http2): (Family, bool),
        settings: &Arc<ProxySsl>,
        scope: &mut Scope,
    ) -> Result<Arc<PeerTls>, Error> {
        let address = (Arc::as_ptr(settings) as usize, is_http2);
        if let Some((_, made)) = self.made.get(&address) {
            return Ok(Arc::clone(made));
        }
        let made = {
            let named = FamilySsl {
                family,
                settings,
                is_http2,
            };
            Arc::new(self.made_of(&named, scope)?)
        };
        let kept = (Arc::clone(settings), Arc::clone(&made));
        self.made.insert(address, kept);
        Ok(made)
    }

    fn made_of(&mut self, named: &FamilySsl<'_>, scope: &mut Scope) -> Result<PeerTls, Error> {
        let settings = named.settings;
        let mut files = FilesHash::default();
        // A file at fault refuses the configuration as a whole, so what stands in its place is never used. That of this one
        // is noted.
        let passwords = self.passwords(settings).unwrap_or_default();
        let own = self.certificate(named, passwords, &mut files);
        let (certificate, certificates) = sound(own, scope).unwrap_or_default();
        let options = ClientOptions {
            protocols: self.protocols(named, scope)?,
            ciphers: text(&settings.proxy_ssl_ciphers.value),
            commands: commands(settings)?,
            certificate,
            sends_name: settings.proxy_ssl_server_name,
            alpn: match named.is_http2 {
                true => vec![b"h2".to_vec()],
                false => Vec::new(),
            },
            ..ClientOptions::default()
        };
        self.warn_of_name(named, scope);
        let trust = self.trust(named, &mut files);
        let trust = match trust {
            // Where a directive is missing, the level is at fault, not a file.
            Err(error) if named_file(settings.proxy_ssl_trusted_certificate.as_ref()).is_none() => {
                return Err(error);
            }
            trust => sound(trust, scope).flatten(),
        };
        let identity = (
            format!("{:?} {}", options.protocols, options.ciphers),
            format!("{:?}", options.commands),
            (
                settings.proxy_ssl_server_name,
                settings.proxy_ssl_verify,
                named.is_http2,
            ),
            settings.proxy_ssl_verify_depth.0,
            files.0.finish(),
        );
        let client = Client::new(options);
        let client = client.map_err(|error| fault_of(settings, &error))?;
        let values = PeerTlsValues {
            client,
            trust,
            keeps_sessions: settings.proxy_ssl_session_reuse,
            sends_name: settings.proxy_ssl_server_name,
            certificates,
        };
        Ok(PeerTls::new(values, &identity))
    }

    /// The full name of a file.
    fn name(&self, name: &[u8]) -> String {
        full_name(&self.conf_prefix, &text(name))
    }

    /// The name of a file, and its bytes noted.
    fn noted(&self, name: &[u8], files: &mut FilesHash) -> String {
        let name = self.name(name);
        name.hash(&mut files.0);
        if keys::path(&name).is_some() {
            (self.file)(&name).unwrap_or_default().hash(&mut files.0);
        }
        name
    }

    fn passwords(&self, settings: &ProxySsl) -> Result<Vec<Password>, Error> {
        let Some(named) = &settings.proxy_ssl_password_file else {
            return Ok(Vec::new());
        };
        let name = self.name(&named.value.0);
        let passwords = keys::passwords::of_file(&name, &*self.file);
        passwords.map_err(|error| named.error(error.to_string()))
    }

    /// The own certificate, read now, or what reads it for each connection.
    fn certificate(
        &self,
        FamilySsl {
            family, settings, ..
        }: &FamilySsl<'_>,
        passwords: Vec<Password>,
        files: &mut FilesHash,
    ) -> Result<(Option<Pair>, Option<RequestCertificates>), Error> {
        let named = settings.proxy_ssl_certificate.as_ref();
        let Some(certificate) = named.filter(|named| !is_empty(&named.value)) else {
            return Ok((None, None));
        };
        let Some(key) = &settings.proxy_ssl_certificate_key else {
            let sentence = format!(
                "no \"proxy_ssl_certificate_key\" is defined for certificate \"{}\"",
                certificate.place.as_ref().map_or_else(String::new, said)
            );
            return Err(certificate.error(family.renamed(&sentence)));
        };
        let (Some(one), Some(other)) = (certificate.value.literal(), key.value.literal()) else {
            let cache = settings.proxy_ssl_certificate_cache.made();
            return Ok((None, Some(RequestCertificates::new(cache, passwords))));
        };
        let (one, other) = (self.noted(one, files), self.noted(other, files));
        let pair = keys::pair(&one, &other, &passwords, &*self.file);
        let pair = pair.map_err(|error| {
            let line = if error.is_about_key() {
                key
            } else {
                certificate
            };
            line.error(error.to_string())
        })?;
        Ok((Some(Arc::new(pair)), None))
    }

    fn protocols(
        &mut self,
        FamilySsl {
            family, settings, ..
        }: &FamilySsl<'_>,
        scope: &mut Scope,
    ) -> Result<Protocols, Error> {
        let names = &settings.proxy_ssl_protocols;
        let at = |sentence: String| match &names.place {
            Some(place) => Error::at(sentence, place),
            None => Error::without_place(sentence),
        };
        let offer = Protocols::read(names.names.iter().map(String::as_str));
        let offer = offer.map_err(|error| {
            at(error
                .to_string()
                .replace("ssl_protocols", &family.renamed("proxy_ssl_protocols")))
        })?;
        if !offer.left_out.is_empty() {
            let directive = family.renamed("proxy_ssl_protocols");
            let left_out = offer.left_out.join(" ");
            let sentence =
                format!("\"{directive}\": {left_out} is not offered, only TLSv1.2 and TLSv1.3 are");
            if self.told.insert(sentence.clone()) {
                scope.warn(at(sentence));
            }
        }
        Ok(offer.chosen)
    }

    /// Warns of a name that servers are not told, although they should be: the library sends names of hosts alone.
    fn warn_of_name(&mut self, named: &FamilySsl<'_>, scope: &mut Scope) {
        let FamilySsl {
            family, settings, ..
        } = named;
        let line = settings.proxy_ssl_name.as_ref();
        let line = line.filter(|_| settings.proxy_ssl_server_name);
        let literal = line.and_then(|line| line.value.literal().zip(Some(line)));
        let Some((name, line)) = literal.filter(|(name, _)| !name.is_empty()) else {
            return;
        };
        let name = text(without_port(name));
        if !can_be_sent(&name) {
            let directive = family.renamed("proxy_ssl_name");
            let sentence = format!("\"{directive}\": \"{name}\" is no host's name and is not sent");
            if self.told.insert(sentence.clone()) {
                scope.warn(line.error(sentence));
            }
        }
    }

    /// What servers' certificates have to come from.
    fn trust(
        &mut self,
        FamilySsl {
            family, settings, ..
        }: &FamilySsl<'_>,
        files: &mut FilesHash,
    ) -> Result<Option<Arc<Trust>>, Error> {
        if !settings.proxy_ssl_verify {
            return Ok(None);
        }
        let Some(trusted) = named_file(settings.proxy_ssl_trusted_certificate.as_ref()) else {
            let sentence = "no proxy_ssl_trusted_certificate for proxy_ssl_verify";
            return Err(Error::without_place(family.renamed(sentence)));
        };
        let depth = settings.proxy_ssl_verify_depth.0;
        let lists = named_file(settings.proxy_ssl_crl.as_ref());
        let file = self.noted(&trusted.value.0, files);
        let crl = lists.map(|lists| self.noted(&lists.value.0, files));
        let key = (file, crl, depth);
        if let Some(trust) = self.trusts.get(&key) {
            return Ok(Some(Arc::clone(trust)));
        }
        let at = |place: &Placed<PathText>, error: tls::Error| place.error(error.to_string());
        let certificates =
            keys::trusted(&key.0, &*self.file).map_err(|error| at(trusted, error))?;
        let revocations = match (&key.1, lists) {
            (Some(name), Some(lists)) => {
                keys::revocations(name, &*self.file).map_err(|error| at(lists, error))?
            }
            _ => Vec::new(),
        };
        let depth = usize::try_from(depth).unwrap_or(usize::MAX);
        let trust = Arc::new(Trust::new(certificates, revocations, depth));
        self.trusts.insert(key, Arc::clone(&trust));
        Ok(Some(trust))
    }
}

/// The line of a directive that names a file.
fn named_file(line: Option<&Placed<PathText>>) -> Option<&Placed<PathText>> {
    line.filter(|line| line.value.is_named())
}

/// The value; its fault is noted, and the search for others goes on.
fn sound<T>(outcome: Result<T, Error>, scope: &mut Scope) -> Option<T> {
    outcome.map_err(|fault| scope.fault(fault)).ok()
}

fn commands(settings: &ProxySsl) -> Result<Commands, Error> {
    let mut commands = Commands::default();
    for line in settings.proxy_ssl_conf_command.iter() {
        let taken = commands.take(&line.value.name, &line.value.value);
        taken.map_err(|error| line.error(error.to_string()))?;
    }
    for (name, value) in [
        ("Certificate", &commands.certificate),
        ("PrivateKey", &commands.private_key),
    ] {
        if let Some(value) = value {
            let sentence = format!("SSL_CONF_cmd(\"{name}\", \"{value}\") is not supported here");
            return Err(match settings.proxy_ssl_conf_command.first() {
                Some(line) => line.error(sentence),
                None => Error::without_place(sentence),
            });
        }
    }
    Ok(commands)
}

/// A fault in what is offered, at the line of ciphers where that is at fault.
fn fault_of(settings: &ProxySsl, error: &tls::Error) -> Error {
    match error {
        tls::Error::NoCipher(_) | tls::Error::CipherWord(_) => {
            settings.proxy_ssl_ciphers.error(error.to_string())
        }
        error => match settings.proxy_ssl_conf_command.first() {
            Some(line) => line.error(error.to_string()),
            None => Error::without_place(error.to_string()),
        },
    }
}

fn is_empty(template: &Template) -> bool {
    template.literal().is_some_and(Bytes::is_empty)
}

/// The text of a value as it was written.
fn said(place: &TextPlace) -> String {
    let (start, end) = (place.span.start as usize, place.span.end as usize);
    text(place.text.bytes().get(start..end).unwrap_or_default())
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The name of a server without its port: `$proxy_host` and `$http_host` may have one.
pub(crate) fn without_port(name: &[u8]) -> &[u8] {
    let skipped = match name.first() {
        Some(b'[') => memchr::memchr(b']', name).unwrap_or(0),
        _ => 0,
    };
    match memchr::memchr(b':', &name[skipped..]) {
        Some(at) => &name[..skipped + at],
        None => name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_left_out() {
        for (name, expected) in [
            ("a:8", "a"),
            ("a", "a"),
            ("[::1]:8", "[::1]"),
            ("[::1]", "[::1]"),
            ("[a:8", "[a"),
            ("", ""),
        ] {
            assert_eq!(without_port(name.as_bytes()), expected.as_bytes(), "{name}");
        }
    }
}
