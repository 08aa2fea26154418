//! `upstream` blocks: what they say, and what nginx 1.31.5 says about wrong ones (`nginx -t`).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use config::{Grammar, Scope};

use super::Upstream;
use super::balancing::{BalancingMethod, LeastTime};
use super::block::{self, UpstreamBlocks};

/// UpstreamBlocks, and what is said about them: `warn:` goes on, nothing is an error.
const WRONG: &str = r#"
    upstream u { } => no servers are inside upstream
    upstream u { server 127.0.0.1:81; } upstream U { server 127.0.0.1:81; } => duplicate upstream "U"
    upstream u { server 127.0.0.1:81 backup; } => no servers in upstream "u"
    upstream u { server 127.0.0.1:81 weight=0; } => invalid parameter "weight=0"
    upstream u { server 127.0.0.1:81 weight=x; } => invalid parameter "weight=x"
    upstream u { server 127.0.0.1:81 weight=; } => invalid parameter "weight="
    upstream u { server 127.0.0.1:81 weight=-1; } => invalid parameter "weight=-1"
    upstream u { server 127.0.0.1:81 max_conns=x; } => invalid parameter "max_conns=x"
    upstream u { server 127.0.0.1:81 max_fails=-1; } => invalid parameter "max_fails=-1"
    upstream u { server 127.0.0.1:81 fail_timeout=1ms; } => invalid parameter "fail_timeout=1ms"
    upstream u { server 127.0.0.1:81 fail_timeout=; } => invalid parameter "fail_timeout="
    upstream u { server 127.0.0.1:81 fast; } => invalid parameter "fast"
    upstream u { server 127.0.0.1:81 slow_start=5s; } => invalid parameter "slow_start=5s"
    upstream u { server 127.0.0.1:81 Backup; } => invalid parameter "Backup"
    upstream u { server 127.0.0.1:81 route=; } => route is empty
    upstream u { server 127.0.0.1:81 route=123456789012345678901234567890123; } => route is longer than 32
    upstream u { ip_hash; server 127.0.0.1:81 backup; } => balancing method does not support parameter "backup"
    upstream u { hash $uri; server 127.0.0.1:81 backup; } => balancing method does not support parameter "backup"
    upstream u { random; server 127.0.0.1:81; server 127.0.0.1:82 backup; } => balancing method does not support parameter "backup"
    upstream u { server 127.0.0.1:0; } => invalid port in upstream "127.0.0.1:0"
    upstream u { server 127.0.0.1:65536; } => invalid port in upstream "127.0.0.1:65536"
    upstream u { server 127.0.0.1:x; } => invalid port in upstream "127.0.0.1:x"
    upstream u { server 127.0.0.1:81-82; } => invalid port in upstream "127.0.0.1:81-82"
    upstream u { server 127.0.0.1:; } => invalid port in upstream "127.0.0.1:"
    upstream u { server :81; } => no host in upstream ":81"
    upstream u { server 127.0.0.1/a; } => invalid host in upstream "127.0.0.1/a"
    upstream u { server http://127.0.0.1; } => invalid host in upstream "http://127.0.0.1"
    upstream u { server unix:; } => no path in the unix domain socket in upstream "unix:"
    upstream u { server [::1; } => invalid host in upstream "[::1"
    upstream u { server [::g]:80; } => invalid IPv6 address in upstream "[::g]:80"
    upstream u { server []:80; } => no host in upstream "[]:80"
    upstream u { server [::1]81; } => invalid host in upstream "[::1]81"
    upstream u { server no-such-host.invalid; } => host not found in upstream "no-such-host.invalid"
    upstream u { server no-such-host.invalid:81 weight=2; } => host not found in upstream "no-such-host.invalid:81"
    upstream u { server *:80; } => host not found in upstream "*:80"
    upstream u { server ''; } => no host in upstream ""
    upstream u { server; } => invalid number of arguments in "server" directive
    upstream u { server 127.0.0.1:81; hash; } => invalid number of arguments in "hash" directive
    upstream u { server 127.0.0.1:81; hash $uri ketama; } => invalid parameter "ketama"
    upstream u { server 127.0.0.1:81; random three; } => invalid parameter "three"
    upstream u { server 127.0.0.1:81; random two most_conn; } => invalid parameter "most_conn"
    upstream u { server 127.0.0.1:81; random two least_time=header; } => invalid parameter "least_time=header"
    upstream u { server 127.0.0.1:81; least_time; } => invalid number of arguments in "least_time" directive
    upstream u { server 127.0.0.1:81; least_time first_byte; } => invalid value "first_byte"
    upstream u { server 127.0.0.1:81; least_time header flying; } => invalid parameter "flying"
    upstream u { server 127.0.0.1:81; least_time header; least_time header; } => warn: load balancing method redefined; "least_time" directive is duplicate
    upstream u { server 127.0.0.1:81; least_conn; ip_hash; } => warn: load balancing method redefined
    upstream u { server 127.0.0.1:81; least_conn; least_conn; } => warn: load balancing method redefined
    upstream u { server 127.0.0.1:81; keepalive x; } => invalid value "x" in "keepalive" directive
    upstream u { server 127.0.0.1:81; keepalive 1; keepalive 2; } => "keepalive" directive is duplicate
    upstream u { server 127.0.0.1:81; keepalive 1 remote; } => invalid parameter "remote"
    upstream u { server 127.0.0.1:81; keepalive_requests x; } => "keepalive_requests" directive invalid number
    upstream u { server 127.0.0.1:81; keepalive_time x; } => "keepalive_time" directive invalid value
    upstream u { server 127.0.0.1:81; keepalive_timeout 1y; } => "keepalive_timeout" directive invalid value
    upstream u { server 127.0.0.1:81; keepalive_timeout 1s; keepalive_timeout 2s; } => "keepalive_timeout" directive is duplicate
    upstream u { server 127.0.0.1:81; sticky cookie; } => invalid number of arguments in "sticky" directive
    upstream u { server 127.0.0.1:81; sticky cookie ''; } => "sticky" directive empty cookie name
    upstream u { server 127.0.0.1:81; sticky cookie a path=; } => "sticky" directive no value for "path"
    upstream u { server 127.0.0.1:81; sticky cookie a path=/ path=/; } => "sticky" directive parameter "path" is duplicate
    upstream u { server 127.0.0.1:81; sticky cookie a domain=; } => "sticky" directive no value for "domain"
    upstream u { server 127.0.0.1:81; sticky cookie a expires=x; } => "sticky" directive invalid "expires" parameter value
    upstream u { server 127.0.0.1:81; sticky cookie a expires=max expires=1h; } => "sticky" directive parameter "expires" is duplicate
    upstream u { server 127.0.0.1:81; sticky cookie a secure secure; } => "sticky" directive parameter "secure" is duplicate
    upstream u { server 127.0.0.1:81; sticky cookie a samesite=x; } => "sticky" directive invalid "samesite" parameter value
    upstream u { server 127.0.0.1:81; sticky cookie a samesite=$arg_x; } => 
    upstream u { server 127.0.0.1:81; sticky cookie a fast; } => unknown parameter "fast"
    upstream u { server 127.0.0.1:81; sticky cookie a; sticky cookie b; } => "sticky" directive is duplicate
    upstream u { server 127.0.0.1:81; sticky cookie a; least_conn; } => warn: load balancing method redefined
    upstream u { server 127.0.0.1:81; least_conn; sticky cookie a; } => 
    upstream u { server 127.0.0.1:81; sticky route a; } => invalid variable name "a"
    upstream u { server 127.0.0.1:81; sticky learn zone=z:1m; } => "sticky" directive "lookup" parameter is not specified
    upstream u { server 127.0.0.1:81; sticky learn lookup=$arg_a zone=z:1m; } => "sticky" directive "create" parameter is not specified
    upstream u { server 127.0.0.1:81; sticky learn lookup=$arg_a create=$arg_b; } => "sticky" directive "zone" parameter is not specified
    upstream u { server 127.0.0.1:81; sticky learn lookup=a create=$arg_b zone=z:1m; } => "sticky" directive missing variable in the "lookup" parameter
    upstream u { server 127.0.0.1:81; sticky learn lookup=$arg_a create=b zone=z:1m; } => "sticky" directive missing variable in the "create" parameter
    upstream u { server 127.0.0.1:81; sticky learn lookup=$arg_a create=$arg_b zone=z; } => "sticky" directive zone size is not specified
    upstream u { server 127.0.0.1:81; sticky learn lookup=$arg_a create=$arg_b zone=:1m; } => "sticky" directive zone name is not specified
    upstream u { server 127.0.0.1:81; sticky learn lookup=$arg_a create=$arg_b zone=z:x; } => "sticky" directive invalid zone size
    upstream u { server 127.0.0.1:81; sticky learn lookup=$arg_a create=$arg_b zone=z:1k; } => "sticky" directive zone is too small
    upstream u { server 127.0.0.1:81; sticky learn lookup=$arg_a create=$arg_b zone=z:1m zone=y:1m; } => "sticky" directive duplicate zone
    upstream u { server 127.0.0.1:81; sticky learn lookup=$arg_a create=$arg_b zone=z:1m timeout=0; } => "sticky" directive invalid timeout
    upstream u { server 127.0.0.1:81; sticky learn lookup=$arg_a create=$arg_b zone=z:1m timeout=1m timeout=2m; } => "sticky" directive duplicate timeout
    upstream u { server 127.0.0.1:81; sticky learn lookup=$arg_a create=$arg_b zone=z:1m timeout=1m header fast; } => unknown parameter "fast"
    upstream u { server 127.0.0.1:81; sticky learn lookup=$arg_a create=$arg_b zone=z:1m; zone z 1m; } => the shared memory zone "z" is already declared for a different use
    upstream u { server 127.0.0.1:81; zone z 1m; sticky learn lookup=$arg_a create=$arg_b zone=z:1m; } => the shared memory zone "z" is already declared for a different use
    upstream u { server 127.0.0.1:81; sticky learn lookup=$arg_a create=$arg_b zone=z:1m; } upstream v { server 127.0.0.1:81; sticky learn lookup=$arg_a create=$arg_b zone=z:1m; } => sticky zone "z" is already used in upstream "u"
    upstream u { server 127.0.0.1:81; sticky other a; } => unknown parameter "other"
    upstream u { server 127.0.0.1:81; zone z x; } => invalid zone size "x"
    upstream u { server 127.0.0.1:81; zone z 1k; } => zone "z" is too small
    upstream u { server 127.0.0.1:81; zone '' 1m; } => invalid zone name ""
    upstream u { server 127.0.0.1:81; zone z; } => zero size shared memory zone "z"
    upstream u { server 127.0.0.1:81; zone z 1m; } upstream v { server 127.0.0.1:82; zone z 2m; } => the size 2097152 of shared memory zone "z" conflicts with already declared size 1048576
    upstream u { server 127.0.0.1:81; zone z 1m; } upstream v { server 127.0.0.1:82; zone z; } =>
    upstream u v { server 127.0.0.1:81; } => invalid number of arguments in "upstream" directive
    upstream u; => directive "upstream" has no opening "{"
    upstream u { server 127.0.0.1:81 down; } =>
    upstream u { server 127.0.0.1:81 weight=2 weight=3; listen 80; } => "listen" directive is not allowed here
    upstream u { zone z 1m; server 127.0.0.1:81 resolve; resolver 127.0.0.1 valid=1s; resolver_timeout 1s; } =>
    upstream u { server 127.0.0.1:81 resolve; } =>
    upstream u { server host.invalid:81 resolve; } => resolving names at run time requires upstream "u" to be in shared memory
    upstream u { server host.invalid:81 resolve backup; zone z 1m; } => no servers in upstream "u"
    upstream u { server host.invalid service=x; } => service upstream "host.invalid" requires "resolve" parameter
    upstream u { server host.invalid:80 service=x resolve; } => service upstream "host.invalid:80" may not have port
    upstream u { server 127.0.0.1 service=x resolve; } => service upstream "127.0.0.1" requires domain name
    upstream u { server host.invalid service= resolve; } => service is empty
    upstream u { server a.test; resolver 127.0.0.1; resolver 127.0.0.1; } => "resolver" directive is duplicate
    upstream u { server a.test; resolver; } => invalid number of arguments in "resolver" directive
    upstream u { server a.test; resolver valid=1s; } => no name servers defined
    upstream u { server a.test; resolver 127.0.0.1 valid=x; } => invalid parameter: valid=x
    upstream u { server a.test; resolver 127.0.0.1 ipv6=maybe; } => invalid parameter: ipv6=maybe
    upstream u { server a.test; resolver 127.0.0.1 ipv6=off ipv4=off; } => "ipv4" and "ipv6" cannot both be "off"
    upstream u { server a.test; resolver 127.0.0.1:x; } => invalid port in resolver "127.0.0.1:x"
    upstream u { server 127.0.0.1:81 weight=1000001; } => invalid parameter "weight=1000001"
    upstream u { hash $uri consistent; server a.test weight=60000; server b.test weight=50000; } => weights of upstream "u" add up to more than 100000, with "hash ... consistent"
    upstream u { zone z 1m; hash $uri consistent; server a.test; server b.test weight=100000 resolve; } => weights of upstream "u" add up to more than 100000, with "hash ... consistent"
"#;

fn resolve(name: &str) -> Vec<IpAddr> {
    match name {
        "two.test" => vec![Ipv6Addr::LOCALHOST.into(), Ipv4Addr::LOCALHOST.into()],
        "a.test" | "b.test" => vec![Ipv4Addr::LOCALHOST.into()],
        _ => Vec::new(),
    }
}

config::blocks! {
    /// What an `upstream` block stands in.
    pub(super) fn http in Http {
        /// The block.
        "http": [MAIN] 0 => HTTP;
    }
}

fn read(text: &str) -> (Result<Vec<Upstream>, config::Error>, Scope) {
    let mut scope = Scope::new();
    let mut all = || {
        let tree = config::parse_bytes(format!("http {{\n{text}\n}}").as_bytes())?;
        let mut tables = block::tables();
        tables.push(http());
        Grammar::new(tables).check(&tree)?;
        let mut upstreams = UpstreamBlocks::default();
        for line in tree.directives[0].children() {
            upstreams.read(line, &mut scope, &mut resolve)?;
        }
        upstreams.finish()
    };
    (all(), scope)
}

#[test]
fn wrong_blocks_have_nginx_s_sentences() {
    for line in WRONG.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let (text, expected) = line.split_once("=>").unwrap();
        let (outcome, mut scope) = read(text);
        let mut said: Vec<String> = scope
            .take_warnings()
            .iter()
            .map(|warning| format!("warn: {}", warning.sentence()))
            .collect();
        said.extend(outcome.err().map(|error| error.sentence().to_owned()));
        assert_eq!(said.join("; "), expected.trim(), "{text}");
    }
    let long = format!("upstream u {{ server unix:/{}; }}", "a".repeat(108));
    let error = read(&long).0.unwrap_err();
    let reason = "too long path in the unix domain socket in upstream \"unix:/a";
    assert!(error.sentence().starts_with(reason), "{error}");
}

#[test]
fn errors_name_the_line() {
    let error = read("upstream u {\n  server 127.0.0.1:81;\n  server a:0;\n}")
        .0
        .unwrap_err();
    assert!(error.to_string().ends_with(":4"), "{error}");
    let error = read("upstream u {\n  server 127.0.0.1:81 backup;\n}")
        .0
        .unwrap_err();
    assert!(error.to_string().ends_with(":2"), "{error}");
}

#[test]
fn blocks_say_what_they_say() {
    let text = "upstream Two { least_time last_byte inflight; server two.test:81 weight=3 max_conns=4 max_fails=5 fail_timeout=1m;
        server unix:/a.sock backup route=x; server 127.0.0.1 down; server [::1] drain; keepalive 3; keepalive_time 5m; }
        upstream ring { hash $uri$1 consistent; server a.test; }";
    let all = read(text).0.unwrap();
    let group = all[0].group();
    assert_eq!((group.name(), group.tries()), ("Two", 3));
    let method = BalancingMethod::LeastTime(LeastTime {
        to_last_byte: true,
        counts_inflight: true,
    });
    assert_eq!(all[0].declared().method, method);
    let shown: Vec<String> = group
        .peers()
        .map(|peer| {
            let limits = (
                peer.weight,
                peer.max_conns,
                peer.max_fails,
                peer.fail_timeout,
            );
            format!("{} {limits:?} {:?}", peer.name, peer.standing)
        })
        .collect();
    assert_eq!(
        shown,
        [
            "127.0.0.1:81 (3, 4, 5, 60) Up",
            "[::1]:81 (3, 4, 5, 60) Up",
            "127.0.0.1:80 (1, 0, 1, 10) Down",
            "[::1]:80 (1, 0, 1, 10) Draining",
            "unix:/a.sock (1, 0, 1, 10) Up",
        ]
    );
    let kept = all[0].declared().kept;
    assert_eq!((kept.count, kept.is_local), (3, false));
    assert_eq!((kept.time_ms, kept.timeout_ms), (300_000, 60_000));
    assert_eq!(all[1].declared().key.as_ref().unwrap().source(), "$uri$1");
    let kept = all[1].declared().kept;
    assert_eq!((kept.count, kept.is_local), (32, true));
    assert_eq!(kept.requests, 1000);
}

#[test]
fn tables_are_nginx_s() {
    assert_eq!(config::differences(&block::tables()), [""; 0]);
}
