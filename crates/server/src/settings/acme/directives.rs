//! The directives of nginx-acme, word for word.

use acme::challenge::ChallengeKind;
use acme::keys::KeyKind;
use acme::{IDENTIFIERS_MAX, Identifier, Profile};
use bytes::Bytes;
use config::{
    Flag, List, PathText, Placed, Problem, Scope, TextPlace, Value, Word, blocks, directives,
};
use httpcore::settings::given::Given;

/// Maximum number of URLs to reach the operator at.
const CONTACTS_MAX: usize = 16;

blocks! {
    /// Certificates by ACME, for all servers.
    pub(crate) fn lines in Http {
        /// Defines an issuer of certificates: an authority that speaks ACME (RFC 8555), and how to deal with it. It needs a
        /// `resolver` in `http`.
        "acme_issuer": [HTTP] 1 => ACME_ISSUER, syntax "name";
        /// Sets the memory for certificates and keys in nginx. Here no memory is set aside, and the size only has to be one
        /// that nginx accepts.
        "acme_shared_zone" = "zone=ngx_acme_shared:256k": [HTTP] 1, syntax "zone=name:size";
    }
}

directives! {
    /// An issuer of certificates.
    pub(crate) struct IssuerLines in Http {
        /// Sets the URL of the authority's directory. Mandatory.
        uri: Option<Placed<Bytes>> = none, [ACME_ISSUER] 1, syntax "uri";
        /// Sets the key of the account: a kind, for a key that is made and kept in the state directory (`ecdsa:256`, the
        /// default, `ecdsa:384`, `ecdsa:521`, `rsa:2048`, `rsa:3072`, `rsa:4096`), or a file of PEM with a key of these kinds.
        account_key: Option<Placed<Bytes>> = none, [ACME_ISSUER] 1, syntax "alg[:size] | file";
        /// Sets how names are proven: by a request at port 80 (`http-01`, also `http`), which any server answers before
        /// everything else, or by a handshake at port 443 (`tls-alpn-01`, also `tls-alpn`).
        challenge: ChallengeName = "http-01", [ACME_ISSUER] 1;
        /// Has requests for certificates name the first name as the subject's common name, too.
        common_name_in_csr: Flag = "off", [ACME_ISSUER] FLAG;
        /// Sets a URL at which the authority can reach the operator; without a scheme it is a mail address. It may be repeated.
        contact: List<Placed<Bytes>> = none, [ACME_ISSUER] 1, syntax "url";
        /// Binds the account to one that the authority knows outside of ACME: the name of a key, and a file with that key in
        /// base64url, or the key itself behind `data:`.
        external_account_key: Option<ExternalKeyLine> = none, [ACME_ISSUER] 2;
        /// Prefers, of several chains of certificates, the one whose topmost certificate is issued by an authority with this
        /// common name. If there is none, the default chain is taken.
        preferred_chain: Option<Bytes> = none, [ACME_ISSUER] 1, syntax "name";
        /// Asks for a certificate profile. With `require` an authority that does not offer it is asked all the same, and
        /// refuses; else the default one is taken, and the log says so.
        profile: Option<ProfileLine> = none, [ACME_ISSUER] 1..=2;
        /// Sets a file of PEM with the authorities that the ACME server's own certificate is judged by. Without it they are the
        /// system's.
        ssl_trusted_certificate: Option<Placed<PathText>> = none, [ACME_ISSUER] 1, syntax "file";
        /// Judges the ACME server's own certificate.
        ssl_verify: Flag = "on", [ACME_ISSUER] FLAG;
        /// Sets the directory of the account's key, of certificates and their keys; it is made with mode 0700. Without the
        /// directive it is `acme_` and the issuer's name, below the prefix. `off` keeps them in memory only.
        state_path: Option<Placed<Bytes>> = none, [ACME_ISSUER] 1, syntax "path | off";
        /// Agrees to the authority's terms of service, which some ask for. Where they are, the log says when it is needed.
        accept_terms_of_service: Option<Given> = none, [ACME_ISSUER] 0;
    }
}

directives! {
    /// The certificate of a server by ACME.
    pub(crate) struct AcmeServer in Server {
        /// Has an issuer's certificate for these names, which is got and renewed by itself; `$acme_certificate` and
        /// `$acme_certificate_key` are it. Without names they are those of `server_name`: a regular expression is left out
        /// with a warning, a name with a star is refused, a name with a dot in front is two names (with `www.` and without).
        /// Addresses are possible, where the authority takes them. Until there is a certificate, handshakes are refused.
        acme_certificate: Option<CertificateWords> = none, [SERVER] 1..;
    }
}

/// A challenge's name.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ChallengeName(pub ChallengeKind);

impl Value for ChallengeName {
    const SYNTAX: &'static str = "http-01 | tls-alpn-01";

    fn parse(args: &[Word], _: &mut Scope) -> Result<Self, Problem> {
        let word = &args[0];
        match &word.bytes()[..] {
            b"http" | b"http-01" => Ok(Self(ChallengeKind::Http01)),
            b"tls-alpn" | b"tls-alpn-01" => Ok(Self(ChallengeKind::TlsAlpn01)),
            _ => Err(Problem::new(format!("unsupported challenge: {}", word.display())).at(0)),
        }
    }
}

/// The name of a key, and a file with it or the key itself.
#[derive(Clone, Debug)]
pub(crate) struct ExternalKeyLine {
    /// Its name.
    pub kid: String,
    /// Where it is.
    pub key: Placed<Bytes>,
}

impl Value for ExternalKeyLine {
    const SYNTAX: &'static str = "kid file";

    fn parse(args: &[Word], _: &mut Scope) -> Result<Self, Problem> {
        let [kid, key] = args else {
            return Err(Problem::directive("takes a name and a file"));
        };
        for (index, word) in args.iter().enumerate() {
            if word.bytes().is_empty() {
                return Err(Problem::directive("invalid value").at(index));
            }
        }
        Ok(Self {
            kid: kid.display().into_owned(),
            key: Placed {
                value: key.bytes().clone(),
                place: Some(key.place()),
            },
        })
    }
}

/// A profile's name, and whether it is required.
#[derive(Clone, Debug)]
pub(crate) struct ProfileLine(pub Profile);

impl Value for ProfileLine {
    const SYNTAX: &'static str = "name [require]";

    fn parse(args: &[Word], _: &mut Scope) -> Result<Self, Problem> {
        let name = args[0].display().into_owned();
        if name.is_empty() {
            return Err(Problem::directive("invalid value").at(0));
        }
        let is_required = match args.get(1) {
            None => false,
            Some(word) if *word == "require" => true,
            Some(word) => {
                let sentence = format!("invalid parameter \"{}\"", word.display());
                return Err(Problem::new(sentence).at(1));
            }
        };
        Ok(Self(Profile { name, is_required }))
    }
}

/// The words of `acme_certificate`.
#[derive(Clone, Debug)]
pub(crate) struct CertificateWords {
    /// The issuer's name.
    pub issuer: String,
    /// The issuer's place.
    pub place: TextPlace,
    /// What it is for, as far as it is said here.
    pub identifiers: Vec<Identifier>,
    /// The kind of its key.
    pub key: KeyKind,
}

impl Value for CertificateWords {
    const SYNTAX: &'static str = "issuer [identifier …] [key=alg[:size]]";

    fn parse(args: &[Word], _: &mut Scope) -> Result<Self, Problem> {
        let issuer = &args[0];
        if issuer.bytes().is_empty() {
            return Err(Problem::directive("\"issuer\" is missing").at(0));
        }
        let mut words = Self {
            issuer: issuer.display().into_owned(),
            place: issuer.place(),
            identifiers: Vec::new(),
            key: KeyKind::default(),
        };
        for (index, word) in args.iter().enumerate().skip(1) {
            let failed =
                |sentence: &str| Problem::new(format!("acme_certificate: {sentence}")).at(index);
            if let Some(kind) = word.bytes().strip_prefix(b"key=") {
                let kind = String::from_utf8_lossy(kind);
                let kind = KeyKind::parse(&kind).map_err(failed)?;
                words.key = kind.ok_or_else(|| failed("invalid \"key\" value"))?;
                continue;
            }
            add(&mut words.identifiers, word).map_err(|sentence| failed(&sentence))?;
        }
        Ok(words)
    }
}

/// Adds what a word names.
///
/// # Errors
/// nginx-acme's sentence.
pub(super) fn add(identifiers: &mut Vec<Identifier>, word: &Word) -> Result<(), String> {
    let found = Identifier::parse(word.bytes()).map_err(|fault| fault.to_string())?;
    for identifier in found {
        if !identifiers.contains(&identifier) {
            identifiers.push(identifier);
        }
    }
    match identifiers.len() > IDENTIFIERS_MAX {
        true => Err(format!(
            "more than {IDENTIFIERS_MAX} names of a certificate"
        )),
        false => Ok(()),
    }
}

/// The URLs of `contact`.
///
/// # Errors
/// There are too many, or one is none.
pub(super) fn contacts(lines: &List<Placed<Bytes>>) -> Result<Vec<String>, config::Error> {
    let mut urls = Vec::new();
    for line in lines.iter() {
        if urls.len() == CONTACTS_MAX {
            return Err(line.error(format!("more than {CONTACTS_MAX} lines of \"contact\"")));
        }
        let text = std::str::from_utf8(&line.value).ok();
        let text = text.filter(|text| !text.is_empty());
        let text = text.ok_or_else(|| line.error("\"contact\" directive invalid value"))?;
        urls.push(match has_scheme(text) {
            true => text.to_owned(),
            false => format!("mailto:{text}"),
        });
    }
    Ok(urls)
}

/// Whether a text begins with a scheme (RFC 3986, 3.1).
fn has_scheme(text: &str) -> bool {
    let is_inner = |letter: char| letter.is_ascii_alphanumeric() || "+-.".contains(letter);
    text.split_once(':').is_some_and(|(scheme, _)| {
        scheme.starts_with(|first: char| first.is_ascii_alphabetic())
            && scheme.chars().all(is_inner)
    })
}
