//! What a request keeps of a failure for the page that is shown in its place.

use crate::{Failure, Response};

use super::Request;

impl Request {
    /// Keeps the header lines of a failure for the page that is shown in its place.
    pub fn keep_lines(&mut self, mut failure: Failure) {
        if failure.location.is_some() || !failure.headers.is_empty() || failure.varies {
            if let Some(before) = self.covered.take() {
                failure.varies |= before.varies;
                failure.headers.splice(0..0, before.headers);
            }
            self.covered = Some(Box::new(failure));
        }
    }

    /// The failure whose header lines a page has that is being chosen or made.
    pub(crate) fn covered(&self) -> Option<&Failure> {
        self.covered.as_deref()
    }

    /// Takes the header lines that were kept; those of no failure, if there are none.
    pub(crate) fn take_kept_lines(&mut self) -> Failure {
        self.covered
            .take()
            .map_or_else(|| Failure::new(0), |kept| *kept)
    }

    /// Gives the response the status of the failure that it covers.
    pub fn take_over_status(&self, response: &mut Response) {
        if let Some(status) = self.error_status {
            response.status = status;
            response.status_line = None;
        }
    }

    /// Gives the response the header lines of the failure that it covers.
    pub fn take_over_lines(&mut self, response: &mut Response) {
        let Some(mut covered) = self.covered.take() else {
            return;
        };
        // It says of a 416 how long the file is; of any other status that this is a part.
        if response.status != 416 {
            let is_range = |name: &[u8]| name.eq_ignore_ascii_case(b"Content-Range");
            covered.headers.retain(|header| !is_range(&header.name));
        }
        if response.location.is_none() && response.headers.get(b"Location").is_none() {
            response.location = covered.location;
        }
        // The response's own lines come last: of two cookies of the same name, browsers keep the last one.
        response.headers.prepend(covered.headers);
        response.vary_accept_encoding |= covered.varies;
    }
}
