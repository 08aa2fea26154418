//! Typed places in tables whose owner does not know the types.
//!
//! A core type (a request, a loop) has one [`Table`] or, where threads share it, [`SharedTable`]; a module keeps a
//! value of its own in it without the core naming the module. Each type has a [`Slot`], numbered when it is first used,
//! so a look-up is one load, an index and a comparison of types. Not here: what is kept, or when it is forgotten.
//! Invariant: a table holds at most one value of a type.

mod shared_table;

pub use shared_table::SharedTable;

use std::any::Any;
use std::cell::OnceCell;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};

/// The types that have a place in the same kind of table, and so share its numbers.
#[derive(Debug)]
pub struct Family {
    /// How many numbers are given.
    given: Mutex<u32>,
}

impl Family {
    /// A family without types.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            given: Mutex::new(0),
        }
    }
}

impl Default for Family {
    fn default() -> Self {
        Self::new()
    }
}

/// The number of one type in the tables of its family.
#[derive(Debug)]
pub struct Slot {
    family: &'static Family,
    /// From 1; 0: none yet.
    number: AtomicU32,
}

impl Slot {
    /// The slot of a type; to be kept in a `static` ([`slotted!`]).
    #[must_use]
    pub const fn of(family: &'static Family) -> Self {
        Self {
            family,
            number: AtomicU32::new(0),
        }
    }

    /// The index in tables, given at the first call.
    #[inline]
    #[must_use]
    pub fn index(&self) -> usize {
        match self.number.load(Ordering::Relaxed) {
            0 => self.number_now(),
            number => number as usize - 1,
        }
    }

    /// Gives the slot its number, unless another thread just did: no number of a family is lost, as tables are as large as
    /// the family.
    #[cold]
    fn number_now(&self) -> usize {
        let mut given = self
            .family
            .given
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if self.number.load(Ordering::Relaxed) == 0 {
            *given += 1;
            self.number.store(*given, Ordering::Relaxed);
        }
        self.number.load(Ordering::Relaxed) as usize - 1
    }
}

/// A type with a place in tables; implemented by [`slotted!`].
pub trait Slotted: Any {
    /// Its slot.
    fn slot() -> &'static Slot;
}

/// Gives types a place in the tables of a family: `slotted!(REQUEST: Uids, Ratio)`.
#[macro_export]
macro_rules! slotted {
    ($family:path: $($Type:ty),+ $(,)?) => {
        $(impl $crate::Slotted for $Type {
            #[inline]
            fn slot() -> &'static $crate::Slot {
                static SLOT: $crate::Slot = $crate::Slot::of(&$family);
                &SLOT
            }
        })+
    };
}

/// At most one value of each type of a family; `MAX`: maximum number of the family's types.
#[derive(Debug)]
pub struct Table<const MAX: usize> {
    places: [OnceCell<Box<dyn Any>>; MAX],
}

impl<const MAX: usize> Default for Table<MAX> {
    fn default() -> Self {
        Self {
            places: [const { OnceCell::new() }; MAX],
        }
    }
}

/// The reason why a place holds a value of the type that it is asked for.
const OWN_TYPE: &str = "a slot is that of one type";

impl<const MAX: usize> Table<MAX> {
    /// The value of this type, if there is one.
    ///
    /// # Panics
    /// If the family has more than `MAX` types: a mistake in the program.
    #[inline]
    #[must_use]
    pub fn get<T: Slotted>(&self) -> Option<&T> {
        let value = self.places[T::slot().index()].get()?;
        Some(value.downcast_ref().expect(OWN_TYPE))
    }

    /// The value of this type, to be changed.
    #[inline]
    #[must_use]
    pub fn get_mut<T: Slotted>(&mut self) -> Option<&mut T> {
        let value = self.places[T::slot().index()].get_mut()?;
        Some(value.downcast_mut().expect(OWN_TYPE))
    }

    /// The value of this type, made now if there is none.
    #[inline]
    pub fn get_or_init<T: Slotted>(&self, make: impl FnOnce() -> T) -> &T {
        let value = self.places[T::slot().index()].get_or_init(|| Box::new(make()));
        value.downcast_ref().expect(OWN_TYPE)
    }

    /// Puts a value in the place of the one that was there, which it returns.
    pub fn put<T: Slotted>(&mut self, value: T) -> Option<T> {
        let before = self.take();
        let place = &self.places[T::slot().index()];
        place.get_or_init(|| Box::new(value));
        before
    }

    /// Takes the value of this type out.
    #[inline]
    pub fn take<T: Slotted>(&mut self) -> Option<T> {
        let value = self.places[T::slot().index()].take()?;
        let value: Box<T> = value.downcast().expect(OWN_TYPE);
        Some(*value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    static FAMILY: Family = Family::new();

    #[derive(Debug, PartialEq)]
    struct Name(&'static str);
    #[derive(Debug, PartialEq)]
    struct Size(u64);

    slotted!(FAMILY: Name, Size);

    #[test]
    fn each_type_has_a_place_of_its_own() {
        let mut table = Table::<4>::default();
        assert_eq!(table.get::<Name>(), None);
        assert_eq!(table.put(Name("first")), None);
        assert_eq!(table.get::<Size>(), None);
        assert_eq!(table.get_or_init(|| Size(7)), &Size(7));
        assert_eq!(table.get_or_init(|| Size(8)), &Size(7));
        assert_eq!(table.get::<Name>(), Some(&Name("first")));
        table.get_mut::<Size>().expect("it is there").0 += 1;
        assert_eq!(table.take::<Size>(), Some(Size(8)));
        assert_eq!(table.get::<Size>(), None);
        assert_eq!(table.put(Name("second")), Some(Name("first")));
    }

    #[test]
    fn threads_that_ask_first_at_once_use_one_number() {
        static MANY: Family = Family::new();
        struct One;
        struct Two;
        slotted!(MANY: One, Two);
        let together = std::sync::Barrier::new(8);
        let numbers: Vec<_> = std::thread::scope(|scope| {
            let ask = || {
                together.wait();
                (One::slot().index(), Two::slot().index())
            };
            let threads: Vec<_> = (0..8).map(|_| scope.spawn(ask)).collect();
            threads
                .into_iter()
                .map(|t| t.join().expect("does not panic"))
                .collect()
        });
        let (one, two) = numbers[0];
        assert!(numbers.iter().all(|&pair| pair == (one, two)));
        assert_eq!((one + two, one * two), (1, 0), "numbers 0 and 1, none lost");
    }
}
