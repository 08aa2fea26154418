//! The lock and the condition variable of the queue, in the shape that the loom test replaces.

pub use parking_lot::{Mutex, MutexGuard};

/// parking_lot's condition variable; `wait` takes and gives back the guard, as std's and loom's do.
pub struct Condvar(parking_lot::Condvar);

impl Condvar {
    pub fn new() -> Condvar {
        Condvar(parking_lot::Condvar::new())
    }

    pub fn wait<'a, T>(&self, mut guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
        self.0.wait(&mut guard);
        guard
    }

    pub fn notify_one(&self) {
        self.0.notify_one();
    }

    pub fn notify_all(&self) {
        self.0.notify_all();
    }
}
