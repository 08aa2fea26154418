//! Bytes by holder: each thread counts in an account of its own, and readers add up.
//!
//! Invariant: a thread writes only its own account. So an account may be negative (one thread takes memory, another
//! gives it back), but never the sum of all.

use parking_lot::Mutex;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering::Relaxed};

/// A use of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum Holder {
    /// Copies of small files from 8 KiB on, in the memfds that `sendfile` takes them from.
    Copies,
    /// Bodies of smaller files.
    Bodies,
    /// Bytes that followers of a fetch have not sent yet.
    Windows,
    /// Responses that wait to be written to a cache.
    Fills,
    /// Bytes read ahead from upstream servers (`proxy_buffers` and the like).
    ProxyBuffers,
    /// Buffers that stand in for `sendfile`, those that are read into, and large bodies that are made here.
    Buffers,
    /// Request bodies that have been read.
    RequestBodies,
    /// Files that are kept open, without the kernel's memory for them.
    Files,
    /// Prepared responses.
    Answers,
    /// Connections of clients.
    Connections,
    /// TLS on connections: keys, records that were not sent or not read, and the buffers of threads.
    Tls,
    /// HTTP/2 connections: frames that were not sent, bodies that were not read.
    Http2,
    /// Compressors of responses.
    Compressors,
    /// Passwords that are being checked.
    Passwords,
    /// Indexes of caches.
    Index,
}

/// All of them, in the order in which they are shown.
pub const HOLDERS: [Holder; 15] = [
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
    Holder::Tls,
    Holder::Http2,
    Holder::Compressors,
    Holder::Passwords,
    Holder::Index,
];

impl Holder {
    /// Its name in metrics.
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
            Holder::Tls => "tls",
            Holder::Http2 => "http2",
            Holder::Compressors => "compressors",
            Holder::Passwords => "passwords",
            Holder::Index => "index",
        }
    }
}

/// Bytes by holder, in the order of [`HOLDERS`].
pub type HeldBytes = [u64; HOLDERS.len()];

#[derive(Debug, Default)]
#[repr(align(64))]
struct ThreadAccount([AtomicI64; HOLDERS.len()]);

/// The accounts of running threads, and the sum of those of ended threads.
#[derive(Debug)]
struct Accounts {
    open: Vec<Arc<ThreadAccount>>,
    ended: [i64; HOLDERS.len()],
}

static ACCOUNTS: Mutex<Accounts> = Mutex::new(Accounts {
    open: Vec::new(),
    ended: [0; HOLDERS.len()],
});

/// A thread's own account, closed when the thread ends.
struct Own(Arc<ThreadAccount>);

thread_local! {
    static OWN: Own = Own::open();
}

impl Own {
    fn open() -> Own {
        let account = Arc::<ThreadAccount>::default();
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

/// Counts bytes that are taken or (negative) given back.
fn add(holder: Holder, bytes: i64) {
    let is_open = OWN.try_with(|own| {
        // No other thread writes it.
        let count = &own.0.0[holder as usize];
        count.store(count.load(Relaxed) + bytes, Relaxed);
    });
    if is_open.is_err() {
        // The thread is ending.
        ACCOUNTS.lock().ended[holder as usize] += bytes;
    }
}

/// Bytes that are held now. Holds a lock while it adds up: for metrics, not for a request.
#[must_use]
pub fn held() -> HeldBytes {
    let accounts = ACCOUNTS.lock();
    let mut sums = accounts.ended;
    for account in &accounts.open {
        for (sum, bytes) in sums.iter_mut().zip(&account.0) {
            *sum += bytes.load(Relaxed);
        }
    }
    // The accounts change while they are read, so a sum may come out negative.
    sums.map(|sum| u64::try_from(sum).unwrap_or(0))
}

/// Memory that is counted while this lives. It may be dropped by another thread than its maker.
#[derive(Debug)]
#[must_use = "what is dropped is counted no more"]
pub struct Charge {
    holder: Holder,
    bytes: usize,
}

/// Counts bytes for a holder.
pub fn charge(holder: Holder, bytes: usize) -> Charge {
    let mut charge = Charge { holder, bytes: 0 };
    charge.set(bytes);
    charge
}

impl Charge {
    /// Changes the number of bytes.
    pub fn set(&mut self, bytes: usize) {
        if bytes != self.bytes {
            add(self.holder, bytes as i64 - self.bytes as i64);
            self.bytes = bytes;
        }
    }

    /// The number of bytes.
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

/// The bytes of all charges that are counted in it, for their makers to bound: of a loop, or of all.
#[derive(Debug, Default)]
pub struct Total(AtomicUsize);

impl Total {
    /// None yet.
    #[must_use]
    pub const fn new() -> Total {
        Total(AtomicUsize::new(0))
    }

    /// The number of bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.0.load(Relaxed)
    }
}

/// A charge that is counted in a total, too.
#[derive(Debug)]
#[must_use = "what is dropped is counted no more"]
pub struct BoundedCharge<T: Deref<Target = Total>> {
    charge: Charge,
    total: T,
}

impl<T: Deref<Target = Total>> BoundedCharge<T> {
    /// Counts bytes for a holder, and in a total.
    pub fn new(holder: Holder, total: T, bytes: usize) -> Self {
        let mut charge = Self {
            charge: charge(holder, 0),
            total,
        };
        charge.set(bytes);
        charge
    }

    /// Changes the number of bytes.
    pub fn set(&mut self, bytes: usize) {
        self.total.0.fetch_add(bytes, Relaxed);
        self.total.0.fetch_sub(self.charge.bytes(), Relaxed);
        self.charge.set(bytes);
    }

    /// The number of bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.charge.bytes()
    }
}

impl<T: Deref<Target = Total>> Drop for BoundedCharge<T> {
    fn drop(&mut self) {
        self.set(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// No other test of this program has any.
    fn of_proxy() -> u64 {
        held()[Holder::ProxyBuffers as usize]
    }

    #[test]
    fn memory_may_be_given_back_by_another_thread() {
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
    fn what_is_counted_in_a_total_is_there_until_it_is_dropped() {
        let total = Arc::new(Total::new());
        let mut one = BoundedCharge::new(Holder::Passwords, Arc::clone(&total), 1000);
        let other = BoundedCharge::new(Holder::Passwords, &*total, 20);
        one.set(300);
        assert_eq!((one.bytes(), total.bytes()), (300, 320));
        drop(other);
        assert_eq!(total.bytes(), 300);
        drop(one);
        assert_eq!(total.bytes(), 0);
    }

    #[test]
    fn the_order_is_that_of_the_numbers() {
        for (place, holder) in HOLDERS.iter().enumerate() {
            assert_eq!(*holder as usize, place);
        }
    }
}
