//! [`Loan`]: threads that a pool has beyond its bound, in place of threads that hang.
//!
//! Not here: which threads hang (`health`). Invariant: a pool has as many threads more as its loans are together, and at
//! most as many again as its bound.

use super::Pool;

/// Threads lent to one pool because of one disk. Dropped, it takes them back.
#[derive(Debug, Default)]
pub struct Loan(Option<(Pool, usize)>);

impl Loan {
    /// Lends so many threads to this pool, and none to the one that had them before. What is lent is taken back as soon
    /// as `threads` is less: a thread ends after its job.
    pub fn set(&mut self, pool: &Pool, threads: usize) {
        if self.0.as_ref().is_some_and(|(same, _)| !same.is_same(pool)) {
            self.give_back();
        }
        let before = self.0.as_ref().map_or(0, |(_, before)| *before);
        if before != threads {
            pool.shared().lend(before, threads);
            self.0 = (threads > 0).then(|| (pool.clone(), threads));
        }
    }

    /// Takes back what is lent.
    pub fn give_back(&mut self) {
        if let Some((pool, before)) = self.0.take() {
            pool.shared().lend(before, 0);
        }
    }
}

impl Drop for Loan {
    fn drop(&mut self) {
        self.give_back();
    }
}
