//! One request of a client, and what comes back.

use crate::asked::{Asked, How, difference};
use crate::connect::{Connection, NEVER};
use crate::findings;
use crate::uploads::{FIELD, Flow, Upload};
use flate2::read::GzDecoder;
use http_body_util::{BodyExt, Channel};
use hyper::body::Incoming;
use hyper::header::{
    ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_RANGE, EXPECT, RANGE,
};
use hyper::{Request, Response};
use std::io::Read;
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout};

/// A request.
struct Plan {
    location: String,
    asked: Asked,
    method: &'static str,
    upload: Option<Upload>,
    has_length: bool,
    range: Option<(u64, u64)>,
    /// When the client leaves, whatever has come.
    patience: Duration,
    /// How much of the body it reads.
    limit: u64,
    is_slow: bool,
}

impl Plan {
    fn any(location: &str) -> Plan {
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

    fn request(&self, connection: &Connection) -> Option<Request<Flow>> {
        let path = format!("{}{}", self.location, self.asked.path());
        let mut head = connection.request(self.method, &path);
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
    fn place(&self, connection: &Connection) -> String {
        let upload = self
            .upload
            .map(|upload| (upload.size, upload.quit, self.has_length));
        format!(
            "{} {}{} {:?} upload {upload:?} range {:?}",
            self.method,
            self.location,
            self.asked.path(),
            connection.speech,
            self.range
        )
    }
}

/// Asks for anything at a location. None: the connection is not to be used again.
pub async fn ask(mut connection: Connection, location: &str) -> Option<Connection> {
    let plan = Plan::any(location);
    let request = plan.request(&connection)?;
    findings::count("asked");
    let begun = Instant::now();
    let place = plan.place(&connection);
    let exchange = async {
        match connection.send(request).await {
            Ok(answer) => judge(&plan, answer, &place).await,
            Err(error) => {
                let is_ours = plan.upload.is_some_and(|upload| upload.quit.is_some());
                if !is_ours {
                    findings::count(format!("no answer: {error}"));
                }
                false
            }
        }
    };
    match timeout(plan.patience, exchange).await {
        Ok(is_reusable) => (is_reusable && connection.is_open()).then_some(connection),
        Err(_) => {
            let is_slow = plan.is_slow || connection.is_small;
            if plan.patience == NEVER && !is_slow {
                findings::wrong(format!(
                    "no end in {} s: {place}",
                    begun.elapsed().as_secs()
                ));
            }
            None
        }
    }
}

/// Whether the answer was read to its end.
async fn judge(plan: &Plan, answer: Response<Incoming>, place: &str) -> bool {
    let status = answer.status().as_u16();
    findings::count(format!("status {status}"));
    let fields = answer.headers();
    let is_judged = matches!(status, 200 | 206) || status == 500 && fields.contains_key("x-how");
    let is_zipped = fields.contains_key(CONTENT_ENCODING);
    let mut range = (0, plan.asked.size);
    if status == 206 {
        let said = fields
            .get(CONTENT_RANGE)
            .and_then(|value| value.to_str().ok());
        let Some((first, end, size)) = said.and_then(content_range) else {
            findings::wrong(format!("Content-Range {said:?}: {place}"));
            return false;
        };
        if size != plan.asked.size {
            findings::wrong(format!("Content-Range {said:?}: {place}"));
        }
        range = (first, end);
    }
    let words = format!("{place}: {status} {:?}", fields.get("x-cache"));
    let is_judged = is_judged && plan.method != "HEAD";
    read(
        plan,
        answer.into_body(),
        (is_judged, is_zipped),
        range,
        &words,
    )
    .await
}

/// First byte, the one behind the last, and the size.
fn content_range(said: &str) -> Option<(u64, u64, u64)> {
    let (range, size) = said.strip_prefix("bytes ")?.split_once('/')?;
    let (first, last) = range.split_once('-')?;
    Some((
        first.parse().ok()?,
        last.parse::<u64>().ok()? + 1,
        size.parse().ok()?,
    ))
}

async fn read(
    plan: &Plan,
    mut body: Incoming,
    (is_judged, is_zipped): (bool, bool),
    range: (u64, u64),
    words: &str,
) -> bool {
    let (mut at, mut zipped, mut taken) = (range.0, Vec::new(), 0);
    while let Some(frame) = body.frame().await {
        let frame = match frame {
            Ok(frame) => frame,
            Err(error) => {
                note_cut(plan, &error);
                return false;
            }
        };
        let Some(piece) = frame.data_ref() else {
            let end = frame
                .trailers_ref()
                .and_then(|trailers| trailers.get("x-t"));
            if plan.asked.how != How::Trailers || end.is_some_and(|end| end != "end") {
                findings::wrong(format!("trailers {end:?}: {words}"));
            }
            continue;
        };
        taken += piece.len() as u64;
        if is_zipped && is_judged {
            zipped.extend_from_slice(piece);
        } else if is_judged {
            if let Some(place) = difference(plan.asked.seed, at, piece) {
                findings::wrong(format!("another byte at {place}: {words}"));
                return false;
            }
            at += piece.len() as u64;
        }
        if taken > plan.limit {
            return false;
        }
        if plan.is_slow {
            sleep(Duration::from_millis(3)).await;
        }
    }
    if !is_judged {
        return true;
    }
    if is_zipped {
        let is_right = unzip(&zipped).is_some_and(|text| is_body(plan, range, &text));
        at = if is_right { range.1 } else { range.0 };
    }
    if at == range.1 {
        findings::count("whole");
        findings::count(format!("whole {}", plan.location));
    } else {
        findings::wrong(format!("the end at {at} of {range:?}: {words}"));
    }
    true
}

/// An answer that broke off, as it says.
fn note_cut(plan: &Plan, error: &hyper::Error) {
    if matches!(plan.asked.how, How::Cut | How::Short) {
        findings::count("cut, as it should be");
    } else {
        findings::count(format!("cut: {error}"));
    }
}

fn unzip(bytes: &[u8]) -> Option<Vec<u8>> {
    let mut text = Vec::new();
    GzDecoder::new(bytes).read_to_end(&mut text).ok()?;
    Some(text)
}

fn is_body(plan: &Plan, (first, end): (u64, u64), text: &[u8]) -> bool {
    text.len() as u64 == end - first && difference(plan.asked.seed, first, text).is_none()
}
