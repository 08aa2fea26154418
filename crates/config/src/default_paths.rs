//! Default paths, for where the command line and the configuration give none. Environment variables of the build set
//! them, as arguments of `configure` do for nginx, so that the program can replace a distribution's nginx.
//!
//! Not here: which of them is used. Invariants: a relative path begins at the prefix; an empty variable counts as
//! unset.

macro_rules! paths {
    ($($(#[doc = $doc:literal])* $name:ident $variable:literal $argument:literal $default:literal;)*) => {
        $($(#[doc = $doc])* pub const $name: &str = match option_env!($variable) {
            Some(given) if !given.is_empty() => given,
            _ => $default,
        };)*

        /// Each that the build was told: nginx's argument of `configure`, and the value.
        const GIVEN: &[(&str, Option<&str>)] = &[$(($argument, option_env!($variable)),)*];
    };
}

paths! {
    /// The prefix, unless `-p` gives one.
    PREFIX "FREEWHEEL_PREFIX" "prefix" "/usr/local/freewheel/";
    /// The configuration, unless `-c` names one.
    CONFIGURATION "FREEWHEEL_CONF_PATH" "conf-path" "conf/nginx.conf";
    /// The error log, until the configuration names one.
    ERROR_LOG "FREEWHEEL_ERROR_LOG_PATH" "error-log-path" "logs/error.log";
    /// The log of requests.
    HTTP_LOG "FREEWHEEL_HTTP_LOG_PATH" "http-log-path" "logs/access.log combined";
    /// The pid file.
    PID "FREEWHEEL_PID_PATH" "pid-path" "logs/nginx.pid";
    /// The lock file, which nothing needs; `-V` shows it.
    LOCK "FREEWHEEL_LOCK_PATH" "lock-path" "logs/nginx.lock";
    /// Bodies of requests.
    CLIENT_BODY_TEMP "FREEWHEEL_HTTP_CLIENT_BODY_TEMP_PATH" "http-client-body-temp-path" "client_body_temp";
    /// Answers of `proxy_pass`.
    PROXY_TEMP "FREEWHEEL_HTTP_PROXY_TEMP_PATH" "http-proxy-temp-path" "proxy_temp";
    /// Answers of `fastcgi_pass`.
    FASTCGI_TEMP "FREEWHEEL_HTTP_FASTCGI_TEMP_PATH" "http-fastcgi-temp-path" "fastcgi_temp";
    /// Answers of `uwsgi_pass`.
    UWSGI_TEMP "FREEWHEEL_HTTP_UWSGI_TEMP_PATH" "http-uwsgi-temp-path" "uwsgi_temp";
    /// Answers of `scgi_pass`.
    SCGI_TEMP "FREEWHEEL_HTTP_SCGI_TEMP_PATH" "http-scgi-temp-path" "scgi_temp";
    /// The user of the worker, where the master is root.
    USER "FREEWHEEL_USER" "user" "nobody";
    /// Its group; empty: one of the groups that systems have for `nobody`, or the user's own.
    GROUP "FREEWHEEL_GROUP" "group" "";
}

/// What the build was told, as arguments of nginx's `configure`, each behind a space.
#[must_use]
pub fn arguments() -> String {
    let given = GIVEN
        .iter()
        .filter_map(|(name, value)| Some((name, value.filter(|given| !given.is_empty())?)));
    given
        .map(|(name, value)| format!(" --{name}={value}"))
        .collect()
}
