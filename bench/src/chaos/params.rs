//! What FastCGI, uwsgi and SCGI share: a request as parameters (RFC 3875, section 4.1), the head of an answer as lines (section 6).

use crate::answer::{self, Answer};
use crate::asked::{Asked, KIND};
use crate::uploads::{Arriving, FIELD};
use std::collections::HashMap;

/// Of all parameters of a request, in bytes.
pub const PARAMS_MAX: usize = 1 << 16;

/// The parameters of a request.
#[derive(Debug, Default)]
pub struct Params(HashMap<String, String>);

impl Params {
    /// Adds one.
    pub fn insert(&mut self, name: &[u8], value: &[u8]) {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        self.0.insert(text(name), text(value));
    }

    /// The value of one.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    /// The value of a field of the request.
    fn field(&self, name: &str) -> Option<&str> {
        self.get(&format!("HTTP_{}", name.replace('-', "_").to_uppercase()))
    }

    /// What the path asks for.
    pub fn asked(&self) -> Option<Asked> {
        self.get("REQUEST_URI").and_then(Asked::parse)
    }

    /// What else counts.
    pub fn request(&self) -> answer::Request<'_> {
        answer::Request {
            range: self.field("range"),
            tag: self.field("if-none-match"),
            kind: self.field(KIND),
            has_connections: false,
        }
    }

    /// Whether the answer has no body.
    pub fn is_head(&self) -> bool {
        self.get("REQUEST_METHOD") == Some("HEAD")
    }

    /// The words of a finding.
    pub fn place(&self, protocol: &str, asked: &Asked) -> String {
        let place = self.field("x-place").unwrap_or_default();
        format!("{protocol} {} {place}", asked.path())
    }

    /// The body that the client has announced.
    pub fn arriving<'a>(&self, place: &'a str) -> Option<Arriving<'a>> {
        self.field(FIELD)
            .and_then(|said| Arriving::new(said, place))
    }
}

/// The head of an answer, with the empty line.
pub fn head(answer: &Answer) -> String {
    let mut head = format!("Status: {}\r\n", answer.status);
    for (name, value) in &answer.fields {
        head += &format!("{name}: {value}\r\n");
    }
    if answer.has_length {
        head += &format!("Content-Length: {}\r\n", answer.range.1 - answer.range.0);
    }
    head + "\r\n"
}
