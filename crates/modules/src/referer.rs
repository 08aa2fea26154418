//! `valid_referers`: `$invalid_referer`, by the host that `Referer` names. nginx-drop-in 48.
//!
//! Not here: refusing, which the configuration does. Invariant: names are put into tables once, when the names of the server are
//! known, those declared later too.

use std::sync::Arc;

use bytes::Bytes;
use config::{
    Directive, DirectiveTable, Error, Problem, Scope, Section, VariableIndex, Word, blocks,
};
use message::HeaderId;

use httpcore::name_map::Map;
use httpcore::regex::{MatchFailed, Regex};
use httpcore::request::Request;
use httpcore::route::ServerName;
use httpcore::settings::server::Names;

/// Maximum number of names and patterns of one level.
pub const REFERERS_MAX: usize = 65_536;
/// Bytes of a host; one that is longer is invalid, as nginx has it.
const HOST_MAX: usize = 256;
/// Minimum length in bytes of a referer that names a host.
const SHORTEST: usize = b"http://i.ru".len();

blocks! {
    /// Referer checks.
    pub fn lines in Location {
        /// Sets which `Referer` values are valid: `none`, a missing field; `blocked`, a value without `http://` or
        /// `https://`; `server_names`, the names of the server; a name, which may contain a wildcard and be followed by
        /// the beginning of a URI; a regular expression (`~`) for the part after `http://` or `https://`.
        /// `$invalid_referer` is then empty, otherwise `1`.
        "valid_referers": [SERVER | LOCATION] 1.., syntax "none | blocked | server_names | string …";
    }
}

/// The directives of one level.
#[derive(Debug, Clone, Default)]
pub struct Raw {
    names: Option<Arc<Written>>,
    /// Inherited by themselves, as in nginx.
    regexes: Option<Arc<Vec<Regex>>>,
    /// Whether this level or one around it has `server_names`: the regular expressions among these are inherited by
    /// themselves, too.
    takes_server_regexes: bool,
}

/// The lines of one level, but for the regular expressions.
#[derive(Debug, Default)]
struct Written {
    /// Where the first of them stands.
    first: Option<Word>,
    takes_none: bool,
    takes_blocked: bool,
    takes_server_names: bool,
    /// With the beginning of a URI, or empty.
    names: Vec<(Bytes, Bytes)>,
}

/// The settings in effect at a location.
#[derive(Debug, Clone, Default)]
pub struct Referers {
    raw: Raw,
    valid: Option<Arc<Valid>>,
}

/// The same as tables.
#[derive(Debug)]
struct Valid {
    takes_none: bool,
    takes_blocked: bool,
    names: Map<Bytes, Arc<Regex>>,
    regexes: Option<Arc<Vec<Regex>>>,
}

config::own!(Referers);

/// By hand, since the lines of a level fill one table.
impl Section for Referers {
    type Raw = Raw;

    fn tables() -> Vec<&'static DirectiveTable> {
        vec![lines()]
    }

    fn set(raw: &mut Raw, directive: &Directive, _: &mut Scope) -> Result<bool, Error> {
        if directive.name != "valid_referers" {
            return Ok(false);
        }
        let written = raw.names.get_or_insert_default();
        let written = Arc::get_mut(written).expect("a level that is being read is not shared");
        written.first.get_or_insert_with(|| directive.name.clone());
        for (i, word) in directive.args.iter().enumerate() {
            let fail = |problem: Problem| directive.error(&problem.at(i));
            if written.names.len() == REFERERS_MAX {
                let sentence = format!("more than {REFERERS_MAX} referers at one level");
                return Err(fail(Problem::new(sentence)));
            }
            match &word.bytes()[..] {
                b"" => return Err(fail(Problem::new("invalid referer \"\""))),
                b"none" => written.takes_none = true,
                b"blocked" => written.takes_blocked = true,
                b"server_names" => {
                    written.takes_server_names = true;
                    raw.takes_server_regexes = true;
                }
                [b'~', pattern @ ..] => {
                    let regex = regex(pattern, word).map_err(fail)?;
                    let regexes = raw.regexes.get_or_insert_default();
                    Arc::get_mut(regexes)
                        .expect("a level that is being read is not shared")
                        .push(regex);
                }
                text => {
                    let slash = memchr::memchr(b'/', text).unwrap_or(text.len());
                    let name = (word.bytes().slice(..slash), word.bytes().slice(slash..));
                    written.names.push(name);
                }
            }
        }
        Ok(true)
    }

    fn merge(parent: &Raw, child: Raw) -> Raw {
        Raw {
            names: child.names.or_else(|| parent.names.clone()),
            regexes: child.regexes.or_else(|| parent.regexes.clone()),
            takes_server_regexes: child.takes_server_regexes || parent.takes_server_regexes,
        }
    }

    fn fill(_: &mut Raw, _: &mut Scope) -> Result<(), Error> {
        Ok(())
    }

    fn finish(raw: Raw, _: &mut Scope) -> Result<Self, Error> {
        Ok(Self { raw, valid: None })
    }
}

fn regex(pattern: &[u8], word: &Word) -> Result<Regex, Problem> {
    if pattern.is_empty() {
        return Err(Problem::new(format!(
            "empty regex in \"{}\"",
            word.display()
        )));
    }
    // Its groups set nothing, so their names are no variables.
    Regex::shared(pattern, true, |_| VariableIndex(0)).map_err(Problem::new)
}

/// The tables that were made for one server, so that levels that inherit share them.
#[derive(Default)]
pub struct Made(Vec<(Raw, Arc<Valid>)>);

impl Referers {
    /// Is there a line?
    #[must_use]
    pub fn is_any(&self) -> bool {
        self.raw.names.is_some()
    }

    /// Makes the tables, of the names of the server too.
    ///
    /// # Errors
    /// Two equal names, or nothing but `none` and `blocked`.
    pub fn settle(&mut self, server: &Names, made: &mut Made) -> Result<(), Error> {
        let raw = std::mem::take(&mut self.raw);
        let Some(written) = &raw.names else {
            return Ok(());
        };
        let is_same = |known: &Raw| match (&known.names, &known.regexes, &raw.regexes) {
            (Some(names), Some(one), Some(other)) => {
                Arc::ptr_eq(names, written) && Arc::ptr_eq(one, other)
            }
            (Some(names), None, None) => Arc::ptr_eq(names, written),
            _ => false,
        };
        if let Some((_, valid)) = made.0.iter().find(|(known, _)| is_same(known)) {
            self.valid = Some(Arc::clone(valid));
            return Ok(());
        }
        let names = tabulate(written, raw.takes_server_regexes, server);
        let names = names.map_err(|problem| match &written.first {
            Some(word) => word.error(&problem),
            None => Error::without_place(problem.sentence_for("valid_referers")),
        })?;
        let valid = Arc::new(Valid {
            takes_none: written.takes_none,
            takes_blocked: written.takes_blocked,
            names,
            regexes: raw.regexes.clone(),
        });
        self.valid = Some(Arc::clone(&valid));
        made.0.push((raw, valid));
        Ok(())
    }
}

fn tabulate(
    written: &Written,
    takes_server_regexes: bool,
    server: &Names,
) -> Result<Map<Bytes, Arc<Regex>>, Problem> {
    let mut map = Map::new(true);
    let mut has_name = false;
    let mut add = |name: &[u8], uri: Bytes| {
        has_name = true;
        map.add_name(name, uri)
            .map_err(|found| Problem::new(found.to_string()))
    };
    let own = server.names.iter().filter(|_| written.takes_server_names);
    for (name, _) in own {
        match name {
            ServerName::Exact(name) | ServerName::Both(name) => add(name, Bytes::new())?,
            ServerName::Leading(suffix) => add(&[b"*", &suffix[..]].concat(), Bytes::new())?,
            ServerName::Trailing(prefix) => add(&[&prefix[..], b"*"].concat(), Bytes::new())?,
            ServerName::Regex(_) => {}
        }
    }
    if written.takes_server_names && server.names.is_empty() {
        add(b"", Bytes::new())?;
    }
    for (name, uri) in &written.names {
        add(name, uri.clone())?;
    }
    if (written.takes_none || written.takes_blocked) && !has_name {
        return Err(Problem::new(
            "the \"none\" or \"blocked\" referers are specified in the \"valid_referers\" directive without any valid referer",
        ));
    }
    for (name, _) in server.names.iter().filter(|_| takes_server_regexes) {
        if let ServerName::Regex(regex) = name {
            map.add_regex(Arc::clone(regex), Bytes::new())
                .map_err(|found| Problem::new(found.to_string()))?;
        }
    }
    Ok(map)
}

httpcore::variables! {
    /// Empty if `valid_referers` accepts the request's `Referer`, otherwise `1`.
    "invalid_referer" => memo(|request| Some(value(request))).changeable().made_by(&["valid_referers"]);
}

/// `$invalid_referer`: `1` or empty.
fn value(request: &Request) -> Bytes {
    let Some(valid) = &request.location().own::<Referers>().valid else {
        return Bytes::new();
    };
    match valid.takes(request.head.get(HeaderId::Referer)) {
        Ok(true) => Bytes::new(),
        Ok(false) => Bytes::from_static(b"1"),
        Err(failed) => {
            request.match_failed(&failed);
            Bytes::from_static(b"1")
        }
    }
}

impl Valid {
    /// # Errors
    /// The match with a regular expression failed.
    fn takes(&self, referer: Option<&[u8]>) -> Result<bool, MatchFailed> {
        let Some(referer) = referer else {
            return Ok(self.takes_none);
        };
        let Some(rest) = without_scheme(referer) else {
            return Ok(self.takes_blocked);
        };
        let end = memchr::memchr2(b'/', b':', rest).unwrap_or(rest.len());
        let (host, behind) = rest.split_at(end);
        if host.len() > HOST_MAX {
            return Ok(false);
        }
        let host = host.to_ascii_lowercase();
        let matches = |regex: &Arc<Regex>, host: &[u8]| regex.is_match(host);
        if let Some(uri) = self.names.find_whole(&host, matches)? {
            let slash = memchr::memchr(b'/', behind).unwrap_or(behind.len());
            return Ok(behind[slash..].starts_with(uri));
        }
        for regex in self.regexes.iter().flat_map(|regexes| regexes.iter()) {
            if regex.is_match(rest)? {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

fn without_scheme(referer: &[u8]) -> Option<&[u8]> {
    let schemes: [&[u8]; 2] = [b"http://", b"https://"];
    let behind = |scheme: &[u8]| {
        let (start, rest) = referer.split_at_checked(scheme.len())?;
        start.eq_ignore_ascii_case(scheme).then_some(rest)
    };
    let is_long_enough = referer.len() >= SHORTEST;
    schemes
        .into_iter()
        .filter(|_| is_long_enough)
        .find_map(behind)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn referers(text: &str, server: &str) -> Result<Referers, String> {
        let mut scope = Scope::new();
        let read = |text: &str| {
            config::parse_bytes(text.as_bytes())
                .expect("parses")
                .directives
        };
        let mut names = None;
        for line in read(server) {
            <Names as config::Value>::set(&mut names, &line.args, &mut scope).expect("is right");
        }
        let names = names.unwrap_or_default();
        let mut raw = Raw::default();
        for line in read(text) {
            Referers::set(&mut raw, &line, &mut scope).map_err(|e| e.sentence().to_owned())?;
        }
        let mut referers = Referers::finish(raw, &mut scope).expect("is right");
        let settled = referers.settle(&names, &mut Made::default());
        settled.map_err(|error| error.sentence().to_owned())?;
        Ok(referers)
    }

    fn takes(lines: &str, referer: &str) -> bool {
        let referers =
            referers(lines, "server_name own.org *.more.org ~^re\\d;").expect("is right");
        let valid = referers.valid.expect("there are lines");
        let referer = (referer != "-").then_some(referer.as_bytes());
        valid.takes(referer).expect("no match fails")
    }

    #[test]
    fn hosts_and_what_is_behind_them() {
        for (lines, valid, invalid) in [
            ("valid_referers www.org;", "http://www.org", "-"),
            (
                "valid_referers www.org;",
                "HTTPS://WWW.org:99/x",
                "http://www.org./",
            ),
            ("valid_referers none www.org;", "-", "www.org"),
            (
                "valid_referers blocked www.org;",
                "anything",
                "http://other.org",
            ),
            (
                "valid_referers *.x.org;",
                "http://a.b.x.org/",
                "http://x.org/",
            ),
            ("valid_referers .x.org;", "http://x.org/", "http://xx.org/"),
            (
                "valid_referers www.x.*;",
                "http://www.x.net/",
                "http://x.net/",
            ),
            (
                "valid_referers www.org/a;",
                "http://www.org/ab",
                "http://www.org/b",
            ),
            (
                "valid_referers ~^www\\.(org|net)/a;",
                "http://WWW.NET/A",
                "http://www.com/a",
            ),
            (
                "valid_referers server_names;",
                "http://own.org/",
                "http://other.org/",
            ),
            (
                "valid_referers server_names;",
                "http://a.more.org/",
                "http://more.org/",
            ),
            (
                "valid_referers server_names;",
                "http://re1/xxxxxxxx",
                "http://rex/xxxxxxxx",
            ),
            (
                "valid_referers server_names; valid_referers a.org;",
                "http://a.org",
                "http://b.org",
            ),
        ] {
            assert!(takes(lines, valid), "{lines} {valid}");
            assert!(!takes(lines, invalid), "{lines} {invalid}");
        }
    }

    #[test]
    fn the_longest_host() {
        let lines = "valid_referers none blocked server_names ~.;";
        let of_length = |length| format!("http://{}", "a".repeat(length));
        assert!(takes(lines, &of_length(256)));
        assert!(!takes(lines, &of_length(257)));
    }

    #[test]
    fn wrong_lines() {
        for (lines, sentence) in [
            ("valid_referers \"\";", "invalid referer \"\""),
            ("valid_referers ~;", "empty regex in \"~\""),
            (
                "valid_referers a.org A.org;",
                "conflicting parameter \"A.org\"",
            ),
            (
                "valid_referers a*b;",
                "invalid hostname or wildcard \"a*b\"",
            ),
            (
                "valid_referers none;",
                "the \"none\" or \"blocked\" referers are specified in the \"valid_referers\" directive without any valid referer",
            ),
        ] {
            let found = referers(lines, "");
            assert_eq!(found.err().as_deref(), Some(sentence), "{lines}");
        }
        assert!(referers("valid_referers none server_names;", "").is_ok());
    }
}
