//! `proxy_cookie_flags`: the flags that a cookie of a response gets or loses.
//!
//! Not here: the cookie (`response::set_cookie`).

use std::sync::Arc;

use bytes::Bytes;
use config::{Problem, Scope, Template, Word};

use crate::settings::proxy_redirect::{self, Rewriting, invalid};
use httpcore::regex::Regex;
use httpcore::request::Request;

/// A `proxy_cookie_flags` line.
#[derive(Debug, Clone)]
pub struct CookieFlags {
    cookie: Cookie,
    /// The flags, with variables.
    pub flags: Vec<Template>,
}

#[derive(Debug, Clone)]
enum Cookie {
    /// With variables; the name is case-insensitive.
    Name(Template),
    Regex(Arc<Regex>),
}

impl Rewriting for CookieFlags {
    const SYNTAX: &'static str = "off | cookie [flag …]";

    fn read(args: &[Word], scope: &mut Scope) -> Result<Self, Problem> {
        match args {
            [word] => Err(invalid(word)),
            [cookie, flags @ ..] => Self::of(cookie, flags, scope),
            [] => Err(Problem::argument_count("proxy_cookie_flags")),
        }
    }
}

impl CookieFlags {
    fn of(cookie: &Word, flags: &[Word], scope: &mut Scope) -> Result<Self, Problem> {
        let name = match cookie.bytes().strip_prefix(b"~") {
            Some(pattern) => Cookie::Regex(proxy_redirect::regex(pattern, cookie, true, scope)?),
            None => Cookie::Name(Template::of_word(cookie, scope)?),
        };
        let mut read = Vec::with_capacity(flags.len());
        for (number, word) in flags.iter().enumerate() {
            let flag = Template::of_word(word, scope).map_err(|problem| problem.at(number + 1))?;
            read.push(flag);
        }
        Ok(Self {
            cookie: name,
            flags: read,
        })
    }

    /// Whether it is about the cookie of this name.
    #[must_use]
    pub fn is_for(&self, request: &Request, name: &Bytes) -> bool {
        match &self.cookie {
            Cookie::Name(template) => name.eq_ignore_ascii_case(&request.evaluate(template)),
            Cookie::Regex(regex) => request.matches(regex, name).unwrap_or(false),
        }
    }
}
