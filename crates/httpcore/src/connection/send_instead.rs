//! The rest of a file's range from elsewhere, where its disk fails in the middle of a response
//! ([`Request::successor`]).
//!
//! Not here: where it comes from. Invariant: what was sent of the range is not sent again, and nothing is sent while a
//! thread may still send for the disk ([`disk::Error::Held`]).

use std::rc::Rc;

use disk::OpenFile;
use message::{BodyError, Chunk, FileRange};
use wire::turn;

use crate::files;
use crate::request::Request;

use super::send::{Delivery, send_bytes};
use super::send_error::Stop;
use super::send_file::send_from_disk;
use super::send_stream::next_piece;

/// Whether the rest of this file is to come from elsewhere.
pub(super) fn is_due(request: &Request, file: &Rc<OpenFile>, error: &disk::Error) -> bool {
    let is_client_s = matches!(error, disk::Error::Socket(_) | disk::Error::Held(_));
    !is_client_s && request.successor(file).is_some()
}

/// Sends the rest of a range. Where it cannot be had elsewhere, and the disk was only slow, it is waited for as any other.
pub(super) async fn send_instead(
    request: &mut Request,
    mut range: FileRange<Rc<OpenFile>>,
    delivery: Delivery,
    error: disk::Error,
) -> Result<(), Stop> {
    let Some(successor) = request.successor(&range.file) else {
        return Err(Stop::Disk(error, range.file));
    };
    let rest = successor(request.stand_in(), range.clone(), error.to_string()).await;
    let Some(mut body) = rest else {
        let is_out = range.file.disk_health().is_some_and(|disk| disk.is_out());
        if is_out || !matches!(error, disk::Error::Late(_)) {
            return Err(Stop::Disk(error, range.file));
        }
        let limit = files::disk_limit(request);
        return send_from_disk(request, &mut range, delivery, limit).await;
    };
    let mut left = range.len;
    while left > 0 {
        let Some(chunk) = next_piece(request, delivery, &mut body).await? else {
            return Err(Stop::Body(BodyError::Truncated));
        };
        let chunk = chunk.map_err(Stop::Body)?;
        let Chunk::Bytes(bytes) = chunk.slice(0, chunk.len().min(left)) else {
            return Err(Stop::Body(BodyError::Truncated));
        };
        left -= bytes.len() as u64;
        send_bytes(request, bytes, delivery).await?;
        turn::go_on().await;
    }
    Ok(())
}
