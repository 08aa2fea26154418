//! `location` blocks: read into a tree of raw settings, then merged from the outside in.

use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use config::{Directive, Error, MadeOfLocation, Problem, Scope, Section};

use crate::monitoring::directives;
use httpcore::handler::{self, Place};
use httpcore::regex::Regex;
use httpcore::route::{LocationId, LocationKind, Locations, NESTED_LOCATIONS_MAX, Prefix};
use httpcore::settings::root::{self, Alias};
use proxy::settings::families::FamilyDependent;
use proxy::settings::peer_tls::PeerTlsMaking;
use proxy::settings::proxy_pass::{PassSettings, ProxyGroups};
use proxy::settings::{families, proxy_pass};
use proxy::tunnel_pass;
use upstream::Upstreams;

use super::build::Surroundings;
use super::tables::LocationSettings;
use super::{content_source, scopes};
use httpcore::settings::Location;

/// The settings of one level, as written.
pub(crate) type Raw = <LocationSettings as Section>::Raw;

/// A `location` block as read.
#[derive(Debug)]
pub(crate) struct Block<'a> {
    directive: &'a Directive,
    /// The kind of match.
    pub kind: LocationKind,
    /// Without the modifier.
    pub name: Bytes,
    raw: Raw,
    /// Lines that belong to no module of ours.
    lines: Vec<&'a Directive>,
    is_internal: bool,
    scopes: scopes::Blocks<'a>,
    inner: Vec<Block<'a>>,
}

/// The settings that hold at a level, for the locations inside it.
#[derive(Debug)]
pub(crate) struct Outer<'a> {
    /// The settings of this level and of those around it.
    pub raw: Raw,
    /// The lines of modules, level by level from the outside in.
    pub lines: Vec<Vec<&'a Directive>>,
    /// The surroundings of the whole configuration.
    pub around: &'a Surroundings,
}

impl<'a> Outer<'a> {
    /// The level inside this one with the settings `raw` and these lines of modules.
    #[must_use]
    pub(crate) fn enter(&self, mut raw: Raw, lines: Vec<&'a Directive>) -> Self {
        if raw.root.get().is_some() {
            raw.root.edit().anchor(&self.around.prefix);
        }
        families::settle_stores(
            (&mut raw.proxy_store, &mut raw.caching),
            &mut raw.fastcgi,
            &mut raw.uwsgi,
            &mut raw.scgi,
        );
        // Without modules these are only ignored lines, which are never read.
        let lines = if self.around.modules.is_empty() {
            Vec::new()
        } else {
            self.lines.iter().cloned().chain([lines]).collect()
        };
        Self {
            raw: LocationSettings::merge(&self.raw, raw),
            lines,
            around: self.around,
        }
    }
}

impl<'a> Block<'a> {
    /// Reads a block and those inside it.
    ///
    /// # Errors
    /// The error, at its place.
    pub(crate) fn read(
        directive: &'a Directive,
        outer: Option<&Block<'a>>,
        depth: usize,
        scope: &mut Scope,
    ) -> Result<Self, Error> {
        if depth == NESTED_LOCATIONS_MAX {
            let sentence = format!("locations are nested deeper than {NESTED_LOCATIONS_MAX}");
            return Err(directive.error(&Problem::new(sentence)));
        }
        let (kind, name) = kind_and_name(directive, scope)?;
        let mut block = Self {
            directive,
            kind,
            name,
            raw: Raw::default(),
            lines: Vec::new(),
            is_internal: false,
            scopes: scopes::Blocks::default(),
            inner: Vec::new(),
        };
        if let Some(outer) = outer {
            block.check_place(outer)?;
        }
        for line in directive.children() {
            if line.name == "location" {
                let inner = Block::read(line, Some(&block), depth + 1, scope)?;
                block.inner.push(inner);
            } else if line.name == "internal" {
                if block.is_internal {
                    return Err(line.error(&Problem::duplicate()));
                }
                block.is_internal = true;
            } else if line.name == "if" {
                block.scopes.read_if(line, &mut block.raw, scope)?;
            } else if line.name == "limit_except" {
                block.scopes.read_exception(line, scope)?;
            } else if !content_source::set(&mut block.raw, line, scope)? {
                block.lines.push(line);
            }
        }
        Ok(block)
    }

    fn check_place(&self, outer: &Block<'_>) -> Result<(), Error> {
        let (name, around) = (
            String::from_utf8_lossy(&self.name),
            String::from_utf8_lossy(&outer.name),
        );
        let fail = |sentence: String| Err(self.directive.error(&Problem::new(sentence)));
        match (&outer.kind, &self.kind) {
            (LocationKind::Exact, _) => fail(format!(
                "location \"{name}\" cannot be inside the exact location \"{around}\""
            )),
            (LocationKind::Named, _) => fail(format!(
                "location \"{name}\" cannot be inside the named location \"{around}\""
            )),
            (_, LocationKind::Named) => fail(format!(
                "named location \"{name}\" can be on the server level only"
            )),
            // As in nginx also inside a regex, with whose text the name has to begin.
            (_, LocationKind::Prefix { .. } | LocationKind::Exact)
                if !self.name.starts_with(&outer.name) =>
            {
                fail(format!(
                    "location \"{name}\" is outside location \"{around}\""
                ))
            }
            _ => Ok(()),
        }
    }

    /// Merges the block with what is around it, the location `around`, and adds it, and those inside, to `all`.
    ///
    /// # Errors
    /// An invalid value, or two equal locations inside.
    pub(crate) fn finish(
        mut self,
        (around, outer): (LocationId, &Outer<'a>),
        all: &mut Growing<'_>,
        scope: &mut Scope,
    ) -> Result<LocationId, Error> {
        if self.raw.root.get().is_some_and(root::Raw::has_alias) {
            self.raw.root.edit().alias = Some(match self.kind {
                LocationKind::Regex(_) => Alias::Whole,
                LocationKind::Named => {
                    let sentence =
                        "the \"alias\" directive cannot be used inside the named location";
                    return Err(self.directive.error(&Problem::new(sentence)));
                }
                LocationKind::Exact | LocationKind::Prefix { .. } => Alias::Prefix(self.name.len()),
            });
        }
        // A location inside one that is open to internal redirects only is internal as well.
        for inner in &mut self.inner {
            inner.is_internal |= self.is_internal;
        }
        let mut own = outer.enter(self.raw, self.lines);
        let level = Level {
            kind: Some(&self.kind),
            name: self.name,
            is_internal: self.is_internal,
            place: Some(self.directive.place()),
            outer: Some(around),
        };
        let id = add(level, &own, all, scope)?;
        if let Some(passing) = all.locations[id as usize].made::<PassSettings>() {
            proxy_pass::hand_down_redirects(passing, &mut own.raw.proxy_rewrites);
        }
        self.scopes.finish((&self.kind, id), &own, all, scope)?;
        let (inner, named) = finish_all(self.inner, (id, &own), all, scope)?;
        debug_assert!(
            named.is_empty(),
            "named locations stand at the server alone"
        );
        all.locations[id as usize].inner = inner;
        Ok(id)
    }
}

/// The collections that locations are added to.
pub(crate) struct Growing<'a> {
    /// All locations so far.
    pub locations: &'a mut Vec<Location>,
    /// The upstreams: those that no block declares are added where `proxy_pass` names them.
    pub upstreams: &'a mut Upstreams,
    /// The caches.
    pub zones: &'a proxy::settings::cache_path::Zones,
    /// TLS to servers.
    pub peer_tls: &'a mut PeerTlsMaking,
}

/// A location, or the one that stands for a server itself.
pub(crate) struct Level<'a> {
    /// The kind of match; `None`: it stands for a server.
    pub kind: Option<&'a LocationKind>,
    /// Without the modifier.
    pub name: Bytes,
    /// Whether it is `internal`.
    pub is_internal: bool,
    /// The block's directive.
    pub place: Option<config::TextPlace>,
    /// The location around it.
    pub outer: Option<LocationId>,
}

/// Adds a location without any inside it.
///
/// # Errors
/// An invalid value, an error of a module about its lines, a server of `proxy_pass` that is not found.
pub(crate) fn add(
    level: Level<'_>,
    own: &Outer<'_>,
    all: &mut Growing<'_>,
    scope: &mut Scope,
) -> Result<LocationId, Error> {
    let id = LocationId::try_from(all.locations.len())
        .expect("a configuration of less than 4 GiB has fewer locations");
    let place = Place::new(&own.lines, &own.around.prefix, &own.around.pools);
    let handler = handler::configure(own.around.modules, &place, scope)?;
    let pool = OnceLock::new();
    let mut settings = LocationSettings::finish(own.raw.clone(), scope)?;
    for ssl in [
        &settings.proxy_ssl,
        &settings.uwsgi_ssl.0.ssl,
        &settings.grpc_ssl.0.ssl,
    ] {
        all.peer_tls.check_passwords(ssl, scope);
    }
    let family = proxy_pass::chosen(&settings);
    let here = |error: Error| match &level.place {
        Some(place) => error.or_at(place),
        None => error,
    };
    families::settle(&mut policies(&mut settings), family, all.zones, scope).map_err(here)?;
    let passing = proxy_pass::build(
        &settings,
        (family, || proxy_groups(&settings)),
        level.kind,
        &level.name,
        all.upstreams,
        |family, ssl| all.peer_tls.make(family, ssl, scope).map_err(here),
    )?;
    let mut made = MadeOfLocation::default();
    handler::set(&mut made, handler);
    made.set(passing);
    made.set(tunnel_pass::build(&settings, all.upstreams)?);
    made.set(directives::build(&settings));
    all.locations.push(Location {
        name: level.name,
        has_filters: false,
        has_steps_before: false,
        has_content: false,
        has_variants: false,
        settings: settings.core(),
        groups: Box::new(settings),
        made,
        is_passed_on: false,
        inner: Locations::default(),
        is_conditional: false,
        exception: None,
        is_internal: level.is_internal,
        place: level.place,
        outer: level.outer,
        logs: OnceLock::new(),
        zone: None,
        stale_files: None,
        pool,
    });
    Ok(id)
}

fn proxy_groups(settings: &LocationSettings) -> ProxyGroups {
    ProxyGroups {
        proxy: Arc::clone(&settings.proxy),
        asking: Arc::clone(&settings.asking),
        answers: Arc::clone(&settings.proxy_answers),
        rewrites: Arc::clone(&settings.proxy_rewrites),
        store: Arc::clone(&settings.proxy_store),
        caching: Arc::clone(&settings.caching),
        ssl: Arc::clone(&settings.proxy_ssl),
    }
}

fn policies(settings: &mut LocationSettings) -> FamilyDependent<'_> {
    FamilyDependent {
        asking: &mut settings.asking,
        answers: &mut settings.proxy_answers,
        store: &mut settings.proxy_store,
        caching: &mut settings.caching,
        rewrites: &mut settings.proxy_rewrites,
        ssl: &mut settings.proxy_ssl,
        fastcgi: &settings.fastcgi,
        uwsgi: &settings.uwsgi,
        scgi: &settings.scgi,
        uwsgi_ssl: &settings.uwsgi_ssl,
        grpc: &settings.grpc,
        grpc_ssl: &settings.grpc_ssl,
    }
}

/// The named locations of a server.
pub(crate) type Named = Vec<(Bytes, LocationId)>;

/// Finishes the locations of one level, inside of the location `outer`.
///
/// # Errors
/// As [`Block::finish`].
pub(crate) fn finish_all<'a>(
    blocks: Vec<Block<'a>>,
    outer: (LocationId, &Outer<'a>),
    all: &mut Growing<'_>,
    scope: &mut Scope,
) -> Result<(Locations, Named), Error> {
    let mut locations = Locations::default();
    let mut named = Named::new();
    for block in blocks {
        let (kind, name, directive) = (block.kind.clone(), block.name.clone(), block.directive);
        let id = block.finish(outer, all, scope)?;
        let location = &all.locations[id as usize];
        let pass = location.made::<PassSettings>();
        let passes = pass.is_some_and(PassSettings::redirects_to_slash)
            || handler::of(location).is_some_and(|handler| handler.passes());
        let auto_redirect = passes && name.ends_with(b"/");
        let is_new = match kind {
            LocationKind::Exact => {
                let is_new = locations.add_exact(&name, id);
                if auto_redirect {
                    locations.redirect_to_exact(&name);
                }
                is_new
            }
            LocationKind::Prefix { stops } => {
                let prefix = Prefix {
                    location: id,
                    stops,
                    auto_redirect,
                };
                locations.add_prefix(&name, prefix)
            }
            LocationKind::Regex(regex) => {
                locations.add_regex(regex, id);
                true
            }
            // Of two with the same name the first one is found, as in nginx.
            LocationKind::Named => {
                named.push((name.clone(), id));
                true
            }
        };
        if !is_new {
            let sentence = format!("duplicate location \"{}\"", String::from_utf8_lossy(&name));
            return Err(directive.error(&Problem::new(sentence)));
        }
    }
    locations.seal();
    Ok((locations, named))
}

/// The modifier may stand by itself or before the name.
fn kind_and_name(directive: &Directive, scope: &mut Scope) -> Result<(LocationKind, Bytes), Error> {
    const MODIFIERS: [&[u8]; 4] = [b"=", b"^~", b"~*", b"~"];
    let (modifier, word, skipped) = match &directive.args[..] {
        [modifier, word] => (modifier.bytes().clone(), word, 0),
        [word, ..] => {
            let modifier = MODIFIERS
                .iter()
                .find(|m| word.bytes().starts_with(m))
                .copied()
                .unwrap_or_default();
            (Bytes::from_static(modifier), word, modifier.len())
        }
        [] => return Err(directive.error(&Problem::argument_count("location"))),
    };
    let name = word.bytes().slice(skipped..);
    let mut regex = |caseless| {
        let regex = Regex::of_configuration(&name, caseless, word, scope);
        regex
            .map(|regex| LocationKind::Regex(Arc::new(regex)))
            .map_err(|problem| directive.error(&problem))
    };
    let kind = match &modifier[..] {
        b"=" => LocationKind::Exact,
        b"^~" => LocationKind::Prefix { stops: true },
        b"~" => regex(false)?,
        b"~*" => regex(true)?,
        b"" if name.starts_with(b"@") => LocationKind::Named,
        b"" => LocationKind::Prefix { stops: false },
        _ => {
            let sentence = format!(
                "invalid location modifier \"{}\"",
                String::from_utf8_lossy(&modifier)
            );
            return Err(directive.error(&Problem::new(sentence).at(0)));
        }
    };
    Ok((kind, name))
}
