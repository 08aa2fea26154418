//! Futures that are made where they stay.

use std::pin::Pin;

/// The future that `make` returns, in a box.
///
/// `Box::pin(future)` makes the future first, and copies it once there is memory: all of its state, little of which is
/// in use when it begins. Here there is memory first, and what the future begins with is written there.
#[inline]
pub fn boxed<F: Future>(make: impl FnOnce() -> F) -> Pin<Box<F>> {
    let place = Box::new_uninit();
    Box::into_pin(Box::write(place, make()))
}
