//! Counters of modules, in each loop.
//!
//! A module declares a type that holds its counters and takes it from the loop's [`LoopFigures`], in which each such
//! type has a place, made at the first use. Invariant: only the loop's thread writes; readers add up.

use std::sync::Arc;

use disk::metrics::{Histogram, Number, Times};
use slots::Slotted;

use super::LoopFigures;

/// Maximum number of such types.
pub const COUNTERS_MAX: usize = 32;

/// The family of these types: `slotted!(COUNTERS: …)`.
pub static COUNTERS: slots::Family = slots::Family::new();

/// Counters that a loop holds for a module.
pub trait Counters: Slotted + Default + Send + Sync {}

impl<T: Slotted + Default + Send + Sync> Counters for T {}

/// Counters of one type, of all loops that have any.
#[derive(Debug)]
pub struct PerLoop<T>(Vec<Arc<T>>);

impl<T: Counters> PerLoop<T> {
    pub(crate) fn of(loops: impl Iterator<Item = Arc<LoopFigures>>) -> Self {
        Self(loops.filter_map(|figures| figures.if_any()).collect())
    }

    /// The sum of a number.
    pub fn sum(&self, number: impl Fn(&T) -> &Number) -> u64 {
        self.0.iter().map(|counters| number(counters).get()).sum()
    }

    /// The sum of a histogram.
    pub fn times(&self, histogram: impl Fn(&T) -> &Histogram) -> Times {
        let mut sum = Times::default();
        for counters in &self.0 {
            sum.merge(histogram(counters));
        }
        sum
    }
}

/// Declares a list of the values of a label.
#[macro_export]
macro_rules! label_values {
    (
        $(#[$about:meta])*
        $vis:vis enum $List:ident { $($(#[$each:meta])* $Value:ident = $name:literal,)* }
    ) => {
        $(#[$about])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[repr(usize)]
        $vis enum $List {
            $($(#[$each])* $Value,)*
        }

        impl $List {
            /// All of them.
            pub const ALL: [Self; [$($name),*].len()] = [$(Self::$Value),*];

            /// Its name.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$Value => $name,)*
                }
            }
        }
    };
}

/// The sums of the numbers of a label, of whose values a loop has one number each.
pub fn sums<T: Counters, const N: usize>(
    loops: &PerLoop<T>,
    numbers: impl Fn(&T) -> &[Number; N],
) -> [u64; N] {
    std::array::from_fn(|index| loops.sum(|counters| &numbers(counters)[index]))
}
