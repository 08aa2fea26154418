//! What one loop keeps for its next requests, each thing at the one place that the hash of its key says.
//!
//! Who comes later takes the place of who was there: nothing is looked for, nothing has to be evicted. Not here: what is kept, and whether
//! it still holds. Invariant: there are at most `COUNT` things, and no memory is taken before the first.

use std::cell::RefCell;
use std::hash::BuildHasher;
use std::rc::Rc;

use hashbrown::DefaultHashBuilder;

/// Places for `COUNT` things; a power of two.
pub struct Places<T, const COUNT: usize> {
    places: RefCell<Vec<Option<Rc<T>>>>,
    hasher: DefaultHashBuilder,
}

impl<T, const COUNT: usize> Places<T, COUNT> {
    /// What was kept last at the place of this key, if that is it.
    pub fn get(&self, key: &[u8], is_it: impl FnOnce(&T) -> bool) -> Option<Rc<T>> {
        let places = self.places.borrow();
        if places.is_empty() {
            return None;
        }
        let kept = places[self.place(key)].as_ref()?;
        is_it(kept).then(|| Rc::clone(kept))
    }

    /// Keeps something at the place of this key.
    pub fn put(&self, key: &[u8], value: T) {
        let mut places = self.places.borrow_mut();
        if places.is_empty() {
            places.resize_with(COUNT, || None);
        }
        places[self.place(key)] = Some(Rc::new(value));
    }

    /// Forgets everything.
    pub fn clear(&self) {
        let all = std::mem::take(&mut *self.places.borrow_mut());
        drop(all);
    }

    fn place(&self, key: &[u8]) -> usize {
        const { assert!(COUNT.is_power_of_two()) }
        self.hasher.hash_one(key) as usize & (COUNT - 1)
    }
}

impl<T, const COUNT: usize> Default for Places<T, COUNT> {
    fn default() -> Self {
        Self {
            places: RefCell::default(),
            hasher: DefaultHashBuilder::default(),
        }
    }
}

impl<T, const COUNT: usize> std::fmt::Debug for Places<T, COUNT> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Places({COUNT})")
    }
}
