//! Whether a small file is sent by its pages, or its bytes are read and sent.
//!
//! Not here: what is in memory (`disk`), and the sending (`connection`).

use disk::OpenFile;

use crate::request::Request;
use crate::settings::Location;

/// Maximum size of a file that is read into memory and sent with the head rather than with `sendfile`, in bytes.
pub const TOGETHER_MAX: u64 = 64 << 10;

/// Bytes from which the pages of a file are sent all the same, where they are known to be in memory without a read: to read
/// 40 KiB and to write them costs nearly twice as much.
const PAGED_MIN: u64 = 20 << 10;

/// Are the pages of a part of a file sent, rather than its bytes, though it is small? (After a packet with the head alone: with
/// it in the same one, pages that begin anywhere would need another packet for the last of sixteen.) If it cannot be told
/// that they are in memory, that is prepared for the next use.
pub fn goes_by_page(request: &Request, file: &OpenFile, offset: u64, len: u64) -> bool {
    let location = request.location();
    let goes = is_sent_by_page(request, location, file, offset, len);
    if !goes && may_go_by_page(request, location, len) {
        request.client.loop_.disk.prepare(file, offset);
    }
    goes
}

/// The same for a response of this location; nothing is prepared.
pub(crate) fn is_sent_by_page(
    request: &Request,
    location: &Location,
    file: &OpenFile,
    offset: u64,
    len: u64,
) -> bool {
    let disk = &request.client.loop_.disk;
    let is_present = || file.body().is_none() && disk.is_present(file, offset, len);
    file.has_copy() || may_go_by_page(request, location, len) && is_present()
}

fn may_go_by_page(request: &Request, location: &Location, len: u64) -> bool {
    len >= PAGED_MIN && location.settings.files.sendfile && request.transport.takes_pages()
}
