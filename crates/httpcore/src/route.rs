//! Finds the server and the location of a request in nginx's order, from tables that are built once.
//!
//! Not here: what a location does, and the internal redirects that start the search again. Invariant: the tables are
//! immutable; a search allocates nothing.

use std::sync::Arc;

use hashbrown::HashMap;

use crate::regex::{MatchFailed, Regex, Spans};

/// Index of a server among those of the [`crate::settings::Settings`].
pub type ServerId = u32;
/// Index of a location in [`crate::settings::Settings::locations`].
pub type LocationId = u32;

/// Maximum nesting depth of location blocks.
pub const NESTED_LOCATIONS_MAX: usize = 32;

/// The names of the servers of one listening address, in nginx's order of choice: exact name,
/// longest `*.x`, longest `x.*`, first regex, else the default server.
#[derive(Debug, Default)]
pub struct ServerNames {
    /// Without a server: a name that is taken and chooses none.
    exact: HashMap<Box<[u8]>, Option<ServerId>>,
    /// Suffixes `.example.com` of `*.example.com`.
    leading: HashMap<Box<[u8]>, ServerId>,
    /// Prefixes `mail.` of `mail.*`.
    trailing: HashMap<Box<[u8]>, ServerId>,
    regexes: Vec<(Arc<Regex>, ServerId)>,
}

/// A server chosen by name; with a regex, the groups that it matched in the host.
#[derive(Debug)]
pub struct NamedServer<'a> {
    /// The server.
    pub server: ServerId,
    /// The regex that chose it.
    pub regex: Option<(&'a Regex, Spans)>,
}

/// A server name as written, sorted into its kind.
#[derive(Debug, Clone)]
pub enum ServerName {
    /// `example.com` (lower-cased), or empty.
    Exact(Box<[u8]>),
    /// `*.example.com`, kept as `.example.com`.
    Leading(Box<[u8]>),
    /// `.example.com`: the name itself and everything below it.
    Both(Box<[u8]>),
    /// `mail.*`, kept as `mail.`.
    Trailing(Box<[u8]>),
    /// `~^(?<user>.+)\.example\.com$`.
    Regex(Arc<Regex>),
}

impl ServerNames {
    /// Adds a name; of two equal ones the first stays, and `false` reports the duplicate.
    ///
    /// As in nginx `.x` counts whole or not at all: not where `x` or `*.x` is there before it. In the second case `x`
    /// is taken all the same.
    pub fn add(&mut self, name: &ServerName, server: ServerId) -> bool {
        fn put<T>(map: &mut HashMap<Box<[u8]>, T>, key: &[u8], value: T) -> bool {
            if map.contains_key(key) {
                return false;
            }
            map.insert(key.into(), value);
            true
        }
        match name {
            ServerName::Exact(n) => put(&mut self.exact, n, Some(server)),
            ServerName::Leading(suffix) => put(&mut self.leading, suffix, server),
            ServerName::Both(suffix) => {
                let is_free = !self.leading.contains_key(suffix);
                put(&mut self.exact, &suffix[1..], is_free.then_some(server))
                    && put(&mut self.leading, suffix, server)
            }
            ServerName::Trailing(prefix) => put(&mut self.trailing, prefix, server),
            ServerName::Regex(regex) => {
                self.regexes.push((Arc::clone(regex), server));
                true
            }
        }
    }

    /// Whether there are no names.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.exact.is_empty()
            && self.leading.is_empty()
            && self.trailing.is_empty()
            && self.regexes.is_empty()
    }

    /// Whether a name may be chosen by a regex.
    #[must_use]
    pub fn has_regexes(&self) -> bool {
        !self.regexes.is_empty()
    }

    /// Whether the last regex has groups.
    #[must_use]
    pub fn end_with_groups(&self) -> bool {
        let last = self.regexes.last();
        last.is_some_and(|(regex, _)| regex.has_captures())
    }

    /// The server of `host` (lower-cased, without port and trailing dot), if a name matches.
    ///
    /// # Errors
    /// The match with a regex failed.
    pub fn find(&self, host: &[u8]) -> Result<Option<NamedServer<'_>>, MatchFailed> {
        let exact = self.exact.get(host).copied().flatten();
        if let Some(server) = exact.or_else(|| self.find_wildcard(host)) {
            return Ok(Some(NamedServer {
                server,
                regex: None,
            }));
        }
        if host.is_empty() {
            return Ok(None);
        }
        for (regex, server) in &self.regexes {
            if let Some(spans) = regex.captures(host)? {
                return Ok(Some(NamedServer {
                    server: *server,
                    regex: Some((regex, spans)),
                }));
            }
        }
        Ok(None)
    }

    /// The server whose name is empty: that of requests without a host.
    #[must_use]
    pub fn nameless(&self) -> Option<ServerId> {
        self.exact.get(&b""[..]).copied().flatten()
    }

    fn find_wildcard(&self, host: &[u8]) -> Option<ServerId> {
        if !self.leading.is_empty() {
            for dot in memchr::memchr_iter(b'.', host) {
                if let Some(&server) = self.leading.get(&host[dot..]) {
                    return Some(server);
                }
            }
        }
        if !self.trailing.is_empty() {
            let dots = memchr::memrchr_iter(b'.', host);
            for dot in dots.filter(|&d| d + 1 < host.len()) {
                if let Some(&server) = self.trailing.get(&host[..=dot]) {
                    return Some(server);
                }
            }
        }
        None
    }
}

/// One `location`, with the facts that the search needs.
#[derive(Debug)]
pub struct Candidate {
    /// The prefix or exact URI.
    pub name: Box<[u8]>,
    /// `location /x` or `location ^~ /x`, if it exists.
    pub prefix: Option<Prefix>,
    /// `location = /x`, if it exists.
    pub exact: Option<LocationId>,
    /// Whether `location = /x/` passes requests on, so that `/x` is redirected there, as with a prefix.
    redirects: bool,
    /// The longest other candidate that this name starts with.
    parent: Option<u32>,
}

/// A prefix location.
#[derive(Debug, Clone, Copy)]
pub struct Prefix {
    /// The location.
    pub location: LocationId,
    /// Whether it is `^~`: regexes are not tried.
    pub stops: bool,
    /// Whether the location passes requests on, so that `/a` is redirected to `/a/` (drop-in 14).
    pub auto_redirect: bool,
}

/// The kind of match of a location.
#[derive(Debug, Clone)]
pub enum LocationKind {
    /// `= /x`.
    Exact,
    /// `/x`, or `^~ /x`.
    Prefix {
        /// `^~`.
        stops: bool,
    },
    /// `~` or `~*`.
    Regex(Arc<Regex>),
    /// `@x`.
    Named,
}

/// The locations directly below a server or a location.
#[derive(Debug, Default)]
pub struct Locations {
    candidates: Vec<Candidate>,
    /// The indices of the candidates while they are added; empty once they are sorted.
    by_name: HashMap<Box<[u8]>, usize>,
    regexes: Vec<(Arc<Regex>, LocationId)>,
}

/// The result of the search for a location.
#[derive(Debug)]
pub enum Found {
    /// This location, chosen by its prefix: the regexes around it are still tried.
    Prefix(LocationId),
    /// This location, chosen exactly, by its regex, or inside a location with a regex: nothing else is tried.
    Final(LocationId),
    /// `/a` was requested and only `/a/` exists: 301.
    AddSlash(LocationId),
    /// None: the server itself answers.
    Nothing,
    /// The match with a regex failed.
    Failed(MatchFailed),
}

impl Locations {
    /// Adds `location = name`; `false` when there is one already.
    pub fn add_exact(&mut self, name: &[u8], location: LocationId) -> bool {
        let candidate = self.candidate(name);
        candidate.exact.replace(location).is_none()
    }

    /// Redirects `/a` to `/a/`, the name of an existing exact location.
    pub fn redirect_to_exact(&mut self, name: &[u8]) {
        self.candidate(name).redirects = true;
    }

    /// Adds `location name` or `location ^~ name`; `false` when there is one already.
    pub fn add_prefix(&mut self, name: &[u8], prefix: Prefix) -> bool {
        let candidate = self.candidate(name);
        candidate.prefix.replace(prefix).is_none()
    }

    /// Adds `location ~ regex`, in file order.
    pub fn add_regex(&mut self, regex: Arc<Regex>, location: LocationId) {
        self.regexes.push((regex, location));
    }

    fn candidate(&mut self, name: &[u8]) -> &mut Candidate {
        let at = match self.by_name.get(name) {
            Some(at) => *at,
            None => {
                let at = self.candidates.len();
                self.candidates.push(Candidate {
                    name: name.into(),
                    prefix: None,
                    exact: None,
                    redirects: false,
                    parent: None,
                });
                self.by_name.insert(name.into(), at);
                at
            }
        };
        &mut self.candidates[at]
    }

    /// Sorts the table; to be called once, after the last `add`.
    pub fn seal(&mut self) {
        self.by_name = HashMap::default();
        self.candidates.sort_by(|a, b| a.name.cmp(&b.name));
        for i in 0..self.candidates.len() {
            let mut above = i.checked_sub(1).map(|p| p as u32);
            while let Some(p) = above {
                if self.candidates[i]
                    .name
                    .starts_with(&self.candidates[p as usize].name)
                {
                    break;
                }
                above = self.candidates[p as usize].parent;
            }
            self.candidates[i].parent = above;
        }
    }

    /// Looks `uri` up below here and below what is found; `nested` gives a location's own table. `matched` gets the
    /// regex of each location that the search goes through, from the outside in, with what its groups matched.
    pub fn find<'a>(
        &'a self,
        uri: &[u8],
        nested: &impl Fn(LocationId) -> &'a Locations,
        matched: &impl Fn(&Regex, Spans),
    ) -> Found {
        let (best, stops) = match self.find_fixed(uri) {
            Fixed::Exact(location) => return Found::Final(location),
            Fixed::AddSlash(location) => return Found::AddSlash(location),
            Fixed::Prefix(prefix) => match nested(prefix.location).find(uri, nested, matched) {
                Found::Nothing => (Found::Prefix(prefix.location), prefix.stops),
                inner @ Found::Prefix(_) => (inner, prefix.stops),
                decided => return decided,
            },
            Fixed::Nothing => (Found::Nothing, false),
        };
        if stops {
            return best;
        }
        for (regex, location) in &self.regexes {
            let spans = match regex.captures(uri) {
                Ok(None) => continue,
                Ok(Some(spans)) => spans,
                Err(failed) => return Found::Failed(failed),
            };
            matched(regex, spans);
            // As in nginx no slash is added inside a location with a regex.
            return match nested(*location).find(uri, nested, matched) {
                Found::Nothing => Found::Final(*location),
                Found::Prefix(inner) | Found::Final(inner) | Found::AddSlash(inner) => {
                    Found::Final(inner)
                }
                failed @ Found::Failed(_) => failed,
            };
        }
        best
    }

    fn find_fixed(&self, uri: &[u8]) -> Fixed {
        let after = self.candidates.partition_point(|c| &*c.name <= uri);
        let mut at = after.checked_sub(1);
        while let Some(i) = at {
            let candidate = &self.candidates[i];
            if uri.starts_with(&candidate.name) {
                if let (true, Some(exact)) = (candidate.name.len() == uri.len(), candidate.exact) {
                    return Fixed::Exact(exact);
                }
                if let Some(prefix) = candidate.prefix {
                    // A whole match needs no further look at `/a/`.
                    if candidate.name.len() == uri.len() {
                        return Fixed::Prefix(prefix);
                    }
                    return self.add_slash(uri, after).unwrap_or(Fixed::Prefix(prefix));
                }
            }
            at = candidate.parent.map(|p| p as usize);
        }
        self.add_slash(uri, after).unwrap_or(Fixed::Nothing)
    }

    /// The location of the URI with a slash behind it, which stands `after` all that are not greater than the URI.
    fn add_slash(&self, uri: &[u8], after: usize) -> Option<Fixed> {
        let order = |c: &Candidate| match c.name.strip_prefix(uri) {
            Some(rest) => rest.cmp(b"/"),
            None => (*c.name).cmp(uri),
        };
        let greater = &self.candidates[after..];
        let candidate = &greater[greater.binary_search_by(order).ok()?];
        let prefix = candidate.prefix.filter(|p| p.auto_redirect);
        if prefix.is_none() && !candidate.redirects {
            return None;
        }
        let location = candidate.exact.or(prefix.map(|p| p.location))?;
        Some(Fixed::AddSlash(location))
    }
}

/// The result of the search by prefixes and exact names alone.
enum Fixed {
    Exact(LocationId),
    Prefix(Prefix),
    AddSlash(LocationId),
    Nothing,
}

#[cfg(test)]
mod tests {
    use config::VariableIndex;

    use super::*;

    fn regex(pattern: &str) -> Arc<Regex> {
        let compiled = Regex::compile(pattern.as_bytes(), false, |_| VariableIndex(0));
        Arc::new(compiled.expect("compiles"))
    }

    fn server_of(names: &ServerNames, host: &str) -> Option<ServerId> {
        let named = names.find(host.as_bytes()).expect("no match fails");
        named.map(|n| n.server)
    }

    #[test]
    fn names_are_chosen_in_nginx_order() {
        let mut names = ServerNames::default();
        assert!(names.add(&ServerName::Exact((*b"www.example.com").into()), 1));
        assert!(names.add(&ServerName::Leading((*b".example.com").into()), 2));
        assert!(names.add(&ServerName::Leading((*b".a.example.com").into()), 3));
        assert!(names.add(&ServerName::Trailing((*b"mail.").into()), 4));
        assert!(names.add(&ServerName::Regex(regex("^w+")), 5));
        assert!(names.add(&ServerName::Both((*b".both.org").into()), 6));
        assert!(!names.add(&ServerName::Exact((*b"www.example.com").into()), 9));
        assert_eq!(server_of(&names, "www.example.com"), Some(1));
        assert_eq!(server_of(&names, "x.example.com"), Some(2));
        assert_eq!(server_of(&names, "x.a.example.com"), Some(3));
        assert_eq!(server_of(&names, "mail.org"), Some(4));
        assert_eq!(server_of(&names, "mail.example.com"), Some(2));
        assert_eq!(server_of(&names, "wwww"), Some(5));
        assert_eq!(server_of(&names, "both.org"), Some(6));
        assert_eq!(server_of(&names, "x.both.org"), Some(6));
        assert_eq!(server_of(&names, "example.com"), None);
        assert_eq!(server_of(&names, ""), None);
    }

    #[test]
    fn a_name_with_all_below_it_counts_whole_or_not_at_all() {
        let mut names = ServerNames::default();
        assert!(names.add(&ServerName::Exact((*b"a.org").into()), 1));
        assert!(!names.add(&ServerName::Both((*b".a.org").into()), 2));
        assert_eq!(server_of(&names, "a.org"), Some(1));
        assert_eq!(server_of(&names, "x.a.org"), None);
        assert!(names.add(&ServerName::Leading((*b".b.org").into()), 1));
        assert!(!names.add(&ServerName::Both((*b".b.org").into()), 2));
        assert!(!names.add(&ServerName::Exact((*b"b.org").into()), 3));
        assert_eq!(server_of(&names, "b.org"), None);
        assert_eq!(server_of(&names, "x.b.org"), Some(1));
    }

    fn plain(location: LocationId) -> Prefix {
        Prefix {
            location,
            stops: false,
            auto_redirect: false,
        }
    }

    fn slashed(location: LocationId) -> Prefix {
        Prefix {
            auto_redirect: true,
            ..plain(location)
        }
    }

    /// Tables by location id; id 0 is the server's. Before the location: a `~` for each regex on the way.
    fn location_of(tables: &[Locations], uri: &str) -> String {
        let nested = |id: LocationId| &tables[id as usize];
        let matches = std::cell::Cell::new(0);
        let matched = |_: &Regex, _: Spans| matches.set(matches.get() + 1);
        let found = match tables[0].find(uri.as_bytes(), &nested, &matched) {
            Found::Prefix(id) | Found::Final(id) => format!("{id}"),
            Found::AddSlash(id) => format!("{id}/"),
            Found::Nothing => "-".into(),
            Found::Failed(failed) => failed.sentence,
        };
        "~".repeat(matches.get()) + &found
    }

    fn tables(n: usize) -> Vec<Locations> {
        (0..n).map(|_| Locations::default()).collect()
    }

    #[test]
    fn locations_are_chosen_in_nginx_order() {
        let mut t = tables(9);
        t[0].add_prefix(b"/", plain(1));
        t[0].add_exact(b"/", 2);
        t[0].add_prefix(b"/documents/", plain(3));
        t[0].add_prefix(
            b"/images/",
            Prefix {
                location: 4,
                stops: true,
                auto_redirect: false,
            },
        );
        t[0].add_regex(regex(r"\.(gif|jpg)$"), 5);
        t[0].add_prefix(b"/pass/", slashed(6));
        t[0].add_prefix(b"/pass-x", plain(7));
        t.iter_mut().for_each(Locations::seal);
        assert_eq!(location_of(&t, "/"), "2");
        assert_eq!(location_of(&t, "/index.html"), "1");
        assert_eq!(location_of(&t, "/documents/document.html"), "3");
        assert_eq!(location_of(&t, "/images/1.gif"), "4");
        assert_eq!(location_of(&t, "/documents/1.jpg"), "~5");
        assert_eq!(location_of(&t, "/pass"), "6/");
        assert_eq!(location_of(&t, "/pass/x"), "6");
        assert_eq!(location_of(&t, "/pass-xyz"), "7");
        assert_eq!(location_of(&t, "/pas"), "1");
    }

    #[test]
    fn nested_locations_and_outer_regexes() {
        let mut t = tables(9);
        t[0].add_prefix(b"/a", plain(1));
        t[0].add_regex(regex("x$"), 2);
        t[1].add_prefix(b"/ab", plain(3));
        t[1].add_exact(b"/ax", 4);
        t[1].add_regex(regex("y$"), 5);
        t[2].add_regex(regex("zx$"), 6);
        t.iter_mut().for_each(Locations::seal);
        assert_eq!(location_of(&t, "/abc"), "3");
        assert_eq!(location_of(&t, "/abx"), "~2");
        assert_eq!(location_of(&t, "/ax"), "4");
        assert_eq!(location_of(&t, "/aby"), "~5");
        assert_eq!(location_of(&t, "/azx"), "~~6");
        assert_eq!(location_of(&t, "/b"), "-");
    }

    #[test]
    fn what_is_final_inside_is_final_outside() {
        let mut t = tables(7);
        t[0].add_prefix(b"/a", plain(1));
        t[0].add_regex(regex("c$"), 2);
        t[1].add_prefix(b"/a/b", plain(3));
        t[3].add_exact(b"/a/b/c", 4);
        t[1].add_regex(regex("/a/r"), 5);
        t[5].add_prefix(b"/a/r/c/", slashed(6));
        t.iter_mut().for_each(Locations::seal);
        assert_eq!(location_of(&t, "/a/b/c"), "4");
        assert_eq!(location_of(&t, "/a/b/bc"), "~2");
        assert_eq!(location_of(&t, "/a/r/c/c"), "~6");
        assert_eq!(location_of(&t, "/a/r/c"), "~6");
    }

    #[test]
    fn a_neighbour_between_does_not_hide_the_prefix() {
        let mut t = tables(6);
        t[0].add_prefix(b"/a", plain(1));
        t[0].add_prefix(b"/a/b/c", plain(2));
        t[0].add_prefix(b"/a/b!", plain(3));
        t.iter_mut().for_each(Locations::seal);
        assert_eq!(location_of(&t, "/a/b/d"), "1");
        assert_eq!(location_of(&t, "/a/b/c/d"), "2");
        assert_eq!(location_of(&t, "/0"), "-");
    }
}
