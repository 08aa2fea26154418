//! Values of directives `ssl_…` that no other group has.

use std::time::Duration;

use bytes::Bytes;
use config::{Append, Problem, Scope, TextPlace, Value, Word, parse_number, parse_sec, parse_size};
use tls::suites::Protocols;

/// Minimum size of a shared zone in bytes: nginx's eight pages.
const ZONE_BYTES_MIN: u64 = 8 * 4096;
/// nginx's number of sessions of `builtin`, which is OpenSSL's.
const BUILTIN_SESSIONS: u64 = 20_480;

/// The names of `ssl_protocols`.
#[derive(Clone, Debug, Default)]
pub struct ProtocolNames {
    /// nginx's names of versions, each once.
    pub names: Vec<String>,
    /// The first one's place.
    pub place: Option<TextPlace>,
}

impl Value for ProtocolNames {
    const SYNTAX: &'static str = "SSLv2 | SSLv3 | TLSv1 | TLSv1.1 | TLSv1.2 | TLSv1.3 …";

    fn parse(args: &[Word], scope: &mut Scope) -> Result<Self, Problem> {
        let mut slot = None;
        Self::set(&mut slot, args, scope)?;
        Ok(slot.unwrap_or_default())
    }

    /// Several lines at one level make one set, as in nginx.
    fn set(slot: &mut Option<Self>, args: &[Word], scope: &mut Scope) -> Result<(), Problem> {
        let all = slot.get_or_insert_default();
        for (index, word) in args.iter().enumerate() {
            let Some(name) = Protocols::name(word.bytes()).map(str::to_owned) else {
                return Err(config::not_one_of(word.bytes(), &Protocols::NAMES).at(index));
            };
            if all.names.contains(&name) {
                let sentence = format!("duplicate value \"{name}\"");
                scope.warn(word.error(&Problem::new(sentence)));
                continue;
            }
            all.place.get_or_insert_with(|| word.place());
            all.names.push(name);
        }
        Ok(())
    }
}

/// A command of OpenSSL's configuration.
#[derive(Clone, Debug)]
pub struct ConfCommand {
    /// Its name.
    pub name: String,
    /// Its value.
    pub value: String,
}

impl Value for ConfCommand {
    const SYNTAX: &'static str = "name value";

    fn parse(args: &[Word], _scope: &mut Scope) -> Result<Self, Problem> {
        match args {
            [name, value] => Ok(Self {
                name: name.display().into_owned(),
                value: value.display().into_owned(),
            }),
            _ => Err(Problem::directive("takes a name and a value")),
        }
    }
}

/// `ssl_certificate_cache`.
#[derive(Clone, Copy, Debug)]
pub struct CertificateCache {
    /// Maximum number of certificates. 0: the cache is off.
    pub max: usize,
    /// Seconds after which an unused one goes.
    pub inactive_seconds: u64,
    /// Seconds for which one is taken without looking at its file.
    pub valid_seconds: u64,
}

impl Value for CertificateCache {
    const SYNTAX: &'static str = "off | max=number [inactive=time] [valid=time]";

    fn parse(args: &[Word], _scope: &mut Scope) -> Result<Self, Problem> {
        let mut cache = Self {
            max: 0,
            inactive_seconds: 10,
            valid_seconds: 60,
        };
        let mut is_off = false;
        for (index, word) in args.iter().enumerate() {
            if *word == "off" {
                is_off = true;
                continue;
            }
            let taken = cache.take(word.bytes());
            taken.ok_or_else(|| {
                Problem::new(format!("invalid parameter \"{}\"", word.display())).at(index)
            })?;
        }
        match (is_off, cache.max) {
            (true, _) => Ok(Self { max: 0, ..cache }),
            (false, 0) => Err(Problem::missing_parameter("max")),
            (false, _) => Ok(cache),
        }
    }
}

impl CertificateCache {
    /// The cache that the directive asks for; with `off` one that keeps nothing.
    #[must_use]
    pub fn made(self) -> tls::certificates::CertificateCache {
        tls::certificates::CertificateCache::new(
            self.max,
            Duration::from_secs(self.inactive_seconds),
            Duration::from_secs(self.valid_seconds),
        )
    }

    fn take(&mut self, word: &[u8]) -> Option<()> {
        if let Some(max) = word.strip_prefix(b"max=") {
            let max = parse_number(max).filter(|max| *max > 0)?;
            self.max = usize::try_from(max).unwrap_or(usize::MAX);
        } else if let Some(time) = word.strip_prefix(b"inactive=") {
            self.inactive_seconds = parse_sec(time)?;
        } else {
            self.valid_seconds = parse_sec(word.strip_prefix(b"valid=")?)?;
        }
        Some(())
    }
}

/// A zone that several servers name: `shared:name:size`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SharedZone {
    /// Its name.
    pub name: Bytes,
    /// Its size in bytes.
    pub bytes: u64,
}

/// Why a word is no shared zone.
enum NoZone {
    Invalid,
    TooSmall,
}

impl SharedZone {
    fn read(word: &Word) -> Result<Self, NoZone> {
        let rest = word.bytes().strip_prefix(b"shared:");
        let rest = rest.ok_or(NoZone::Invalid)?;
        let colon = rest.iter().position(|byte| *byte == b':');
        let colon = colon.filter(|at| *at > 0).ok_or(NoZone::Invalid)?;
        let bytes = parse_size(&rest[colon + 1..]).ok_or(NoZone::Invalid)?;
        if bytes < ZONE_BYTES_MIN {
            return Err(NoZone::TooSmall);
        }
        Ok(Self {
            name: Bytes::copy_from_slice(&rest[..colon]),
            bytes,
        })
    }

    /// The zone that a word of `owner` names; `what` it is in messages.
    fn of(word: &Word, owner: &str, what: &str, scope: &mut Scope) -> Result<Self, Problem> {
        let told = word.display();
        let zone = Self::read(word).map_err(|why| {
            Problem::new(match why {
                NoZone::Invalid => format!("invalid {what} \"{told}\""),
                NoZone::TooSmall => format!("{what} \"{told}\" is too small"),
            })
        })?;
        scope.name_zone(&zone.name, zone.bytes, owner)?;
        Ok(zone)
    }
}

/// What sessions are kept in beside a shared zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OwnCache {
    /// `off`: clients are told that there is none.
    Off,
    /// `none`: none.
    None,
    /// `builtin`: so many sessions, of one server.
    Builtin(u64),
}

/// `ssl_session_cache`.
#[derive(Clone, Debug, Default)]
pub struct SessionCache {
    /// The server's own cache, if a line says something of it.
    pub own: Option<OwnCache>,
    /// The cache that servers share.
    pub shared: Option<SharedZone>,
}

impl Value for SessionCache {
    const SYNTAX: &'static str = "off | none | [builtin[:number]] [shared:name:size]";

    fn parse(args: &[Word], scope: &mut Scope) -> Result<Self, Problem> {
        let mut slot = None;
        Self::set(&mut slot, args, scope)?;
        Ok(slot.unwrap_or_default())
    }

    /// A second line at one level adds to the first one, as in nginx.
    fn set(slot: &mut Option<Self>, args: &[Word], scope: &mut Scope) -> Result<(), Problem> {
        let cache = slot.get_or_insert_default();
        for (index, word) in args.iter().enumerate() {
            match &word.bytes()[..] {
                b"off" => cache.own = Some(OwnCache::Off),
                b"none" => cache.own = Some(OwnCache::None),
                b"builtin" => cache.own = Some(OwnCache::Builtin(BUILTIN_SESSIONS)),
                text => match text.strip_prefix(b"builtin:") {
                    None => {
                        let zone =
                            SharedZone::of(word, "ssl_session_cache", "session cache", scope);
                        cache.shared = Some(zone.map_err(|problem| problem.at(index))?);
                    }
                    Some(number) => {
                        let sentence = format!("invalid session cache \"{}\"", word.display());
                        let number = parse_number(number);
                        let number = number.ok_or_else(|| Problem::new(sentence).at(index))?;
                        cache.own = Some(OwnCache::Builtin(number));
                    }
                },
            }
        }
        Ok(())
    }
}

impl Append for SessionCache {
    /// A shared zone of the level above stays where a level names none, as in nginx.
    fn append(parent: &Self, child: Self) -> Self {
        Self {
            own: child.own.or(match child.shared {
                Some(_) => None,
                None => parent.own,
            }),
            shared: child.shared.or_else(|| parent.shared.clone()),
        }
    }
}

/// `ssl_ocsp_cache`.
#[derive(Clone, Debug)]
pub struct OcspCache(pub SharedZone);

impl Value for OcspCache {
    const SYNTAX: &'static str = "off | shared:name:size";

    fn parse(args: &[Word], scope: &mut Scope) -> Result<Self, Problem> {
        match args {
            [word] => match SharedZone::of(word, "ssl_ocsp_cache", "OCSP cache", scope) {
                Ok(zone) => Ok(Self(zone)),
                Err(problem) => Err(problem.at(0)),
            },
            _ => Err(Problem::directive("takes one zone")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read<T: Value>(text: &str) -> Result<T, String> {
        let tree = config::parse_bytes(format!("x {text};").as_bytes()).expect("parses");
        let value = T::parse(&tree.directives[0].args, &mut Scope::new());
        value.map_err(|problem| problem.sentence_for("x"))
    }

    #[test]
    fn session_caches() {
        let cache = read::<SessionCache>("builtin:100 shared:SSL:1m").unwrap();
        assert_eq!(cache.own, Some(OwnCache::Builtin(100)));
        let zone = cache.shared.unwrap();
        assert_eq!((&zone.name[..], zone.bytes), (&b"SSL"[..], 1 << 20));
        for (text, sentence) in [
            ("shared:SSL", "invalid session cache \"shared:SSL\""),
            ("shared::1m", "invalid session cache \"shared::1m\""),
            ("shared:a:1x", "invalid session cache \"shared:a:1x\""),
            ("builtin:x", "invalid session cache \"builtin:x\""),
            ("builtin:+5", "invalid session cache \"builtin:+5\""),
            ("on", "invalid session cache \"on\""),
            ("shared:a:1k", "session cache \"shared:a:1k\" is too small"),
        ] {
            assert_eq!(read::<SessionCache>(text).unwrap_err(), sentence);
        }
        let above = read::<SessionCache>("shared:a:1m").unwrap();
        let below = SessionCache::append(&above, read("builtin").unwrap());
        assert!(below.shared.is_some() && below.own.is_some());
    }

    #[test]
    fn certificate_caches() {
        let cache = read::<CertificateCache>("max=5 valid=1m").unwrap();
        assert_eq!(
            (cache.max, cache.inactive_seconds, cache.valid_seconds),
            (5, 10, 60)
        );
        for off in ["off", "off max=10", "max=10 off", "off valid=1m"] {
            assert_eq!(read::<CertificateCache>(off).unwrap().max, 0, "{off}");
        }
        for (text, sentence) in [
            ("max=0", "invalid parameter \"max=0\""),
            ("max=+5", "invalid parameter \"max=+5\""),
            ("min=1", "invalid parameter \"min=1\""),
            ("off max=0", "invalid parameter \"max=0\""),
            ("valid=1m", "\"x\" must have the \"max\" parameter"),
        ] {
            assert_eq!(read::<CertificateCache>(text).unwrap_err(), sentence);
        }
    }

    #[test]
    fn protocols_are_nginxs_names() {
        let names = read::<ProtocolNames>("TLSv1 tlsv1.2 TLSv1.2")
            .unwrap()
            .names;
        assert_eq!(names, ["TLSv1", "TLSv1.2"]);
        assert_eq!(
            read::<ProtocolNames>("TLSv1.4").unwrap_err(),
            "invalid value \"TLSv1.4\""
        );
    }
}
