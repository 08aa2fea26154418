//! Passwords that were found correct a short while ago, so that they are not checked again for each request.
//!
//! No password is kept, only a keyed hash of name, password and stored form; its key never leaves the process. Since
//! the stored form is part of the hash, nothing has to be invalidated when a file changes. All loops share one list: it
//! is used only where `auth_basic` is on. Invariant: at most [`PROOFS_MAX`] entries, each kept for [`KEPT_MS`] after
//! its last use.

use std::sync::LazyLock;

use hashbrown::HashMap;
use parking_lot::Mutex;
use sha2::{Digest, Sha256};

/// Maximum proofs that are remembered.
const PROOFS_MAX: usize = 4096;
/// Milliseconds that a proof is remembered after its last use.
const KEPT_MS: u64 = 60_000;

/// Proof that a user's password fits its stored form.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Proof([u8; 32]);

static KEY: LazyLock<[u8; 32]> = LazyLock::new(|| {
    let mut key = [0; 32];
    // getrandom(2): up to 256 bytes come complete, and the call waits only before the kernel's random source is
    // initialized.
    rustix::rand::getrandom(&mut key, rustix::rand::GetRandomFlags::empty())
        .expect("the kernel gives 32 random bytes");
    key
});

/// The proofs, each with the time of its last use, in milliseconds.
static KNOWN: LazyLock<Mutex<HashMap<Proof, u64>>> = LazyLock::new(Mutex::default);

impl Proof {
    /// The proof for these three together.
    #[must_use]
    pub(super) fn of(user: &[u8], password: &[u8], stored: &[u8]) -> Self {
        let mut hash = Sha256::new().chain_update(*KEY);
        for part in [user, password, stored] {
            hash.update((part.len() as u64).to_le_bytes());
            hash.update(part);
        }
        Self(hash.finalize().into())
    }
}

/// Whether the proof was made a short while ago; renews it if so.
pub(super) fn is_known(proof: &Proof, now_ms: u64) -> bool {
    let mut known = KNOWN.lock();
    match known.get_mut(proof) {
        Some(used) if is_fresh(*used, now_ms) => {
            *used = now_ms;
            true
        }
        _ => false,
    }
}

/// Remembers a proof.
pub(super) fn remember(proof: Proof, now_ms: u64) {
    put(&mut KNOWN.lock(), proof, now_ms);
}

fn is_fresh(used: u64, now_ms: u64) -> bool {
    now_ms.saturating_sub(used) < KEPT_MS
}

fn put(known: &mut HashMap<Proof, u64>, proof: Proof, now_ms: u64) {
    if known.len() >= PROOFS_MAX {
        known.retain(|_, used| is_fresh(*used, now_ms));
    }
    if known.len() >= PROOFS_MAX {
        let oldest = known.iter().min_by_key(|(_, used)| **used);
        if let Some(oldest) = oldest.map(|(proof, _)| *proof) {
            known.remove(&oldest);
        }
    }
    known.insert(proof, now_ms);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_counts() {
        let proof = Proof::of(b"ab", b"c", b"d");
        assert_eq!(proof, Proof::of(b"ab", b"c", b"d"));
        assert_ne!(proof, Proof::of(b"a", b"bc", b"d"));
        assert_ne!(proof, Proof::of(b"ab", b"c", b"e"));
    }

    #[test]
    fn proofs_are_forgotten() {
        let proof = Proof::of(b"user of this test", b"c", b"d");
        assert!(!is_known(&proof, 0));
        remember(proof, 0);
        assert!(is_known(&proof, KEPT_MS - 1));
        assert!(is_known(&proof, 2 * KEPT_MS - 2), "used meanwhile");
        assert!(!is_known(&proof, 4 * KEPT_MS));
    }

    #[test]
    fn there_are_never_too_many() {
        let mut known = HashMap::new();
        let of = |number: usize| Proof::of(b"user", &number.to_le_bytes(), b"d");
        for number in 0..PROOFS_MAX + 10 {
            put(&mut known, of(number), number as u64);
        }
        assert_eq!(known.len(), PROOFS_MAX);
        assert!(!known.contains_key(&of(9)) && known.contains_key(&of(10)));
        put(&mut known, of(0), u64::MAX);
        assert_eq!(known.len(), 1, "those that were too old have gone");
    }
}
