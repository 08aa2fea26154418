//! Why an order fails.

use std::time::Duration;

use serde::Deserialize;

/// Prefix of the types of ACME's errors (RFC 8555, 6.7).
const ERRORS: &str = "urn:ietf:params:acme:error:";
/// Maximum number of parts of a problem that a line tells.
const PARTS_TOLD_MAX: usize = 4;
/// Maximum length of an authority's text in a line, in characters.
const TEXT_MAX: usize = 400;

/// Why an order, or a part of one, fails. `Display` is a part of a line for a log.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The authority says so.
    #[error("{0}")]
    Problem(Problem),
    /// The authority wants no request before this time is over.
    #[error("{problem}")]
    RateLimited {
        /// What it says.
        problem: Problem,
        /// The time.
        wait: Duration,
    },
    /// The authority could not be asked: names, connections, TLS.
    #[error("{0}")]
    Connection(String),
    /// The authority's answer is none.
    #[error("{0}")]
    Answer(String),
    /// It cannot be done as the configuration says.
    #[error("{0}")]
    Configuration(String),
    /// A file, or a key.
    #[error("{0}")]
    Local(String),
}

impl Error {
    /// Whether the same order fails until the configuration, or the authority's opinion, changes.
    #[must_use]
    pub fn is_lasting(&self) -> bool {
        match self {
            Self::Problem(problem) => problem.is_lasting(),
            Self::Configuration(_) => true,
            _ => false,
        }
    }
}

/// A problem document (RFC 7807).
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Problem {
    /// Its type.
    #[serde(rename = "type")]
    pub kind: String,
    /// The authority's sentence.
    pub detail: String,
    /// Its parts, about single identifiers.
    pub subproblems: Vec<Part>,
    /// The status of the answer that it came with.
    #[serde(skip)]
    pub status: u16,
}

/// A part of a problem, about one identifier.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Part {
    /// The authority's sentence.
    pub detail: String,
    /// What it is about.
    pub identifier: Option<crate::messages::NamedIdentifier>,
}

impl Problem {
    /// Whether it is of this type of ACME's.
    #[must_use]
    pub fn is(&self, name: &str) -> bool {
        self.kind.strip_prefix(ERRORS) == Some(name)
    }

    fn is_any(&self, names: &[&str]) -> bool {
        names.iter().any(|name| self.is(name))
    }

    /// Whether a repetition gives the same.
    fn is_lasting(&self) -> bool {
        self.is_any(&[
            "badCSR",
            "badPublicKey",
            "badSignatureAlgorithm",
            "caa",
            "externalAccountRequired",
            "invalidContact",
            "invalidProfile",
            "rejectedIdentifier",
            "unsupportedContact",
            "unsupportedIdentifier",
            "userActionRequired",
        ])
    }

    /// Whether it may be about the certificate that an order replaces (RFC 9773, 5): the order is good without that.
    #[must_use]
    pub fn may_be_of_replacing(&self) -> bool {
        !self.is_any(&[
            "accountDoesNotExist",
            "badNonce",
            "caa",
            "invalidProfile",
            "rateLimited",
            "rejectedIdentifier",
            "unsupportedIdentifier",
            "userActionRequired",
        ])
    }

    /// Whether the authority does not know the account, or wants it no more.
    #[must_use]
    pub fn is_of_account(&self) -> bool {
        self.is_any(&["accountDoesNotExist", "unauthorized"]) && matches!(self.status, 400..=403)
    }
}

impl std::fmt::Display for Problem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.detail.as_str() {
            "" => write!(f, "the authority refuses")?,
            detail => f.write_str(&told(detail))?,
        }
        for part in self.subproblems.iter().take(PARTS_TOLD_MAX) {
            let name = part.identifier.as_ref().map_or("", |named| &named.value);
            write!(f, "; {}: {}", told(name), told(&part.detail))?;
        }
        let kind = self.kind.strip_prefix(ERRORS).unwrap_or(&self.kind);
        match (kind, self.status) {
            ("", 0) => Ok(()),
            ("", status) => write!(f, " ({status})"),
            (kind, 0) => write!(f, " ({})", told(kind)),
            (kind, status) => write!(f, " ({}, {status})", told(kind)),
        }
    }
}

/// Another party's text, as it may stand in a line.
fn told(text: &str) -> String {
    let safe = |letter: char| match letter.is_control() {
        true => ' ',
        false => letter,
    };
    text.chars().take(TEXT_MAX).map(safe).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_problem_is_one_line_with_the_authoritys_words() {
        let text = r#"{"type":"urn:ietf:params:acme:error:rejectedIdentifier","detail":"policy\nforbids","status":400,
            "subproblems":[{"detail":"no","identifier":{"type":"dns","value":"a.example"}},{"detail":"never"}]}"#;
        let mut problem: Problem = serde_json::from_str(text).unwrap();
        problem.status = 400;
        assert_eq!(
            problem.to_string(),
            "policy forbids; a.example: no; : never (rejectedIdentifier, 400)"
        );
        assert!(Error::Problem(problem).is_lasting());
        assert_eq!(
            Problem::default().to_string(),
            "the authority refuses",
            "it may say nothing"
        );
    }
}
