//! The values that a request remembers: those of `map`s, of named groups, and those that the configuration sets.
//!
//! A request and its sub-requests share them, as in nginx. Invariant: the values are sorted by the index of their
//! variable, one for each; so there are at most as many as the configuration has variables. Each has at most
//! [`VALUE_BYTES_MAX`] bytes.

use std::cell::RefCell;
use std::rc::Rc;

use bytes::Bytes;
use config::VariableIndex;

/// Maximum length in bytes of a value that is made of others. No request needs as much, but a variable that is set to
/// itself twice reaches it after some twenty lines.
pub const VALUE_BYTES_MAX: usize = 16 << 20;

type Values = Vec<(VariableIndex, Option<Bytes>)>;

/// The remembered values of a request.
#[derive(Debug, Default)]
pub struct Remembered(RefCell<Place>);

#[derive(Debug)]
enum Place {
    Own(Values),
    /// From the first sub-request on.
    Shared(Rc<RefCell<Values>>),
}

impl Default for Place {
    fn default() -> Self {
        Self::Own(Values::new())
    }
}

impl Remembered {
    /// A value: `None` when none was remembered, `Some(None)` when the variable is known to be unset.
    #[must_use]
    pub fn get(&self, variable: VariableIndex) -> Option<Option<Bytes>> {
        let find = |values: &Values| {
            let found = values.binary_search_by_key(&variable, |(index, _)| *index);
            found.ok().map(|at| values[at].1.clone())
        };
        match &*self.0.borrow() {
            Place::Own(values) => find(values),
            Place::Shared(values) => find(&values.borrow()),
        }
    }

    /// Remembers a value, replacing an earlier one.
    pub fn set(&self, variable: VariableIndex, value: Option<Bytes>) {
        match &mut *self.0.borrow_mut() {
            Place::Own(values) => put(values, variable, value),
            Place::Shared(values) => put(&mut values.borrow_mut(), variable, value),
        }
    }

    /// The same values, for a sub-request.
    #[must_use]
    pub fn share(&self) -> Self {
        let place = &mut *self.0.borrow_mut();
        let shared = match place {
            Place::Shared(values) => Rc::clone(values),
            Place::Own(values) => Rc::new(RefCell::new(std::mem::take(values))),
        };
        *place = Place::Shared(Rc::clone(&shared));
        Self(RefCell::new(Place::Shared(shared)))
    }
}

fn put(values: &mut Values, variable: VariableIndex, value: Option<Bytes>) {
    match values.binary_search_by_key(&variable, |(index, _)| *index) {
        Ok(at) => values[at].1 = value,
        Err(at) => values.insert(at, (variable, value)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shared_values_are_seen_by_all() {
        let (one, other) = (VariableIndex(1), VariableIndex(2));
        let own = Remembered::default();
        own.set(one, Some("a".into()));
        let shared = own.share();
        shared.set(other, None);
        own.set(one, Some("b".into()));
        assert_eq!(shared.get(one), Some(Some("b".into())));
        assert_eq!(own.get(other), Some(None));
        assert_eq!(own.share().get(VariableIndex(3)), None);
    }
}
