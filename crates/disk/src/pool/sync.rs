//! The lock and the condition variable of the queue, with an interface that the loom test can replace.

pub(super) use parking_lot::{Mutex, MutexGuard};

/// parking_lot's condition variable; `wait` takes and returns the guard, as std's and loom's do.
pub(super) struct Condvar(parking_lot::Condvar);

impl Condvar {
    pub(super) fn new() -> Condvar {
        Condvar(parking_lot::Condvar::new())
    }

    pub(super) fn wait<'a, T>(&self, mut guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
        self.0.wait(&mut guard);
        guard
    }

    pub(super) fn notify_one(&self) {
        self.0.notify_one();
    }

    pub(super) fn notify_all(&self) {
        self.0.notify_all();
    }
}
