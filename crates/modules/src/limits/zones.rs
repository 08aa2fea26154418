//! `limit_req_zone` and `limit_conn_zone`: the zones of a configuration.
//!
//! A zone keeps its keys over reloads, by its name, as long as its size stays the same. Invariant: a name stands for
//! one zone; its index is known before the first request.

use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use config::{Directive, Error, Problem, Scope, Template, Word, blocks, parse_size};

use super::connections::Connections;
use super::metrics::{Kind, LimitFigures, of};
use super::requests::Requests;
use super::table::TooLarge;
use crate::limits::limit_conn::LimitConn;
use crate::limits::limit_req::LimitReq;
use httpcore::settings::Location;

/// Maximum number of zones of each kind in one configuration.
pub const ZONES_MAX: usize = 1024;
/// Minimum size of a zone: eight pages, as in nginx.
const ZONE_BYTES_MIN: u64 = 8 * 4096;
/// The directive of the zones of requests.
pub(super) const REQUEST_ZONES: &str = "limit_req_zone";
/// The directive of the zones of connections.
pub(super) const CONNECTION_ZONES: &str = "limit_conn_zone";

blocks! {
    /// Zones of limits.
    pub fn lines in Http {
        /// Declares a zone for `limit_req`: the key that tells requests apart, the memory for keys (1 MiB holds some
        /// 8000 addresses), and the rate, in requests per second or minute. Requests with an empty key are not limited.
        /// The zone is shared by all loops. When it is full, the least recently used key is evicted.
        "limit_req_zone": [HTTP] 3, syntax "key zone=name:size rate=rate";
        /// Declares a zone for `limit_conn`: the key that tells requests apart, and the memory for keys (1 MiB holds
        /// some 16 000 addresses). Requests with an empty key are not limited. The zone is shared by all loops.
        "limit_conn_zone": [HTTP] 2, syntax "key zone=name:size";
    }
}

/// A zone as declared, and the state of its keys.
#[derive(Debug)]
pub struct Zone<S> {
    /// Its name.
    pub name: Bytes,
    /// The key by which requests are told apart.
    pub key: Template,
    /// Thousandths of a request per second; unused for connections.
    pub rate: i64,
    bytes: u64,
    state: OnceLock<Arc<S>>,
}

impl<S> Zone<S> {
    /// The state of its keys; `None` before the configuration is served.
    #[must_use]
    pub fn state(&self) -> Option<&Arc<S>> {
        self.state.get()
    }
}

slots::slotted!(config::made::WHOLE: Zones);

/// The zones of a configuration.
#[derive(Debug, Default)]
pub struct Zones {
    /// Of `limit_req_zone`.
    pub requests: Vec<Zone<Requests>>,
    /// Of `limit_conn_zone`.
    pub connections: Vec<Zone<Connections>>,
}

/// A zone's name, resolved later to its index, which all clones share.
#[derive(Debug, Clone)]
pub struct ZoneName {
    /// The name.
    pub name: Bytes,
    place: Arc<OnceLock<usize>>,
}

impl ZoneName {
    /// A name that is not resolved yet.
    #[must_use]
    pub fn new(name: Bytes) -> Self {
        Self {
            name,
            place: Arc::default(),
        }
    }

    /// The zone, among those of its kind.
    #[must_use]
    pub fn of<'a, S>(&self, zones: &'a [Zone<S>]) -> Option<&'a Zone<S>> {
        zones.get(*self.place.get()?)
    }

    fn settle<S>(&self, zones: &[Zone<S>]) -> Result<(), Error> {
        let Some(place) = place(zones, &self.name) else {
            let name = String::from_utf8_lossy(&self.name);
            return Err(Error::without_place(format!(
                "zero size shared memory zone \"{name}\""
            )));
        };
        // A second location finds the same zone.
        let _ = self.place.set(place);
        Ok(())
    }
}

impl Zones {
    /// Whether there are any zones.
    #[must_use]
    pub fn is_any(&self) -> bool {
        !self.requests.is_empty() || !self.connections.is_empty()
    }

    /// Adds the zone that a line declares.
    ///
    /// # Errors
    /// nginx's sentences.
    pub fn read(&mut self, line: &Directive, scope: &mut Scope) -> Result<(), Error> {
        let fail = |problem: Problem| line.error(&problem);
        let read = Line::parse(line, scope).map_err(fail)?;
        let added = if line.name == REQUEST_ZONES {
            add(&mut self.requests, read, REQUEST_ZONES)
        } else {
            add(&mut self.connections, read, CONNECTION_ZONES)
        };
        added.map_err(|sentence| fail(Problem::new(sentence)))
    }

    /// Resolves the zones that the locations name.
    ///
    /// # Errors
    /// A zone that is not declared.
    pub fn settle(&self, locations: &[Location]) -> Result<(), Error> {
        for location in locations {
            for limit in &location.own::<LimitReq>().limit_req.0 {
                limit.zone.settle(&self.requests)?;
            }
            for limit in &location.own::<LimitConn>().limit_conn.0 {
                limit.zone.settle(&self.connections)?;
            }
        }
        Ok(())
    }

    /// Takes over the state of the previous configuration's zones and creates the new ones. Allocates memory: not on
    /// a loop.
    ///
    /// # Errors
    /// A different key in a zone that continues, or not enough memory for a zone.
    pub fn equip(&self, former: Option<&Self>) -> Result<(), String> {
        let requests = former.map_or(&[][..], |former| &former.requests);
        let kind = Kind::Requests;
        equip(&self.requests, requests, kind, Requests::new, "limit_req")?;
        let connections = former.map_or(&[][..], |former| &former.connections);
        equip(
            &self.connections,
            connections,
            Kind::Connections,
            Connections::new,
            "limit_conn_zone",
        )
    }
}

fn place<S>(zones: &[Zone<S>], name: &[u8]) -> Option<usize> {
    zones.iter().position(|zone| zone.name == name)
}

fn add<S>(zones: &mut Vec<Zone<S>>, line: Line, word: &str) -> Result<(), String> {
    let Line {
        name,
        key,
        bytes,
        rate,
    } = line;
    if let Some(known) = place(zones, &name).map(|place| &zones[place]) {
        let name = String::from_utf8_lossy(&name);
        let key = String::from_utf8_lossy(known.key.source());
        return Err(format!(
            "{word} \"{name}\" is already bound to key \"{key}\""
        ));
    }
    if zones.len() == ZONES_MAX {
        return Err(format!("more than {ZONES_MAX} lines \"{word}\""));
    }
    zones.push(Zone {
        name,
        key,
        rate,
        bytes,
        state: OnceLock::new(),
    });
    Ok(())
}

fn equip<S>(
    zones: &[Zone<S>],
    former: &[Zone<S>],
    kind: Kind,
    make: impl Fn(u64, Arc<LimitFigures>) -> Result<S, TooLarge>,
    word: &str,
) -> Result<(), String> {
    for zone in zones {
        let name = String::from_utf8_lossy(&zone.name);
        let known = former
            .iter()
            .find(|known| known.name == zone.name && known.bytes == zone.bytes);
        let state = match known.and_then(|known| Some((known, known.state()?))) {
            Some((known, _)) if known.key.source() != zone.key.source() => {
                let key = String::from_utf8_lossy(zone.key.source());
                let before = String::from_utf8_lossy(known.key.source());
                return Err(format!(
                    "{word} \"{name}\" uses the \"{key}\" key while previously it used the \"{before}\" key"
                ));
            }
            Some((_, state)) => Arc::clone(state),
            None => {
                let made = make(zone.bytes, of(kind, &zone.name));
                Arc::new(made.map_err(|TooLarge| {
                    format!("no memory for {} bytes of zone \"{name}\"", zone.bytes)
                })?)
            }
        };
        // A second call finds the same state.
        let _ = zone.state.set(state);
    }
    Ok(())
}

/// A line as read.
struct Line {
    name: Bytes,
    key: Template,
    bytes: u64,
    rate: i64,
}

impl Line {
    fn parse(line: &Directive, scope: &mut Scope) -> Result<Self, Problem> {
        let is_paced = line.name == REQUEST_ZONES;
        let key = Template::of_word(&line.args[0], scope).map_err(|problem| problem.at(0))?;
        let mut zone = None;
        let mut rate = 1000;
        for (index, word) in line.args.iter().enumerate().skip(1) {
            let text = word.bytes();
            if text.starts_with(b"zone=") {
                zone = Some(name_and_size(word).map_err(|problem| problem.at(index))?);
            } else if is_paced && text.starts_with(b"rate=") {
                let invalid = || Problem::new(format!("invalid rate \"{}\"", word.display()));
                rate = parse_rate(&text[5..]).ok_or_else(|| invalid().at(index))?;
            } else {
                let sentence = format!("invalid parameter \"{}\"", word.display());
                return Err(Problem::new(sentence).at(index));
            }
        }
        let must = || {
            let name = line.name.display();
            Problem::new(format!("\"{name}\" must have \"zone\" parameter"))
        };
        let (name, bytes) = zone.filter(|(name, _)| !name.is_empty()).ok_or_else(must)?;
        scope.name_zone(&name, bytes, &line.name.display())?;
        Ok(Self {
            name,
            key,
            bytes,
            rate,
        })
    }
}

/// `zone=NAME:SIZE`.
fn name_and_size(word: &Word) -> Result<(Bytes, u64), Problem> {
    let invalid = || Problem::new(format!("invalid zone size \"{}\"", word.display()));
    let text = word.bytes().slice(5..);
    let colon = memchr::memchr(b':', &text).ok_or_else(invalid)?;
    let size = parse_size(&text[colon + 1..]).ok_or_else(invalid)?;
    if size < ZONE_BYTES_MIN {
        let sentence = format!("zone \"{}\" is too small", word.display());
        return Err(Problem::new(sentence));
    }
    Ok((text.slice(..colon), size))
}

/// `10r/s`, `30r/m`, or a number of requests a second, in thousandths of a request a second.
fn parse_rate(text: &[u8]) -> Option<i64> {
    let (digits, seconds) = match text {
        [digits @ .., b'r', b'/', b's'] => (digits, 1),
        [digits @ .., b'r', b'/', b'm'] => (digits, 60),
        digits => (digits, 1),
    };
    let number = number(digits)?.checked_mul(1000)?;
    Some(number / seconds)
}

/// A number that is not 0.
#[must_use]
pub fn number(digits: &[u8]) -> Option<i64> {
    let is_number = !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
    let text = std::str::from_utf8(digits).ok().filter(|_| is_number)?;
    text.parse().ok().filter(|number| *number > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Zones, String> {
        let tree = config::parse_bytes(text.as_bytes()).expect("parses");
        let (mut zones, mut scope) = (Zones::default(), Scope::new());
        for line in &tree.directives {
            zones
                .read(line, &mut scope)
                .map_err(|error| error.sentence().to_owned())?;
        }
        Ok(zones)
    }

    #[test]
    fn rates_are_in_thousandths_a_second() {
        assert_eq!(parse_rate(b"10r/s"), Some(10_000));
        assert_eq!(parse_rate(b"30r/m"), Some(500));
        assert_eq!(parse_rate(b"7"), Some(7000));
        for wrong in ["", "r/s", "0r/s", "-1r/s", "1r/h", "9223372036854775807r/s"] {
            assert_eq!(parse_rate(wrong.as_bytes()), None, "{wrong}");
        }
    }

    #[test]
    fn wrong_lines_are_refused_with_nginx_s_words() {
        let refused = |text: &str| read(text).map(drop).unwrap_err();
        for (text, sentence) in [
            (
                "limit_req_zone $a zone=b rate=1r/s;",
                "invalid zone size \"zone=b\"",
            ),
            (
                "limit_req_zone $a zone=b:x rate=1r/s;",
                "invalid zone size \"zone=b:x\"",
            ),
            (
                "limit_req_zone $a zone=b:1k rate=1r/s;",
                "zone \"zone=b:1k\" is too small",
            ),
            (
                "limit_req_zone $a zone=b:1m rate=0r/s;",
                "invalid rate \"rate=0r/s\"",
            ),
            ("limit_req_zone $a zone=b:1m c;", "invalid parameter \"c\""),
            (
                "limit_req_zone $a rate=1r/s rate=1r/s;",
                "\"limit_req_zone\" must have \"zone\" parameter",
            ),
            (
                "limit_conn_zone $a rate=1r/s;",
                "invalid parameter \"rate=1r/s\"",
            ),
            (
                "limit_conn_zone $a zone=:1m;",
                "\"limit_conn_zone\" must have \"zone\" parameter",
            ),
            (
                "limit_conn_zone $a zone=b:1m; limit_conn_zone $c zone=b:1m;",
                "limit_conn_zone \"b\" is already bound to key \"$a\"",
            ),
            (
                "limit_conn_zone $a zone=b:1m; limit_conn_zone $c zone=b:2m;",
                "the size 2097152 of shared memory zone \"b\" conflicts with already declared size 1048576",
            ),
            (
                "limit_conn_zone $a zone=b:1m; limit_req_zone $c zone=b:1m rate=1r/s;",
                "the shared memory zone \"b\" is already declared for a different use",
            ),
        ] {
            assert_eq!(refused(text), sentence, "{text}");
        }
    }

    #[test]
    fn a_zone_goes_on_over_a_reload_by_name_and_size() {
        let first = read("limit_conn_zone $a zone=b:1m; limit_conn_zone $a zone=c:1m;").unwrap();
        first.equip(None).unwrap();
        let next = read("limit_conn_zone $a zone=b:1m; limit_conn_zone $a zone=c:2m;").unwrap();
        next.equip(Some(&first)).unwrap();
        let is_same = |at: usize| {
            let [one, other] = [&first, &next].map(|zones| zones.connections[at].state().unwrap());
            Arc::ptr_eq(one, other)
        };
        assert!(is_same(0));
        assert!(!is_same(1));
        let other = read("limit_conn_zone $z zone=b:1m;").unwrap();
        assert_eq!(
            other.equip(Some(&next)).unwrap_err(),
            "limit_conn_zone \"b\" uses the \"$z\" key while previously it used the \"$a\" key"
        );
    }
}
