//! One request of a client, and what comes back.

use crate::asked::{How, VERSION, difference};
use crate::connect::{Connection, NEVER};
use crate::findings;
use crate::plan::Plan;
use flate2::read::GzDecoder;
use http_body_util::BodyExt;
use hyper::Response;
use hyper::body::Incoming;
use hyper::header::{CONTENT_ENCODING, CONTENT_RANGE};
use std::io::Read;
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout};

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

/// What the body of an answer has to be.
struct Wanted<'a> {
    seed: u64,
    /// First byte, and the one behind the last.
    range: (u64, u64),
    /// Whether the body is looked at.
    is_judged: bool,
    is_zipped: bool,
    /// Of a finding.
    words: &'a str,
}

impl Wanted<'_> {
    fn is(&self, text: &[u8]) -> bool {
        let (first, end) = self.range;
        text.len() as u64 == end - first && difference(self.seed, first, text).is_none()
    }
}

/// Whether the answer was read to its end.
async fn judge(plan: &Plan, answer: Response<Incoming>, place: &str) -> bool {
    let status = answer.status().as_u16();
    findings::count(format!("status {status}"));
    let fields = answer.headers();
    let text = |name: &str| fields.get(name).and_then(|value| value.to_str().ok());
    let is_body = matches!(status, 200 | 206) || status == 500 && fields.contains_key("x-how");
    let mut range = (0, plan.asked.size);
    if status == 206 {
        let said = text(CONTENT_RANGE.as_str());
        let Some((first, end, size)) = said.and_then(content_range) else {
            findings::wrong(format!("Content-Range {said:?}: {place}"));
            return false;
        };
        if size != plan.asked.size {
            findings::wrong(format!("Content-Range {said:?}: {place}"));
        }
        range = (first, end);
    }
    let words = format!("{place}: {status} {:?}", text("x-cache"));
    // Files have none.
    let version = text(VERSION).and_then(|version| version.parse().ok());
    if is_body && plan.asked.how == How::Varied && version != Some(plan.kind) {
        findings::wrong(format!("the body of kind {version:?}: {words}"));
    }
    let wanted = Wanted {
        seed: plan.asked.seed_of(version.unwrap_or(0)),
        range,
        is_judged: is_body && plan.method != "HEAD",
        is_zipped: fields.contains_key(CONTENT_ENCODING),
        words: &words,
    };
    read(plan, answer.into_body(), &wanted).await
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

async fn read(plan: &Plan, mut body: Incoming, wanted: &Wanted<'_>) -> bool {
    let Wanted {
        range,
        is_judged,
        is_zipped,
        words,
        ..
    } = *wanted;
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
            if let Some(place) = difference(wanted.seed, at, piece) {
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
        let is_right = unzip(&zipped).is_some_and(|text| wanted.is(&text));
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
