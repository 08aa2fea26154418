//! The directives that `fastcgi_…`, `uwsgi_…` and `scgi_…` have alone: where they lead, which parameters they send, how
//! a script is found in a URI.
//!
//! Not here: what they share with `proxy_…` (`families`), and what is made of them (`params`).

use std::sync::Arc;

use bytes::Bytes;
use config::{Flag, List, NumberWithin, Placed, Problem, Scope, Template, Value, Word, directives};

use httpcore::regex::Regex;
use httpcore::request::Request;

/// Maximum of groups of `fastcgi_split_path_info`, including the whole match.
const SPLIT_GROUPS: usize = 3;

/// A `…_param` line.
#[derive(Debug, Clone)]
pub struct Param {
    /// Its name.
    pub name: Bytes,
    /// Its value.
    pub value: Template,
    /// Whether it is left out where the value is empty (`if_not_empty`).
    pub skips_empty: bool,
}

impl Value for Param {
    const SYNTAX: &'static str = "parameter value [if_not_empty]";

    fn parse(args: &[Word], scope: &mut Scope) -> Result<Self, Problem> {
        let skips_empty = match args.get(2) {
            None => false,
            Some(word) if *word == "if_not_empty" => true,
            Some(word) => {
                let sentence = format!("invalid parameter \"{}\"", word.display());
                return Err(Problem::new(sentence).at(2));
            }
        };
        Ok(Self {
            name: args[0].bytes().clone(),
            value: Template::of_word(&args[1], scope).map_err(|problem| problem.at(1))?,
            skips_empty,
        })
    }
}

/// `fastcgi_split_path_info`.
#[derive(Debug, Clone)]
pub struct Split(Arc<Regex>);

impl Value for Split {
    const SYNTAX: &'static str = "regex";

    fn parse(args: &[Word], _: &mut Scope) -> Result<Self, Problem> {
        // Its groups are read only here: a name makes no variable.
        let regex = Regex::shared(args[0].bytes(), false, |_| config::VariableIndex(0));
        let regex = regex.map_err(|sentence| Problem::new(sentence).at(0))?;
        if regex.groups() != SPLIT_GROUPS {
            let sentence = format!("pattern \"{}\" must have 2 captures", args[0].display());
            return Err(Problem::new(sentence).at(0));
        }
        Ok(Self(Arc::new(regex)))
    }

    /// The last line counts, as in nginx.
    fn set(slot: &mut Option<Self>, args: &[Word], scope: &mut Scope) -> Result<(), Problem> {
        *slot = Some(Self::parse(args, scope)?);
        Ok(())
    }
}

directives! {
    /// FastCGI.
    ///
    /// Directives that correspond to those of `proxy_pass` are on a page of their own.
    pub struct FastcgiPass in Location {
        /// Passes requests to a FastCGI server or a group of them: `host:port`, `unix:path` or the name of an
        /// `upstream`; may contain variables.
        fastcgi_pass: Option<Placed<Template>> = none, [LOCATION | LOCATION_IF] 1, inherit never, syntax "address";
        /// Sets a parameter of the request; with `if_not_empty` only if it has a value. A level with lines of its own
        /// inherits none. A parameter `HTTP_…` replaces the client's header field. `HTTP_HOST` is
        /// `$host$is_request_port$request_port` by default.
        fastcgi_param: List<Param> = none, [HTTP | SERVER | LOCATION] 2..=3;
        /// Sets the file name that `$fastcgi_script_name` has after a URI that ends in a slash.
        fastcgi_index: Option<Bytes> = none, [HTTP | SERVER | LOCATION] 1, syntax "name";
        /// Sets which part of a URI is `$fastcgi_script_name` (first group) and which `$fastcgi_path_info` (second
        /// group).
        fastcgi_split_path_info: Option<Split> = none, [HTTP | SERVER | LOCATION] 1;
        /// Asks servers to keep connections open after a response. They are kept if the upstream says so (`keepalive`).
        fastcgi_keep_conn: Flag = "off", [HTTP | SERVER | LOCATION] FLAG;
        /// Treats a response as invalid (`invalid_header` of `fastcgi_next_upstream`) if the server writes this text to
        /// its error stream before the response's head.
        fastcgi_catch_stderr: List<Bytes> = none, [HTTP | SERVER | LOCATION] 1, syntax "string";
    }
}

directives! {
    /// uwsgi.
    ///
    /// Directives that correspond to those of `proxy_pass` are on a page of their own.
    pub struct UwsgiPass in Location {
        /// Passes requests to a uwsgi server or a group of them: `[uwsgi://]host:port`, `unix:path` or the name of an
        /// `upstream`; may contain variables. `suwsgi://` is uwsgi over TLS.
        uwsgi_pass: Option<Placed<Template>> = none, [LOCATION | LOCATION_IF] 1, inherit never, syntax "[protocol://]address";
        /// Sets a parameter of the request, as `fastcgi_param` does.
        uwsgi_param: List<Param> = none, [HTTP | SERVER | LOCATION] 2..=3;
        /// Sets bytes that are sent after the parameters, unchanged.
        uwsgi_string: Option<Bytes> = none, [HTTP | SERVER | LOCATION] 1, syntax "string";
        /// Sets the first modifier of a packet.
        uwsgi_modifier1: NumberWithin<0, 255> = "0", [HTTP | SERVER | LOCATION] 1;
        /// Sets the second modifier of a packet.
        uwsgi_modifier2: NumberWithin<0, 255> = "0", [HTTP | SERVER | LOCATION] 1;
    }
}

directives! {
    /// SCGI.
    ///
    /// Directives that correspond to those of `proxy_pass` are on a page of their own.
    pub struct ScgiPass in Location {
        /// Passes requests to an SCGI server or a group of them: `host:port`, `unix:path` or the name of an `upstream`;
        /// may contain variables.
        scgi_pass: Option<Placed<Template>> = none, [LOCATION | LOCATION_IF] 1, inherit never, syntax "address";
        /// Sets a parameter of the request, as `fastcgi_param` does.
        scgi_param: List<Param> = none, [HTTP | SERVER | LOCATION] 2..=3;
    }
}

/// A URI in the two parts that form a script's name. As in nginx both are empty where the match fails.
fn split<'a>(request: &'a Request, settings: &FastcgiPass) -> (&'a [u8], &'a [u8]) {
    let uri = &request.uri[..];
    let Some(Split(regex)) = &settings.fastcgi_split_path_info else {
        return (uri, b"");
    };
    let groups = match regex.captures(uri) {
        Ok(Some(groups)) => groups,
        Ok(None) => return (uri, b""),
        Err(failed) => {
            request.match_failed(&failed);
            return (b"", b"");
        }
    };
    let group = |number: usize| {
        let span = groups.get(number).cloned().flatten();
        span.map_or(&b""[..], |span| {
            &uri[span.start as usize..span.end as usize]
        })
    };
    (group(1), group(2))
}

httpcore::variables! {
    /// The part of the URI after the script, as split by `fastcgi_split_path_info`.
    "fastcgi_path_info" => fresh(path_info);
    /// The script in the URI: the whole URI, or as split by `fastcgi_split_path_info`; `fastcgi_index` is appended to a
    /// trailing slash.
    "fastcgi_script_name" => fresh(script_name);
}

/// `$fastcgi_script_name`
fn script_name(request: &Request, out: &mut Vec<u8>) -> bool {
    let settings = request.location().own::<FastcgiPass>();
    let (script, _) = split(request, settings);
    out.extend_from_slice(script);
    if let (true, Some(index)) = (script.ends_with(b"/"), &settings.fastcgi_index) {
        out.extend_from_slice(index);
    }
    true
}

/// `$fastcgi_path_info`
fn path_info(request: &Request, out: &mut Vec<u8>) -> bool {
    let (_, info) = split(request, request.location().own::<FastcgiPass>());
    out.extend_from_slice(info);
    true
}
