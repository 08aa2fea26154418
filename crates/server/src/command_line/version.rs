//! What the program says of itself: `-v`, `-V`, `-h`.
//!
//! Invariant: only what is built is named. Programs that ask nginx's `-V` what it can do (its own test
//! suite, for one) get a true answer: modules of nginx that are on unless left out are listed as
//! `--without-…` until they are built, others are not named.

use super::{CONFIGURATION, ERROR_LOG, PREFIX};

/// The nginx whose behaviour is followed.
const NGINX: &str = "1.31.5";

/// Modules that nginx has by default and of which nothing is built here. (Of the rewrite module `return` is; of what goes
/// with the gzip module, compressed logs and the core's `gzip_*` directives are.)
const NOT_BUILT: &[&str] = &[
    "http_charset_module",
    "http_ssi_module",
    "http_userid_module",
    "http_auth_basic_module",
    "http_geo_module",
    "http_referer_module",
    "http_fastcgi_module",
    "http_uwsgi_module",
    "http_scgi_module",
    "http_grpc_module",
    "http_memcached_module",
    "http_limit_conn_module",
    "http_limit_req_module",
    "http_empty_gif_module",
    "http_browser_module",
];

/// Modules that nginx has only when asked, and that are built here.
const BUILT: &[&str] = &[
    "http_auth_request_module",
    "http_gzip_static_module",
    "http_slice_module",
];

/// Our own name and version, then the version of nginx that is followed.
#[must_use]
pub fn version() -> String {
    format!(
        "freewheel version: freewheel/{}\nnginx version: nginx/{NGINX}\n",
        env!("CARGO_PKG_VERSION")
    )
}

/// `-V`, after [`version`].
#[must_use]
pub fn configure() -> String {
    let mut text = String::from("TLS is not built\nconfigure arguments:");
    for module in BUILT {
        text.push_str(" --with-");
        text.push_str(module);
    }
    for module in NOT_BUILT {
        text.push_str(" --without-");
        text.push_str(module);
    }
    text.push('\n');
    text
}

/// `-h`, after [`version`].
#[must_use]
pub fn help() -> String {
    format!(
        "Usage: freewheel [-?hvVtTq] [-s signal] [-p prefix]
                 [-e filename] [-c filename] [-g directives]
       freewheel serve DIR [--listen ADDRESS] [--dashboard ADDRESS|off] [--autoindex] [--print-config]
       freewheel proxy ORIGIN --cache DIR[,DIR...] [--max-size SIZE] [--listen ADDRESS]
                       [--dashboard ADDRESS|off] [--print-config]
       freewheel top [URL]
       freewheel --explain DIRECTIVE

Options:
  -?,-h         : this help
  -v            : show version and exit
  -V            : show version and configure options then exit
  -t            : test configuration and exit
  -T            : test configuration, dump it and exit
  -q            : suppress non-error messages during configuration testing
  -s signal     : send signal to a master process: stop, quit, reopen, reload
  -p prefix     : set prefix path (default: {PREFIX})
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
        for false_claim in [
            "openssl",
            "OpenSSL",
            "LibreSSL",
            "BoringSSL",
            "SNI",
            "--with-debug",
            "--with-stream",
        ] {
            assert!(!text.contains(false_claim), "{false_claim}");
        }
    }
}
