//! A direct-mapped cache of one loop: the hash of a key gives the one slot that its value can occupy.
//!
//! A new value replaces the old one in its slot: there is no search and no eviction. Not here: what is stored, and
//! whether it is still valid. Invariant: at most `COUNT` values, fewer when memory is short, and no memory is taken
//! before the first one.

use std::cell::{Cell, RefCell};
use std::hash::BuildHasher;
use std::rc::Rc;

use disk::memory::{self, ANSWER_BYTES, Charge, Holder, charge};
use hashbrown::DefaultHashBuilder;

/// Slots for `COUNT` values; a power of two.
pub struct Places<T, const COUNT: usize> {
    places: RefCell<Vec<Option<Rc<T>>>>,
    hasher: DefaultHashBuilder,
    kept: Cell<usize>,
    charge: RefCell<Charge>,
}

impl<T, const COUNT: usize> Places<T, COUNT> {
    /// The value in the slot of this key, if `is_it` confirms that it belongs to the key.
    pub fn get(&self, key: &[u8], is_it: impl FnOnce(&T) -> bool) -> Option<Rc<T>> {
        let places = self.places.borrow();
        if places.is_empty() {
            return None;
        }
        let kept = places[self.place(key, places.len())].as_ref()?;
        is_it(kept).then(|| Rc::clone(kept))
    }

    /// Stores a value in the slot of this key.
    pub fn put(&self, key: &[u8], value: T) {
        let count = places_now(COUNT);
        if self.places.borrow().len() != count {
            self.clear();
            self.places.borrow_mut().resize_with(count, || None);
        }
        if count == 0 {
            return;
        }
        let mut places = self.places.borrow_mut();
        let place = self.place(key, count);
        if places[place].replace(Rc::new(value)).is_none() {
            self.count(self.kept.get() + 1);
        }
    }

    /// Removes all values.
    pub fn clear(&self) {
        let all = std::mem::take(&mut *self.places.borrow_mut());
        self.count(0);
        drop(all);
    }

    fn count(&self, kept: usize) {
        self.kept.set(kept);
        self.charge.borrow_mut().set(kept * ANSWER_BYTES);
    }

    fn place(&self, key: &[u8], count: usize) -> usize {
        const { assert!(COUNT.is_power_of_two()) }
        self.hasher.hash_one(key) as usize & (count - 1)
    }
}

impl<T, const COUNT: usize> Default for Places<T, COUNT> {
    fn default() -> Self {
        Self {
            places: RefCell::default(),
            hasher: DefaultHashBuilder::default(),
            kept: Cell::new(0),
            charge: RefCell::new(charge(Holder::Answers, 0)),
        }
    }
}

/// Slots allowed at the moment, at most `most`: a power of two, or none.
fn places_now(most: usize) -> usize {
    let may_be = memory::answers_of_a_loop().min(most);
    match may_be {
        0 => 0,
        may_be => 1 << may_be.ilog2(),
    }
}

impl<T, const COUNT: usize> std::fmt::Debug for Places<T, COUNT> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Places({COUNT})")
    }
}
