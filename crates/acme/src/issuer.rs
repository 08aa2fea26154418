//! An issuer: an authority and how to deal with it, as `acme_issuer` says.

use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;

use zeroize::Zeroizing;

use crate::Url;
use crate::account::SigningKey;
use crate::challenge::ChallengeKind;
use crate::keys::KeyKind;

/// Finds the addresses of a host, or says why there are none. May wait, for a bounded time.
pub type Resolve = Arc<dyn Fn(&str) -> Result<Vec<IpAddr>, String> + Send + Sync>;

/// The key of the account.
#[derive(Clone, PartialEq, Eq)]
pub enum AccountKey {
    /// One that is made, and kept in the state directory.
    Made(KeyKind),
    /// That of a file, as PEM.
    Given(Zeroizing<Vec<u8>>),
}

impl AccountKey {
    /// The key in a file's text; `None`: there is none of a kind that can be used.
    #[must_use]
    pub fn given(pem: Vec<u8>) -> Option<Self> {
        let pem = Zeroizing::new(pem);
        SigningKey::of_pem(&pem)?;
        Some(Self::Given(pem))
    }
}

/// What binds the account to one that the authority knows outside of ACME.
#[derive(Clone, PartialEq, Eq)]
pub struct ExternalAccount {
    /// The key's name.
    pub kid: String,
    /// The key.
    pub key: Zeroizing<Vec<u8>>,
}

/// A certificate profile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Profile {
    /// Its name.
    pub name: String,
    /// Whether an authority that does not offer it is asked all the same, and may refuse.
    pub is_required: bool,
}

/// What the authority's own certificate is judged by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Authorities {
    /// A file of PEM, whose text is this.
    Given(Arc<[u8]>),
    /// The first of these files that there is.
    System(&'static [&'static str]),
    /// Nothing: any certificate is taken.
    Unverified,
}

/// An issuer.
#[derive(Clone)]
pub struct Issuer {
    /// Its name in the configuration.
    pub name: String,
    /// The authority's directory.
    pub uri: Url,
    /// The key of the account.
    pub account_key: AccountKey,
    /// How names are proven.
    pub challenge: ChallengeKind,
    /// Whether requests for certificates have a common name.
    pub has_common_name: bool,
    /// URLs to reach the operator at.
    pub contacts: Vec<String>,
    /// Another account to bind to.
    pub external_account: Option<ExternalAccount>,
    /// The common name of the authority that the topmost certificate of the chain is best issued by.
    pub preferred_chain: Option<String>,
    /// The profile to ask for.
    pub profile: Option<Profile>,
    /// What the authority's own certificate is judged by.
    pub authorities: Authorities,
    /// Where the state is kept; `None`: nowhere.
    pub state_path: Option<PathBuf>,
    /// Whether the terms of service are agreed to.
    pub accepts_terms: bool,
    /// The name servers, as text: two issuers with the same ones are the same.
    pub resolver: String,
    /// Finds the authority's addresses.
    pub resolve: Resolve,
}

impl std::fmt::Debug for Issuer {
    /// Without keys.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Issuer")
            .field("name", &self.name)
            .field("uri", &self.uri)
            .finish_non_exhaustive()
    }
}

impl PartialEq for Issuer {
    /// All but the function that finds addresses.
    fn eq(&self, other: &Self) -> bool {
        let own = |issuer: &Self| {
            (
                issuer.name.clone(),
                issuer.uri.clone(),
                issuer.challenge,
                issuer.has_common_name,
                issuer.contacts.clone(),
                issuer.preferred_chain.clone(),
                issuer.profile.clone(),
                issuer.authorities.clone(),
                issuer.state_path.clone(),
                issuer.accepts_terms,
                issuer.resolver.clone(),
            )
        };
        own(self) == own(other)
            && self.account_key == other.account_key
            && self.external_account == other.external_account
    }
}

#[cfg(test)]
impl Issuer {
    /// One whose terms are accepted, and that no host name is found for.
    pub(crate) fn of_test(uri: &str) -> Self {
        Self {
            name: "test".to_owned(),
            uri: Url::parse(uri).expect("a test's URL"),
            account_key: AccountKey::Made(KeyKind::default()),
            challenge: ChallengeKind::Http01,
            has_common_name: false,
            contacts: Vec::new(),
            external_account: None,
            preferred_chain: None,
            profile: None,
            authorities: Authorities::Unverified,
            state_path: None,
            accepts_terms: true,
            resolver: String::new(),
            resolve: Arc::new(|_| Err("(3: Host not found)".to_owned())),
        }
    }
}
