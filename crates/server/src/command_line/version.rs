//! The program's description of itself: `-v`, `-V`, `-h`.
//!
//! Invariant: only what is built is named. Programs that read nginx's `-V` to learn its features (its own test suite,
//! for one) get a true answer: modules of nginx that are on unless left out are listed as `--without-…` until they are
//! built, others are not named.

use std::collections::BTreeMap;

use config::known::{self, Fate};

use config::default_paths::{self, CONFIGURATION, ERROR_LOG, PREFIX};

/// The nginx whose behaviour is followed.
const NGINX: &str = "1.31.5";

/// The OpenSSL whose cipher strings, commands and messages are followed. Programs that write configurations of TLS ask
/// `-V` for it (certbot, for one).
const OPENSSL: &str = "3.0.0";

/// Modules that nginx has only when asked, as its documentation names them but for `ngx_` and `_module`.
const OPTIONAL: &[&str] = &[
    "http_addition",
    "http_auth_request",
    "http_dav",
    "http_degradation",
    "http_flv",
    "http_geoip",
    "http_gunzip",
    "http_gzip_static",
    "http_image",
    "http_mp4",
    "http_perl",
    "http_random_index",
    "http_realip",
    "http_secure_link",
    "http_slice",
    "http_ssl",
    "http_stub_status",
    "http_sub",
    "http_v2",
    "http_v3",
    "http_xslt",
];

/// The modules of nginx that serve HTTP, each with whether it is built here: whether some table has a directive of it, and none of its
/// directives is to come yet. TLS to servers is no part of that.
fn modules() -> BTreeMap<&'static str, bool> {
    let tables = crate::process::tables();
    let has = |name: &str| {
        let mut tables = tables.iter();
        tables.any(|table| table.named(name.as_bytes()).next().is_some())
    };
    let mut modules = BTreeMap::new();
    let rows = known::all().iter().filter(|row| {
        let is_tls = row.name.contains("_ssl_");
        row.module.starts_with("http_") && row.module != "http_core" && !is_tls
    });
    for row in rows {
        let (some, all) = modules.entry(row.module).or_insert((false, true));
        let is_built = has(row.name);
        *some |= is_built;
        *all &= is_built || row.fate != Fate::NotYet;
    }
    let is_built = |(module, (some, all))| (module, some && all);
    modules.into_iter().map(is_built).collect()
}

/// Our own name and version, then the version of nginx that is followed.
#[must_use]
pub(super) fn version() -> String {
    format!(
        "freewheel version: freewheel/{}\nnginx version: nginx/{NGINX}\n",
        env!("CARGO_PKG_VERSION")
    )
}

/// `-V`, after [`version`].
#[must_use]
pub(super) fn configure() -> String {
    let mut text = format!(
        "built with OpenSSL {OPENSSL} (its words alone: TLS is by rustls and aws-lc-rs)\n\
         TLS SNI support enabled\nconfigure arguments:"
    );
    text.push_str(&default_paths::arguments());
    for (module, is_built) in modules() {
        match (OPTIONAL.contains(&module), is_built) {
            (true, true) => text.push_str(&format!(" --with-{module}_module")),
            (false, false) => text.push_str(&format!(" --without-{module}_module")),
            (true, false) | (false, true) => {}
        }
    }
    text.push('\n');
    text
}

/// `-h`, after [`version`].
#[must_use]
pub(super) fn help() -> String {
    let prefix = PREFIX.trim_end_matches('/');
    format!(
        "Usage: freewheel [-?hvVtTq] [-s signal] [-p prefix]
                 [-e filename] [-c filename] [-g directives]
       freewheel serve DIR [--listen ADDRESS] [--dashboard ADDRESS|off] [--autoindex] [--print-config]
       freewheel proxy ORIGIN --cache DIR[,DIR...] [--max-size SIZE] [--valid TIME]
                       [--listen ADDRESS] [--dashboard ADDRESS|off] [--print-config]
       freewheel top [URL]
       freewheel migrate [DIR | FILE] [--json] [--long]
       freewheel --explain DIRECTIVE
       freewheel -t [-c filename] --explain-url URL [--method METHOD] [--header 'NAME: VALUE']
                       [--from ADDRESS]

Options:
  -?,-h         : this help
  -v            : show version and exit
  -V            : show version and configure options then exit
  -t            : test configuration and exit
  -T            : test configuration, dump it and exit
  -q            : suppress non-error messages during configuration testing
  -s signal     : send signal to a master process: stop, quit, reopen, reload
  -p prefix     : set prefix path (default: {prefix}/)
  -e filename   : set error log file (default: {ERROR_LOG})
  -c filename   : set configuration file (default: {CONFIGURATION})
  -g directives : set global directives out of configuration file

"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modules_are_named_once_they_are_built() {
        let modules = modules();
        assert!(modules["http_fastcgi"] && modules["http_uwsgi"] && modules["http_scgi"]);
        assert!(modules["http_slice"] && modules["http_map"] && modules["http_proxy"]);
        assert!(modules["http_ssl"] && modules["http_grpc"] && !modules["http_degradation"]);
        let text = configure();
        assert!(text.contains(" --with-http_slice_module "), "{text}");
        assert!(text.contains(" --without-http_memcached_module "), "{text}");
        assert!(text.contains(" --with-http_ssl_module "), "{text}");
        assert!(!text.contains("http_map"), "{text}");
    }

    #[test]
    fn the_lines_that_scripts_look_for_are_there() {
        let text = version() + &configure();
        assert!(
            text.lines()
                .any(|line| line == "nginx version: nginx/1.31.5")
        );
        assert!(
            text.lines()
                .any(|line| line.starts_with("configure arguments:"))
        );
        assert!(
            text.lines()
                .any(|line| line.starts_with("built with OpenSSL 3.0.0 (its words alone"))
        );
        for false_claim in ["LibreSSL", "BoringSSL", "--with-debug", "--with-stream"] {
            assert!(!text.contains(false_claim), "{false_claim}");
        }
    }
}
