//! What an origin says to a request, whatever is spoken.

use crate::asked::{Asked, How, VERSION, VERSIONS, part};
use std::time::Duration;
use tokio::time::sleep;

/// `Last-Modified` of all bodies.
const CHANGED: &str = "Tue, 14 Nov 2023 22:13:20 GMT";
/// The longest wait of `Late`: a body of 48 slices, each of which is late, ends in half a minute all the same.
const LATE_MS: u64 = 600;
/// Of one piece, in bytes.
const PIECE: usize = 33_000;

/// What counts of a request.
#[derive(Debug, Default)]
pub struct Request<'a> {
    /// The value of `Range`.
    pub range: Option<&'a str>,
    /// The value of `If-None-Match`.
    pub tag: Option<&'a str>,
    /// The value of `X-Kind`.
    pub kind: Option<&'a str>,
    /// Whether the protocol has `Connection`.
    pub has_connections: bool,
}

/// An answer.
#[derive(Debug)]
pub struct Answer {
    /// The status.
    pub status: u16,
    /// The fields, without those of the framing.
    pub fields: Vec<(&'static str, String)>,
    /// Where the body begins and ends.
    pub range: (u64, u64),
    /// Whether the head says the length.
    pub has_length: bool,
    /// Where it breaks off.
    pub cut: Option<u64>,
    /// Between pieces.
    pub pause: Duration,
    /// Whether trailers come behind it.
    pub has_trailers: bool,
    seed: u64,
}

/// Waits as long as the answer is to wait. None: there is none, and the connection or stream breaks off.
pub async fn answer(asked: &Asked, request: &Request<'_>) -> Option<Answer> {
    match asked.how {
        How::Gone => return None,
        How::Sometimes if fastrand::bool() => return None,
        How::Late => sleep(Duration::from_millis(fastrand::u64(..LATE_MS))).await,
        _ => {}
    }
    let version = match asked.how {
        How::Changing => fastrand::u64(..VERSIONS),
        How::Varied => request.kind.and_then(|kind| kind.parse().ok()).unwrap_or(0),
        _ => 0,
    };
    let tag = format!("\"{}-{}-{version}\"", asked.size, asked.seed);
    let life = match asked.how {
        How::Stale => "max-age=0, stale-while-revalidate=5, stale-if-error=5".to_owned(),
        How::Fresh => "max-age=30".to_owned(),
        _ => format!("max-age={}", fastrand::u8(..3)),
    };
    let mut answer = Answer {
        status: 200,
        fields: vec![
            ("X-How", asked.path()),
            (VERSION, version.to_string()),
            ("Content-Type", "text/html".to_owned()),
            ("ETag", tag.clone()),
            ("Cache-Control", life),
            ("Last-Modified", CHANGED.to_owned()),
        ],
        range: (0, asked.size),
        has_length: true,
        cut: None,
        pause: Duration::ZERO,
        has_trailers: false,
        seed: asked.seed_of(version),
    };
    if asked.how == How::Varied {
        answer.fields.push(("Vary", "X-Kind".to_owned()));
    }
    if request.tag == Some(&tag) && fastrand::u8(..3) > 0 {
        answer.status = 304;
        answer.range = (0, 0);
        answer.has_length = false;
        return Some(answer);
    }
    if let Some(range) = request.range {
        answer.choose(range, asked.size);
    }
    answer.behave(asked.how, request.has_connections);
    Some(answer)
}

impl Answer {
    /// The part that a `Range` with one range asks for; 416 where there is none.
    fn choose(&mut self, range: &str, size: u64) {
        let Some((first, last)) = range.strip_prefix("bytes=").and_then(|r| r.split_once('-'))
        else {
            return;
        };
        let Ok(first) = first.parse::<u64>() else {
            return;
        };
        if first >= size {
            self.status = 416;
            self.fields
                .push(("Content-Range", format!("bytes */{size}")));
            self.range = (0, 0);
            return;
        }
        let end = last.parse().map_or(size, |last: u64| size.min(last + 1));
        self.status = 206;
        let said = format!("bytes {first}-{}/{size}", end - 1);
        self.fields.push(("Content-Range", said));
        self.range = (first, end);
    }

    fn behave(&mut self, how: How, has_connections: bool) {
        let somewhere = fastrand::u64(self.range.0..=self.range.1);
        match how {
            How::Chunked => self.has_length = false,
            How::Cut => (self.has_length, self.cut) = (false, Some(somewhere)),
            How::Short if somewhere < self.range.1 => self.cut = Some(somewhere),
            How::Slow => {
                self.has_length = fastrand::bool();
                self.pause = Duration::from_millis(fastrand::u64(1..20));
            }
            How::Failed if self.status == 200 => self.status = 500,
            How::Trailers => (self.has_length, self.has_trailers) = (false, true),
            How::Close if has_connections => {
                self.has_length = fastrand::bool();
                self.fields.push(("Connection", "close".to_owned()));
            }
            _ => {}
        }
    }

    /// The next piece of the body behind `at`; none: the end, or where it breaks off.
    pub fn piece(&self, at: u64) -> Option<&'static [u8]> {
        let end = self.cut.unwrap_or(self.range.1);
        let most = usize::try_from(end - at).unwrap_or(PIECE).min(PIECE);
        (most > 0).then(|| part(self.seed, at, fastrand::usize(1..=most).max(most.min(500))))
    }

    /// Between two pieces, now and then.
    pub async fn rest(&self) {
        if !self.pause.is_zero() {
            sleep(self.pause).await;
        } else if fastrand::u8(..50) == 0 {
            tokio::task::yield_now().await;
        }
    }

    /// Before it breaks off, every other time, so that what was sent arrives.
    pub async fn linger() {
        if fastrand::bool() {
            sleep(Duration::from_millis(fastrand::u64(..30))).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_range_is_that_part_of_the_body() {
        let asked = Asked::parse("/fresh/1000/3").expect("a path");
        let request = Request {
            range: Some("bytes=100-299"),
            ..Request::default()
        };
        let answer = answer(&asked, &request).await.expect("an answer");
        assert_eq!((answer.status, answer.range), (206, (100, 300)));
        let (mut at, mut body) = (100, Vec::new());
        while let Some(piece) = answer.piece(at) {
            body.extend_from_slice(piece);
            at += piece.len() as u64;
        }
        assert_eq!(body, part(3, 100, 200));
    }
}
