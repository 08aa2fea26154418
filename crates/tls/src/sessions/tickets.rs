//! `ssl_session_tickets`: sessions that the client keeps, under keys of a file or keys that change by themselves.
//!
//! A ticket is made as RFC 5077, 4 recommends: the key's name, an IV, AES-CBC, HMAC-SHA-256 over all of it and over the
//! context of the server, so that no other server takes it. Not here: sessions that the server keeps (`cache`).
//! Invariants: nothing is decrypted before its HMAC is right; a ticket is not taken after its time.

use crate::Error;
use crate::keys::ReadFile;
use crate::sessions::Context;
use aws_lc_rs::cipher::{
    AES_128, AES_256, DecryptionContext, EncryptionContext, PaddedBlockDecryptingKey,
    PaddedBlockEncryptingKey, UnboundCipherKey,
};
use aws_lc_rs::{hmac, rand};
use parking_lot::RwLock;
use rustls::server::ProducesTickets;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use zeroize::Zeroizing;

/// Maximum size of a ticket that is looked at, in bytes.
pub const TICKET_BYTES_MAX: usize = 32 * 1024;
/// Maximum of key files.
pub const KEYS_MAX: usize = 64;

/// Maximum that a client may be told to keep a ticket, in seconds: seven days (RFC 8446, 4.6.1).
const LIFETIME_SECONDS_MAX: u32 = 604_800;
const NAME_BYTES: usize = 16;
const IV_BYTES: usize = 16;
const HMAC_BYTES: usize = 32;
/// Sizes of a key file: with AES-128 and with AES-256.
const SHORT_BYTES: usize = 48;
const LONG_BYTES: usize = 80;

/// One key.
struct Key {
    name: [u8; NAME_BYTES],
    aes: Zeroizing<Vec<u8>>,
    hmac: hmac::Key,
}

/// Keys for tickets.
#[derive(Debug)]
pub struct Tickets {
    keys: Keys,
    timeout: Duration,
}

enum Keys {
    /// Of files: the first one encrypts.
    Fixed(Vec<Key>),
    /// Random ones: the first one encrypts for a timeout, and the one before it decrypts for another.
    Changing(RwLock<Changing>),
}

struct Changing {
    keys: VecDeque<Key>,
    made: Instant,
}

impl std::fmt::Debug for Keys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Fixed(_) => "keys of files",
            Self::Changing(_) => "random keys",
        })
    }
}

impl Tickets {
    /// Keys of `ssl_session_ticket_key` files, 48 or 80 bytes each: the first one encrypts, all decrypt.
    ///
    /// # Errors
    /// A file that cannot be read, or of another size.
    pub fn of_files(paths: &[&str], file: ReadFile<'_>, timeout: Duration) -> Result<Self, Error> {
        let keys = paths.iter().take(KEYS_MAX).map(|path| {
            let bytes = file(path).map_err(|error| Error::file("open", path, &error))?;
            let bytes = Zeroizing::new(bytes);
            Key::read(&bytes).ok_or_else(|| Error::TicketKeySize((*path).to_owned()))
        });
        let keys = Keys::Fixed(keys.collect::<Result<_, _>>()?);
        Ok(Self { keys, timeout })
    }

    /// Random keys that change once in `timeout`.
    ///
    /// # Errors
    /// The system gives no random bytes.
    pub fn random(timeout: Duration) -> Result<Self, Error> {
        let key = Key::random().ok_or_else(|| Error::Library("no random bytes".to_owned()))?;
        let changing = Changing {
            keys: VecDeque::from([key]),
            made: Instant::now(),
        };
        let keys = Keys::Changing(RwLock::new(changing));
        Ok(Self { keys, timeout })
    }

    fn encrypt(&self, context: &Context, plain: &[u8], now: Instant) -> Option<Vec<u8>> {
        let stamped = Zeroizing::new([&unix_seconds().to_be_bytes(), plain].concat());
        match &self.keys {
            Keys::Fixed(keys) => keys.first()?.encrypt(context, &stamped),
            Keys::Changing(changing) => {
                change(changing, self.timeout, now);
                changing.read().keys.front()?.encrypt(context, &stamped)
            }
        }
    }

    fn decrypt(&self, context: &Context, ticket: &[u8], now: Instant) -> Option<Vec<u8>> {
        if ticket.len() > TICKET_BYTES_MAX {
            return None;
        }
        let stamped = match &self.keys {
            Keys::Fixed(keys) => decrypt(keys.iter(), context, ticket)?,
            Keys::Changing(changing) => {
                change(changing, self.timeout, now);
                decrypt(changing.read().keys.iter(), context, ticket)?
            }
        };
        let (stamp, plain) = stamped.split_first_chunk::<8>()?;
        let age = unix_seconds().checked_sub(u64::from_be_bytes(*stamp))?;
        (age <= self.timeout.as_secs()).then(|| plain.to_vec())
    }
}

/// Makes a new key where the first one is too old.
fn change(changing: &RwLock<Changing>, timeout: Duration, now: Instant) {
    let age = |changing: &Changing| now.saturating_duration_since(changing.made);
    if age(&changing.read()) <= timeout {
        return;
    }
    let mut changing = changing.write();
    let age = age(&changing);
    if age <= timeout {
        return;
    }
    let Some(key) = Key::random() else {
        return;
    };
    if age > 2 * timeout {
        changing.keys.clear();
    }
    changing.keys.push_front(key);
    changing.keys.truncate(2);
    changing.made = now;
}

fn decrypt<'a>(
    mut keys: impl Iterator<Item = &'a Key>,
    context: &Context,
    ticket: &[u8],
) -> Option<Zeroizing<Vec<u8>>> {
    let (name, _) = ticket.split_first_chunk::<NAME_BYTES>()?;
    keys.find(|key| key.name == *name)?.decrypt(context, ticket)
}

fn unix_seconds() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs())
}

impl Key {
    /// Of a file's bytes; their order is nginx's.
    fn read(bytes: &[u8]) -> Option<Self> {
        let (aes, hmac) = match bytes.len() {
            SHORT_BYTES => (&bytes[16..32], &bytes[32..]),
            LONG_BYTES => (&bytes[48..], &bytes[16..48]),
            _ => return None,
        };
        Some(Self {
            name: *bytes.first_chunk()?,
            aes: Zeroizing::new(aes.to_vec()),
            hmac: hmac::Key::new(hmac::HMAC_SHA256, hmac),
        })
    }

    fn random() -> Option<Self> {
        let mut bytes = Zeroizing::new([0; LONG_BYTES]);
        rand::fill(&mut bytes[..]).ok()?;
        Self::read(&bytes[..])
    }

    fn cipher(&self) -> Option<UnboundCipherKey> {
        let algorithm = if self.aes.len() == 16 {
            &AES_128
        } else {
            &AES_256
        };
        UnboundCipherKey::new(algorithm, &self.aes).ok()
    }

    fn mac(&self, context: &Context, sealed: &[u8]) -> hmac::Context {
        let mut mac = hmac::Context::with_key(&self.hmac);
        mac.update(context);
        mac.update(sealed);
        mac
    }

    fn encrypt(&self, context: &Context, plain: &[u8]) -> Option<Vec<u8>> {
        let mut iv = [0; IV_BYTES];
        rand::fill(&mut iv).ok()?;
        let mut encrypted = plain.to_vec();
        PaddedBlockEncryptingKey::cbc_pkcs7(self.cipher()?)
            .ok()?
            .less_safe_encrypt(&mut encrypted, EncryptionContext::Iv128(iv.into()))
            .ok()?;
        let mut ticket = [&self.name[..], &iv, &encrypted].concat();
        let tag = self.mac(context, &ticket).sign();
        ticket.extend_from_slice(tag.as_ref());
        Some(ticket)
    }

    fn decrypt(&self, context: &Context, ticket: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
        let (sealed, tag) = ticket.split_last_chunk::<HMAC_BYTES>()?;
        let expected = self.mac(context, sealed).sign();
        let is_right: bool = subtle::ConstantTimeEq::ct_eq(expected.as_ref(), &tag[..]).into();
        if !is_right {
            return None;
        }
        let (iv, encrypted) = sealed.get(NAME_BYTES..)?.split_first_chunk::<IV_BYTES>()?;
        let mut plain = Zeroizing::new(encrypted.to_vec());
        let length = PaddedBlockDecryptingKey::cbc_pkcs7(self.cipher()?)
            .ok()?
            .decrypt(&mut plain, DecryptionContext::Iv128((*iv).into()))
            .ok()?
            .len();
        plain.truncate(length);
        Some(plain)
    }
}

/// Keys as one server uses them: tickets of its own context.
#[derive(Debug)]
pub(crate) struct InContext {
    pub(crate) tickets: Arc<Tickets>,
    pub(crate) context: Context,
}

impl ProducesTickets for InContext {
    fn enabled(&self) -> bool {
        true
    }

    fn lifetime(&self) -> u32 {
        let seconds = u32::try_from(self.tickets.timeout.as_secs());
        seconds.map_or(LIFETIME_SECONDS_MAX, |seconds| {
            seconds.min(LIFETIME_SECONDS_MAX)
        })
    }

    fn encrypt(&self, plain: &[u8]) -> Option<Vec<u8>> {
        self.tickets.encrypt(&self.context, plain, Instant::now())
    }

    fn decrypt(&self, ticket: &[u8]) -> Option<Vec<u8>> {
        self.tickets.decrypt(&self.context, ticket, Instant::now())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONTEXT: Context = [7; 32];
    const MINUTE: Duration = Duration::from_secs(60);

    fn of(files: &'static [&'static [u8]]) -> Tickets {
        let names: Vec<String> = (0..files.len()).map(|at| at.to_string()).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let file = |name: &str| Ok(files[name.parse::<usize>().unwrap()].to_vec());
        Tickets::of_files(&names, &file, MINUTE).unwrap()
    }

    #[test]
    fn the_first_key_encrypts_and_all_decrypt() {
        let now = Instant::now();
        let old = of(&[&[1; 48]]);
        let both = of(&[&[2; 80], &[1; 48]]);
        let ticket = old.encrypt(&CONTEXT, b"secret", now).unwrap();
        assert_eq!(both.decrypt(&CONTEXT, &ticket, now).unwrap(), b"secret");
        let ticket = both.encrypt(&CONTEXT, b"secret", now).unwrap();
        assert_eq!(old.decrypt(&CONTEXT, &ticket, now), None);
        assert!(!ticket.windows(6).any(|part| part == b"secret"));
    }

    #[test]
    fn other_contexts_and_changed_tickets_are_refused() {
        let now = Instant::now();
        let tickets = of(&[&[1; 48]]);
        let ticket = tickets.encrypt(&CONTEXT, b"secret", now).unwrap();
        assert_eq!(tickets.decrypt(&[8; 32], &ticket, now), None);
        for at in 0..ticket.len() {
            let mut changed = ticket.clone();
            changed[at] ^= 1;
            assert_eq!(tickets.decrypt(&CONTEXT, &changed, now), None, "{at}");
            assert_eq!(tickets.decrypt(&CONTEXT, &ticket[..at], now), None, "{at}");
        }
    }

    #[test]
    fn random_keys_change() {
        let tickets = Tickets::random(MINUTE).unwrap();
        let now = Instant::now();
        let ticket = tickets.encrypt(&CONTEXT, b"a", now).unwrap();
        let is_taken = |seconds| {
            let then = now + Duration::from_secs(seconds);
            tickets.decrypt(&CONTEXT, &ticket, then).is_some()
        };
        assert!(is_taken(0) && is_taken(61) && is_taken(121));
        assert!(!is_taken(182));
    }

    #[test]
    fn files_have_two_sizes() {
        let file = |_: &str| Ok(vec![0; 47]);
        let error = Tickets::of_files(&["a"], &file, MINUTE).unwrap_err();
        assert_eq!(error.to_string(), "\"a\" must be 48 or 80 bytes");
    }
}
