//! The `listen` directive: its value, the table of all addresses of a configuration, and the sockets.
//!
//! * [`Listen`]: one directive, as written; pure.
//! * [`Table`]: all `listen` lines of all servers put together as nginx does it; says which sockets
//!   are bound and which servers stand behind each address.
//! * [`bind`]: sockets. Only the master calls it.
//!
//! Not here: which server a Host header chooses , and accepting.

pub mod address;
pub mod bind;
pub mod table;

pub use address::{Address, Host, Target};
pub use table::{Entry, Table};

use std::time::Duration;

use config::known::missing::{self, Missing};
use config::{Problem, parse_sec};

/// Connections that wait for `accept`, nginx's default on Linux.
pub const BACKLOG_DEFAULT: i32 = 511;

/// TCP keepalive probes of accepted connections (`so_keepalive=`, tcp(7)).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum KeepaliveProbes {
    /// The system's default.
    #[default]
    Unset,
    /// Off.
    Off,
    /// On; `None` is the system's value of TCP_KEEPIDLE, TCP_KEEPINTVL, TCP_KEEPCNT.
    On {
        /// Idle time before the first probe.
        idle: Option<Duration>,
        /// Time between probes.
        interval: Option<Duration>,
        /// Probes before the connection is given up.
        count: Option<u32>,
    },
}

/// Maximum seconds of TCP_KEEPIDLE and of TCP_KEEPINTVL (Linux).
const PROBE_SECONDS_MAX: u64 = 32_767;
/// Maximum of TCP_KEEPCNT (Linux).
const PROBES_MAX: u32 = 127;

impl KeepaliveProbes {
    /// A warning, where the kernel refuses a value and keeps its own.
    fn excess(&self) -> Option<Problem> {
        let Self::On {
            idle,
            interval,
            count,
        } = self
        else {
            return None;
        };
        let mut times = [idle, interval].into_iter().flatten();
        let is_long = times.any(|time| time.as_secs() > PROBE_SECONDS_MAX);
        let is_excess = is_long || count.is_some_and(|count| count > PROBES_MAX);
        let sentence = format!(
            "a part of \"so_keepalive\" is ignored: the kernel takes {PROBE_SECONDS_MAX} seconds and {PROBES_MAX} probes at most"
        );
        is_excess.then(|| Problem::new(sentence).own())
    }
}

/// The parameters of `listen` that are options of its socket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SocketOptions {
    /// `backlog=`.
    pub backlog: i32,
    /// `rcvbuf=`, bytes.
    pub rcvbuf: Option<usize>,
    /// `sndbuf=`, bytes.
    pub sndbuf: Option<usize>,
    /// `fastopen=`: length of the queue (RFC 7413).
    pub fastopen: Option<i32>,
    /// `deferred`: TCP_DEFER_ACCEPT.
    pub deferred: bool,
    /// `ipv6only=`: on unless switched off.
    pub ipv6only: bool,
    /// `reuseport`. Several loops always have a socket each; the word changes nothing.
    pub reuseport: bool,
    /// `so_keepalive=`.
    pub so_keepalive: KeepaliveProbes,
}

impl Default for SocketOptions {
    fn default() -> Self {
        Self {
            backlog: BACKLOG_DEFAULT,
            rcvbuf: None,
            sndbuf: None,
            fastopen: None,
            deferred: false,
            ipv6only: true,
            reuseport: false,
            so_keepalive: KeepaliveProbes::Unset,
        }
    }
}

/// One `listen` directive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listen {
    /// The first argument as written.
    pub text: String,
    /// What it means.
    pub target: Target,
    /// Options of the socket.
    pub options: SocketOptions,
    /// A parameter stood there that must not stand at two lines of one address, and that asks for a
    /// socket of its own.
    pub is_set: bool,
    /// `default_server`.
    pub is_default: bool,
    /// What it says of the protocols of its connections.
    pub protocols: Protocols,
    /// Warnings about parameters without effect.
    pub warnings: Vec<Problem>,
}

/// What `listen` says of the protocols of connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Protocols {
    /// `proxy_protocol`: connections begin with a header of that protocol.
    pub has_proxy_protocol: bool,
    /// `ssl`: connections begin with a handshake of TLS.
    pub has_ssl: bool,
    /// `http2`, the old form of the directive `http2`.
    pub has_http2: bool,
}

impl Protocols {
    /// Those of either.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self {
            has_proxy_protocol: self.has_proxy_protocol || other.has_proxy_protocol,
            has_ssl: self.has_ssl || other.has_ssl,
            has_http2: self.has_http2 || other.has_http2,
        }
    }

    /// Whether these are all of the other ones, or more.
    #[must_use]
    pub fn has_all(self, other: Self) -> bool {
        self.and(other) == self
    }
}

/// Why a `listen` is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// nginx's sentence, without place.
    pub sentence: String,
    /// Which argument is meant (0 is the address).
    pub argument: usize,
}

impl Refusal {
    /// What is missing, where the line asks for what is not built.
    #[must_use]
    pub fn missing(&self, args: &[&[u8]]) -> Option<&'static Missing> {
        let word = args.get(self.argument)?;
        missing::of(module_of(std::str::from_utf8(word).ok()?), "")
    }
}

impl Listen {
    /// Reads the arguments of one directive.
    ///
    /// # Errors
    /// nginx's sentence, and the argument that it is about.
    pub fn parse(args: &[&[u8]]) -> Result<Self, Refusal> {
        let text = String::from_utf8_lossy(args.first().copied().unwrap_or_default()).into_owned();
        let target = Target::parse(&text).map_err(|reason| Refusal {
            sentence: format!("{reason} in \"{text}\" of the \"listen\" directive"),
            argument: 0,
        })?;
        let mut listen = Self {
            text,
            target,
            options: SocketOptions::default(),
            is_set: false,
            is_default: false,
            protocols: Protocols::default(),
            warnings: Vec::new(),
        };
        for (index, word) in args.iter().enumerate().skip(1) {
            let word = String::from_utf8_lossy(word);
            listen.set(&word).map_err(|sentence| Refusal {
                sentence,
                argument: index,
            })?;
        }
        Ok(listen)
    }

    fn set(&mut self, word: &str) -> Result<(), String> {
        let (name, value) = match word.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (word, None),
        };
        let options = &mut self.options;
        match (name, value) {
            ("default_server" | "default", None) => self.is_default = true,
            ("ssl", None) => self.protocols.has_ssl = true,
            ("http2", None) => self.protocols.has_http2 = true,
            ("quic", None) => return Err(not_built(name)),
            ("bind", None) => self.is_set = true,
            ("reuseport", None) => (options.reuseport, self.is_set) = (true, true),
            ("deferred", None) => (options.deferred, self.is_set) = (true, true),
            ("proxy_protocol", None) => self.protocols.has_proxy_protocol = true,
            ("multipath", None) => {
                return Err(format!(
                    "the \"{name}\" parameter of \"listen\" is not built yet: without it clients of Multipath TCP are \
                     served over TCP"
                ));
            }
            ("backlog", Some(value)) => {
                let backlog = number(value).filter(|&n| n > 0);
                options.backlog = backlog.ok_or_else(|| format!("invalid backlog \"{word}\""))?;
                self.is_set = true;
            }
            ("fastopen", Some(value)) => {
                options.fastopen =
                    Some(number(value).ok_or_else(|| format!("invalid fastopen \"{word}\""))?);
                self.is_set = true;
            }
            ("rcvbuf", Some(value)) => {
                options.rcvbuf =
                    Some(bytes(value).ok_or_else(|| format!("invalid rcvbuf \"{word}\""))?);
                self.is_set = true;
            }
            ("sndbuf", Some(value)) => {
                options.sndbuf =
                    Some(bytes(value).ok_or_else(|| format!("invalid sndbuf \"{word}\""))?);
                self.is_set = true;
            }
            ("ipv6only", Some(value)) if value.starts_with('o') => {
                options.ipv6only = match value {
                    "on" => true,
                    "off" => false,
                    _ => return Err(format!("invalid ipv6only flags \"{value}\"")),
                };
                self.is_set = true;
            }
            ("so_keepalive", Some(value)) => {
                let probes = keepalive_probes(value);
                options.so_keepalive =
                    probes.ok_or_else(|| format!("invalid so_keepalive value: \"{value}\""))?;
                self.warnings.extend(options.so_keepalive.excess());
                self.is_set = true;
            }
            ("setfib", Some(_)) => {
                return Err(format!(
                    "the \"{name}\" parameter of \"listen\" exists on FreeBSD only"
                ));
            }
            ("accept_filter", Some(_)) => self.warnings.push(Problem::new(format!(
                "accept filters \"{word}\" are not supported on this platform, ignored"
            ))),
            _ => return Err(format!("invalid parameter \"{word}\"")),
        }
        Ok(())
    }
}

fn not_built(name: &str) -> String {
    let module = module_of(name);
    format!("the \"{name}\" parameter requires ngx_{module}_module, which is not built yet")
}

/// The module of nginx that a parameter asks for.
fn module_of(name: &str) -> &'static str {
    match name {
        "quic" => "http_v3",
        _ => "",
    }
}

fn number(text: &str) -> Option<i32> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if digits { text.parse().ok() } else { None }
}

/// A size with nginx's units `k` and `m`.
fn bytes(text: &str) -> Option<usize> {
    let (digits, unit) = match text.as_bytes().last()? {
        b'k' | b'K' => (&text[..text.len() - 1], 1 << 10),
        b'm' | b'M' => (&text[..text.len() - 1], 1 << 20),
        _ => (text, 1),
    };
    usize::try_from(number(digits)?).ok()?.checked_mul(unit)
}

fn keepalive_probes(value: &str) -> Option<KeepaliveProbes> {
    match value {
        "on" => {
            return Some(KeepaliveProbes::On {
                idle: None,
                interval: None,
                count: None,
            });
        }
        "off" => return Some(KeepaliveProbes::Off),
        _ => {}
    }
    // 0 says nothing, as in nginx.
    let mut parts = value.splitn(3, ':');
    let mut time = || match parts.next() {
        None | Some("") => Some(None),
        Some(text) => {
            let seconds = parse_sec(text.as_bytes())?;
            Some((seconds > 0).then(|| Duration::from_secs(seconds)))
        }
    };
    let idle = time()?;
    let interval = time()?;
    let count = match parts.next() {
        None | Some("") => None,
        Some(text) => u32::try_from(number(text)?).ok().filter(|count| *count > 0),
    };
    if idle.is_none() && interval.is_none() && count.is_none() {
        return None;
    }
    Some(KeepaliveProbes::On {
        idle,
        interval,
        count,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Listen, Refusal> {
        let words: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
        Listen::parse(&words)
    }

    fn refused(line: &str) -> String {
        parse(line).unwrap_err().sentence
    }

    #[test]
    fn parameters_are_read() {
        let listen =
            parse("80 default_server reuseport backlog=7 rcvbuf=8k sndbuf=1m fastopen=3 deferred")
                .unwrap();
        assert!(listen.is_default && listen.is_set);
        let options = listen.options;
        assert!(options.reuseport && options.deferred && options.ipv6only);
        assert_eq!((options.backlog, options.fastopen), (7, Some(3)));
        assert_eq!(
            (options.rcvbuf, options.sndbuf),
            (Some(8192), Some(1 << 20))
        );
        assert!(!parse("[::]:80 ipv6only=off").unwrap().options.ipv6only);
        assert!(!parse("80 default_server").unwrap().is_set);
        let proxied = parse("80 proxy_protocol").unwrap();
        assert!(proxied.protocols.has_proxy_protocol && !proxied.is_set);
        assert_eq!(
            refused("80 multipath"),
            "the \"multipath\" parameter of \"listen\" is not built yet: without it clients of Multipath TCP are served over TCP"
        );
    }

    #[test]
    fn keepalive_probes_have_three_parts() {
        let probes = |line| parse(line).unwrap().options.so_keepalive;
        let secs = Duration::from_secs;
        assert_eq!(probes("80 so_keepalive=off"), KeepaliveProbes::Off);
        assert_eq!(
            probes("80 so_keepalive=30m::10"),
            KeepaliveProbes::On {
                idle: Some(secs(1800)),
                interval: None,
                count: Some(10)
            }
        );
        assert_eq!(
            probes("80 so_keepalive=:5"),
            KeepaliveProbes::On {
                idle: None,
                interval: Some(secs(5)),
                count: None
            }
        );
        let idle = |line: &[u8]| match Listen::parse(&[b"80", line]).unwrap().options.so_keepalive {
            KeepaliveProbes::On { idle, .. } => idle,
            other => panic!("{other:?}"),
        };
        assert_eq!(idle(b"so_keepalive=1h 30m"), Some(secs(5400)));
        assert_eq!(idle(b"so_keepalive=0::3"), None);
        for wrong in ["", "::", "0", "0:0:0", "30m1h", "1ms", "1:2:x"] {
            assert_eq!(
                refused(&format!("80 so_keepalive={wrong}")),
                format!("invalid so_keepalive value: \"{wrong}\"")
            );
        }
    }

    #[test]
    fn parameters_without_effect_are_warnings() {
        let told = |line: &str| -> Vec<String> {
            let warnings = parse(line).unwrap().warnings;
            let sentence = |problem: &Problem| problem.sentence_for("listen");
            warnings.iter().map(sentence).collect()
        };
        assert_eq!(
            told("80 accept_filter=httpready"),
            [
                "accept filters \"accept_filter=httpready\" are not supported on this platform, ignored"
            ]
        );
        for long in ["1w", ":1M", "1y::", "::128"] {
            let ignored = told(&format!("80 so_keepalive={long}"));
            assert!(ignored[0].starts_with("a part of \"so_keepalive\" is ignored"));
        }
        assert!(told("80 so_keepalive=9h:9h:127").is_empty());
    }

    #[test]
    fn refusals_are_nginx_s_sentences() {
        assert_eq!(
            refused("127.0.0.1:x"),
            "invalid port in \"127.0.0.1:x\" of the \"listen\" directive"
        );
        assert_eq!(refused("80 nosuch"), "invalid parameter \"nosuch\"");
        assert_eq!(refused("80 backlog=0"), "invalid backlog \"backlog=0\"");
        assert_eq!(
            refused("80 ipv6only=maybe"),
            "invalid parameter \"ipv6only=maybe\""
        );
        assert_eq!(refused("80 ipv6only=of"), "invalid ipv6only flags \"of\"");
        assert_eq!(
            refused("80 accept_filter"),
            "invalid parameter \"accept_filter\""
        );
        assert!(
            refused("443 quic").starts_with("the \"quic\" parameter requires ngx_http_v3_module")
        );
    }
}
