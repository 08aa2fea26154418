//! `proxy_bind`: the local address of connections to upstream servers.

use std::net::SocketAddr;

use config::{Directive, Problem, Scope, Template, Value, Word, parse_ip_and_port};
use logs::Level;

use httpcore::request::Request;

/// The parameter that allows addresses of other machines.
const TRANSPARENT: &str = "transparent";

/// Whether a part of a configuration has a `proxy_bind`, or an equivalent, that needs the right to use foreign
/// addresses.
#[must_use]
pub fn needs_right(directives: &[Directive]) -> bool {
    directives.iter().any(|line| {
        let is_one = line.name.bytes().ends_with(b"_bind") && line.args.len() == 2;
        is_one && line.args[1] == *TRANSPARENT || needs_right(line.children())
    })
}

/// The source address of connections.
#[derive(Debug, Clone)]
pub struct Bind {
    from: BindAddress,
    /// Whether the address may be another machine's.
    pub is_transparent: bool,
}

/// The address, evaluated for each request where it has variables.
#[derive(Debug, Clone)]
enum BindAddress {
    /// `off`.
    Off,
    /// The same for all requests.
    Fixed(SocketAddr),
    /// Evaluated for each request.
    Made(Template),
}

impl Value for Bind {
    const SYNTAX: &'static str = "address [transparent] | off";

    fn parse(args: &[Word], scope: &mut Scope) -> Result<Self, Problem> {
        let is_transparent = match args {
            [word] if *word == "off" => {
                return Ok(Self {
                    from: BindAddress::Off,
                    is_transparent: false,
                });
            }
            [_, word] => *word == TRANSPARENT,
            _ => false,
        };
        let template = Template::of_word(&args[0], scope).map_err(|problem| problem.at(0))?;
        let invalid = || Problem::new(format!("invalid address \"{}\"", args[0].display())).at(0);
        let from = match template.literal() {
            None => BindAddress::Made(template),
            Some(text) => parse_ip_and_port(text)
                .map(BindAddress::Fixed)
                .ok_or_else(invalid)?,
        };
        if let Some(word) = args.get(1).filter(|_| !is_transparent) {
            let sentence = format!("invalid parameter \"{}\"", word.display());
            return Err(Problem::new(sentence).at(1));
        }
        Ok(Self {
            from,
            is_transparent,
        })
    }
}

impl Bind {
    /// The address for a request; `None`: any. An invalid address is logged, and any address is used, as in nginx.
    #[must_use]
    pub fn address(&self, request: &Request) -> Option<SocketAddr> {
        let template = match &self.from {
            BindAddress::Off => return None,
            BindAddress::Fixed(address) => return Some(*address),
            BindAddress::Made(template) => template,
        };
        let text = request.evaluate(template);
        if text.is_empty() {
            return None;
        }
        let address = parse_ip_and_port(&text);
        if address.is_none() {
            request.log(Level::Error, &|out| {
                out.extend_from_slice(b"invalid local address \"");
                out.extend_from_slice(&text);
                out.push(b'"');
            });
        }
        address
    }
}
