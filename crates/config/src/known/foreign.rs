//! Directives of modules that are not part of nginx's source but occur in real configurations: the module they belong
//! to, and what replaces them here.
//!
//! Not here: modules that are built in (ngx_brotli and the like). Invariant: these names are only used in messages;
//! none is accepted.

/// A third-party module, or the commercial nginx.
struct Foreign {
    /// The name of the module or product.
    whose: &'static str,
    /// What replaces it: a clause.
    instead: &'static str,
    /// The names of its directives; a `*` at either end matches anything.
    names: &'static [&'static str],
}

const NO_SCRIPTS: &str = "nothing runs scripts here: \"map\", \"rewrite\" and \"auth_request\" decide, an application behind \"proxy_pass\" makes content";
const NO_WALL: &str = "put it in front, or ask it by \"auth_request\"";

static ALL: &[Foreign] = &[
    Foreign {
        whose: "lua-nginx-module",
        instead: NO_SCRIPTS,
        names: &[
            "*_by_lua",
            "*_by_lua_block",
            "*_by_lua_file",
            "lua_*",
            "access_by_lua_no_postpone",
            "rewrite_by_lua_no_postpone",
        ],
    },
    Foreign {
        whose: "njs",
        instead: NO_SCRIPTS,
        names: &["js_*"],
    },
    Foreign {
        whose: "ngx_http_geoip2_module",
        instead: "\"geo\" makes the same variables of lists of networks",
        names: &["geoip2", "geoip2_*"],
    },
    Foreign {
        whose: "nginx-vod-module",
        instead: "package the films before (\"mp4\" serves parts of them), or pass requests on to a packager behind \"proxy_cache\"",
        names: &["vod", "vod_*"],
    },
    Foreign {
        whose: "nginx-rtmp-module",
        instead: "let a media server take the streams, Freewheel can serve the HLS and DASH that it writes",
        names: &["rtmp", "rtmp_*"],
    },
    Foreign {
        whose: "nginx-module-vts",
        instead: "\"metrics\", \"status_json\", \"dashboard\" and \"status_zone\" show figures",
        names: &["vhost_traffic_status*"],
    },
    Foreign {
        whose: "ModSecurity-nginx",
        instead: NO_WALL,
        names: &["modsecurity*"],
    },
    Foreign {
        whose: "naxsi",
        instead: NO_WALL,
        names: &[
            "SecRulesEnabled",
            "SecRulesDisabled",
            "MainRule",
            "BasicRule",
            "LearningMode",
            "LibInjection*",
            "DeniedUrl",
            "CheckRule",
            "naxsi_*",
        ],
    },
    Foreign {
        whose: "ngx_pagespeed",
        instead: "the application's build does its work",
        names: &["pagespeed*"],
    },
    Foreign {
        whose: "ngx-fancyindex",
        instead: "\"autoindex\" lists directories",
        names: &["fancyindex*"],
    },
    Foreign {
        whose: "echo-nginx-module",
        instead: "\"return\" answers with a text",
        names: &["echo", "echo_*"],
    },
    Foreign {
        whose: "set-misc-nginx-module",
        instead: "\"map\" and \"secure_link\" do some of it",
        names: &[
            "set_md5",
            "set_sha1",
            "set_hmac_*",
            "set_unescape_uri",
            "set_escape_uri",
            "set_if_empty",
            "set_random",
            "set_encode_*",
            "set_decode_*",
            "set_quote_*",
            "set_hashed_upstream",
            "set_local_today",
            "set_formatted_*",
            "set_rotate",
            "set_secure_random_*",
        ],
    },
    Foreign {
        whose: "ngx_http_substitutions_filter_module",
        instead: "\"sub_filter\" replaces texts",
        names: &["subs_filter*"],
    },
    Foreign {
        whose: "nginx-dav-ext-module",
        instead: "\"dav_methods\" has PUT, DELETE, MKCOL, COPY and MOVE; PROPFIND and LOCK need a server behind",
        names: &["dav_ext_*"],
    },
    Foreign {
        whose: "nginx-upload-progress-module",
        instead: "the application counts what came",
        names: &["upload_progress*", "track_uploads", "report_uploads"],
    },
    Foreign {
        whose: "nchan",
        instead: "pass requests on to a server of its own for messages",
        names: &["nchan_*"],
    },
    Foreign {
        whose: "Passenger",
        instead: "start the application by itself and pass requests on to it: \"proxy_pass\", \"uwsgi_pass\" or \"fastcgi_pass\"",
        names: &["passenger_*", "rails_*", "rack_env"],
    },
    Foreign {
        whose: "nginx-upload-module",
        instead: "the application takes what is uploaded: \"client_body_in_file_only\" gives it the body as a file",
        names: &["upload_*"],
    },
    Foreign {
        whose: "ngx_cache_purge",
        instead: "\"proxy_cache_purge\" with a variable deletes what is stored",
        names: &["cache_purge_*"],
    },
    Foreign {
        whose: "ngx_slowfs_cache",
        instead: "files are read by a pool of threads without it",
        names: &["slowfs_*"],
    },
    Foreign {
        whose: "nginx_upstream_check_module",
        instead: "\"max_fails\" and \"fail_timeout\" find servers that fail",
        names: &["check", "check_*"],
    },
    Foreign {
        whose: "srcache-nginx-module",
        instead: "\"proxy_cache\" and \"fastcgi_cache\" keep answers",
        names: &["srcache_*"],
    },
    Foreign {
        whose: "redis2-nginx-module",
        instead: "let the application ask Redis",
        names: &["redis2_*", "redis_*"],
    },
    Foreign {
        whose: "encrypted-session-nginx-module",
        instead: "the application keeps its sessions",
        names: &[
            "encrypted_session_*",
            "set_encrypt_session",
            "set_decrypt_session",
        ],
    },
    Foreign {
        whose: "ngx_http_concat_module",
        instead: "the application's build puts files together",
        names: &["concat", "concat_*"],
    },
    Foreign {
        whose: "spnego-http-auth-nginx-module or nginx-auth-ldap",
        instead: "\"auth_request\" asks a service that knows the users",
        names: &["auth_gss*", "auth_ldap*", "auth_pam*", "ldap_server"],
    },
    Foreign {
        whose: "nginx-http-shibboleth",
        instead: "\"auth_request\" asks the authorizer, \"auth_request_set\" and \"proxy_set_header\" pass on what it says",
        names: &["shib_request*"],
    },
    Foreign {
        whose: "fastdfs-nginx-module",
        instead: "pass requests on to the server that has the files",
        names: &["ngx_fastdfs_module"],
    },
    Foreign {
        whose: "ngx_http_google_filter_module",
        instead: "\"proxy_pass\" with \"sub_filter\" and \"proxy_cookie_domain\" does some of it",
        names: &[
            "google",
            "google_scholar",
            "google_language",
            "google_robots_deny",
        ],
    },
    Foreign {
        whose: "nginx-module-sts",
        instead: "`stream` is not built yet",
        names: &["server_traffic_status*"],
    },
    Foreign {
        whose: "drizzle-nginx-module, ngx_postgres or their like",
        instead: "the application asks the database",
        names: &["drizzle_*", "postgres_*", "rds_json*"],
    },
    Foreign {
        whose: "NGINX Plus",
        instead: "\"auth_request\" asks a service that checks tokens",
        names: &["auth_jwt*", "auth_oidc*"],
    },
    Foreign {
        whose: "NGINX Plus",
        instead: "\"metrics\", \"status_json\" and \"dashboard\" show figures; a reload changes servers without closing connections",
        names: &["api", "status_format"],
    },
    Foreign {
        whose: "NGINX Plus",
        instead: "\"max_fails\" and \"fail_timeout\" find servers that fail",
        names: &["health_check*", "match"],
    },
    Foreign {
        whose: "NGINX Plus",
        instead: "\"max_conns\" with \"proxy_next_upstream\" sends requests on to another server",
        names: &["queue", "ntlm"],
    },
    Foreign {
        whose: "nginx-otel",
        instead: "\"proxy_set_header traceparent\" and \"$request_id\" in \"log_format\" follow requests",
        names: &["otel_*"],
    },
    Foreign {
        whose: "Angie",
        instead: "\"acme_issuer\" and \"acme_certificate\" get certificates by ACME",
        names: &["acme", "acme_*"],
    },
];

/// Prefixes of the variables that such modules define, with the module.
const VARIABLES: &[(&str, &str)] = &[
    ("geoip2_", "ngx_http_geoip2_module"),
    ("echo_", "echo-nginx-module"),
    ("vts_", "nginx-module-vts"),
    ("uploadprogress_", "nginx-upload-progress-module"),
    ("upload_", "nginx-upload-module"),
    ("jwt_", "NGINX Plus"),
    ("otel_", "nginx-otel"),
    ("acme_cert_", "Angie"),
    ("passenger_", "Passenger"),
    ("naxsi_", "naxsi"),
    ("modsecurity", "ModSecurity-nginx"),
];

/// The module of an unknown variable (given without `$`) and what replaces it, as a sentence.
#[must_use]
pub fn told_of_variable(name: &str) -> Option<String> {
    let mut variables = VARIABLES.iter();
    let (_, whose) = variables.find(|(begin, _)| name.starts_with(begin))?;
    let mut all = ALL.iter();
    Some(all.find(|foreign| foreign.whose == *whose)?.sentence())
}

/// The module of an unknown directive and what replaces it, as a sentence.
#[must_use]
pub fn told(name: &str) -> Option<String> {
    let fits = |pattern: &&str| match (pattern.strip_prefix('*'), pattern.strip_suffix('*')) {
        (Some(end), _) => name.ends_with(end),
        (None, Some(start)) => name.starts_with(start),
        (None, None) => name == *pattern,
    };
    let found = ALL.iter().find(|foreign| foreign.names.iter().any(fits))?;
    Some(found.sentence())
}

impl Foreign {
    fn sentence(&self) -> String {
        let Self { whose, instead, .. } = self;
        format!("it belongs to {whose}, which is not built in: {instead}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::known;

    #[test]
    fn names_are_found_whole_and_by_their_beginnings_and_ends() {
        for (name, whose) in [
            ("access_by_lua_block", "lua-nginx-module"),
            ("vod", "nginx-vod-module"),
            ("api", "NGINX Plus"),
            ("shib_request", "nginx-http-shibboleth"),
        ] {
            let told = told(name).unwrap();
            assert!(
                told.starts_with(&format!("it belongs to {whose}, ")),
                "{told}"
            );
        }
        assert_eq!(told("apis"), None);
        assert_eq!(told("sendfle"), None);
    }

    #[test]
    fn every_maker_of_variables_has_directives() {
        for (begin, whose) in VARIABLES {
            let told = told_of_variable(begin).unwrap();
            assert!(
                told.starts_with(&format!("it belongs to {whose}, ")),
                "{told}"
            );
        }
    }

    #[test]
    fn no_directive_of_nginx_is_foreign() {
        for known in known::all() {
            assert_eq!(told(known.name), None, "{}", known.name);
        }
    }
}
