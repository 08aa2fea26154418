//! Files that are put, taken and deleted by several clients at a time: each says in its first bytes what it is, so that a file that is there is whole.

use crate::asked::{SIZES, whole};
use crate::connect::{Connection, NEVER};
use crate::findings;
use crate::uploads::{AHEAD, Flow, GivenUp};
use bytes::Bytes;
use http_body_util::channel::Sender;
use http_body_util::{BodyExt, Channel};
use hyper::Request;
use hyper::header::CONTENT_LENGTH;
use std::time::Duration;
use tokio::time::{sleep, timeout};

/// Of the beginning, `SEED SIZE` and spaces, in bytes.
const HEAD: usize = 32;
/// Folders, and files in each.
const NAMES: u8 = 5;
/// Sizes of up to a megabyte.
const SIZES_USED: usize = SIZES.len() - 1;
const PIECE: usize = 5000;

/// One request at the location. None: the connection is not to be used again.
pub async fn ask(mut connection: Connection, location: &str) -> Option<Connection> {
    let method = [
        "PUT", "PUT", "PUT", "PUT", "DELETE", "GET", "GET", "GET", "GET", "GET",
    ][fastrand::usize(..10)];
    let path = format!(
        "{location}{}/{}",
        fastrand::u8(..NAMES),
        fastrand::u8(..NAMES)
    );
    let mut head = connection.request(method, &path);
    let (sender, flow) = Channel::new(AHEAD);
    let mut quit = None;
    if method == "PUT" {
        let body = file(fastrand::u64(..1000), SIZES[fastrand::usize(..SIZES_USED)]);
        quit = (fastrand::u8(..3) == 0).then(|| fastrand::usize(..body.len()));
        if fastrand::bool() {
            head = head.header(CONTENT_LENGTH, body.len());
        }
        tokio::spawn(send(sender, body, quit));
    } else {
        drop(sender);
    }
    let request = head.body(flow).ok()?;
    findings::count("asked");
    let patience = if fastrand::u8(..3) == 0 {
        Duration::from_millis(fastrand::u64(..300))
    } else {
        NEVER
    };
    let is_small = connection.is_small;
    let is_read = timeout(
        patience,
        exchange(&mut connection, request, method, quit.is_some()),
    )
    .await;
    if is_read.is_err() && patience == NEVER && !is_small {
        findings::wrong(format!("no end: {method} {path} {:?}", connection.speech));
    }
    (is_read == Ok(true) && connection.is_open()).then_some(connection)
}

/// The content of a file.
fn file(seed: u64, size: u64) -> Vec<u8> {
    let mut body = format!("{:<HEAD$}", format!("{seed} {size}")).into_bytes();
    body.extend_from_slice(&whole(seed, size));
    body
}

/// Whether what has come is all of a file.
fn is_file(body: &[u8]) -> bool {
    let says = || {
        let head = std::str::from_utf8(body.get(..HEAD)?).ok()?;
        let (seed, size) = head.trim_end().split_once(' ')?;
        Some(file(seed.parse().ok()?, size.parse().ok()?))
    };
    says().is_some_and(|file| file == body)
}

async fn send(mut sender: Sender<Bytes, GivenUp>, body: Vec<u8>, quit: Option<usize>) {
    let is_slow = fastrand::u8(..4) == 0;
    for piece in body[..quit.unwrap_or(body.len())].chunks(PIECE) {
        if sender
            .send_data(Bytes::copy_from_slice(piece))
            .await
            .is_err()
        {
            return;
        }
        if is_slow {
            sleep(Duration::from_millis(2)).await;
        }
    }
    if quit.is_some() {
        sender.abort(GivenUp);
    }
}

/// Whether the answer was read to its end.
async fn exchange(
    connection: &mut Connection,
    request: Request<Flow>,
    method: &str,
    is_given_up: bool,
) -> bool {
    let Ok(answer) = connection.send(request).await else {
        return false;
    };
    let status = answer.status().as_u16();
    findings::count(format!("{method} {status}"));
    if is_given_up && status < 300 {
        findings::wrong(format!("a PUT that was given up is answered by {status}"));
    }
    let Ok(body) = answer.into_body().collect().await else {
        return false;
    };
    let body = body.to_bytes();
    if method == "GET" && status == 200 && !is_file(&body) {
        let begin = String::from_utf8_lossy(&body[..HEAD.min(body.len())]).into_owned();
        findings::wrong(format!(
            "a file that is not whole: {} bytes, {begin:?}",
            body.len()
        ));
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_says_whether_it_is_whole() {
        let body = file(3, 1000);
        assert!(is_file(&body));
        assert!(!is_file(&body[..700]));
        assert!(!is_file(&[&body[..], b"x"].concat()));
        assert!(!is_file(b""));
    }
}
