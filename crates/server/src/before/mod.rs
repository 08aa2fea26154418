//! The steps before the content: each may answer, refuse or redirect; otherwise the next one runs.
//!
//! To add a step, add a line to [`run`] and its settings to [`is_idle`]; the compiler demands the latter. The order is
//! that of nginx's phases: post read, server rewrite, find location, rewrite, preaccess, access, precontent.

pub mod access;
pub mod auth_basic;
pub mod auth_request;
pub mod client_body_early_read;
pub mod client_max_body_size;
pub mod limit_conn;
pub mod limit_req;
pub mod mirror;
pub mod real_ip;
pub mod return_;
pub mod rewrite;
pub mod satisfy;
pub mod try_files;

use self::access::Access;
use self::auth_basic::AuthBasic;
use self::auth_request::AuthRequest;
use self::limit_conn::LimitConn;
use self::limit_req::LimitReq;
use self::mirror::Mirroring;
use self::real_ip::RealIp;
use self::rewrite::Rewritten;
use self::satisfy::Admission;
use self::try_files::Trying;
use crate::Failure;
use crate::find_location;
use crate::headers_more;
use crate::loops::current_request;
use crate::outcome::Outcome;
use crate::path;
use crate::request::{Arrival, Request};
use crate::settings::{Location, LocationSettings};

/// Runs the steps; `None`: go on with the content.
pub async fn run(request: &mut Request, arrival: Arrival) -> Option<Outcome> {
    current_request::phase(current_request::Phase::Before);
    match arrival {
        Arrival::Lost => return Some(Outcome::Failed(Failure::new(500))),
        Arrival::Named => {}
        Arrival::Fresh | Arrival::Redirected => {
            if arrival == Arrival::Fresh && !request.is_subrequest() {
                if client_body_early_read::may_be_wanted(request)
                    && let Some(early) = Box::pin(client_body_early_read::run(request)).await
                {
                    return Some(early);
                }
                real_ip::run(request);
            }
            path::resolve(request).await;
            if let Some(early) = rewrite::run_server(request).await {
                return Some(early);
            }
            if let Some(early) = find_location::run(request) {
                return Some(early);
            }
        }
    }
    // At most `URI_CHANGES_MAX` times.
    loop {
        path::resolve(request).await;
        if let Some(early) = client_max_body_size::run(request) {
            return Some(early);
        }
        let moves = match rewrite::run_location(request).await {
            Rewritten::Answered(outcome) => return Some(outcome),
            Rewritten::Stays => false,
            Rewritten::Moves => true,
        };
        // `headers_more` of the location where the rewriting ends applies, whether or not the URI moves on to another
        // one.
        if request.location().settings.headers_more.has_input()
            && let Err(failure) = headers_more::input::run(request)
        {
            return Some(Outcome::Failed(failure));
        }
        if !moves {
            break;
        }
        if let Some(early) = find_location::run(request) {
            return Some(early);
        }
    }
    real_ip::run(request);
    if let Some(early) = limit_req::run(request).await {
        return Some(early);
    }
    if let Some(early) = limit_conn::run(request) {
        return Some(early);
    }
    if let Some(early) = satisfy::run(request).await {
        return Some(early);
    }
    if let Some(early) = try_files::run(request).await {
        return Some(early);
    }
    mirror::run(request).await
}

/// Whether no step has anything to do at this location for a request without a body. Answers that bypass the steps
/// (`content::hot_files`) rely on it.
#[must_use]
pub fn is_idle(location: &Location) -> bool {
    // Every field by its name, so that a new one does not compile before it is decided here whether a step obeys it.
    let Location {
        is_internal,
        settings,
        program,
        is_conditional,
        // The scope of a request is known only once it was entered.
        exception: _,
        name: _,
        place: _,
        inner: _,
        logs: _,
        passing: _,
        tunnelling: _,
        handler: _,
        pool: _,
        cache_rules: _,
        shown: _,
        zone: _,
        stale_files: _,
        has_filters: _,
    } = location;
    !is_internal && program.is_none() && !is_conditional && asks_nothing(settings)
}

/// Whether no step has anything to do by these settings.
// As many names per line as fit, since there are many.
#[rustfmt::skip]
fn asks_nothing(settings: &LocationSettings) -> bool {
    let LocationSettings {
        // Compiled into the location's program.
        rewriting: _,
        rewrite_messages: _,
        real_ip, access, auth_basic, auth_request, trying, mirroring, limit_req, limit_conn, headers_more,
        // Only combines the verdicts of the judges above.
        admission,
        // `client_max_body_size` concerns requests with bodies only.
        client_body: _,
        // No step obeys these.
        root: _, types: _, files: _, static_files: _, index: _, autoindex: _, dav: _, flv: _, mp4: _, precompressed: _, proxy: _,
        asking: _, fastcgi_pass: _, fastcgi: _, uwsgi_pass: _, uwsgi: _, scgi_pass: _, scgi: _,
        proxy_answers: _, proxy_store: _, proxy_rewrites: _, hints: _, tunnelling: _, subrequests: _, error_pages: _,
        caching: _, not_modified: _, headers: _, ranges: _, slicing: _, identity: _, redirects: _, keepalive: _,
        sending: _, closing: _, post_action: _, resolving: _, access_log: _, error_log: _, status: _, empty_gif: _, random_index: _,
        addition: _, sub_filter: _, charset: _, ssi: _,
        userid: _, browser: _, referers: _, secure_link: _,
        gunzip: _, accepting: _, gzip: _, brotli: _, zstd: _,
    } = settings;
    // A new directive of these does not compile before it is listed here.
    let Admission { satisfy: _, auth_delay: _ } = &**admission;
    let RealIp { set_real_ip_from, real_ip_header: _, real_ip_recursive: _ } = &**real_ip;
    let Access { rules } = &**access;
    let AuthBasic { auth_basic, auth_basic_user_file: _ } = &**auth_basic;
    let AuthRequest { auth_request, auth_request_set: _ } = &**auth_request;
    let Trying { try_files } = &**trying;
    let Mirroring { mirror, mirror_request_body: _ } = &**mirroring;
    let LimitReq { limit_req, limit_req_dry_run: _, limit_req_log_level: _, limit_req_status: _ } = &**limit_req;
    let LimitConn { limit_conn, limit_conn_dry_run: _, limit_conn_log_level: _, limit_conn_status: _ } = &**limit_conn;
    set_real_ip_from.is_empty()
        && limit_req.0.is_empty()
        && limit_conn.0.is_empty()
        && rules.is_empty()
        && auth_basic.is_none()
        && !auth_request.is_some()
        && try_files.is_none()
        && !mirror.is_any()
        && !headers_more.has_input()
}
