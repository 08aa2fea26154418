//! The compression ratio of an answer: `$gzip_ratio`, `$brotli_ratio`, `$zstd_ratio`.

use std::cell::Cell;
use std::io::Write as _;

use httpcore::request::Request;
use httpcore::request::state::State;

use super::Coding;

/// Bytes into a coder and out of it, for the logs of its request.
#[derive(Debug)]
pub struct Ratio {
    coding: Coding,
    taken: Cell<u64>,
    given: Cell<u64>,
    is_over: Cell<bool>,
}

impl State for Ratio {}

impl Ratio {
    /// No bytes yet.
    #[must_use]
    pub fn new(coding: Coding) -> Self {
        Self {
            coding,
            taken: Cell::new(0),
            given: Cell::new(0),
            is_over: Cell::new(false),
        }
    }

    /// The coding.
    #[must_use]
    pub fn coding(&self) -> Coding {
        self.coding
    }

    /// Counts bytes that went in.
    pub fn take(&self, bytes: usize) {
        self.taken.set(self.taken.get() + bytes as u64);
    }

    /// Counts bytes that came out.
    pub fn give(&self, bytes: usize) {
        self.given.set(self.given.get() + bytes as u64);
    }

    /// The body is complete.
    pub fn end(&self) {
        self.is_over.set(true);
    }

    /// Appends the ratio, if it is this coding's and known: rounded to two digits; for zstd, as its nginx module does,
    /// truncated to three.
    pub fn append(&self, coding: Coding, out: &mut Vec<u8>) -> bool {
        let (taken, given) = (self.taken.get(), self.given.get());
        if coding != self.coding || !self.is_over.get() || given == 0 {
            return false;
        }
        let thousandths = u128::from(taken) * 1000 / u128::from(given);
        match coding {
            Coding::Zstd => write!(out, "{}.{:03}", thousandths / 1000, thousandths % 1000).is_ok(),
            Coding::Gzip | Coding::Brotli => {
                let hundredths = (thousandths + 5) / 10;
                write!(out, "{}.{:02}", hundredths / 100, hundredths % 100).is_ok()
            }
        }
    }
}

/// Appends the ratio of a request's response, if it was coded by this coding.
pub(crate) fn append(request: &Request, coding: Coding, out: &mut Vec<u8>) -> bool {
    let ratio = request.states.get::<Ratio>();
    ratio.is_some_and(|ratio| ratio.append(coding, out))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_are_rounded_as_the_modules_do() {
        let text = |coding, taken, given| {
            let ratio = Ratio::new(coding);
            ratio.take(taken);
            ratio.give(given);
            ratio.end();
            let mut out = Vec::new();
            ratio
                .append(coding, &mut out)
                .then_some(String::from_utf8(out).unwrap())
        };
        assert_eq!(text(Coding::Gzip, 2125, 1000).as_deref(), Some("2.13"));
        assert_eq!(text(Coding::Gzip, 1999, 1000).as_deref(), Some("2.00"));
        assert_eq!(text(Coding::Brotli, 1, 3).as_deref(), Some("0.33"));
        assert_eq!(text(Coding::Zstd, 2125, 1001).as_deref(), Some("2.122"));
        assert_eq!(text(Coding::Gzip, 1, 0), None);
        let ratio = Ratio::new(Coding::Gzip);
        ratio.give(1);
        assert!(
            !ratio.append(Coding::Gzip, &mut Vec::new()),
            "it is not over"
        );
    }
}
