//! The parameters of a request to a gateway: those that the configuration sets, and the client's header lines as
//! `HTTP_…`.
//!
//! Not here: how FastCGI, uwsgi and SCGI encode them (crate `wire`). Invariant: a client's line is not sent where a
//! parameter takes its place, or where it is a condition that a cache answers itself.

use std::cmp::Ordering;

use logs::Level;
use message::{Framing, HeaderId, Method};
use wire::fastcgi;
use wire::gateway::{self, Unsendable};

use crate::settings::params::{HTTP, HTTP_HOST, Params, ParamsFormat};
use crate::upstream_request::variation::Variation;
use httpcore::request::Request;
use httpcore::variables::request::host_and_port;

/// Header lines, as parameters, that are not passed on where the response may be cached.
const CACHE_LINES: [&[u8]; 6] = [
    b"IF_MODIFIED_SINCE",
    b"IF_UNMODIFIED_SINCE",
    b"IF_NONE_MATCH",
    b"IF_MATCH",
    b"RANGE",
    b"IF_RANGE",
];

/// Error: the parameters cannot be sent.
#[derive(Debug, thiserror::Error)]
pub enum ParamsError {
    /// They do not fit in a record.
    #[error(transparent)]
    Records(#[from] fastcgi::write::TooBig),
    /// The gateway's protocol cannot carry them.
    #[error(transparent)]
    Gateway(#[from] Unsendable),
}

impl ParamsError {
    /// The level of its line: as in nginx parameters that are too large are an alert.
    pub fn level(&self) -> Level {
        match self {
            Self::Records(_) | Self::Gateway(Unsendable::TooBig(..)) => Level::Alert,
            Self::Gateway(Unsendable::Nul(_)) => Level::Error,
        }
    }
}

/// Receives each name with its value.
type ParamSink<'a> = dyn FnMut(&[u8], &[u8]) -> Result<(), ParamsError> + 'a;

/// Names and values as they would be sent.
#[must_use]
pub fn list(params: &Params, request: &Request) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut all = Vec::new();
    let listed = each(
        params,
        request,
        &Variation::default(),
        &mut |name, value| {
            all.push((name.to_vec(), value.to_vec()));
            Ok(())
        },
    );
    debug_assert!(listed.is_ok(), "nothing is packed here");
    all
}

/// Appends a request up to its body.
///
/// # Errors
/// The parameters are too large to be sent.
pub fn write(
    params: &Params,
    request: &Request,
    variation: &Variation,
    framing: Framing,
    out: &mut Vec<u8>,
) -> Result<(), ParamsError> {
    let each = |give: &mut ParamSink<'_>| each(params, request, variation, give);
    match &params.packing {
        ParamsFormat::Fastcgi {
            keeps_connection, ..
        } => {
            let has_body = !matches!(framing, Framing::None | Framing::Length(0));
            fastcgi::write::request(out, *keeps_connection, has_body, |out| {
                each(&mut |name, value| {
                    fastcgi::write::pair(out, name, value);
                    Ok(())
                })
            })
        }
        ParamsFormat::Uwsgi { modifiers, behind } => gateway::uwsgi(out, *modifiers, |out| {
            each(&mut |name, value| {
                gateway::uwsgi_pair(out, name, value);
                Ok(())
            })?;
            out.extend_from_slice(behind);
            Ok(())
        }),
        ParamsFormat::Scgi => {
            let length = match framing {
                Framing::Length(length) => length,
                Framing::None | Framing::Chunked => 0,
            };
            gateway::scgi(out, length, |out| {
                each(&mut |name, value| Ok(gateway::scgi_pair(out, name, value)?))
            })
        }
    }
}

/// Whether the gateway is told `HEAD`: by `REQUEST_METHOD` as it is sent, which is the main request's in a subrequest
/// and whatever the configuration says; without it by the request's own method.
#[must_use]
pub fn is_head(params: &Params, request: &Request) -> bool {
    match &params.method {
        Some(template) => request.evaluate(template)[..].eq_ignore_ascii_case(b"HEAD"),
        None => request.method == Method::Head,
    }
}

/// Passes on each name and its value.
fn each(
    params: &Params,
    request: &Request,
    variation: &Variation,
    give: &mut ParamSink<'_>,
) -> Result<(), ParamsError> {
    for line in &params.lines {
        let value = request.evaluate(&line.value);
        if !(line.skips_empty && value.is_empty()) {
            give(&line.name, &value)?;
        }
    }
    let mut text = Vec::new();
    if params.sends_host {
        host_and_port(request, &mut text);
        if !text.is_empty() {
            give(HTTP_HOST, &text)?;
        }
    }
    for (name, value) in &variation.lines {
        if !is_replaced(params, name) {
            give(&parameter(name), value)?;
        }
    }
    match params.sends_headers {
        true => each_header(params, request, variation, give),
        false => Ok(()),
    }
}

fn each_header(
    params: &Params,
    request: &Request,
    variation: &Variation,
    give: &mut ParamSink<'_>,
) -> Result<(), ParamsError> {
    let lines: Vec<_> = request.head.iter().collect();
    // Sorted by name, with the lines of one name in their order: there may be a thousand.
    let mut sorted: Vec<usize> = (0..lines.len()).collect();
    sorted.sort_by(|a, b| by_name(lines[*a].0, lines[*b].0));
    let is_same = |a: &usize, b: &usize| lines[*a].0.eq_ignore_ascii_case(lines[*b].0);
    let mut lists: Vec<&[usize]> = sorted.chunk_by(is_same).collect();
    lists.sort_by_key(|list| list[0]);
    for list in lists {
        let (name, value, id) = lines[list[0]];
        let is_cache_s = variation.is_cacheable && is_among(&CACHE_LINES, name);
        if is_cache_s || is_replaced(params, name) {
            continue;
        }
        let [_, rest @ ..] = list else { continue };
        if rest.is_empty() {
            give(&parameter(name), value)?;
            continue;
        }
        // The lines of one name are one list (RFC 9110, 5.3; RFC 9113, 8.2.3).
        let separator: &[u8] = match id {
            HeaderId::Cookie => b"; ",
            _ => b", ",
        };
        let mut all = value.to_vec();
        for at in rest {
            all.extend_from_slice(separator);
            all.extend_from_slice(lines[*at].1);
        }
        give(&parameter(name), &all)?;
    }
    Ok(())
}

fn is_replaced(params: &Params, name: &[u8]) -> bool {
    is_among(&params.replaced, name)
}

/// Whether one of these parameters, without `HTTP_`, replaces this header line.
fn is_among(params: &[impl AsRef<[u8]>], name: &[u8]) -> bool {
    params.iter().any(|param| {
        let param = param.as_ref();
        let is_same = |(a, b): (&u8, &u8)| upper(*a) == upper(*b);
        param.len() == name.len() && param.iter().zip(name).all(is_same)
    })
}

fn by_name(a: &[u8], b: &[u8]) -> Ordering {
    let lower = u8::to_ascii_lowercase;
    a.iter().map(lower).cmp(b.iter().map(lower))
}

/// The parameter for a header line.
fn parameter(name: &[u8]) -> Vec<u8> {
    let letters = name.iter().map(|letter| upper(*letter));
    HTTP.iter().copied().chain(letters).collect()
}

fn upper(letter: u8) -> u8 {
    match letter {
        b'-' => b'_',
        letter => letter.to_ascii_uppercase(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn header_lines_have_names_of_parameters() {
        assert_eq!(parameter(b"X-One_two"), b"HTTP_X_ONE_TWO");
        let params = [&b"X_ONE"[..], b"if_range"];
        assert!(is_among(&params, b"x-one") && is_among(&params, b"If-Range"));
        assert!(!is_among(&params, b"x-on") && !is_among(&params, b"x-two"));
    }
}
