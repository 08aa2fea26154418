//! A table that several threads read.

use std::any::Any;
use std::sync::{Arc, OnceLock};

use crate::{OWN_TYPE, Slotted};

/// At most one value of each type of a family, shared by threads; `MAX`: maximum number of the family's types.
///
/// A look-up takes no lock; a value stays as long as the table does.
#[derive(Debug)]
pub struct SharedTable<const MAX: usize> {
    places: [OnceLock<Arc<dyn Any + Send + Sync>>; MAX],
}

impl<const MAX: usize> Default for SharedTable<MAX> {
    fn default() -> Self {
        Self {
            places: [const { OnceLock::new() }; MAX],
        }
    }
}

impl<const MAX: usize> SharedTable<MAX> {
    /// The value of this type, if there is one.
    ///
    /// # Panics
    /// If the family has more than `MAX` types: a mistake in the program.
    #[inline]
    #[must_use]
    pub fn get<T: Slotted + Send + Sync>(&self) -> Option<&T> {
        let value = self.places[T::slot().index()].get()?;
        Some(value.downcast_ref().expect(OWN_TYPE))
    }

    /// The value of this type, made now if there is none.
    #[inline]
    pub fn get_or_init<T: Slotted + Send + Sync>(&self, make: impl FnOnce() -> T) -> &T {
        let value = self.places[T::slot().index()].get_or_init(|| Arc::new(make()));
        value.downcast_ref().expect(OWN_TYPE)
    }

    /// The value of this type, if there is one, for a holder that outlives the borrow.
    #[inline]
    #[must_use]
    pub fn share<T: Slotted + Send + Sync>(&self) -> Option<Arc<T>> {
        let value = self.places[T::slot().index()].get()?;
        Some(Arc::clone(value).downcast().expect(OWN_TYPE))
    }

    /// Puts a value in the place of the one that was there, or takes that away.
    pub fn set<T: Slotted + Send + Sync>(&mut self, value: Option<T>) {
        let place = &mut self.places[T::slot().index()];
        *place = OnceLock::new();
        if let Some(value) = value {
            place.get_or_init(|| Arc::new(value));
        }
    }

    /// [`SharedTable::get_or_init`], for a holder that outlives the borrow.
    pub fn share_or_init<T: Slotted + Send + Sync>(&self, make: impl FnOnce() -> T) -> Arc<T> {
        let value = self.places[T::slot().index()].get_or_init(|| Arc::new(make()));
        Arc::clone(value).downcast().expect(OWN_TYPE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Family, slotted};
    use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

    static FAMILY: Family = Family::new();

    #[derive(Debug, Default)]
    struct Count(AtomicU64);
    struct Other;

    slotted!(FAMILY: Count, Other);

    #[test]
    fn threads_share_one_value_of_a_type() {
        let table = SharedTable::<2>::default();
        assert!(table.get::<Count>().is_none());
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| table.get_or_init(Count::default).0.fetch_add(1, Relaxed));
            }
        });
        let own = table.share_or_init(Count::default);
        assert_eq!(own.0.load(Relaxed), 4);
        assert!(table.get::<Other>().is_none());
        drop(table);
        assert_eq!(own.0.load(Relaxed), 4);
    }

    #[test]
    fn a_value_takes_the_place_of_the_one_before() {
        let mut table = SharedTable::<2>::default();
        table.set(Some(Count(AtomicU64::new(1))));
        table.set(Some(Count(AtomicU64::new(2))));
        let shared = table.share::<Count>().expect("it was set");
        assert_eq!(shared.0.load(Relaxed), 2);
        table.set::<Count>(None);
        assert!(table.share::<Count>().is_none());
        assert_eq!(shared.0.load(Relaxed), 2);
    }
}
