//! TLS of servers, made of the values of their directives.
//!
//! It reads files and works on keys: done in the master (to check) and on the worker's helper thread. Not here: where the
//! bytes of files come from (a function is given), the addresses ([`crate::settings`]). Invariants: a value that cannot be
//! obeyed is an error in nginx's words; what is asked for beside others and cannot be offered is one warning.

mod kept;

use std::path::Path;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use config::{Error, PathText, Placed, Scope, Template, TextPlace};
use hashbrown::{HashMap, HashSet};
use logs::wall_clock::Moment;
use tls::certificates::{CERTIFICATES_MAX, Certificates, Pair};
use tls::configure::{ClientVerification, Server, ServerOptions};
use tls::keys::{self, CertificateDer, Password, ReadFile};
use tls::sessions::{self, Context};
use tls::suites::Protocols;
use tls::suites::conf_command::Commands;
use tls::traffic::Sizes;
use tls::verify::Trust;
use tls::x509::canonical::CanonicalName;
use tls::x509::certificate::Certificate;
use tls::x509::time;

use super::acme::AcmeSlot;
use super::directives::{Ocsp, TlsSettings, VerifyClient};
use super::files::{full_name, shown_name};
use super::named_certificates::{CertificateLine, NamedCertificates};
use super::server_tls::{Resumption, ServerTls, WatchedPair};
pub use kept::status_cache;

/// What sessions are made in: those of another protocol's servers are not taken up.
const PROTOCOL: &str = "HTTP";

/// The protocols above TLS that a server offers, the one that it likes best first.
#[must_use]
pub fn alpn(has_http2: bool) -> Vec<Vec<u8>> {
    let http1 = [&b"http/1.1"[..], b"http/1.0", b"http/0.9"];
    let http2 = has_http2.then_some(&b"h2"[..]);
    let all = http2.into_iter().chain(http1);
    all.map(<[u8]>::to_vec).collect()
}

/// The making of one configuration's TLS.
pub struct Making<'a> {
    conf_prefix: &'a Path,
    file: ReadFile<'a>,
    /// What was read already, by the names of certificate, key and passwords.
    pairs: HashMap<(String, String, Option<String>), Pair>,
    /// Warnings that were given: what servers inherit is told once.
    told: HashSet<String>,
}

/// What clients' certificates are judged by.
struct Judging {
    client: Option<ClientVerification>,
    /// What decides about a client, for the context of sessions.
    parts: Vec<Vec<u8>>,
}

impl<'a> Making<'a> {
    /// With the directory of the configuration, and a function that reads files.
    #[must_use]
    pub fn new(conf_prefix: &'a Path, file: ReadFile<'a>) -> Self {
        Self {
            conf_prefix,
            file,
            pairs: HashMap::new(),
            told: HashSet::new(),
        }
    }

    /// The TLS of a server; `None`: it has none. `acme` is the place of its certificate by ACME. Warnings go to `scope`, and
    /// so do faults of files: all of a configuration's are told at once, and a server with one comes without handshakes.
    ///
    /// # Errors
    /// nginx's sentence, at the place of the directive.
    pub fn server(
        &mut self,
        settings: &TlsSettings,
        (has_http2, acme): (bool, Option<Arc<AcmeSlot>>),
        scope: &mut Scope,
    ) -> Result<Option<ServerTls>, Error> {
        let made = ServerTls {
            handshakes: None,
            offers_http2: has_http2,
            of_other_addresses: OnceLock::new(),
            named: None,
            rejects: settings.ssl_reject_handshake,
            verify: settings.ssl_verify_client.value,
            statuses: None,
            resumption: None,
            watched: Vec::new(),
            acme,
        };
        if settings.ssl_certificate.is_empty() {
            let is_any = made.rejects || made.verify != VerifyClient::Off || made.acme.is_some();
            let resumption = is_any.then(|| sound(self.resumption(settings), scope));
            return Ok(resumption.map(|resumption| ServerTls {
                resumption: resumption.filter(|_| kept::is_named(settings)),
                ..made
            }));
        }
        let named = self.named(settings, made.acme.as_ref())?;
        let made_of = self.options(settings, named.as_ref(), has_http2, scope)?;
        let Some((options, resumption)) = made_of else {
            return Ok(Some(made));
        };
        let server = Server::new(options).map_err(|error| at(settings, &error))?;
        self.warn_of_groups(settings, &server, scope);
        let watched = match named {
            Some(_) => Vec::new(),
            None => self.watched(settings),
        };
        Ok(Some(ServerTls {
            handshakes: Some(Arc::new(server)),
            watched,
            named: named.map(Arc::new),
            resumption: Some(resumption).filter(|_| kept::is_named(settings)),
            ..made
        }))
    }

    /// The values that a server's handshakes are made of, and what sessions are kept by; `None`: a file cannot be used.
    fn options(
        &mut self,
        settings: &TlsSettings,
        named: Option<&NamedCertificates>,
        has_http2: bool,
        scope: &mut Scope,
    ) -> Result<Option<(ServerOptions, Resumption)>, Error> {
        let commands = self.commands(settings)?;
        let protocols = self.protocols(settings, scope)?;
        let pairs = match named {
            None => self.certificates(settings, &commands, scope)?,
            Some(_) => Some(Vec::new()),
        };
        let judging = self.judging(settings, scope)?;
        check_ocsp(settings)?;
        let checked = self.check_parameters(settings);
        let checked = sound(checked, scope);
        let has_tickets = commands.has_session_tickets;
        let has_tickets = has_tickets.unwrap_or(settings.ssl_session_tickets);
        let resumption = sound(self.resumption(settings), scope);
        let response = sound(self.response(settings)?, scope);
        let (Some(pairs), Some(judging), Some(()), Some(resumption), Some(response)) =
            (pairs, judging, checked, resumption, response)
        else {
            return Ok(None);
        };
        let context = context(&pairs, named, &judging.parts);
        let schemes = commands.signature_schemes.clone().unwrap_or_default();
        let certificates = Certificates::with_schemes(pairs, schemes);
        let text = |value: &Placed<Bytes>| String::from_utf8_lossy(&value.value).into_owned();
        let options = ServerOptions {
            protocols,
            ciphers: text(&settings.ssl_ciphers),
            prefers_server: settings.ssl_prefer_server_ciphers,
            groups: text(&settings.ssl_ecdh_curve),
            commands,
            certificates: Arc::new(stapled(certificates, response)),
            client: judging.client,
            sessions: resumption.sessions.clone(),
            tickets: has_tickets.then(|| Arc::clone(&resumption.tickets)),
            timeout: settings.ssl_session_timeout.duration(),
            context,
            alpn: alpn(has_http2),
            compresses_certificates: settings.ssl_certificate_compression.value,
            has_early_data: settings.ssl_early_data,
            sizes: sizes(settings),
        };
        Ok(Some((options, resumption)))
    }

    fn name(&self, name: &[u8]) -> String {
        full_name(self.conf_prefix, &String::from_utf8_lossy(name))
    }

    fn commands(&self, settings: &TlsSettings) -> Result<Commands, Error> {
        let mut commands = Commands::default();
        for line in settings.ssl_conf_command.iter() {
            let taken = commands.take(&line.value.name, &line.value.value);
            taken.map_err(|error| line.error(error.to_string()))?;
        }
        Ok(commands)
    }

    fn protocols(&mut self, settings: &TlsSettings, scope: &mut Scope) -> Result<Protocols, Error> {
        let names = &settings.ssl_protocols;
        let offer = Protocols::read(names.names.iter().map(String::as_str));
        let offer = offer.map_err(|error| placed(error.to_string(), names.place.as_ref()))?;
        if !offer.left_out.is_empty() {
            let sentence = format!(
                "\"ssl_protocols\" names versions that are not offered: {}",
                offer.left_out.join(", ")
            );
            self.warn(placed(sentence, names.place.as_ref()), scope);
        }
        Ok(offer.chosen)
    }

    fn warn(&mut self, warning: Error, scope: &mut Scope) {
        if self.told.insert(warning.to_string()) {
            scope.warn(warning);
        }
    }

    fn warn_of_groups(&mut self, settings: &TlsSettings, server: &Server, scope: &mut Scope) {
        if server.left_out().is_empty() {
            return;
        }
        let sentence = format!(
            "\"ssl_ecdh_curve\" names groups that are not offered: {}",
            server.left_out().join(", ")
        );
        self.warn(settings.ssl_ecdh_curve.error(sentence), scope);
    }

    /// The certificates that are read in each handshake; `None`: no name has a variable.
    fn named(
        &self,
        settings: &TlsSettings,
        acme: Option<&Arc<AcmeSlot>>,
    ) -> Result<Option<NamedCertificates>, Error> {
        check_keys(settings)?;
        let (certificates, keys) = (&settings.ssl_certificate, &settings.ssl_certificate_key);
        let lines = certificates.iter().zip(keys.iter());
        let lines = lines.map(|(certificate, key)| (&certificate.value, &key.value));
        let is_fixed =
            |line: (&Template, &Template)| line.0.literal().is_some() && line.1.literal().is_some();
        if lines.clone().all(is_fixed) {
            return Ok(None);
        }
        let lines: Vec<_> = lines
            .map(|(certificate, key)| CertificateLine::new(certificate, key, acme))
            .collect();
        let passwords = self.passwords(settings)?;
        let commands = self.commands(settings)?;
        if commands.certificate.is_some() {
            let place = settings.ssl_conf_command.last();
            let place = place.and_then(|line| line.place.as_ref());
            let sentence =
                "\"ssl_conf_command Certificate\" is not built beside certificates with variables";
            return Err(placed(sentence.to_owned(), place));
        }
        Ok(Some(NamedCertificates::new(
            lines,
            self.conf_prefix,
            passwords,
            &commands,
            settings.ssl_certificate_cache,
        )))
    }

    /// The certificates with their keys, at least one; `None`: one cannot be used.
    fn certificates(
        &mut self,
        settings: &TlsSettings,
        commands: &Commands,
        scope: &mut Scope,
    ) -> Result<Option<Vec<Pair>>, Error> {
        let (certificates, keys) = (&settings.ssl_certificate, &settings.ssl_certificate_key);
        if certificates.len() > CERTIFICATES_MAX {
            let sentence = format!("more than {CERTIFICATES_MAX} certificates of a server");
            return Err(certificates[CERTIFICATES_MAX].error(sentence));
        }
        let Some(passwords) = sound(self.passwords(settings), scope) else {
            return Ok(None);
        };
        let mut pairs = Vec::new();
        for (certificate, key) in certificates.iter().zip(keys.iter()) {
            let names = (&certificate.value.source()[..], &key.value.source()[..]);
            let pair = self.pair(settings, names, &passwords);
            let pair = pair.map_err(|error| {
                let line = if error.is_about_key() {
                    key
                } else {
                    certificate
                };
                line.error(error.to_string())
            });
            if let Ok(pair) = &pair {
                self.warn_of_dates(pair, certificate, scope);
            }
            pairs.push(sound(pair, scope));
        }
        if let Some(certificate) = &commands.certificate {
            let key = commands.private_key.as_ref().unwrap_or(certificate);
            let names = (certificate.as_bytes(), key.as_bytes());
            let pair = self.pair(settings, names, &passwords);
            pairs.push(sound(pair.map_err(|error| at(settings, &error)), scope));
        }
        Ok(pairs.into_iter().collect())
    }

    /// Warns of a certificate that clients refuse because of the time.
    fn warn_of_dates(&mut self, pair: &Pair, line: &Placed<Template>, scope: &mut Scope) {
        let first = pair.cert.first().and_then(|der| Certificate::read(der));
        let now = Moment::now().second();
        let what = first.and_then(|first| match first {
            _ if now > first.not_after => {
                Some(format!("expired on {}", time::text(first.not_after)))
            }
            _ if now < first.not_before => Some(format!(
                "is not valid before {}",
                time::text(first.not_before)
            )),
            _ => None,
        });
        if let Some(what) = what {
            let name = self.name(line.value.source());
            let sentence = format!("certificate \"{}\" {what}", shown_name(&name));
            self.warn(line.error(sentence), scope);
        }
    }

    fn pair(
        &mut self,
        settings: &TlsSettings,
        (certificate, key): (&[u8], &[u8]),
        passwords: &[Password],
    ) -> Result<Pair, tls::Error> {
        let file = settings.ssl_password_file.as_ref();
        let file = file.map(|file| self.name(&file.value.0));
        let (certificate, key) = (self.name(certificate), self.name(key));
        let names = (certificate.clone(), key.clone(), file);
        if let Some(pair) = self.pairs.get(&names) {
            return Ok(Arc::clone(pair));
        }
        let pair = Arc::new(keys::pair(&certificate, &key, passwords, self.file)?);
        self.pairs.insert(names, Arc::clone(&pair));
        Ok(pair)
    }

    /// The certificates that are taken when they change; those that variables name are read in each handshake.
    fn watched(&self, settings: &TlsSettings) -> Vec<Arc<WatchedPair>> {
        if !settings.ssl_certificate_watch {
            return Vec::new();
        }
        let file = settings.ssl_password_file.as_ref();
        let passwords = file.map(|file| self.name(&file.value.0));
        let (certificates, keys) = (&settings.ssl_certificate, &settings.ssl_certificate_key);
        let pairs = certificates.iter().zip(keys.iter());
        let pairs = pairs.map(|(certificate, key)| WatchedPair {
            certificate: self.name(certificate.value.source()),
            key: self.name(key.value.source()),
            passwords: passwords.clone(),
        });
        pairs.map(Arc::new).collect()
    }

    fn passwords(&self, settings: &TlsSettings) -> Result<Vec<Password>, Error> {
        let Some(line) = &settings.ssl_password_file else {
            return Ok(Vec::new());
        };
        let path = self.name(&line.value.0);
        let read = keys::passwords::of_file(&path, self.file);
        read.map_err(|error| line.error(error.to_string()))
    }

    /// What a file of a directive is read to by `read`.
    fn read<T: Default>(
        &self,
        line: Option<&Placed<PathText>>,
        read: impl Fn(&str, ReadFile<'_>) -> Result<T, tls::Error>,
    ) -> Result<T, Error> {
        let Some(line) = line.filter(|line| line.value.is_named()) else {
            return Ok(T::default());
        };
        let value = read(&self.name(&line.value.0), self.file);
        value.map_err(|error| line.error(error.to_string()))
    }

    /// What clients' certificates are judged by; `None`: a file cannot be used.
    fn judging(&self, settings: &TlsSettings, scope: &mut Scope) -> Result<Option<Judging>, Error> {
        let mode = settings.ssl_verify_client.value;
        let told = settings.ssl_client_certificate.as_ref();
        let told = told.filter(|line| line.value.is_named());
        let trusted = settings.ssl_trusted_certificate.as_ref();
        let trusted = trusted.filter(|line| line.value.is_named());
        let needs_any = matches!(mode, VerifyClient::On | VerifyClient::Optional);
        if needs_any && told.is_none() && trusted.is_none() {
            return Err(settings.ssl_verify_client.error(
                "no ssl_client_certificate or ssl_trusted_certificate for ssl_verify_client",
            ));
        }
        let told = told.filter(|_| mode != VerifyClient::Off);
        let told = self.read(told, |name, file| keys::trusted(name, file));
        let trusted = self.read(trusted, |name, file| keys::trusted(name, file));
        let lists = self.read(settings.ssl_crl.as_ref(), |name, file| {
            keys::revocations(name, file)
        });
        let read = (
            sound(told, scope),
            sound(trusted, scope),
            sound(lists, scope),
        );
        let (Some(told), Some(trusted), Some(lists)) = read else {
            return Ok(None);
        };
        if mode == VerifyClient::Off {
            return Ok(Some(Judging {
                client: None,
                parts: Vec::new(),
            }));
        }
        let depth = usize::try_from(settings.ssl_verify_depth.0).unwrap_or(usize::MAX);
        let list = settings.ssl_crl.as_ref();
        let list = list.filter(|line| line.value.is_named());
        let list = list.and_then(|line| (self.file)(&self.name(&line.value.0)).ok());
        let mut parts = vec![mode.name().as_bytes().to_vec(), depth.to_be_bytes().into()];
        parts.extend(told.iter().chain(&trusted).map(|der| der.to_vec()));
        parts.extend(list);
        let all = told.iter().chain(&trusted).cloned();
        let trust = Arc::new(Trust::new(all, lists, depth));
        let authorities = by_names(told);
        Ok(Some(Judging {
            client: Some(ClientVerification { trust, authorities }),
            parts,
        }))
    }

    /// No finite-field Diffie-Hellman is offered, so nothing is weaker than the parameters ask for: no warning.
    fn check_parameters(&mut self, settings: &TlsSettings) -> Result<(), Error> {
        let Some(line) = &settings.ssl_dhparam else {
            return Ok(());
        };
        self.read(Some(line), |name, file| keys::dh_parameters(name, file))?;
        Ok(())
    }

    /// The OCSP response that is sent with certificates; inside, the fault of its file.
    fn response(&self, settings: &TlsSettings) -> Result<Result<Option<Vec<u8>>, Error>, Error> {
        let line = &settings.ssl_stapling;
        if !line.value {
            return Ok(Ok(None));
        }
        if settings.ssl_certificate_compression.value {
            let sentence = "\"ssl_stapling\" is incompatible with \"ssl_certificate_compression\"";
            return Err(line.error(sentence));
        }
        Ok(
            self.read(settings.ssl_stapling_file.as_ref(), |path, file| {
                tls::ocsp::from_file(path, file).map(Some)
            }),
        )
    }

    /// The certificates that a server trusts: those that issued its own may be among them.
    #[must_use]
    pub fn trusted(&self, settings: &TlsSettings) -> Vec<CertificateDer<'static>> {
        let told = settings.ssl_client_certificate.as_ref();
        let told = told.filter(|_| settings.ssl_verify_client.value != VerifyClient::Off);
        let lines = [told, settings.ssl_trusted_certificate.as_ref()];
        // A fault of a file has been told.
        let read = lines.map(|line| self.read(line, |name, file| keys::trusted(name, file)));
        read.into_iter().flatten().flatten().collect()
    }
}

/// The value; its fault is noted, and the search for others goes on.
fn sound<T>(outcome: Result<T, Error>, scope: &mut Scope) -> Option<T> {
    outcome.map_err(|fault| scope.fault(fault)).ok()
}

/// Checks that every certificate has a key.
fn check_keys(settings: &TlsSettings) -> Result<(), Error> {
    let (certificates, keys) = (&settings.ssl_certificate, &settings.ssl_certificate_key);
    let last = certificates.last();
    let Some(last) = last.filter(|_| keys.len() < certificates.len()) else {
        return Ok(());
    };
    let name = String::from_utf8_lossy(last.value.source());
    let sentence = format!("no \"ssl_certificate_key\" is defined for certificate \"{name}\"");
    Err(last.error(sentence))
}

fn check_ocsp(settings: &TlsSettings) -> Result<(), Error> {
    let line = &settings.ssl_ocsp;
    if line.value == Ocsp::Off {
        return Ok(());
    }
    if settings.ssl_verify_client.value == VerifyClient::OptionalNoCa {
        let sentence = "\"ssl_ocsp\" is incompatible with \"ssl_verify_client optional_no_ca\"";
        return Err(line.error(sentence));
    }
    Ok(())
}

fn sizes(settings: &TlsSettings) -> Sizes {
    match settings.ssl_buffer_size {
        None => Sizes::default(),
        Some(size) => Sizes::Fixed(size.bytes()),
    }
}

/// Certificates with this response.
fn stapled(certificates: Certificates, response: Option<Vec<u8>>) -> Certificates {
    for pair in certificates.pairs() {
        if let (Some(response), Some(der)) = (&response, pair.cert.first()) {
            certificates.staple(der, Some(response.clone()));
        }
    }
    certificates
}

/// Certificates each of another subject: clients are told of a name once.
fn by_names<T: AsRef<[u8]>>(mut certificates: Vec<T>) -> Vec<T> {
    let mut known = HashSet::new();
    certificates.retain(|der| {
        let certificate = Certificate::read(der.as_ref());
        known.insert(certificate.map(|certificate| CanonicalName::of(certificate.subject)))
    });
    certificates
}

/// What sessions are made in: of certificates, or of their names where those have variables.
fn context(pairs: &[Pair], named: Option<&NamedCertificates>, parts: &[Vec<u8>]) -> Context {
    let certificates = pairs.iter().filter_map(|pair| pair.cert.first());
    let names = named.map_or_else(Vec::new, NamedCertificates::names);
    let certificates = certificates.map(|der| der.as_ref());
    let certificates: Vec<&[u8]> = certificates
        .chain(names.iter().map(|name| &name[..]))
        .collect();
    let parts: Vec<&[u8]> = parts.iter().map(Vec::as_slice).collect();
    sessions::context(PROTOCOL, &certificates, &parts)
}

/// An error about values, at the place of the directive that it is about.
fn at(settings: &TlsSettings, error: &tls::Error) -> Error {
    let command = settings.ssl_conf_command.iter().rev();
    let mut command = command.map(|line| line.place.as_ref());
    let place = match error {
        tls::Error::NoCipher(_) | tls::Error::CipherWord(_) => settings.ssl_ciphers.place.as_ref(),
        tls::Error::NoGroup { .. } => settings.ssl_ecdh_curve.place.as_ref(),
        tls::Error::NoProtocol(_) => settings.ssl_protocols.place.as_ref(),
        _ => command.next().flatten(),
    };
    placed(error.to_string(), place)
}

fn placed(sentence: String, place: Option<&TextPlace>) -> Error {
    match place {
        Some(place) => Error::at(sentence, place),
        None => Error::without_place(sentence),
    }
}
