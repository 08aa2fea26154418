//! Futures that are made where they stay.

use std::pin::Pin;
use std::task::{Context, Poll};

/// A future in a box of its own, and its `poll` a function of its own.
///
/// Without the second, the compiler puts all parts of a request's way that run often into one function. It took a
/// profile-guided build more than 20 minutes to give that one its registers.
#[derive(Debug)]
pub struct Boxed<F>(Pin<Box<F>>);

impl<F: Future> Future for Boxed<F> {
    type Output = F::Output;

    #[inline(never)]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        self.0.as_mut().poll(cx)
    }
}

impl<F> Boxed<F> {
    /// The box alone, for a caller that gives its type a name.
    #[must_use]
    #[inline]
    pub fn into_pin(self) -> Pin<Box<F>> {
        self.0
    }
}

/// The future that `make` returns, in a box.
///
/// `Box::pin(future)` makes the future first, and copies it once there is memory: all of its state, little of which is
/// in use when it begins. Here there is memory first, and what the future begins with is written there.
#[inline]
pub fn boxed<F: Future>(make: impl FnOnce() -> F) -> Boxed<F> {
    let place = Box::new_uninit();
    Boxed(Box::into_pin(Box::write(place, make())))
}
