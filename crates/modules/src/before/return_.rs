//! `return`: an answer, a redirect or a status that comes from the configuration alone. `rewrite` decides when it runs.

use bytes::Bytes;
use config::{Problem, Scope, Template, Word};
use message::Body;

use httpcore::outcome::Outcome;
use httpcore::request::Request;
use httpcore::{Failure, Response};

/// The arguments of `return`.
#[derive(Debug, Clone)]
pub struct Return {
    /// The status.
    pub status: u16,
    /// A URL for 301, 302, 303, 307 and 308, else the body.
    pub text: Option<Template>,
}

impl Return {
    /// Parses the arguments.
    ///
    /// # Errors
    /// nginx's.
    pub fn parse(args: &[Word], scope: &mut Scope) -> Result<Self, Problem> {
        let word = &args[0];
        let code = std::str::from_utf8(word.bytes())
            .ok()
            .filter(|t| t.bytes().all(|c| c.is_ascii_digit()));
        let status = code.and_then(|text| text.parse::<u16>().ok());
        match (status, &args[1..]) {
            (Some(1000..), _) => Err(invalid(word)),
            // A failure without a text is like any other failure: it has an error page.
            (Some(status @ 400..), [text]) if text.bytes().is_empty() => {
                Ok(Self { status, text: None })
            }
            (Some(status), [text]) => Ok(Self {
                status,
                text: Some(Template::of_word(text, scope)?),
            }),
            (Some(status), _) => Ok(Self { status, text: None }),
            (None, []) if is_url(word.bytes()) => Ok(Self {
                status: 302,
                text: Some(Template::of_word(word, scope)?),
            }),
            (None, _) => Err(invalid(word)),
        }
    }
}

fn invalid(word: &Word) -> Problem {
    Problem::new(format!("invalid return code \"{}\"", word.display())).at(0)
}

fn is_url(text: &[u8]) -> bool {
    text.starts_with(b"http://") || text.starts_with(b"https://") || text.starts_with(b"$scheme")
}

/// Gives the answer of a `return`.
pub(crate) fn answer(request: &mut Request, decided: &Return) -> Outcome {
    let status = decided.status;
    let Some(text) = &decided.text else {
        return match status {
            301 | 302 | 303 | 307 | 308 => redirect(request, status, Bytes::new()),
            ..400 => Outcome::Answer(with_body(request, status, Bytes::new())),
            _ => Outcome::Failed(Failure::new(status)),
        };
    };
    // A text with `$status` must see the status of this answer.
    let covered = request.error_status;
    request.error_status = covered.or(Some(status));
    let text = request.evaluate(text);
    request.error_status = covered;
    match status {
        301 | 302 | 303 | 307 | 308 => redirect(request, status, text),
        _ => Outcome::Answer(with_body(request, status, text)),
    }
}

fn redirect(request: &Request, status: u16, location: Bytes) -> Outcome {
    request.returned.set(Some(status));
    Outcome::Failed(Failure::redirect(status, location))
}

fn with_body(request: &Request, status: u16, text: Bytes) -> Box<Response> {
    let mut response = Response::boxed(status);
    response.content_type = request.content_type();
    response.content_length = Some(text.len() as u64);
    response.conditional = true;
    response.body = if text.is_empty() {
        Body::Empty
    } else {
        Body::bytes(text)
    };
    response
}
