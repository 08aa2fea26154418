//! One order: from names to a certificate (RFC 8555, 7.4 and 7.5).

use std::time::Duration;

use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair};
use serde_json::json;
use tls::x509::certificate::Certificate;
use tls::x509::distinguished::common_names;
use zeroize::Zeroizing;

use super::{Client, url_of};
use crate::Error;
use crate::account::base64url;
use crate::challenge::Challenge;
use crate::error::Problem;
use crate::http::Answer;
use crate::identifier::{IDENTIFIERS_MAX, Identifier, Order};
use crate::messages::{Authorization, NamedIdentifier, NewOrder, OrderState, Status};
use crate::sink::Level;
use crate::store::Issued;

/// Maximum time for an authority to convince itself of one name.
const AUTHORIZATION_TIME_MAX: Duration = Duration::from_secs(120);
/// Maximum time for it to sign.
const SIGNING_TIME_MAX: Duration = Duration::from_secs(180);
/// Maximum number of other chains that are looked at.
const CHAINS_MAX: usize = 8;

/// A name whose challenge is answered.
struct Proof {
    authorization: String,
    /// The challenge's URL.
    challenge: String,
    answer: Challenge,
}

impl Client<'_> {
    /// Gets a certificate. `replaces` is the name of the one that it takes the place of (RFC 9773, 5).
    pub(crate) fn order(&mut self, order: &Order, replaces: Option<&str>) -> Result<Issued, Error> {
        let (url, state) = self.new_order(order, replaces)?;
        if state.status == Status::Invalid {
            return Err(failed(&state));
        }
        if state.status == Status::Pending {
            self.prove(&state.authorizations)?;
        }
        let is_over = |state: &OrderState| state.status != Status::Pending;
        let state: OrderState = self.poll(&url, AUTHORIZATION_TIME_MAX, is_over)?;
        if !matches!(
            state.status,
            Status::Ready | Status::Valid | Status::Processing
        ) {
            return Err(failed(&state));
        }
        let key = order.key.generate()?;
        let request = signing_request(order, &key, self.issuer.has_common_name)?;
        let payload = json!({"csr": base64url(&request)}).to_string();
        if state.status == Status::Ready {
            self.post(&state.finalize, payload.as_bytes())?;
        }
        let is_over =
            |state: &OrderState| !matches!(state.status, Status::Ready | Status::Processing);
        let state: OrderState = self.poll(&url, SIGNING_TIME_MAX, is_over)?;
        let certificate = match (state.status, &state.certificate) {
            (Status::Valid, Some(certificate)) => certificate.clone(),
            _ => return Err(failed(&state)),
        };
        let chain = self.download(&certificate)?;
        let key = Zeroizing::new(key.serialize_pem());
        Issued::new(chain, key).map_err(|reason| Error::Answer(format!("no certificate: {reason}")))
    }

    fn new_order(
        &mut self,
        order: &Order,
        replaces: Option<&str>,
    ) -> Result<(String, OrderState), Error> {
        self.register()?;
        let profile = self.profile();
        let url = self.directory.new_order.clone();
        let payload = |replaces| {
            let wanted = NewOrder {
                identifiers: order.identifiers.iter().map(Identifier::named).collect(),
                profile: profile.as_deref(),
                replaces,
            };
            serde_json::to_vec(&wanted).unwrap_or_default()
        };
        let answer = match self.post(&url, &payload(replaces)) {
            Err(Error::Problem(problem)) if replaces.is_some() && problem.may_be_of_replacing() => {
                self.post(&url, &payload(None))
            }
            outcome => outcome,
        };
        let answer = answer?;
        let state = super::json(&answer)
            .map_err(|error| Error::Answer(format!("unexpected answer ({error})")))?;
        let location = answer.field("location").unwrap_or_default().to_owned();
        url_of(&location)?;
        Ok((location, state))
    }

    /// The profile to ask for.
    fn profile(&self) -> Option<String> {
        let profile = self.issuer.profile.as_ref()?;
        let is_offered = self.directory.meta.profiles.contains_key(&profile.name);
        if !is_offered && !profile.is_required {
            let text = format!(
                "acme profile \"{}\" is not supported by the server, acme issuer: \"{}\"",
                profile.name, self.issuer.name
            );
            self.sink.log(Level::Notice, &text);
            return None;
        }
        Some(profile.name.clone())
    }

    /// Proves all names that are not proven yet.
    fn prove(&mut self, authorizations: &[String]) -> Result<(), Error> {
        if authorizations.len() > IDENTIFIERS_MAX {
            return Err(Error::Answer("too many authorizations".to_owned()));
        }
        let mut proofs = Vec::new();
        let outcome = self
            .prepare(authorizations, &mut proofs)
            .and_then(|()| self.convince(&proofs));
        for proof in &proofs {
            self.sink.withdraw(&proof.answer);
        }
        outcome
    }

    /// Has the answers ready.
    fn prepare(&mut self, authorizations: &[String], proofs: &mut Vec<Proof>) -> Result<(), Error> {
        let kind = self.issuer.challenge;
        let thumbprint = self.key.thumbprint();
        for url in authorizations {
            let authorization: Authorization = self.object(url, b"")?;
            let name = &authorization.identifier.value;
            match authorization.status {
                Status::Valid => continue,
                Status::Pending => {}
                _ => return Err(refused(&authorization.identifier, None)),
            }
            let offered = authorization
                .challenges
                .iter()
                .find(|one| one.kind == kind.name());
            let offered = offered.ok_or_else(|| {
                let name: String = name.chars().filter(|letter| !letter.is_control()).collect();
                Error::Configuration(format!(
                    "no challenge \"{}\" is offered for {name}",
                    kind.name()
                ))
            })?;
            let identifier = Identifier::of(&authorization.identifier);
            let identifier = identifier
                .ok_or_else(|| Error::Answer("an authorization of an unknown kind".to_owned()))?;
            let answer = Challenge::new(kind, &identifier, &offered.token, &thumbprint)?;
            // An answer that was not taken in time may be taken later: it is withdrawn as well.
            proofs.push(Proof {
                authorization: url.clone(),
                challenge: offered.url.clone(),
                answer: answer.clone(),
            });
            self.sink.answer(&answer).map_err(Error::Local)?;
        }
        Ok(())
    }

    /// Has the authority look at the answers.
    fn convince(&mut self, proofs: &[Proof]) -> Result<(), Error> {
        for proof in proofs {
            self.post(&proof.challenge, b"{}")?;
        }
        let kind = self.issuer.challenge.name();
        for proof in proofs {
            let is_over = |state: &Authorization| state.status != Status::Pending;
            let state: Authorization =
                self.poll(&proof.authorization, AUTHORIZATION_TIME_MAX, is_over)?;
            if state.status != Status::Valid {
                let challenge = state.challenges.iter().find(|one| one.kind == kind);
                let reason = challenge.and_then(|one| one.error.clone());
                return Err(refused(&state.identifier, reason));
            }
        }
        Ok(())
    }

    /// The chain, by preference.
    fn download(&mut self, url: &str) -> Result<Vec<u8>, Error> {
        let answer = self.post(url, b"")?;
        let Some(wanted) = self.issuer.preferred_chain.clone() else {
            return Ok(answer.body);
        };
        if is_issued_by(&answer.body, &wanted) {
            return Ok(answer.body);
        }
        let base = url_of(url)?;
        let others: Vec<String> = alternates(&answer)
            .filter_map(|target| base.join(target))
            .map(|url| {
                let scheme = if url.is_https { "https" } else { "http" };
                format!("{scheme}://{}{}", url.authority(), url.path)
            })
            .take(CHAINS_MAX)
            .collect();
        for other in others {
            let chain = self.post(&other, b"")?.body;
            if is_issued_by(&chain, &wanted) {
                return Ok(chain);
            }
        }
        Ok(answer.body)
    }
}

/// The other chains that an answer names (RFC 8555, 7.4.2).
fn alternates(answer: &Answer) -> impl Iterator<Item = &str> {
    let links = answer.fields("link").flat_map(|line| line.split(','));
    links.filter_map(|link| {
        let (target, parameters) = link.trim().strip_prefix('<')?.split_once('>')?;
        let mut parameters = parameters.split(';').map(str::trim);
        let is_one = parameters.any(|one| matches!(one, "rel=\"alternate\"" | "rel=alternate"));
        is_one.then_some(target)
    })
}

/// Whether the topmost certificate of a chain is issued by an authority with this common name.
fn is_issued_by(chain: &[u8], name: &str) -> bool {
    let read = |_: &str| Ok(chain.to_vec());
    let chain = tls::keys::chain("chain", &read).unwrap_or_default();
    let last = chain.last().and_then(|der| Certificate::read(der));
    last.is_some_and(|last| common_names(last.issuer).contains(&name.as_bytes()))
}

fn failed(state: &OrderState) -> Error {
    match &state.error {
        Some(problem) => Error::Problem(problem.clone()),
        None => Error::Answer(format!("unexpected order status {:?}", state.status)),
    }
}

/// A name that the authority does not believe.
fn refused(identifier: &NamedIdentifier, reason: Option<Problem>) -> Error {
    let mut problem = reason.unwrap_or_else(|| Problem {
        detail: "the authorization is not valid".to_owned(),
        ..Problem::default()
    });
    problem.detail = format!("{}: {}", identifier.value, problem.detail);
    Error::Problem(problem)
}

/// The request for a certificate (RFC 2986), in DER.
fn signing_request(order: &Order, key: &KeyPair, has_name: bool) -> Result<Vec<u8>, Error> {
    let names: Vec<String> = order
        .identifiers
        .iter()
        .map(|one| one.value().to_owned())
        .collect();
    let made = CertificateParams::new(names.clone()).and_then(|mut params| {
        params.distinguished_name = DistinguishedName::new();
        if let Some(name) = common_name(order).filter(|_| has_name) {
            params.distinguished_name.push(DnType::CommonName, name);
        }
        params.serialize_request(key)
    });
    let made = made.map_err(|error| Error::Local(format!("csr generation failed ({error})")))?;
    Ok(made.der().to_vec())
}

/// The first name, else the first address.
fn common_name(order: &Order) -> Option<&str> {
    let all = &order.identifiers;
    let name = all.iter().find(|one| matches!(one, Identifier::Dns(_)));
    name.or(all.first()).map(Identifier::value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::KeyKind;

    #[test]
    fn requests_name_all_and_are_of_both_kinds() {
        let order = Order {
            identifiers: vec![
                Identifier::Ip("192.0.2.1".to_owned()),
                Identifier::Dns("a.example".to_owned()),
            ],
            key: KeyKind::default(),
        };
        assert_eq!(common_name(&order), Some("a.example"));
        for kind in [KeyKind::Ecdsa(256), KeyKind::Rsa(2048)] {
            let key = kind.generate().unwrap();
            let has =
                |request: &[u8], what: &[u8]| request.windows(what.len()).any(|one| one == what);
            let bare = signing_request(&order, &key, false).unwrap();
            assert!(has(&bare, b"a.example") && has(&bare, &[0x87, 4, 192, 0, 2, 1]));
            assert!(!has(&bare, &[0x55, 4, 3]), "no common name");
            assert!(has(
                &signing_request(&order, &key, true).unwrap(),
                &[0x55, 4, 3]
            ));
        }
    }
}
