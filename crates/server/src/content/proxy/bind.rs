//! `proxy_bind`: the address that connections to servers come from.

use std::net::{IpAddr, SocketAddr};

use config::{Problem, Scope, Template, Value, Word};

use crate::log::Level;
use crate::request::Request;

/// The address, made for each request where it has variables.
#[derive(Debug, Clone)]
pub enum Bind {
    /// `off`.
    Off,
    /// The same for all.
    Fixed(SocketAddr),
    /// Made for each request.
    Made(Template),
}

impl Value for Bind {
    const SYNTAX: &'static str = "address [transparent] | off";

    fn parse(args: &[Word], scope: &mut Scope) -> Result<Self, Problem> {
        match args {
            [word] if *word == "off" => return Ok(Self::Off),
            [_, word] if *word == "transparent" => {
                return Err(Problem::new("parameter \"transparent\" is not built yet").at(1));
            }
            [_, word] => {
                let sentence = format!("invalid parameter \"{}\"", word.display());
                return Err(Problem::new(sentence).at(1));
            }
            _ => {}
        }
        let template = Template::of_word(&args[0], scope).map_err(|problem| problem.at(0))?;
        let Some(text) = template.literal() else {
            return Ok(Self::Made(template));
        };
        let invalid = || Problem::new(format!("invalid address \"{}\"", args[0].display())).at(0);
        parse(text).map(Self::Fixed).ok_or_else(invalid)
    }
}

impl Bind {
    /// The address for a request; `None`: any. What is no address is logged, and any will do, as in nginx.
    #[must_use]
    pub fn address(&self, request: &Request) -> Option<SocketAddr> {
        let template = match self {
            Self::Off => return None,
            Self::Fixed(address) => return Some(*address),
            Self::Made(template) => template,
        };
        let text = request.evaluate(template);
        if text.is_empty() {
            return None;
        }
        let address = parse(&text);
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

fn parse(text: &[u8]) -> Option<SocketAddr> {
    let text = std::str::from_utf8(text).ok()?;
    let bare = text
        .strip_prefix('[')
        .and_then(|text| text.strip_suffix(']'))
        .unwrap_or(text);
    let ip = bare.parse::<IpAddr>().map(|ip| SocketAddr::new(ip, 0));
    ip.or_else(|_| text.parse()).ok()
}
