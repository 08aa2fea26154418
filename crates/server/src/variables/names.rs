//! nginx's variables by name: the core variables, and the families with their prefixes.
//!
//! Not here: their values (`values.rs`) and the variables that the configuration defines (`map`, `split_clients`,
//! named groups of regexes).

/// Declares the variables once: the enum, the look-up by name and the manual's list.
macro_rules! variables {
    ($($(#[doc = $doc:literal])* $id:ident $name:literal)*) => {
        /// A variable that every request has.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Core {
            $($(#[doc = $doc])* $id,)*
        }

        /// Name and description of each, in the manual's order.
        pub const CORE: &[(&str, Core, &str)] = &[$(($name, Core::$id, concat!($($doc),*)),)*];
    };
}

variables! {
    /// The value of `ancient_browser_value` for browsers that `ancient_browser` means, else empty.
    AncientBrowser "ancient_browser"
    /// The arguments of the current URI.
    Args "args"
    /// The client's address as 4 or 16 bytes (unix sockets: `unix:`).
    BinaryRemoteAddr "binary_remote_addr"
    /// Bytes sent to the client without the head.
    BodyBytesSent "body_bytes_sent"
    /// How many times longer the body was before Brotli compressed it.
    BrotliRatio "brotli_ratio"
    /// Bytes sent to the client.
    BytesSent "bytes_sent"
    /// The connection's serial number.
    Connection "connection"
    /// Requests made through the connection so far.
    ConnectionRequests "connection_requests"
    /// The connection's age in seconds with milliseconds.
    ConnectionTime "connection_time"
    /// The request's `Content-Length`.
    ContentLength "content_length"
    /// The request's `Content-Type`.
    ContentType "content_type"
    /// Connections of clients now, as in `stub_status`.
    ConnectionsActive "connections_active"
    /// Of these, those of which a request is being read.
    ConnectionsReading "connections_reading"
    /// Those that wait for a request.
    ConnectionsWaiting "connections_waiting"
    /// Those to which an answer is being written.
    ConnectionsWriting "connections_writing"
    /// The time in Greenwich, in the format that a page set (`ssi`).
    DateGmt "date_gmt"
    /// The time in the machine's zone, in the format that a page set (`ssi`).
    DateLocal "date_local"
    /// How long the request has waited for disks so far, in seconds with microseconds.
    DiskWait "disk_wait"
    /// What `root` or `alias` gives for the request.
    DocumentRoot "document_root"
    /// The same as `$uri`.
    DocumentUri "document_uri"
    /// What `fastcgi_split_path_info` finds behind the script in the URI.
    FastcgiPathInfo "fastcgi_path_info"
    /// The script in the URI: the whole of it, or what `fastcgi_split_path_info` finds; `fastcgi_index` stands behind a slash.
    FastcgiScriptName "fastcgi_script_name"
    /// How long it took from the request's coming until the first byte of the answer was sent, in seconds with microseconds.
    FirstByteTime "first_byte_time"
    /// How many times longer the body was before gzip compressed it.
    GzipRatio "gzip_ratio"
    /// Host of the request line, else of `Host`, else the server's name; lower case, no port.
    Host "host"
    /// The machine's name.
    Hostname "hostname"
    /// `on` over TLS, else empty.
    Https "https"
    /// `?` when the URI has arguments, else empty.
    IsArgs "is_args"
    /// Empty where `valid_referers` takes the request's `Referer`, else `1`.
    InvalidReferer "invalid_referer"
    /// `:` when `$request_port` is not empty, else empty.
    IsRequestPort "is_request_port"
    /// What `limit_conn` has said: `PASSED`, `REJECTED` or `REJECTED_DRY_RUN`.
    LimitConnStatus "limit_conn_status"
    /// The response's rate limit in bytes a second; settable.
    LimitRate "limit_rate"
    /// What `limit_req` has said: `PASSED`, `DELAYED`, `REJECTED`, `DELAYED_DRY_RUN` or `REJECTED_DRY_RUN`.
    LimitReqStatus "limit_req_status"
    /// The value of `modern_browser_value` for browsers that `modern_browser` means, else empty.
    ModernBrowser "modern_browser"
    /// The time in seconds with milliseconds.
    Msec "msec"
    /// `1` for MSIE of any version, else empty.
    Msie "msie"
    /// The version of nginx whose behaviour is followed.
    NginxVersion "nginx_version"
    /// The worker's process id.
    Pid "pid"
    /// `p` when the request was pipelined, else `.`.
    Pipe "pipe"
    /// How long the request has waited for a thread of a pool so far, in seconds with microseconds: a part of `$disk_wait`, but for
    /// what a pool does without a disk (a listing that is written, a password that is checked).
    PoolWait "pool_wait"
    /// What `X-Forwarded-For` said, and the client's address behind it.
    ProxyAddXForwardedFor "proxy_add_x_forwarded_for"
    /// The host of `proxy_pass`, with its port unless that is 80.
    ProxyHost "proxy_host"
    /// The port of `proxy_pass`.
    ProxyPort "proxy_port"
    /// The client's address out of the PROXY protocol.
    ProxyProtocolAddr "proxy_protocol_addr"
    /// The client's port out of the PROXY protocol.
    ProxyProtocolPort "proxy_protocol_port"
    /// The server's address out of the PROXY protocol.
    ProxyProtocolServerAddr "proxy_protocol_server_addr"
    /// The server's port out of the PROXY protocol.
    ProxyProtocolServerPort "proxy_protocol_server_port"
    /// The same as `$args`.
    QueryString "query_string"
    /// The address of the connection's client, whatever `real_ip_header` says.
    RealipRemoteAddr "realip_remote_addr"
    /// The port of the connection's client, whatever `real_ip_header` says.
    RealipRemotePort "realip_remote_port"
    /// `$document_root` with symbolic links resolved.
    RealpathRoot "realpath_root"
    /// The client's address.
    RemoteAddr "remote_addr"
    /// The client's port.
    RemotePort "remote_port"
    /// The name given for basic authentication.
    RemoteUser "remote_user"
    /// The request line as it came.
    Request "request"
    /// The request's body, when it was read and is in memory.
    RequestBody "request_body"
    /// The file that holds the request's body.
    RequestBodyFile "request_body_file"
    /// `OK` when the request was answered completely, else empty.
    RequestCompletion "request_completion"
    /// The file that the request maps to.
    RequestFilename "request_filename"
    /// 32 hexadecimal digits made at random for the request.
    RequestId "request_id"
    /// The request's length: line, header and body.
    RequestLength "request_length"
    /// The request's method.
    RequestMethod "request_method"
    /// The port of the request's host, as it was given.
    RequestPort "request_port"
    /// Seconds with milliseconds since the first byte of the request.
    RequestTime "request_time"
    /// The URI with arguments as it came.
    RequestUri "request_uri"
    /// `http` or `https`.
    Scheme "scheme"
    /// Whether a link was made with the secret and has not run out: see `secure_link`.
    SecureLink "secure_link"
    /// The second at which a link runs out, as the request says it.
    SecureLinkExpires "secure_link_expires"
    /// Where the answer came from: `memory`, `disk`, `upstream`, or `fill`, which is the fetch of a cache, of this request or another.
    ServedFrom "served_from"
    /// The address that accepted the request.
    ServerAddr "server_addr"
    /// The name of the server that accepted the request.
    ServerName "server_name"
    /// The port that accepted the request.
    ServerPort "server_port"
    /// `HTTP/1.0`, `HTTP/1.1`.
    ServerProtocol "server_protocol"
    /// The range of the slice that is asked for (`slice`).
    SliceRange "slice_range"
    /// The version of TLS. It is not built, so there is no value.
    Tls "ssl_protocol"
    /// The status of the response.
    Status "status"
    /// The kernel's `tcpi_rcv_space` of the connection.
    TcpinfoRcvSpace "tcpinfo_rcv_space"
    /// The kernel's `tcpi_rtt` of the connection.
    TcpinfoRtt "tcpinfo_rtt"
    /// The kernel's `tcpi_rttvar` of the connection.
    TcpinfoRttvar "tcpinfo_rttvar"
    /// The kernel's `tcpi_snd_cwnd` of the connection.
    TcpinfoSndCwnd "tcpinfo_snd_cwnd"
    /// Local time in ISO 8601.
    TimeIso8601 "time_iso8601"
    /// Local time in the common log format.
    TimeLocal "time_local"
    /// The client's `userid` cookie: its name and value in hexadecimal digits.
    UidGot "uid_got"
    /// Not empty and not `0`: the client's `userid` cookie is replaced, with `log` also logged. For the configuration to set.
    UidReset "uid_reset"
    /// The `userid` cookie that the client is sent.
    UidSet "uid_set"
    /// The addresses of the servers that were asked, in order; the upstream's name where none could be.
    UpstreamAddr "upstream_addr"
    /// Bytes received from each.
    UpstreamBytesReceived "upstream_bytes_received"
    /// Bytes sent to each.
    UpstreamBytesSent "upstream_bytes_sent"
    /// Seconds since the stored answer that was used came from the origin, or was found unchanged by it.
    UpstreamCacheAge "upstream_cache_age"
    /// The entity tag of what is stored and is being revalidated.
    UpstreamCacheEtag "upstream_cache_etag"
    /// What the answer is stored under.
    UpstreamCacheKey "upstream_cache_key"
    /// The modification time of what is stored and is being revalidated.
    UpstreamCacheLastModified "upstream_cache_last_modified"
    /// Why the answer of the origin is not stored, as far as its head says so: `no lifetime`, `Set-Cookie`, `no-store`, …; `no answer` where no server gave one.
    UpstreamCacheRefusal "upstream_cache_refusal"
    /// `MISS`, `BYPASS`, `EXPIRED`, `STALE`, `UPDATING`, `REVALIDATED` or `HIT`.
    UpstreamCacheStatus "upstream_cache_status"
    /// Seconds with milliseconds that connecting to each took.
    UpstreamConnectTime "upstream_connect_time"
    /// Seconds with milliseconds until the head of each answer had come.
    UpstreamHeaderTime "upstream_header_time"
    /// Bytes of the body of each answer.
    UpstreamResponseLength "upstream_response_length"
    /// Seconds with milliseconds until each answer had come.
    UpstreamResponseTime "upstream_response_time"
    /// The status of each answer.
    UpstreamStatus "upstream_status"
    /// The current URI, decoded and normalised.
    Uri "uri"
    /// How many times longer the body was before Zstandard compressed it.
    ZstdRatio "zstd_ratio"
}

const TLS_SAYS: &str = "What TLS says of the connection. It is not built, so there is no value.";
/// The variables of TLS.
const OF_TLS: &[&str] = &[
    "ssl_alpn_protocol",
    "ssl_cipher",
    "ssl_ciphers",
    "ssl_client_cert",
    "ssl_client_escaped_cert",
    "ssl_client_fingerprint",
    "ssl_client_i_dn",
    "ssl_client_i_dn_legacy",
    "ssl_client_raw_cert",
    "ssl_client_s_dn",
    "ssl_client_s_dn_legacy",
    "ssl_client_serial",
    "ssl_client_sigalg",
    "ssl_client_v_end",
    "ssl_client_v_remain",
    "ssl_client_v_start",
    "ssl_client_verify",
    "ssl_curve",
    "ssl_curves",
    "ssl_early_data",
    "ssl_ech_outer_server_name",
    "ssl_ech_status",
    "ssl_server_name",
    "ssl_session_id",
    "ssl_session_reused",
    "ssl_sigalg",
    "ssl_sigalgs",
];

/// All of them with their descriptions.
pub fn all() -> impl Iterator<Item = (&'static str, Core, &'static str)> {
    let of_tls = OF_TLS.iter().map(|name| (*name, Core::Tls, TLS_SAYS));
    CORE.iter().copied().chain(of_tls)
}

impl Core {
    /// Is it a module's, made when it is first asked for and remembered?
    #[must_use]
    pub fn is_kept(self) -> bool {
        matches!(
            self,
            Self::AncientBrowser
                | Self::InvalidReferer
                | Self::ModernBrowser
                | Self::Msie
                | Self::SecureLink
                | Self::SecureLinkExpires
                | Self::UidGot
                | Self::UidReset
                | Self::UidSet
        )
    }

    /// May the configuration give it another meaning (`map`), or another value (`set`, `auth_request_set`)?
    #[must_use]
    pub fn is_changeable(self) -> bool {
        matches!(
            self,
            Self::AncientBrowser
                | Self::Args
                | Self::InvalidReferer
                | Self::LimitRate
                | Self::ModernBrowser
                | Self::Msie
                | Self::ProxyHost
                | Self::ProxyPort
                | Self::Tls
                | Self::UidReset
        )
    }
}

/// A family of variables: the rest of the name says which.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
    /// `$arg_NAME`.
    Arg,
    /// `$cookie_NAME`.
    Cookie,
    /// `$http_NAME`.
    Http,
    /// `$proxy_protocol_tlv_NAME`.
    ProxyProtocolTlv,
    /// `$sent_http_NAME`.
    SentHttp,
    /// `$sent_trailer_NAME`.
    SentTrailer,
    /// `$upstream_cookie_NAME`.
    UpstreamCookie,
    /// `$upstream_http_NAME`.
    UpstreamHttp,
    /// `$upstream_trailer_NAME`.
    UpstreamTrailer,
}

/// The prefixes, each with what its variables are.
pub const FAMILIES: &[(&str, Family, &str)] = &[
    ("arg_", Family::Arg, "An argument of the URI."),
    ("cookie_", Family::Cookie, "A cookie of the request."),
    (
        "http_",
        Family::Http,
        "A header of the request: lower case, `_` for `-`.",
    ),
    (
        "proxy_protocol_tlv_",
        Family::ProxyProtocolTlv,
        "What the PROXY protocol says more: `alpn`, `authority`, `unique_id`, `ssl`, `netns`, `ssl_verify`, `ssl_version`, `ssl_cn`, \
         `ssl_cipher`, `ssl_sig_alg`, `ssl_key_alg`, or a number as `0x…`, `ssl_0x…`.",
    ),
    (
        "sent_http_",
        Family::SentHttp,
        "A header of the response: lower case, `_` for `-`.",
    ),
    (
        "sent_trailer_",
        Family::SentTrailer,
        "A trailer of the response: lower case, `_` for `-`.",
    ),
    (
        "upstream_cookie_",
        Family::UpstreamCookie,
        "A cookie that the last server's answer sets.",
    ),
    (
        "upstream_http_",
        Family::UpstreamHttp,
        "A header of the last server's answer: lower case, `_` for `-`.",
    ),
    (
        "upstream_trailer_",
        Family::UpstreamTrailer,
        "A trailer of the last server's answer: lower case, `_` for `-`.",
    ),
];

/// The core variable of that (lower-case) name.
#[must_use]
pub fn core(name: &str) -> Option<Core> {
    let listed = CORE.iter().find(|(n, ..)| *n == name);
    let of_tls = || OF_TLS.contains(&name).then_some(Core::Tls);
    listed.map(|(_, core, _)| *core).or_else(of_tls)
}

/// The family of that (lower-case) name, and the rest of the name. As in nginx nothing need be left of it; such a variable has no value.
#[must_use]
pub fn family(name: &str) -> Option<(Family, &str)> {
    FAMILIES.iter().find_map(|(prefix, family, _)| {
        let rest = name.strip_prefix(prefix)?;
        Some((*family, rest))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found() {
        assert_eq!(core("uri"), Some(Core::Uri));
        assert_eq!(core("urx"), None);
        assert_eq!(
            family("http_user_agent"),
            Some((Family::Http, "user_agent"))
        );
        assert_eq!(family("sent_http_x"), Some((Family::SentHttp, "x")));
        assert_eq!(family("http_"), Some((Family::Http, "")));
        assert_eq!(family("http"), None);
    }

    #[test]
    fn every_name_stands_once() {
        let mut names: Vec<_> = all().map(|(name, ..)| name).collect();
        let before = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), before);
    }
}
