//! `--domain NAME` of `freewheel serve` and `freewheel proxy`: HTTPS with a certificate that is got and renewed by itself, and
//! a redirect to it at port 80.
//!
//! Not here: getting it (crate `acme`). Invariant: what is served is said by directives, which `--print-config` prints.
#![expect(clippy::disallowed_methods, reason = "before anything is served")]

use std::fmt::Write as _;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use acme::{IDENTIFIERS_MAX, Identifier, Url};
use clap::Args;
use runtime::listen::{Address, Target};

use super::made::{quoted, urls};

/// Where to listen without `--domain`.
const LISTEN: &str = "127.0.0.1:8080";
/// The directory of Let's Encrypt.
const LETS_ENCRYPT: &str = "https://acme-v02.api.letsencrypt.org/directory";
/// Where the system says its name servers.
const NAME_SERVERS: &str = "/etc/resolv.conf";
/// Maximum number of name servers that are asked: the system's own maximum (resolv.conf(5)).
const NAME_SERVERS_MAX: usize = 3;
/// The directory of state of a server that root starts.
const STATE_OF_ROOT: &str = "/var/lib/freewheel";

/// The arguments about a name that the world knows.
#[derive(Debug, Args)]
pub(super) struct DomainArguments {
    /// Serves HTTPS and HTTP/2 under this name, with a certificate from Let's Encrypt that is got and renewed by itself; port 80 leads there. By this you agree to the terms of service of the authority. May be repeated.
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    domain: Vec<String>,
    /// A mail address at which the authority can reach you.
    #[arg(long, value_name = "ADDRESS", requires = "domain")]
    email: Option<String>,
    /// Another authority: the URL of its ACME directory.
    #[arg(long, value_name = "URL", requires = "domain", default_value = LETS_ENCRYPT)]
    acme_directory: String,
    /// A file of PEM with what that authority's own HTTPS certificate is judged by, if it is not one of the system's.
    #[arg(long, value_name = "FILE", requires = "domain")]
    acme_ca: Option<PathBuf>,
    /// Where requests in clear are redirected, and the authority looks for proofs: the world's port 80 has to lead here.
    #[arg(
        long,
        value_name = "ADDRESS",
        requires = "domain",
        default_value = "80"
    )]
    listen_http: String,
}

/// Where a site is, and how it comes to its certificate.
#[derive(Debug)]
pub(super) struct Site {
    listen: String,
    secured: Option<Secured>,
}

#[derive(Debug)]
struct Secured {
    names: Vec<String>,
    directory: Url,
    directory_text: String,
    email: Option<String>,
    authorities: Option<PathBuf>,
    listen_http: String,
    /// The port in URLs; `None`: that of HTTPS.
    port: Option<u16>,
    state: PathBuf,
}

impl Site {
    /// Of arguments.
    ///
    /// # Errors
    /// One that cannot be.
    pub(super) fn new(arguments: &DomainArguments, listen: Option<&str>) -> Result<Self, String> {
        if arguments.domain.is_empty() {
            return Ok(Self {
                listen: listen.unwrap_or(LISTEN).to_owned(),
                secured: None,
            });
        }
        let listen = listen.unwrap_or("443").to_owned();
        let mut names = Vec::new();
        for word in &arguments.domain {
            let found = Identifier::parse(word.as_bytes());
            let found = found.map_err(|fault| format!("--domain {word}: {fault}"))?;
            names.extend(found.iter().map(|one| one.value().to_owned()));
        }
        if names.len() > IDENTIFIERS_MAX {
            return Err(format!("more than {IDENTIFIERS_MAX} names"));
        }
        let text = &arguments.acme_directory;
        let directory =
            Url::parse(text).ok_or_else(|| format!("--acme-directory {text}: no URL"))?;
        let authorities = match &arguments.acme_ca {
            None => None,
            Some(path) => Some(std::path::absolute(path).map_err(|error| error.to_string())?),
        };
        Ok(Self {
            secured: Some(Secured {
                names,
                state: state_directory()?.join(format!("acme-{}", directory.host)),
                directory,
                directory_text: text.clone(),
                email: arguments.email.clone(),
                authorities,
                listen_http: arguments.listen_http.clone(),
                port: port(&listen).filter(|port| *port != 443),
            }),
            listen,
        })
    }

    /// Where to listen.
    pub(super) fn listen(&self) -> &str {
        &self.listen
    }

    /// What follows in the line `listen`.
    pub(super) fn ssl(&self) -> &'static str {
        match self.secured {
            Some(_) => " ssl",
            None => "",
        }
    }

    /// The URLs to type into a browser.
    ///
    /// # Errors
    /// An address that is none.
    pub(super) fn urls(&self) -> Result<Vec<String>, String> {
        let local = urls(&self.listen)?;
        let Some(secured) = &self.secured else {
            return Ok(local);
        };
        urls(&secured.listen_http)?;
        let url = |name: &String| format!("https://{}{}/", host(name), secured.port_text());
        Ok(secured.names.iter().map(url).collect())
    }

    /// What is told at the start.
    pub(super) fn greeting(&self) -> String {
        let Some(secured) = &self.secured else {
            return String::new();
        };
        format!(
            "Its certificate comes from {}, to whose terms of service you agree by --domain; it is kept in {}\n",
            secured.directory.host,
            secured.state.display()
        )
    }

    /// Makes the directories above that of the state.
    ///
    /// # Errors
    /// It cannot be made.
    pub(super) fn make_state(&self) -> Result<(), String> {
        let parent = self
            .secured
            .as_ref()
            .and_then(|secured| secured.state.parent());
        let Some(parent) = parent else {
            return Ok(());
        };
        let made = std::fs::create_dir_all(parent);
        made.map_err(|error| format!("{}: {error}", parent.display()))
    }

    /// The directives of the issuer, and the server that redirects.
    ///
    /// # Errors
    /// There is no name server.
    pub(super) fn issuer(&self) -> Result<String, String> {
        let Some(secured) = &self.secured else {
            return Ok(String::new());
        };
        let text = std::fs::read_to_string(NAME_SERVERS).unwrap_or_default();
        secured.issuer(&name_servers(&text))
    }

    /// The directives of the server itself.
    ///
    /// # Errors
    /// A name cannot be written.
    pub(super) fn server(&self) -> Result<String, String> {
        let Some(secured) = &self.secured else {
            return Ok(String::new());
        };
        Ok(format!(
            "        http2 on;
        server_name {};
        acme_certificate main;
        ssl_certificate $acme_certificate;
        ssl_certificate_key $acme_certificate_key;
",
            secured.words()?
        ))
    }
}

impl Secured {
    fn words(&self) -> Result<String, String> {
        let words = self.names.iter().map(|name| quoted(Path::new(name)));
        Ok(words.collect::<Result<Vec<_>, _>>()?.join(" "))
    }

    fn port_text(&self) -> String {
        self.port
            .map_or_else(String::new, |port| format!(":{port}"))
    }

    fn issuer(&self, name_servers: &[IpAddr]) -> Result<String, String> {
        let mut text = String::from("    resolver");
        for address in name_servers {
            // A String takes all that is written.
            let _ = match address {
                IpAddr::V4(four) => write!(text, " {four}"),
                IpAddr::V6(six) => write!(text, " [{six}]"),
            };
        }
        let uri = quoted(Path::new(&self.directory_text))?;
        let _ = write!(text, ";\n\n    acme_issuer main {{\n        uri {uri};\n");
        if let Some(email) = &self.email {
            let _ = writeln!(text, "        contact {};", quoted(Path::new(email))?);
        }
        if let Some(path) = &self.authorities {
            let _ = writeln!(text, "        ssl_trusted_certificate {};", quoted(path)?);
        }
        let _ = writeln!(
            text,
            "        state_path {};\n        accept_terms_of_service;\n    }}\n",
            quoted(&self.state)?
        );
        let _ = writeln!(
            text,
            "    # The authority's requests are answered before the redirect.
    server {{
        listen {};
        server_name {};
        access_log off;
        return 301 https://$host{}$request_uri;
    }}
",
            quoted(Path::new(&self.listen_http))?,
            self.words()?,
            self.port_text()
        );
        Ok(text)
    }
}

/// A name, or an address as a URL has it.
fn host(name: &str) -> String {
    match name.contains(':') {
        true => format!("[{name}]"),
        false => name.to_owned(),
    }
}

fn port(listen: &str) -> Option<u16> {
    let target = Target::parse(listen).ok()?;
    let addresses = target.addresses(&mut |_: &str| Vec::new()).ok()?;
    addresses.iter().find_map(|address| match address {
        Address::Inet(inet) => Some(inet.port()),
        Address::Unix(_) => None,
    })
}

/// The directory below which state is kept: that of the service manager (systemd.exec(5)), else the system's for root, else
/// the user's.
fn state_directory() -> Result<PathBuf, String> {
    if let Some(all) = std::env::var_os("STATE_DIRECTORY") {
        let first = all
            .to_string_lossy()
            .split(':')
            .next()
            .unwrap_or_default()
            .to_owned();
        return Ok(PathBuf::from(first));
    }
    if nix::unistd::geteuid().is_root() {
        return Ok(PathBuf::from(STATE_OF_ROOT));
    }
    let set = |name| {
        std::env::var_os(name)
            .map(PathBuf::from)
            .filter(|path| path.is_absolute())
    };
    let state = set("XDG_STATE_HOME").or_else(|| set("HOME").map(|home| home.join(".local/state")));
    let state =
        state.ok_or("neither XDG_STATE_HOME nor HOME says where to keep the certificate")?;
    Ok(state.join("freewheel"))
}

/// The system's name servers; without any, that of this machine (resolv.conf(5)).
fn name_servers(text: &str) -> Vec<IpAddr> {
    let lines = text.lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        let is_one = words.next() == Some("nameserver");
        words.next().filter(|_| is_one)?.parse().ok()
    });
    let servers: Vec<IpAddr> = lines.take(NAME_SERVERS_MAX).collect();
    match servers.is_empty() {
        true => vec![IpAddr::from([127, 0, 0, 1])],
        false => servers,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Arguments {
        #[command(flatten)]
        domain: DomainArguments,
    }

    fn site(words: &[&str], listen: Option<&str>) -> Result<Site, String> {
        let words = std::iter::once(&"x").chain(words);
        let arguments = Arguments::try_parse_from(words).map_err(|error| error.to_string())?;
        Site::new(&arguments.domain, listen)
    }

    #[test]
    fn a_domain_is_served_over_tls_and_redirected_to() {
        let one = site(
            &["--domain", "Example.org,www.example.org", "--email", "a@b"],
            None,
        )
        .unwrap();
        assert_eq!((one.listen(), one.ssl()), ("443", " ssl"));
        assert_eq!(
            one.urls().unwrap(),
            ["https://example.org/", "https://www.example.org/"]
        );
        let secured = one.secured.as_ref().unwrap();
        let issuer = secured
            .issuer(&["192.0.2.1".parse().unwrap(), "::1".parse().unwrap()])
            .unwrap();
        assert!(issuer.contains("resolver 192.0.2.1 [::1];") && issuer.contains("listen 80;"));
        assert!(
            issuer.contains("return 301 https://$host$request_uri;"),
            "{issuer}"
        );
        assert!(issuer.contains(LETS_ENCRYPT) && issuer.contains("accept_terms_of_service;"));
        config::parse_bytes(issuer.as_bytes()).unwrap();
        let other = site(
            &["--domain", "a.test", "--listen-http", "127.0.0.1:81"],
            Some("127.0.0.1:8443"),
        );
        let other = other.unwrap();
        assert_eq!(other.urls().unwrap(), ["https://a.test:8443/"]);
        let text = other.secured.as_ref().unwrap().issuer(&[]).unwrap();
        assert!(text.contains("https://$host:8443$request_uri"), "{text}");
    }

    #[test]
    fn without_a_domain_nothing_is_added() {
        let plain = site(&[], None).unwrap();
        assert_eq!((plain.listen(), plain.ssl()), (LISTEN, ""));
        let added = plain.issuer().unwrap() + &plain.server().unwrap() + &plain.greeting();
        assert_eq!(added, "");
    }

    #[test]
    fn what_cannot_be_is_refused() {
        for words in [
            &["--domain", "*.example.org"][..],
            &["--domain", "a b"],
            &["--domain", "a.test", "--acme-directory", "ftp://a"],
            &["--email", "a@b"],
        ] {
            assert!(site(words, None).is_err(), "{words:?}");
        }
    }

    #[test]
    fn name_servers_are_the_systems() {
        let text = "# nameserver 9.9.9.9\nnameserver 192.0.2.1\nsearch x\nnameserver  ::1\nnameserver fe80::1%eth0\n";
        assert_eq!(name_servers(text).len(), 2);
        assert_eq!(name_servers(""), [IpAddr::from([127, 0, 0, 1])]);
    }
}
