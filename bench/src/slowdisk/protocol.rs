//! The few messages of FUSE that one file needs: bytes to calls, replies to bytes.

use nix::mount::{MsFlags, mount as mount_at};
use std::fs::File;
use std::os::fd::AsRawFd;

const IN_HEAD: usize = 40;
const OUT_HEAD: usize = 16;
const BLOCK: u32 = 4096;
const ROOT: u64 = 1;
/// FUSE_ASYNC_READ, FUSE_BIG_WRITES, FUSE_ASYNC_DIO, FUSE_MAX_PAGES.
const FLAGS: u32 = 1 | 1 << 5 | 1 << 15 | 1 << 22;
const MAX_WRITE: u32 = 1 << 20;
const MAX_PAGES: u16 = 256;
const MAX_BACKGROUND: u16 = 512;

/// What the kernel asks for.
pub enum Call<'a> {
    Init,
    Attributes,
    Open,
    Read {
        offset: u64,
        size: usize,
    },
    Write {
        offset: u64,
        data: &'a [u8],
    },
    /// What was written is to stay.
    Sync,
    /// Flush, release: nothing to do.
    Nothing,
    Other,
}

/// What it is told.
pub enum Reply<'a> {
    Init,
    /// Size in bytes.
    Attributes(u64),
    Opened,
    Data(&'a [u8]),
    Written(u32),
    Done,
    Error(i32),
}

/// Mounts the file.
pub fn mount(device: &File, point: &str) -> Result<(), String> {
    let options = format!(
        "fd={},rootmode=100600,user_id=0,group_id=0,max_read={MAX_WRITE}",
        device.as_raw_fd()
    );
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
    mount_at(
        Some("slowdisk"),
        point,
        Some("fuse"),
        flags,
        Some(options.as_str()),
    )
    .map_err(|error| format!("mount at {point}: {error}"))
}

/// Identity of a call and the call; none: it wants no answer.
pub fn read(message: &[u8]) -> Option<(u64, Call<'_>)> {
    let word = |at: usize| {
        Some(u32::from_le_bytes(
            message.get(at..at + 4)?.try_into().ok()?,
        ))
    };
    let long = |at: usize| {
        Some(u64::from_le_bytes(
            message.get(at..at + 8)?.try_into().ok()?,
        ))
    };
    let unique = long(8)?;
    let call = match word(4)? {
        // FORGET, INTERRUPT, BATCH_FORGET
        2 | 36 | 42 => return None,
        3 => Call::Attributes,
        14 => Call::Open,
        15 => Call::Read {
            offset: long(IN_HEAD + 8)?,
            size: word(IN_HEAD + 16)? as usize,
        },
        16 => Call::Write {
            offset: long(IN_HEAD + 8)?,
            data: message.get(IN_HEAD + 40..)?,
        },
        20 => Call::Sync,
        // RELEASE, FLUSH, DESTROY
        18 | 25 | 38 => Call::Nothing,
        26 => Call::Init,
        _ => Call::Other,
    };
    Some((unique, call))
}

/// Bytes of a reply.
pub fn write(unique: u64, reply: &Reply<'_>) -> Vec<u8> {
    let mut out = vec![0; OUT_HEAD];
    let mut error = 0;
    match reply {
        Reply::Init => {
            words(&mut out, &[7, 31, 65_536, FLAGS]);
            out.extend_from_slice(&MAX_BACKGROUND.to_le_bytes());
            out.extend_from_slice(&(MAX_BACKGROUND - 1).to_le_bytes());
            words(&mut out, &[MAX_WRITE, 1]);
            out.extend_from_slice(&MAX_PAGES.to_le_bytes());
            out.extend_from_slice(&[0; 34]);
        }
        Reply::Attributes(size) => {
            // How long it may be believed: an hour.
            words(&mut out, &[3600, 0, 0, 0]);
            out.extend_from_slice(&ROOT.to_le_bytes());
            out.extend_from_slice(&size.to_le_bytes());
            out.extend_from_slice(&size.div_ceil(512).to_le_bytes());
            // Times; then mode, links, owners, device, block size.
            out.extend_from_slice(&[0; 36]);
            words(&mut out, &[0o100_600, 1, 0, 0, 0, BLOCK, 0]);
        }
        Reply::Opened => out.extend_from_slice(&[0; 16]),
        Reply::Data(data) => out.extend_from_slice(data),
        Reply::Written(count) => words(&mut out, &[*count, 0]),
        Reply::Done => {}
        Reply::Error(number) => error = -number,
    }
    let length = u32::try_from(out.len()).unwrap_or(0);
    out[..4].copy_from_slice(&length.to_le_bytes());
    out[4..8].copy_from_slice(&error.to_le_bytes());
    out[8..16].copy_from_slice(&unique.to_le_bytes());
    out
}

fn words(out: &mut Vec<u8>, words: &[u32]) {
    words
        .iter()
        .for_each(|word| out.extend_from_slice(&word.to_le_bytes()));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_have_the_lengths_that_the_kernel_wants() {
        for (reply, length) in [
            (Reply::Init, 64),
            (Reply::Attributes(1), 104),
            (Reply::Opened, 16),
            (Reply::Written(3), 8),
            (Reply::Done, 0),
        ] {
            assert_eq!(write(9, &reply).len(), OUT_HEAD + length);
        }
        assert_eq!(
            write(9, &Reply::Error(5))[..16],
            [16, 0, 0, 0, 251, 255, 255, 255, 9, 0, 0, 0, 0, 0, 0, 0]
        );
    }
}
