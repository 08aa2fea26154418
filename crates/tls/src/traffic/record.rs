//! Protected records (RFC 8446, 5.2; RFC 5246, 6.2.3, RFC 5288, RFC 7905): sealing into and opening in a caller's buffer.
//!
//! Keys come out of a finished handshake, as they would for a kernel that encrypts. Not here: what records hold.
//! Invariants: a sequence number is used once; nothing of a record is shown before its tag is right.

use aws_lc_rs::aead::{
    AES_128_GCM, AES_256_GCM, Aad, Algorithm, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce,
    UnboundKey,
};
use rustls::ConnectionTrafficSecrets;
use std::ops::Range;

/// Bytes of a record's header.
pub const HEADER_BYTES: usize = 5;
/// Maximum of bytes in clear of a record (RFC 8446, 5.1).
pub const PLAIN_BYTES_MAX: usize = 16_384;
/// Maximum of bytes behind a record's header (RFC 5246, 6.2.3; less in TLS 1.3).
pub const SEALED_BYTES_MAX: usize = PLAIN_BYTES_MAX + 2048;
/// Maximum of bytes that a record costs beside its contents.
pub const OVERHEAD_BYTES_MAX: usize = HEADER_BYTES + EXPLICIT_BYTES + TAG_BYTES;

const TAG_BYTES: usize = 16;
/// The part of a nonce that AES-GCM sends along in TLS 1.2.
const EXPLICIT_BYTES: usize = 8;
const VERSION: [u8; 2] = [3, 3];

/// The type of a record's contents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Content {
    ChangeCipherSpec,
    Alert,
    Handshake,
    Data,
}

impl Content {
    pub(crate) fn of(byte: u8) -> Option<Self> {
        match byte {
            20 => Some(Self::ChangeCipherSpec),
            21 => Some(Self::Alert),
            22 => Some(Self::Handshake),
            23 => Some(Self::Data),
            _ => None,
        }
    }

    fn byte(self) -> u8 {
        match self {
            Self::ChangeCipherSpec => 20,
            Self::Alert => 21,
            Self::Handshake => 22,
            Self::Data => 23,
        }
    }
}

/// How nonces and additional data are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    /// TLS 1.3: the contents' type is sealed, too.
    Newer,
    /// TLS 1.2, with a part of the nonce in the record.
    Explicit,
    /// TLS 1.2 with ChaCha20.
    Implicit,
}

/// The key of one direction.
pub(crate) struct RecordKey {
    key: LessSafeKey,
    iv: [u8; NONCE_LEN],
    sequence: u64,
    form: Form,
}

/// Why a record cannot be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Broken {
    /// Its tag is wrong, or there is no room for one.
    Tag,
    /// It is longer than may be.
    Length,
    /// Its type is none, or one that comes in clear.
    Type,
    /// All sequence numbers are used.
    Exhausted,
}

impl RecordKey {
    /// The key that a handshake gave; `None` if the library refuses it.
    pub(crate) fn new(
        sequence: u64,
        secrets: &ConnectionTrafficSecrets,
        is_tls13: bool,
    ) -> Option<Self> {
        let (algorithm, key, iv): (&'static Algorithm, _, _) = match secrets {
            ConnectionTrafficSecrets::Aes128Gcm { key, iv } => (&AES_128_GCM, key, iv),
            ConnectionTrafficSecrets::Aes256Gcm { key, iv } => (&AES_256_GCM, key, iv),
            ConnectionTrafficSecrets::Chacha20Poly1305 { key, iv } => (&CHACHA20_POLY1305, key, iv),
            _ => return None,
        };
        let form = match secrets {
            _ if is_tls13 => Form::Newer,
            ConnectionTrafficSecrets::Chacha20Poly1305 { .. } => Form::Implicit,
            _ => Form::Explicit,
        };
        Some(Self {
            key: LessSafeKey::new(UnboundKey::new(algorithm, key.as_ref()).ok()?),
            iv: iv.as_ref().try_into().ok()?,
            sequence,
            form,
        })
    }

    /// How many records it has sealed or opened.
    pub(crate) fn sequence(&self) -> u64 {
        self.sequence
    }

    fn nonce(&self) -> [u8; NONCE_LEN] {
        let mut nonce = self.iv;
        for (byte, number) in nonce[4..].iter_mut().zip(self.sequence.to_be_bytes()) {
            *byte ^= number;
        }
        nonce
    }

    /// Appends one record with all of `parts`, at most [`PLAIN_BYTES_MAX`] together, to `out`.
    pub(crate) fn seal(
        &mut self,
        content: Content,
        parts: &[&[u8]],
        out: &mut Vec<u8>,
    ) -> Result<(), Broken> {
        let length: usize = parts.iter().map(|part| part.len()).sum();
        let following = self.sequence.checked_add(1).ok_or(Broken::Exhausted)?;
        let nonce = self.nonce();
        let extra = match self.form {
            Form::Newer => 1,
            Form::Explicit => EXPLICIT_BYTES,
            Form::Implicit => 0,
        };
        let sealed = length + extra + TAG_BYTES;
        let shown = if self.form == Form::Newer {
            Content::Data
        } else {
            content
        };
        let header = header(shown, sealed);
        out.reserve(HEADER_BYTES + sealed);
        out.extend_from_slice(&header);
        if self.form == Form::Explicit {
            out.extend_from_slice(&nonce[4..]);
        }
        let begin = out.len();
        for part in parts {
            out.extend_from_slice(part);
        }
        if self.form == Form::Newer {
            out.push(content.byte());
        }
        let nonce = Nonce::assume_unique_for_key(nonce);
        let plain = &mut out[begin..];
        let tag = if self.form == Form::Newer {
            self.key
                .seal_in_place_separate_tag(nonce, Aad::from(header), plain)
        } else {
            let additional = Aad::from(self.additional(content, length));
            self.key
                .seal_in_place_separate_tag(nonce, additional, plain)
        };
        out.extend_from_slice(tag.map_err(|_| Broken::Length)?.as_ref());
        self.sequence = following;
        Ok(())
    }

    /// What TLS 1.2 authenticates beside the contents (RFC 5246, 6.2.3.3).
    fn additional(&self, content: Content, length: usize) -> [u8; 13] {
        let mut bytes = [0; 13];
        bytes[..8].copy_from_slice(&self.sequence.to_be_bytes());
        bytes[8..].copy_from_slice(&header(content, length));
        bytes
    }

    /// Opens a record in place; says its type and where its contents lie now.
    pub(crate) fn open(&mut self, record: &mut [u8]) -> Result<(Content, Range<usize>), Broken> {
        let following = self.sequence.checked_add(1).ok_or(Broken::Exhausted)?;
        let (header, _) = record
            .split_first_chunk::<HEADER_BYTES>()
            .ok_or(Broken::Length)?;
        let header = *header;
        let content = Content::of(header[0]).ok_or(Broken::Type)?;
        let (begin, mut nonce) = (self.begin(), self.nonce());
        let length = record
            .len()
            .checked_sub(begin + TAG_BYTES)
            .ok_or(Broken::Tag)?;
        if self.form == Form::Explicit {
            nonce[4..].copy_from_slice(&record[HEADER_BYTES..begin]);
        }
        let nonce = Nonce::assume_unique_for_key(nonce);
        let sealed = &mut record[begin..];
        let opened = if self.form == Form::Newer {
            if content != Content::Data {
                return Err(Broken::Type);
            }
            self.key.open_in_place(nonce, Aad::from(header), sealed)
        } else {
            let additional = Aad::from(self.additional(content, length));
            self.key.open_in_place(nonce, additional, sealed)
        };
        let plain = opened.map_err(|_| Broken::Tag)?;
        let (content, length) = match self.form {
            Form::Newer => unpadded(plain)?,
            Form::Explicit | Form::Implicit => (content, plain.len()),
        };
        if length > PLAIN_BYTES_MAX {
            return Err(Broken::Length);
        }
        self.sequence = following;
        Ok((content, begin..begin + length))
    }

    /// Where a record's sealed contents begin.
    fn begin(&self) -> usize {
        match self.form {
            Form::Explicit => HEADER_BYTES + EXPLICIT_BYTES,
            Form::Newer | Form::Implicit => HEADER_BYTES,
        }
    }
}

fn header(content: Content, length: usize) -> [u8; HEADER_BYTES] {
    let [high, low] = (length as u16).to_be_bytes();
    [content.byte(), VERSION[0], VERSION[1], high, low]
}

/// The inner type of a record of TLS 1.3, and the length of what stands before it.
fn unpadded(plain: &[u8]) -> Result<(Content, usize), Broken> {
    let at = plain
        .iter()
        .rposition(|byte| *byte != 0)
        .ok_or(Broken::Type)?;
    let content = Content::of(plain[at]).ok_or(Broken::Type)?;
    Ok((content, at))
}

/// The length of the record that `bytes` begin with, header included; `None` if it is not whole.
pub(crate) fn whole(bytes: &[u8]) -> Result<Option<usize>, Broken> {
    let Some(header) = bytes.get(..HEADER_BYTES) else {
        return Ok(None);
    };
    let length = usize::from(u16::from_be_bytes([header[3], header[4]]));
    if header[1] != 3 {
        return Err(Broken::Type);
    }
    if length > SEALED_BYTES_MAX {
        return Err(Broken::Length);
    }
    let end = HEADER_BYTES + length;
    Ok((bytes.len() >= end).then_some(end))
}
