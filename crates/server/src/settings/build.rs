//! Builds [`Settings`] from the tree of directives.
//!
//! It blocks (files, names, regexes): it runs in the master before it serves and in the worker on a helper thread. Not
//! here: the form of values (each table's types).

use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use config::{Directive, Error, Problem, Scope, Section, Tree, Word};
use hashbrown::HashMap;
use logs::directives::LogFormats;
use logs::getaddrinfo::Hosts;
use runtime::cpu_pool;
use runtime::listen::Listen;
use runtime::metrics::page::label;

use crate::monitoring::directives::Status;
use crate::settings::circumstances::Circumstances;
use crate::steps;
use httpcore::handler::Modules;
use httpcore::route::{ServerId, ServerName, ServerNames};
use httpcore::settings::files::Aio;
use httpcore::status_zone::ZONES_MAX;
use httpcore::variables::Definitions;
use modules::before::real_ip;
use modules::before::rewrite::Program;
use modules::referer;
use proxy::settings::peer_tls::PeerTlsMaking;
use proxy::tunnel_pass::TunnelTarget;
use upstream::Upstreams;
use upstream::block::UpstreamBlocks;
use upstream::ocsp::{NameServers, Staples};
use upstream::resolver::Resolving;

use super::acme::Places;
use super::certificate_status::Around;
use super::content_source;
use super::locations::{Block, Growing, Level, Outer, Raw};
use super::order::Order;
use super::tables::{HttpData, LocationSettings, ServerGroups, all_of_mut};
use super::{scopes, sessions};
use crate::settings::locations;
use crate::settings::tables;
use httpcore::settings::server::ServerSettings;
use httpcore::settings::{Location, Server, Settings};
use httpcore::tls::{Making, ServerTls, TlsSettings};

/// Maximum number of servers of one configuration.
pub(crate) const SERVERS_MAX: usize = 1 << 20;

/// The base directories of relative paths, and the facts beside the text.
#[derive(Debug, Clone)]
pub(crate) struct Surroundings {
    /// The prefix (`-p`), ending in a slash.
    pub prefix: PathBuf,
    /// The directory of the configuration, ending in a slash.
    pub conf_prefix: PathBuf,
    /// The surroundings in which it is read.
    pub circumstances: Circumstances,
    /// The modules that make content besides files.
    pub modules: Modules,
    /// The pools that are declared.
    pub pools: Vec<Bytes>,
}

type RawServer = <ServerGroups as Section>::Raw;

/// A `server` block as read.
struct ServerBlock<'a> {
    directive: &'a Directive,
    raw: RawServer,
    own: Raw,
    /// Lines that belong to no module of ours.
    lines: Vec<&'a Directive>,
    locations: Vec<Block<'a>>,
    listens: Vec<(Listen, &'a Directive)>,
}

#[derive(Default)]
struct Http<'a> {
    server: RawServer,
    location: Raw,
    /// Lines that belong to no module of ours.
    lines: Vec<&'a Directive>,
    formats: <LogFormats as Section>::Raw,
    upstreams: UpstreamBlocks,
    data: HttpData,
    servers: Vec<ServerBlock<'a>>,
    is_seen: bool,
}

/// A configuration as far as it is built.
struct Unfinished {
    settings: Settings,
    upstreams: Upstreams,
    data: HttpData,
    peer_tls: PeerTlsMaking,
    staples: Staples,
}

/// Builds the settings that a checked tree describes. Warnings go to `scope`.
///
/// # Errors
/// The first error, in nginx's words, at its place.
pub(crate) fn build(
    tree: &Tree,
    scope: &mut Scope,
    surroundings: &Surroundings,
) -> Result<Settings, Error> {
    LocationSettings::register();
    let hosts = &surroundings.circumstances.hosts;
    let mut host = hosts.asking();
    let mut http = Http::default();
    let mut definitions = Definitions::default();
    let variable_tables = tables::variables(surroundings.modules);
    variable_tables.reserve(scope);
    for directive in tree
        .directives
        .iter()
        .filter(|directive| directive.name == "http")
    {
        if http.is_seen {
            return Err(directive.error(&Problem::duplicate()));
        }
        http.is_seen = true;
        read_http(directive, &mut http, &mut definitions, surroundings, scope)?;
    }
    let blocks = std::mem::take(&mut http.upstreams).finish()?;
    let mut unfinished = Unfinished {
        settings: Settings {
            prefix: surroundings.prefix.clone(),
            conf_prefix: surroundings.conf_prefix.clone(),
            hostname: httpcore::settings::server::hostname(),
            hosts: hosts.clone(),
            log_formats: LogFormats::finish(std::mem::take(&mut http.formats), scope)?.log_format,
            ..Settings::default()
        },
        upstreams: Upstreams::new(blocks, hosts.clone()),
        data: std::mem::take(&mut http.data),
        peer_tls: PeerTlsMaking::new(
            &surroundings.conf_prefix,
            surroundings.circumstances.files.reading(),
        ),
        staples: Staples::default(),
    };
    finish_http(http, surroundings, &mut unfinished, scope)?;
    let Unfinished {
        mut settings,
        upstreams,
        mut data,
        staples,
        ..
    } = unfinished;
    settle_resolvers(&settings)?;
    data.check(tree, &settings.locations)?;
    real_ip::settle(&settings.locations, &mut host)?;
    check_pools(&settings.locations, tree)?;
    settings.log_files()?;
    data.settle(&settings.locations, &surroundings.pools)?;
    note_steps(&mut settings.locations, &data);
    data.leave_in(&mut settings.made);
    settings.made.set(Some(upstreams));
    settings.made.set(Some(staples));
    let variables = definitions.finish(variable_tables, scope)?;
    settings.realpath_variables = variables.made_of("realpath_root");
    settings.made.set(Some(variables));
    number_zones(&mut settings)?;
    number_stale_files(&mut settings);
    cpu_pool::learn_cores();
    let is_shown = scope.find("first_byte_time").is_some();
    settings.wants_first_byte = is_shown || !settings.status_zones.is_empty();
    Ok(settings)
}

/// Notes at each location whether the lists of steps have anything to do there.
fn note_steps(locations: &mut [Location], data: &HttpData) {
    for location in locations {
        location.has_steps_before = steps::before::is_any(location);
        location.has_content = steps::content::is_any(location);
        location.is_passed_on = steps::content::is_passed_on(location);
        location.has_variants = steps::content::has_variants(location);
        location.has_filters = steps::after::has_filters(&data.charsets, location);
    }
}

/// Looks up the name servers that are named by name.
fn settle_resolvers(settings: &Settings) -> Result<(), Error> {
    for location in &settings.locations {
        settle_resolver(location.own::<Resolving>(), &settings.hosts)?;
    }
    Ok(())
}

fn settle_resolver(resolving: &Resolving, hosts: &Hosts) -> Result<(), Error> {
    let Some(line) = &resolving.resolver else {
        return Ok(());
    };
    let settled = line.value.settle(&mut hosts.asking());
    settled.map_err(|sentence| line.error(sentence))
}

/// Gives every `status_zone` a number.
fn number_zones(settings: &mut Settings) -> Result<(), Error> {
    let zones = &mut settings.status_zones;
    for location in &mut settings.locations {
        let Some(name) = &location.own::<Status>().status_zone else {
            continue;
        };
        let text = label(&name.value).into_owned();
        if text.is_empty() {
            return Err(name.error("a zone of \"status_zone\" has a name".to_owned()));
        }
        if text.contains('$') {
            let sentence = format!("\"status_zone\" takes no variables: \"{text}\"");
            return Err(name.error(sentence));
        }
        let known = zones.iter().position(|zone| *zone == text);
        if known.is_none() && zones.len() == ZONES_MAX {
            return Err(name.error(format!("more than {ZONES_MAX} zones of \"status_zone\"")));
        }
        location.zone = Some(known.unwrap_or_else(|| {
            zones.push(text);
            zones.len() - 1
        }));
    }
    Ok(())
}

/// Gives every `open_file_cache` a number.
fn number_stale_files(settings: &mut Settings) {
    let mut known = HashMap::new();
    for location in &mut settings.locations {
        let files = &location.settings.files;
        if files.open_file_cache.max > 0 {
            let next = known.len();
            let number = known.entry(Arc::as_ptr(files)).or_insert(next);
            location.stale_files = Some(*number);
        }
    }
    settings.stale_files = known.len();
}

/// Checks that every pool that is named without variables is declared.
fn check_pools(locations: &[Location], tree: &Tree) -> Result<(), Error> {
    let is_declared = |name: &[u8]| {
        let mut pools = tree
            .directives
            .iter()
            .filter(|line| line.name == "thread_pool");
        name == b"default"
            || pools.any(|line| line.args.first().is_some_and(|word| word.bytes() == name))
    };
    for location in locations {
        let Aio::Pool(pool) = &location.settings.files.aio.value else {
            continue;
        };
        if let Some(name) = pool.literal().filter(|name| !is_declared(name)) {
            let name = String::from_utf8_lossy(name);
            return Err(location
                .settings
                .files
                .aio
                .error(format!("unknown thread pool \"{name}\"")));
        }
    }
    Ok(())
}

fn read_http<'a>(
    block: &'a Directive,
    http: &mut Http<'a>,
    definitions: &mut Definitions,
    around: &Surroundings,
    scope: &mut Scope,
) -> Result<(), Error> {
    let mut order = Order::default();
    let mut host = around.circumstances.hosts.asking();
    for line in block.children() {
        order.check(line, block.children())?;
        match &line.name.bytes()[..] {
            b"server" => {
                let server = read_server(line, scope)?;
                http.servers.push(server);
                if http.servers.len() > SERVERS_MAX {
                    return Err(
                        line.error(&Problem::new(format!("more than {SERVERS_MAX} servers")))
                    );
                }
            }
            b"upstream" => http.upstreams.read(line, scope, &mut host)?,
            b"log_format" => LogFormats::set(&mut http.formats, line, scope).map(|_| ())?,
            _ if http.data.read(line, &around.prefix, scope)? => {}
            _ if read_level(&mut http.server, &mut http.location, line, scope)? => {}
            _ => match tables::variable_blocks(around.modules).find(|kind| line.name == *kind.name)
            {
                Some(kind) => definitions.read(kind, line, scope)?,
                None => http.lines.push(line),
            },
        }
    }
    Ok(())
}

/// Takes in a line. `Ok(false)`: no table of ours has it, so it is a module's, or the grammar let it through as "ignored,
/// because …".
fn read_level(
    server: &mut RawServer,
    location: &mut Raw,
    line: &Directive,
    scope: &mut Scope,
) -> Result<bool, Error> {
    Ok(ServerGroups::set(server, line, scope)? || content_source::set(location, line, scope)?)
}

fn read_server<'a>(block: &'a Directive, scope: &mut Scope) -> Result<ServerBlock<'a>, Error> {
    let mut server = ServerBlock {
        directive: block,
        raw: RawServer::default(),
        own: Raw::default(),
        lines: Vec::new(),
        locations: Vec::new(),
        listens: Vec::new(),
    };
    for line in block.children() {
        if line.name == "location" {
            server.locations.push(Block::read(line, None, 0, scope)?);
        } else if line.name == "if" {
            scopes::read_server_if(line, &mut server.own, scope)?;
        } else if line.name == "listen" {
            let args: Vec<&[u8]> = line.args.iter().map(|word| &word.bytes()[..]).collect();
            let listen = Listen::parse(&args).map_err(|refusal| {
                let missing = refusal.missing(&args);
                let problem = Problem::new(refusal.sentence).at(refusal.argument);
                line.error(&match missing {
                    Some(missing) => problem.hint_that(missing.sentence()),
                    None => problem,
                })
            })?;
            if listen.protocols.has_http2 {
                let sentence = "the \"listen ... http2\" directive is deprecated, use the \"http2\" directive instead";
                scope.warn(line.error(&Problem::new(sentence)));
            }
            for warning in &listen.warnings {
                scope.warn(line.error(warning));
            }
            server.listens.push((listen, line));
        } else if !read_level(&mut server.raw, &mut server.own, line, scope)? {
            server.lines.push(line);
        }
    }
    Ok(server)
}

fn finish_http(
    mut http: Http<'_>,
    around: &Surroundings,
    unfinished: &mut Unfinished,
    scope: &mut Scope,
) -> Result<(), Error> {
    if !http.is_seen {
        return Ok(());
    }
    LocationSettings::fill(&mut http.location, scope)?;
    http.location.root.edit().anchor(&around.prefix);
    ServerGroups::fill(&mut http.server, scope)?;
    let resolving = http.location.resolving.finish(scope)?;
    let mut host = around.circumstances.hosts.asking();
    unfinished.upstreams.settle(&resolving, &mut host)?;
    let outer = Outer {
        raw: http.location,
        lines: vec![http.lines],
        around,
    };
    let file = around.circumstances.files.reading();
    let mut making = Making::new(&around.conf_prefix, &file);
    for block in http.servers {
        let inherited = (&http.server, &outer);
        finish_server(block, inherited, &mut making, unfinished, scope)?;
    }
    let places = Places {
        prefix: &around.prefix,
        conf_prefix: &around.conf_prefix,
        is_worker: around.circumstances.files.is_complete(),
    };
    let acme = &mut unfinished.data.acme;
    acme.finish(&resolving, places, &mut host, scope)?;
    // A server whose files are at fault has no certificate.
    if !scope.has_faults() {
        check_certificates(&unfinished.settings)?;
    }
    sessions::share(&mut unfinished.settings);
    enter_names(&mut unfinished.settings, scope);
    Ok(())
}

fn finish_server(
    block: ServerBlock<'_>,
    (server, http): (&RawServer, &Outer<'_>),
    making: &mut Making<'_>,
    unfinished: &mut Unfinished,
    scope: &mut Scope,
) -> Result<(), Error> {
    let settings = &mut unfinished.settings;
    let id = ServerId::try_from(settings.servers.len()).expect("SERVERS_MAX is far lower");
    let groups = ServerGroups::finish(ServerGroups::merge(server, block.raw), scope)?;
    let mut listens = block.listens.iter();
    let has_http2 = groups.http2.http2 || listens.any(|(listen, _)| listen.protocols.has_http2);
    let finished = Arc::unwrap_or_clone(groups.server);
    let acme = &mut unfinished.data.acme;
    let acme = acme.place(&groups.acme, &finished.server_name, scope)?;
    let mut tls = making.server(&groups.tls, (has_http2, acme), scope)?;
    finished.check()?;
    listen_for(
        id,
        &block.listens,
        block.directive,
        http.around,
        settings,
        scope,
    )?;
    let own = http.enter(block.own, block.lines);
    let mut all = Growing {
        locations: &mut settings.locations,
        upstreams: &mut unfinished.upstreams,
        zones: &unfinished.data.zones,
        peer_tls: &mut unfinished.peer_tls,
    };
    let level = Level {
        kind: None,
        name: Bytes::new(),
        is_internal: false,
        place: Some(block.directive.place()),
        outer: None,
    };
    let itself = locations::add(level, &own, &mut all, scope)?;
    let (inner, named) = locations::finish_all(block.locations, (itself, &own), &mut all, scope)?;
    all.locations[itself as usize].inner = inner;
    settle_referers(&mut all.locations[itself as usize..], &finished)?;
    if let Some(tls) = &mut tls {
        let resolving = all.locations[itself as usize].own::<Resolving>();
        let staples = &mut unfinished.staples;
        settle_tls((tls, &groups.tls), resolving, http, making, staples, scope)?;
    }
    let lines = own.raw.rewriting.get().map_or(&[][..], |lines| lines);
    let program = Program::new(lines, &[]);
    all.locations[itself as usize].made.set(program);
    // Those of this server are the last ones.
    let mut own = all.locations[itself as usize..].iter();
    let allow_connect = own.any(|location| location.made::<TunnelTarget>().is_some());
    let limits = finished.limits(allow_connect);
    let name = finished.server_name.first.clone();
    settings.servers.push(Server {
        name,
        settings: finished,
        limits,
        http2: groups.http2,
        location: itself,
        named,
        tls: tls.map(Arc::new),
    });
    Ok(())
}

/// Completes what a server's TLS asks responders, whose names are resolved as the server says.
fn settle_tls(
    (tls, settings): (&mut ServerTls, &TlsSettings),
    resolving: &Resolving,
    http: &Outer<'_>,
    making: &mut Making<'_>,
    staples: &mut Staples,
    scope: &mut Scope,
) -> Result<(), Error> {
    let hosts = &http.around.circumstances.hosts;
    settle_resolver(resolving, hosts)?;
    let around = Around {
        making,
        servers: NameServers::of(resolving),
        resolve: &mut hosts.asking(),
        scope,
    };
    around.settle(tls, settings, staples)
}

/// Completes the referers of a server's locations by its names.
fn settle_referers(locations: &mut [Location], server: &ServerSettings) -> Result<(), Error> {
    let mut made = referer::Made::default();
    for location in locations {
        let referers = &mut all_of_mut(location).referers;
        if referers.is_any() {
            Arc::make_mut(referers).settle(&server.server_name, &mut made)?;
        }
    }
    Ok(())
}

/// Adds the addresses of a server; without any, nginx's default.
fn listen_for(
    id: ServerId,
    listens: &[(Listen, &Directive)],
    block: &Directive,
    around: &Surroundings,
    settings: &mut Settings,
    scope: &mut Scope,
) -> Result<(), Error> {
    let port: &[u8] = if around.circumstances.is_root {
        b"80"
    } else {
        b"8000"
    };
    let default = [(
        Listen::parse(&[port]).map_err(|r| Error::without_place(r.sentence))?,
        block,
    )];
    let listens = if listens.is_empty() {
        &default
    } else {
        listens
    };
    let mut host = around.circumstances.hosts.asking();
    for (listen, line) in listens {
        let warnings = settings
            .listens
            .add(listen, id, &mut host)
            .map_err(|sentence| line.error(&Problem::new(sentence)))?;
        for sentence in warnings {
            scope.warn(line.error(&Problem::new(sentence)));
        }
    }
    Ok(())
}

/// Checks that every address of TLS has a certificate to show, or refuses handshakes.
fn check_certificates(settings: &Settings) -> Result<(), Error> {
    let lacks = |id: &ServerId| {
        let tls = settings.server(*id).tls.as_deref();
        !tls.is_some_and(ServerTls::is_complete)
    };
    let shows = |id: ServerId| {
        let tls = settings.server(id).tls.as_deref();
        tls.is_some_and(|tls| tls.handshakes.is_some())
    };
    for entry in settings.listens.entries() {
        if !entry.protocols.has_ssl || shows(entry.default) {
            continue;
        }
        let others = entry.servers.iter();
        let without = std::iter::once(&entry.default)
            .chain(others)
            .find(|id| lacks(id));
        if let Some(id) = without {
            let sentence = "no \"ssl_certificate\" is defined for the \"listen ... ssl\" directive";
            let place = &settings.location(settings.server(*id).location).place;
            return Err(match place {
                Some(place) => Error::at(sentence, place),
                None => Error::without_place(sentence),
            });
        }
    }
    Ok(())
}

/// Enters the servers' names at their addresses, once all are known: a server that is alone at its address is not
/// chosen by name, and a name that it has twice is not reported.
fn enter_names(settings: &mut Settings, scope: &mut Scope) {
    let mut all = Vec::new();
    for entry in settings.listens.entries() {
        let mut names = ServerNames::default();
        let mut warn = |shown: &str, word: Option<&Word>| {
            let address = &entry.address;
            let sentence = format!("conflicting server name \"{shown}\" on {address}, ignored");
            scope.warn(match word {
                Some(word) => word.error(&Problem::new(sentence)),
                None => Error::without_place(sentence),
            });
        };
        for id in &entry.servers {
            let own = &settings.servers[*id as usize].settings.server_name.names;
            for (name, word) in own {
                if !names.add(name, *id) && entry.servers.len() > 1 {
                    warn(&word.display().to_lowercase(), Some(word));
                }
            }
            if own.is_empty() && !names.add(&ServerName::Exact(Box::default()), *id) {
                warn("", None);
            }
        }
        all.push(names);
    }
    settings.names = all;
}
