//! What one request of a client asks for, and how the client behaves.

use crate::asked::{Asked, How, KIND, VERSIONS};
use crate::connect::{Connection, NEVER};
use crate::uploads::{FIELD, Flow, Upload};
use http_body_util::Channel;
use hyper::Request;
use hyper::header::{ACCEPT_ENCODING, CONTENT_LENGTH, EXPECT, RANGE};
use std::time::Duration;

/// A request.
pub struct Plan {
    /// The prefix of the path.
    pub location: String,
    /// The rest of it.
    pub asked: Asked,
    /// GET, HEAD or POST.
    pub method: &'static str,
    /// The body that is sent.
    pub upload: Option<Upload>,
    has_length: bool,
    range: Option<(u64, u64)>,
    /// Which body is asked for, where there are several.
    pub kind: u64,
    /// When the client leaves, whatever has come.
    pub patience: Duration,
    /// How much of the body it reads.
    pub limit: u64,
    /// Whether it reads slowly.
    pub is_slow: bool,
}

impl Plan {
    /// Any at that location.
    pub fn any(location: &str) -> Plan {
        let mut asked = Asked::any();
        let is_file = location.starts_with("/st");
        if is_file {
            (asked.how, asked.seed) = (How::Whole, asked.seed % crate::files::SEEDS);
        }
        let upload = (!is_file && fastrand::u8(..4) == 0).then(Upload::any);
        let is_head = upload.is_none() && fastrand::u8(..20) == 0;
        let has_range = upload.is_none() && asked.size > 100 && fastrand::u8(..8) == 0;
        Plan {
            location: location.to_owned(),
            method: if upload.is_some() {
                "POST"
            } else if is_head {
                "HEAD"
            } else {
                "GET"
            },
            upload,
            has_length: fastrand::bool(),
            range: has_range.then(|| {
                let first = fastrand::u64(..asked.size);
                (first, fastrand::u64(first..asked.size))
            }),
            kind: fastrand::u64(..VERSIONS),
            patience: if fastrand::u8(..3) == 0 {
                Duration::from_millis(fastrand::u64(..400))
            } else {
                NEVER
            },
            limit: if fastrand::u8(..5) == 0 {
                fastrand::u64(..300_000)
            } else {
                u64::MAX
            },
            is_slow: fastrand::u8(..6) == 0,
            asked,
        }
    }

    /// None: there is none like that.
    pub fn request(&self, connection: &Connection) -> Option<Request<Flow>> {
        let path = format!("{}{}", self.location, self.asked.path());
        let mut head = connection.request(self.method, &path);
        if self.asked.how == How::Varied {
            head = head.header(KIND, self.kind);
        }
        if fastrand::bool() {
            head = head.header(ACCEPT_ENCODING, "gzip");
        }
        if let Some((first, last)) = self.range {
            head = head.header(RANGE, format!("bytes={first}-{last}"));
        }
        let Some(upload) = self.upload else {
            let (_, flow) = Channel::new(1);
            return head.body(flow).ok();
        };
        head = head
            .header(FIELD, upload.said())
            .header("x-place", self.place(connection));
        if self.has_length {
            head = head.header(CONTENT_LENGTH, upload.size);
        }
        if fastrand::u8(..5) == 0 {
            head = head.header(EXPECT, "100-continue");
        }
        head.body(upload.flow()).ok()
    }

    /// The words of a finding.
    pub fn place(&self, connection: &Connection) -> String {
        let upload = self
            .upload
            .map(|upload| (upload.size, upload.quit, self.has_length));
        format!(
            "{} {}{} {:?} upload {upload:?} range {:?} kind {}",
            self.method,
            self.location,
            self.asked.path(),
            connection.speech,
            self.range,
            self.kind
        )
    }
}
