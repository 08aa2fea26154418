//! A server's settings for reading requests, and its names.

use std::sync::Arc;

use bytes::Bytes;
use config::{
    Bufs, Error, Flag, Msec, Number, Placed, Problem, Scope, Size, Value, Word, directives,
};
use wire::http1::request_parser::HeadLimits;

use crate::regex::Regex;
use crate::route::ServerName;

use super::conditions::Conditions;

/// Names of one server.
pub const NAMES_MAX: usize = 65_536;

/// The names of a server, in order.
#[derive(Debug, Clone, Default)]
pub struct Names {
    /// Sorted into kinds.
    pub names: Vec<(ServerName, Word)>,
    /// The first, as `$server_name` shows it.
    pub first: Bytes,
}

impl Value for Names {
    const SYNTAX: &'static str = "name …";

    fn parse(args: &[Word], scope: &mut Scope) -> Result<Self, Problem> {
        let mut names = Vec::with_capacity(args.len());
        for (i, word) in args.iter().enumerate() {
            names.push((
                name(word, scope).map_err(|problem| problem.at(i))?,
                word.clone(),
            ));
        }
        let first = match args.first().map(Word::bytes) {
            Some(text) if text.starts_with(b".") => text[1..].to_ascii_lowercase().into(),
            Some(text) if is_hostname(text) => hostname(),
            Some(text) if text.starts_with(b"~") => text.clone(),
            Some(text) => text.to_ascii_lowercase().into(),
            None => Bytes::new(),
        };
        Ok(Self { names, first })
    }

    fn set(slot: &mut Option<Self>, args: &[Word], scope: &mut Scope) -> Result<(), Problem> {
        let line = Self::parse(args, scope)?;
        match slot {
            None => *slot = Some(line),
            Some(names) => names.names.extend(line.names),
        }
        match slot {
            Some(names) if names.names.len() > NAMES_MAX => Err(Problem::new(format!(
                "more than {NAMES_MAX} names of one server"
            ))),
            _ => Ok(()),
        }
    }

    fn absent() -> Option<Self> {
        Some(Self {
            names: Vec::new(),
            first: Bytes::new(),
        })
    }
}

/// The machine's name, lower-cased.
#[must_use]
pub fn hostname() -> Bytes {
    let name = rustix::system::uname()
        .nodename()
        .to_bytes()
        .to_ascii_lowercase();
    Bytes::from(name)
}

/// Whether a name stands for the machine's own.
fn is_hostname(name: &[u8]) -> bool {
    name.eq_ignore_ascii_case(b"$hostname")
}

fn name(word: &Word, scope: &mut Scope) -> Result<ServerName, Problem> {
    let text = word.bytes();
    let is_bare = text.starts_with(b"*") && (text.len() < 3 || text[1] != b'.');
    if is_bare || text == "." {
        return Err(Problem::new(format!(
            "server name \"{}\" is invalid",
            word.display()
        )));
    }
    if text.contains(&b'/') {
        scope.warn(word.error(&Problem::new(format!(
            "server name \"{}\" has suspicious symbols",
            word.display()
        ))));
    }
    if let Some(pattern) = text.strip_prefix(b"~") {
        if pattern.is_empty() {
            return Err(Problem::new(format!(
                "empty regex in server name \"{}\"",
                word.display()
            )));
        }
        // Hosts are lower-cased before they are compared, so case never counts.
        let regex = Regex::of_configuration(pattern, true, word, scope)?;
        return Ok(ServerName::Regex(Arc::new(regex)));
    }
    let invalid = || {
        Problem::new(format!(
            "invalid server name or wildcard \"{}\"",
            word.display()
        ))
    };
    if is_hostname(text) {
        return Ok(ServerName::Exact(hostname().to_vec().into()));
    }
    let lower = text.to_ascii_lowercase();
    let is_plain = |rest: &[u8]| !rest.contains(&b'*') && !rest.windows(2).any(|two| two == b"..");
    match &lower[..] {
        [b'*', b'.', rest @ ..] if is_plain(rest) && !rest.is_empty() => {
            Ok(ServerName::Leading(lower[1..].into()))
        }
        [b'.', rest @ ..] if is_plain(rest) && !rest.is_empty() => {
            Ok(ServerName::Both(lower.into()))
        }
        [rest @ .., b'.', b'*'] if is_plain(rest) && !rest.is_empty() => {
            Ok(ServerName::Trailing(lower[..lower.len() - 1].into()))
        }
        rest if is_plain(rest) => Ok(ServerName::Exact(lower.into())),
        _ => Err(invalid()),
    }
}

directives! {
    /// Servers and request heads.
    pub struct ServerSettings in Server {
        /// Sets the names of the server. The first is the primary one. Names may contain wildcards (`*.example.com`,
        /// `mail.*`, and `.example.com` for the name and everything below it) or be regular expressions
        /// (`~^(?<user>.+)\.example\.com$`).
        server_name: Names = none, [SERVER] 1..;
        /// Limits the time to read a request's head (408, without a response).
        client_header_timeout: Msec = "60s", [HTTP | SERVER] 1;
        /// Sets the size of the buffer that a head is first read into.
        client_header_buffer_size: Size = "1k", [HTTP | SERVER] 1;
        /// Sets number and size of the buffers for larger heads. A request line longer than one buffer is rejected with
        /// 414, a header line with 400.
        large_client_header_buffers: Placed<Bufs> = "4 8k", [HTTP | SERVER] 2;
        /// Has no effect on memory, which is not allocated in fixed pools; but no buffer of
        /// `large_client_header_buffers` may be smaller, as in nginx.
        connection_pool_size: Size = "512", [HTTP | SERVER] 1;
        /// Ignores header fields with invalid names.
        ignore_invalid_headers: Flag = "on", [HTTP | SERVER] FLAG;
        /// Allows underscores in names of header fields.
        underscores_in_headers: Flag = "off", [HTTP | SERVER] FLAG;
        /// Merges successive slashes in a URI into one.
        merge_slashes: Flag = "on", [HTTP | SERVER] FLAG;
        /// Reads the body of a request before its location is searched if one of these values is neither empty nor `0`,
        /// so that `$request_body` is available to `if`, `map` and `return`. The server's own limits for bodies apply.
        client_body_early_read: Conditions = none, [HTTP | SERVER] 1..;
        /// Limits the number of header fields of a request.
        max_headers: Number = "1000", [HTTP | SERVER] 1;
    }
}

impl ServerSettings {
    /// Sizes that must fit together.
    ///
    /// # Errors
    /// nginx's sentence.
    pub fn check(&self) -> Result<(), Error> {
        let buffers = &self.large_client_header_buffers;
        if buffers.value.size >= self.connection_pool_size.0 {
            return Ok(());
        }
        Err(buffers.error(
            "the \"large_client_header_buffers\" size must be equal to or greater than \"connection_pool_size\"",
        ))
    }

    /// The limits of a head, in the reader's words. Worked out once for each server.
    #[must_use]
    pub fn limits(&self, allow_connect: bool) -> HeadLimits {
        let size = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
        HeadLimits {
            client_header_buffer_size: self.client_header_buffer_size.bytes(),
            large_buffers: size(self.large_client_header_buffers.value.count),
            large_buffer_size: size(self.large_client_header_buffers.value.size),
            max_headers: size(self.max_headers.0),
            ignore_invalid_headers: self.ignore_invalid_headers,
            underscores_in_headers: self.underscores_in_headers,
            merge_slashes: self.merge_slashes,
            allow_connect,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(text: &str) -> String {
        let tree = config::parse_bytes(format!("server_name {text};").as_bytes()).expect("parses");
        match name(&tree.directives[0].args[0], &mut Scope::new()) {
            Ok(ServerName::Exact(n)) => format!("exact {}", String::from_utf8_lossy(&n)),
            Ok(ServerName::Leading(n)) => format!("leading {}", String::from_utf8_lossy(&n)),
            Ok(ServerName::Both(n)) => format!("both {}", String::from_utf8_lossy(&n)),
            Ok(ServerName::Trailing(n)) => format!("trailing {}", String::from_utf8_lossy(&n)),
            Ok(ServerName::Regex(r)) => format!("regex {}", r.pattern),
            Err(problem) => problem.sentence_for("server_name"),
        }
    }

    #[test]
    fn names_are_sorted_into_kinds() {
        assert_eq!(kind("Example.com"), "exact example.com");
        assert_eq!(kind("\"\""), "exact ");
        assert_eq!(kind("*.example.com"), "leading .example.com");
        assert_eq!(kind(".example.com"), "both .example.com");
        assert_eq!(kind("www.*"), "trailing www.");
        assert_eq!(kind("~^www"), "regex ^www");
        assert_eq!(kind("a.*.b"), "invalid server name or wildcard \"a.*.b\"");
        assert_eq!(kind("*.*"), "invalid server name or wildcard \"*.*\"");
        assert_eq!(kind("*a.b"), "server name \"*a.b\" is invalid");
        assert_eq!(kind("."), "server name \".\" is invalid");
        assert_eq!(kind("~"), "empty regex in server name \"~\"");
        let own = String::from_utf8_lossy(&hostname()).into_owned();
        assert_eq!(kind("$HostName"), format!("exact {own}"));
    }

    #[test]
    fn a_slash_in_a_name_is_suspicious() {
        for text in ["a/b", "~^a/b$", "*.a/b"] {
            let tree =
                config::parse_bytes(format!("server_name {text};").as_bytes()).expect("parses");
            let mut scope = Scope::new();
            assert!(name(&tree.directives[0].args[0], &mut scope).is_ok());
            let warnings = scope.take_warnings();
            let told = format!("server name \"{text}\" has suspicious symbols");
            assert_eq!(warnings.len(), 1);
            assert!(warnings[0].to_string().contains(&told), "{}", warnings[0]);
        }
    }
}
