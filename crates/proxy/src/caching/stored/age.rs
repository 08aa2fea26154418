//! The age of a stored response, as its `Age` says it.

use bytes::Bytes;

use httpcore::outcome::Outcome;

/// Digits.
#[must_use]
pub(crate) fn number(number: u32) -> Bytes {
    Bytes::copy_from_slice(itoa::Buffer::new().format(number).as_bytes())
}

/// The `Age` of a response (RFC 9111, 5.1).
#[must_use]
pub(crate) fn with_age(outcome: Outcome, age: u32) -> Outcome {
    let Outcome::Answer(mut response) = outcome else {
        return outcome;
    };
    response.headers.replace("Age", number(age));
    Outcome::Answer(response)
}
