//! Who holds how much memory: counted by each thread in memory of its own, added up by whoever asks.
//!
//! Invariant: a thread writes only its own account, so that what one takes and another gives back may be less than nothing in one
//! account, but never in the sum of all.

use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering::Relaxed};

/// Who holds memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum Holder {
    /// Copies of small files from 8 KiB on, in memory that `sendfile` takes them from.
    Copies,
    /// Smaller files' bodies.
    Bodies,
    /// What followers of a fetch have not sent yet.
    Windows,
    /// Answers that wait to be written to a cache.
    Fills,
    /// What is read ahead of servers behind this one (`proxy_buffers` and its kin).
    ProxyBuffers,
    /// Buffers that stand in for `sendfile`, and those that are read into.
    Buffers,
    /// Bodies of requests that have been read.
    RequestBodies,
    /// Files that are kept open, without what the kernel has of them.
    Files,
    /// Answers that are ready to be sent.
    Answers,
    /// Connections of clients.
    Connections,
    /// Indexes of caches.
    Index,
}

/// All of them, in the order in which they are shown.
pub const HOLDERS: [Holder; 11] = [
    Holder::Copies,
    Holder::Bodies,
    Holder::Windows,
    Holder::Fills,
    Holder::ProxyBuffers,
    Holder::Buffers,
    Holder::RequestBodies,
    Holder::Files,
    Holder::Answers,
    Holder::Connections,
    Holder::Index,
];

impl Holder {
    /// Its name in figures.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Holder::Copies => "copies",
            Holder::Bodies => "bodies",
            Holder::Windows => "windows",
            Holder::Fills => "fills",
            Holder::ProxyBuffers => "proxy_buffers",
            Holder::Buffers => "buffers",
            Holder::RequestBodies => "request_bodies",
            Holder::Files => "files",
            Holder::Answers => "answers",
            Holder::Connections => "connections",
            Holder::Index => "index",
        }
    }
}

/// Bytes by holder, in the order of [`HOLDERS`].
pub type Held = [u64; HOLDERS.len()];

#[derive(Debug, Default)]
#[repr(align(64))]
struct Account([AtomicI64; HOLDERS.len()]);

/// The accounts of threads that run, and what those had that have ended.
#[derive(Debug)]
struct Accounts {
    open: Vec<Arc<Account>>,
    ended: [i64; HOLDERS.len()],
}

static ACCOUNTS: Mutex<Accounts> = Mutex::new(Accounts {
    open: Vec::new(),
    ended: [0; HOLDERS.len()],
});

/// A thread's own account, closed when the thread ends.
struct Own(Arc<Account>);

thread_local! {
    static OWN: Own = Own::open();
}

impl Own {
    fn open() -> Own {
        let account = Arc::<Account>::default();
        ACCOUNTS.lock().open.push(Arc::clone(&account));
        Own(account)
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        let mut accounts = ACCOUNTS.lock();
        accounts
            .open
            .retain(|account| !Arc::ptr_eq(account, &self.0));
        for (sum, bytes) in accounts.ended.iter_mut().zip(&self.0.0) {
            *sum += bytes.load(Relaxed);
        }
    }
}

/// So many bytes more (or fewer) are held.
fn add(holder: Holder, bytes: i64) {
    let is_open = OWN.try_with(|own| {
        // Nobody else writes it.
        let count = &own.0.0[holder as usize];
        count.store(count.load(Relaxed) + bytes, Relaxed);
    });
    if is_open.is_err() {
        // The thread is ending.
        ACCOUNTS.lock().ended[holder as usize] += bytes;
    }
}

/// Bytes that are held now. Takes a lock for as long as it adds up: for whoever shows it, not for a request.
#[must_use]
pub fn held() -> Held {
    let accounts = ACCOUNTS.lock();
    let mut sums = accounts.ended;
    for account in &accounts.open {
        for (sum, bytes) in sums.iter_mut().zip(&account.0) {
            *sum += bytes.load(Relaxed);
        }
    }
    // They are read while they change.
    sums.map(|sum| u64::try_from(sum).unwrap_or(0))
}

/// Memory that is counted for as long as this lives. It may be dropped by another thread than the one that made it.
#[derive(Debug)]
#[must_use = "what is dropped is counted no more"]
pub struct Charge {
    holder: Holder,
    bytes: usize,
}

/// Counts so many bytes for a holder.
pub fn charge(holder: Holder, bytes: usize) -> Charge {
    let mut charge = Charge { holder, bytes: 0 };
    charge.set(bytes);
    charge
}

impl Charge {
    /// So many bytes it is from now on.
    pub fn set(&mut self, bytes: usize) {
        if bytes != self.bytes {
            add(self.holder, bytes as i64 - self.bytes as i64);
            self.bytes = bytes;
        }
    }

    /// Bytes now.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.set(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Nobody else in this program's tests has any.
    fn of_proxy() -> u64 {
        held()[Holder::ProxyBuffers as usize]
    }

    #[test]
    fn what_one_thread_takes_another_may_give_back() {
        let mut charge = charge(Holder::ProxyBuffers, 1000);
        charge.set(300);
        assert_eq!(of_proxy(), 300);
        let taken = std::thread::spawn(move || {
            charge.set(500);
            charge
        });
        let charge = taken.join().unwrap();
        assert_eq!(of_proxy(), 500, "what an ended thread had still counts");
        std::thread::spawn(move || drop(charge)).join().unwrap();
        assert_eq!(of_proxy(), 0);
    }

    #[test]
    fn the_order_is_that_of_the_numbers() {
        for (place, holder) in HOLDERS.iter().enumerate() {
            assert_eq!(*holder as usize, place);
        }
    }
}
