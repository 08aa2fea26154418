//! The lists of what modules declare: tables of directives and of variables, blocks that define a variable, metrics.
//!
//! To add a module's directives, add its group to the level where it belongs.

use std::any::Any;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use config::{Directive, DirectiveTable, Error, MadeOfAll, Scope, Section, Tree, blocks, sections};
use logs::directives::{AccessLog, ErrorLog, LogFormats, ProcessErrorLog};

use crate::monitoring::directives;
use crate::monitoring::directives::Status;
use crate::settings::acme::{Acme, AcmeServer, IssuerLines};
use httpcore::connection::{post_action, proxy_protocol, tls_handshake};
use httpcore::handler::Modules;
use httpcore::handler::metrics::ModuleMetrics;
use httpcore::settings::admission::Admission;
use httpcore::settings::connections::{Closing, Keepalive, Sending};
use httpcore::settings::error_pages::ErrorPages;
use httpcore::settings::files::{Files, StaticFiles};
use httpcore::settings::post_action::PostAction;
use httpcore::settings::redirects::Redirects;
use httpcore::settings::request_body::ClientBody;
use httpcore::settings::rewrite_messages::RewriteMessages;
use httpcore::settings::root::Root;
use httpcore::settings::server_tokens::Identity;
use httpcore::settings::subrequests::Subrequests;
use httpcore::steps::satisfy;
use httpcore::subrequest;
use httpcore::tls::TlsSettings;
use httpcore::variables::block::VariableBlock;
use httpcore::variables::table::{VariableEntry, VariableTables};
use httpcore::variables::{connection, environment, request, response, tls};
use modules::after::addition::Addition;
use modules::after::charset::{self, Charset, Charsets};
use modules::after::compression::accept::Accepting;
use modules::after::compression::brotli::Brotli;
use modules::after::compression::gunzip::Gunzip;
use modules::after::compression::gzip::Gzip;
use modules::after::compression::zstd::Zstd;
use modules::after::compression::{self, brotli, gzip, zstd};
use modules::after::headers::HeaderLines;
use modules::after::not_modified::NotModified;
use modules::after::ranges::Ranges;
use modules::after::slice::Slicing;
use modules::after::ssi::Ssi;
use modules::after::sub_filter::SubFilter;
use modules::after::userid::UserId;
use modules::after::{addition, slice, ssi, userid};
use modules::before::access::Access;
use modules::before::auth_basic::AuthBasic;
use modules::before::auth_request::AuthRequest;
use modules::before::mirror::Mirroring;
use modules::before::real_ip::RealIp;
use modules::before::rewrite::Rewriting;
use modules::before::try_files::Trying;
use modules::before::{auth_basic, auth_request, mirror, real_ip};
use modules::browser::Browser;
use modules::content::autoindex::Autoindex;
use modules::content::dav::Dav;
use modules::content::empty_gif::EmptyGif;
use modules::content::flv::Flv;
use modules::content::gzip_static::Precompressed;
use modules::content::index::Index;
use modules::content::mp4::Mp4;
use modules::content::random_index::RandomIndex;
use modules::headers_more::HeadersMore;
use modules::limits;
use modules::limits::limit_conn::LimitConn;
use modules::limits::limit_req::LimitReq;
use modules::limits::{limit_conn, limit_req};
use modules::referer::Referers;
use modules::secure_link::SecureLink;
use modules::{browser, referer, secure_link};
use proxy::settings::directives::{Hints, Proxy, ProxyAnswers, ProxyRewrites, RequestSettings};
use proxy::settings::families::{Fastcgi, Grpc, Scgi, Uwsgi};
use proxy::settings::gateways::{self, FastcgiPass, ScgiPass, UwsgiPass};
use proxy::settings::ssl::{GrpcSsl, ProxySsl, UwsgiSsl};
use proxy::settings::{cache_path::Zones, caching::Caching, grpc::GrpcPass, store::ProxyStore};
use proxy::tunnel_pass::Tunnelling;
use upstream::resolver::Resolving;

use super::told::{How, Told};
use httpcore::settings::Location;
use httpcore::settings::core::CoreSettings;
use httpcore::settings::http2::Http2Settings;
use httpcore::settings::server::ServerSettings;
use httpcore::settings::types::Types;

sections! {
    /// What a server (or `http`) says beside what its locations inherit.
    pub struct ServerGroups {
        /// [`ServerSettings`].
        pub server: ServerSettings,
        /// [`TlsSettings`].
        pub tls: TlsSettings,
        /// [`Http2Settings`].
        pub http2: Http2Settings,
        /// [`AcmeServer`].
        pub(crate) acme: AcmeServer,
    }
}

sections! {
    /// What a location (or a server, or `http`) says.
    pub struct LocationSettings {
        /// [`Root`].
        root: Root,
        /// [`Types`].
        types: Types,
        /// [`Files`].
        files: Files,
        /// [`StaticFiles`].
        static_files: StaticFiles,
        /// [`Index`].
        index: Index,
        /// [`Autoindex`].
        autoindex: Autoindex,
        /// [`RandomIndex`].
        random_index: RandomIndex,
        /// [`EmptyGif`].
        empty_gif: EmptyGif,
        /// [`Status`].
        status: Status,
        /// [`Dav`].
        dav: Dav,
        /// [`Flv`].
        flv: Flv,
        /// [`Mp4`].
        mp4: Mp4,
        /// [`Precompressed`].
        precompressed: Precompressed,
        /// [`Proxy`].
        proxy: Proxy,
        /// [`RequestSettings`].
        asking: RequestSettings,
        /// [`ProxyAnswers`].
        proxy_answers: ProxyAnswers,
        /// [`ProxyStore`].
        proxy_store: ProxyStore,
        /// [`ProxyRewrites`].
        proxy_rewrites: ProxyRewrites,
        /// [`ProxySsl`].
        proxy_ssl: ProxySsl,
        /// [`Hints`].
        hints: Hints,
        /// [`FastcgiPass`].
        fastcgi_pass: FastcgiPass,
        /// [`Fastcgi`].
        fastcgi: Fastcgi,
        /// [`UwsgiPass`].
        uwsgi_pass: UwsgiPass,
        /// [`Uwsgi`].
        uwsgi: Uwsgi,
        /// [`UwsgiSsl`].
        uwsgi_ssl: UwsgiSsl,
        /// [`ScgiPass`].
        scgi_pass: ScgiPass,
        /// [`Scgi`].
        scgi: Scgi,
        /// [`GrpcPass`].
        grpc_pass: GrpcPass,
        /// [`Grpc`].
        grpc: Grpc,
        /// [`GrpcSsl`].
        grpc_ssl: GrpcSsl,
        /// [`Tunnelling`].
        tunnelling: Tunnelling,
        /// [`RealIp`].
        real_ip: RealIp,
        /// [`LimitReq`].
        limit_req: LimitReq,
        /// [`LimitConn`].
        limit_conn: LimitConn,
        /// [`Access`].
        access: Access,
        /// [`Admission`].
        admission: Admission,
        /// [`AuthBasic`].
        auth_basic: AuthBasic,
        /// [`AuthRequest`].
        auth_request: AuthRequest,
        /// [`Mirroring`].
        mirroring: Mirroring,
        /// [`Subrequests`].
        subrequests: Subrequests,
        /// [`ClientBody`].
        client_body: ClientBody,
        /// [`Rewriting`].
        rewriting: Rewriting,
        /// [`RewriteMessages`].
        rewrite_messages: RewriteMessages,
        /// [`Trying`].
        trying: Trying,
        /// [`ErrorPages`].
        error_pages: ErrorPages,
        /// [`Caching`].
        caching: Caching,
        /// [`NotModified`].
        not_modified: NotModified,
        /// [`HeaderLines`].
        headers: HeaderLines,
        /// [`HeadersMore`].
        headers_more: HeadersMore,
        /// [`Gunzip`].
        gunzip: Gunzip,
        /// [`Accepting`].
        accepting: Accepting,
        /// [`Gzip`].
        gzip: Gzip,
        /// [`Brotli`].
        brotli: Brotli,
        /// [`Zstd`].
        zstd: Zstd,
        /// [`UserId`].
        userid: UserId,
        /// [`Referers`].
        referers: Referers,
        /// [`SecureLink`].
        secure_link: SecureLink,
        /// [`Browser`].
        browser: Browser,
        /// [`Ranges`].
        ranges: Ranges,
        /// [`Slicing`].
        slicing: Slicing,
        /// [`Addition`].
        addition: Addition,
        /// [`SubFilter`].
        sub_filter: SubFilter,
        /// [`Charset`].
        charset: Charset,
        /// [`Ssi`].
        ssi: Ssi,
        /// [`Identity`].
        identity: Identity,
        /// [`Redirects`].
        redirects: Redirects,
        /// [`Keepalive`].
        keepalive: Keepalive,
        /// [`Sending`].
        sending: Sending,
        /// [`Closing`].
        closing: Closing,
        /// [`PostAction`].
        post_action: PostAction,
        /// [`Resolving`].
        resolving: Resolving,
        /// [`AccessLog`].
        access_log: AccessLog,
        /// [`ErrorLog`].
        error_log: ErrorLog,
    }
}

impl LocationSettings {
    /// What they say to the core.
    #[must_use]
    pub(crate) fn core(&self) -> CoreSettings {
        CoreSettings {
            root: Arc::clone(&self.root),
            types: Arc::clone(&self.types),
            files: Arc::clone(&self.files),
            static_files: Arc::clone(&self.static_files),
            error_pages: Arc::clone(&self.error_pages),
            client_body: Arc::clone(&self.client_body),
            keepalive: Arc::clone(&self.keepalive),
            sending: Arc::clone(&self.sending),
            closing: Arc::clone(&self.closing),
            post_action: Arc::clone(&self.post_action),
            access_log: Arc::clone(&self.access_log),
            error_log: Arc::clone(&self.error_log),
            redirects: Arc::clone(&self.redirects),
            identity: Arc::clone(&self.identity),
            subrequests: Arc::clone(&self.subrequests),
            rewrite_messages: Arc::clone(&self.rewrite_messages),
            admission: Arc::clone(&self.admission),
        }
    }
}

/// The reason why the groups of a location are these.
const ONE_LIST: &str = "there is one list of groups";

/// All settings of a location, by name.
#[must_use]
pub(crate) fn all_of(location: &Location) -> &LocationSettings {
    let groups: &dyn Any = location.groups();
    groups.downcast_ref().expect(ONE_LIST)
}

/// [`all_of`], to be changed while the configuration is built; not for what the core obeys.
pub(crate) fn all_of_mut(location: &mut Location) -> &mut LocationSettings {
    let groups: &mut dyn Any = &mut *location.groups;
    groups.downcast_mut().expect(ONE_LIST)
}

blocks! {
    /// Blocks and other structure.
    pub fn structure in Http {
        /// Contains everything that concerns HTTP.
        "http": [MAIN] 0 => HTTP;
        /// A virtual server.
        "server": [HTTP] 0 => SERVER;
        /// Sets the address and port, or the path of the unix socket, on which the server accepts requests.
        "listen" = "*:80 | *:8000": [SERVER] 1.., syntax "address[:port] [default_server] [ssl] [proxy_protocol] [reuseport] [backlog=number] [rcvbuf=size] [sndbuf=size] [fastopen=number] [deferred] [bind] [ipv6only=on|off] [so_keepalive=on|off|[idle]:[interval]:[count]]";
        /// Sets the configuration for some of the URIs: a prefix, `=` an exact URI, `^~` a prefix that skips regular
        /// expressions, `~` and `~*` a regular expression with and without regard to case, `@` a name for internal
        /// redirects.
        "location": [SERVER | LOCATION] 1..=2 => LOCATION, syntax "[ = | ~ | ~* | ^~ ] uri | @name";
        /// Applies to requests with other methods than these: its content is a location of its own, which inherits from
        /// this one. GET includes HEAD.
        "limit_except": [LOCATION] 1.. => LIMIT_EXCEPT, syntax "method …";
        /// Restricts the location to internal redirects; other requests get 404.
        "internal": [LOCATION] 0;
    }
}

/// Every table of the program, in the manual's order.
#[must_use]
pub(crate) fn all() -> Vec<&'static DirectiveTable> {
    let mut tables = vec![
        structure(),
        modules::map::lines(),
        modules::geo::lines(),
        modules::split_clients::lines(),
        proxy::settings::cache_path::lines(),
        modules::limits::zones::lines(),
        crate::settings::acme::lines(),
    ];
    tables.extend(IssuerLines::tables());
    tables.extend(ServerGroups::tables());
    tables.extend(LocationSettings::tables());
    tables.push(modules::after::charset::maps::lines());
    tables.extend(upstream::block::tables());
    tables.extend(LogFormats::tables());
    tables.extend(ProcessErrorLog::tables());
    tables
}

/// What modules keep of a whole configuration, out of lines of `http`.
#[derive(Debug, Default)]
pub(crate) struct HttpData {
    /// The charsets that are named, and the ways between them.
    pub charsets: Charsets,
    /// The zones of limits.
    pub limits: limits::Zones,
    /// The caches that are declared.
    pub zones: Zones,
    /// The issuers of certificates.
    pub acme: Acme,
}

impl HttpData {
    /// Takes in a line of `http`. `Ok(false)`: it is none of these.
    ///
    /// # Errors
    /// The fault in the line, at its place.
    pub(crate) fn read(
        &mut self,
        line: &Directive,
        prefix: &Path,
        scope: &mut Scope,
    ) -> Result<bool, Error> {
        match &line.name.bytes()[..] {
            b"proxy_cache_path"
            | b"fastcgi_cache_path"
            | b"uwsgi_cache_path"
            | b"scgi_cache_path" => self.zones.read(line, prefix, scope)?,
            b"limit_req_zone" | b"limit_conn_zone" => self.limits.read(line, scope)?,
            b"charset_map" => self.charsets.read(line)?,
            b"acme_issuer" => self.acme.read_issuer(line, scope)?,
            b"acme_shared_zone" => self.acme.read_zone(line, scope)?,
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Checks that locations name zones that are declared, and that caches are used.
    ///
    /// # Errors
    /// The first one that is not.
    pub(crate) fn check(&mut self, tree: &Tree, locations: &[Location]) -> Result<(), Error> {
        self.limits.settle(locations)?;
        self.zones.check_unused(tree)
    }

    /// Learns what the locations name; `pools` are the declared ones.
    ///
    /// # Errors
    /// Charsets between which there is no map.
    pub(crate) fn settle(&mut self, locations: &[Location], pools: &[Bytes]) -> Result<(), Error> {
        self.zones.settle(locations, pools);
        charset::settle(&mut self.charsets, locations)
    }

    /// Leaves it with the configuration, where modules find it.
    pub(crate) fn leave_in(self, made: &mut MadeOfAll) {
        made.set(Some(self.charsets));
        made.set(Some(self.limits));
        made.set(Some(self.zones));
        made.set(Some(self.acme));
    }
}

/// What `--explain-url` says of steps, where it has more to say than whether they let a request pass.
pub(crate) const TOLD: &[Told] = &[
    Told {
        step: "limit_req",
        lines: &["limit_req", "limit_req_status", "limit_req_dry_run"],
        how: How::Limit,
    },
    Told {
        step: "limit_conn",
        lines: &["limit_conn", "limit_conn_status"],
        how: How::Limit,
    },
    Told {
        step: "limit_rate",
        lines: &["limit_rate", "limit_rate_after"],
        how: How::Limit,
    },
    Told {
        step: "client_body_early_read",
        lines: &[],
        how: How::Silent,
    },
    Told {
        step: "auth_request",
        lines: &["auth_request"],
        how: How::Instead("auth", "a sub-request is asked; taken to let pass here"),
    },
    Told {
        step: "mirror",
        lines: &["mirror"],
        how: How::Instead(
            "mirror",
            "the request is also sent there, whose answer does not count",
        ),
    },
    Told {
        step: "auth_basic",
        lines: &["auth_basic", "auth_basic_user_file"],
        how: How::Judge(
            "the user and the password are right",
            "no user with the right password",
        ),
    },
    Told {
        step: "mp4",
        lines: &["mp4"],
        how: How::Film,
    },
    Told {
        step: "flv",
        lines: &["flv"],
        how: How::Film,
    },
];

/// Directives that add to a response's head, with the header lines that tell whether they did; none: always.
pub(crate) const ADDED_TO_HEADS: &[(&str, &[&str])] = &[
    ("more_set_headers", &[]),
    ("more_clear_headers", &[]),
    ("add_header", &[]),
    ("add_trailer", &[]),
    ("expires", &["Expires", "Cache-Control"]),
    ("charset", &[]),
    ("userid", &["Set-Cookie"]),
];

/// Directives that change a response's body.
pub(crate) const BODY_FILTERS: &[&str] = &[
    "gzip",
    "brotli",
    "zstd",
    "gunzip",
    "ssi",
    "sub_filter",
    "add_before_body",
    "add_after_body",
];

/// The variables of all modules.
const VARIABLES: &[&[VariableEntry]] = &[
    request::VARIABLES,
    response::VARIABLES,
    connection::VARIABLES,
    environment::VARIABLES,
    tls::VARIABLES,
    httpcore::files::path::VARIABLES,
    modules::realpath_root::VARIABLES,
    real_ip::VARIABLES,
    limit_req::VARIABLES,
    limit_conn::VARIABLES,
    auth_basic::VARIABLES,
    proxy::state::variables::VARIABLES,
    gateways::VARIABLES,
    proxy::caching::variables::VARIABLES,
    slice::VARIABLES,
    ssi::VARIABLES,
    gzip::VARIABLES,
    brotli::VARIABLES,
    zstd::VARIABLES,
    userid::VARIABLES,
    browser::VARIABLES,
    referer::VARIABLES,
    secure_link::VARIABLES,
    directives::VARIABLES,
    crate::settings::acme::variables::VARIABLES,
];

/// The metrics of all modules, in the order in which they are shown.
const METRICS: &[&ModuleMetrics] = &[
    &httpcore::connection::http2::METRICS,
    &modules::limits::metrics::METRICS,
    &compression::METRICS,
    &auth_basic::METRICS,
    &satisfy::METRICS,
    &subrequest::METRICS,
    &auth_request::METRICS,
    &mirror::METRICS,
    &slice::METRICS,
    &addition::METRICS,
    &ssi::METRICS,
    &post_action::METRICS,
    &proxy_protocol::METRICS,
    &tls_handshake::METRICS,
    &httpcore::tls::certificate_metrics::METRICS,
    &crate::settings::acme::metrics::METRICS,
    &proxy::tls_metrics::METRICS,
    &real_ip::METRICS,
];

/// The blocks of all modules that define a variable.
const BLOCKS: &[VariableBlock] = &[
    modules::map::BLOCK,
    modules::geo::BLOCK,
    modules::split_clients::BLOCK,
];

pub(crate) fn variable_blocks(modules: Modules) -> impl Iterator<Item = &'static VariableBlock> {
    let outside = modules.iter().flat_map(|module| module.variable_blocks());
    BLOCKS.iter().chain(outside)
}

/// The metrics of built-in modules, and of those from outside.
pub(crate) fn metrics(modules: Modules) -> impl Iterator<Item = &'static ModuleMetrics> {
    let outside = modules.iter().filter_map(|module| module.metrics());
    METRICS.iter().copied().chain(outside)
}

/// The built-in variables, and those of modules from outside.
#[must_use]
pub(crate) fn variables(modules: Modules) -> VariableTables {
    let outside = modules.iter().map(|module| module.variables());
    VariableTables::new(VARIABLES.iter().copied().chain(outside).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_variable_stands_once() {
        let tables = variables(&[]);
        let mut names: Vec<_> = tables.all().map(|entry| entry.name).collect();
        let before = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), before);
    }
}
