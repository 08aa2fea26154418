//! The lines of a group of directives at one level, and their merged and finished values, shared by all levels that add
//! nothing to them.
//!
//! A level without lines of a group stores nothing for it. The inherited lines and the finished values are made once
//! for all levels that inherit the same, so that ten thousand locations of three lines each take the memory of those
//! lines. Not here: what the values of a group are ([`Section`]).

use std::cell::OnceCell;
use std::rc::Rc;
use std::sync::Arc;

use crate::section::Section;
use crate::syntax::error::Error;
use crate::value::scope::Scope;

/// The lines of one group at one level; holds `None` if the level has none.
#[derive(Debug)]
pub struct Group<S: Section>(Option<Rc<SharedLines<S>>>);

#[derive(Debug)]
struct SharedLines<S: Section> {
    raw: S::Raw,
    /// The finished values, made when they are first asked for.
    finished: OnceCell<Arc<S>>,
    /// The merged lines of an inner level without lines of its own, made for the first one. Unused where they are the
    /// same.
    inherited: OnceCell<Group<S>>,
}

impl<S: Section> SharedLines<S> {
    fn new(raw: S::Raw) -> Self {
        Self {
            raw,
            finished: OnceCell::new(),
            inherited: OnceCell::new(),
        }
    }
}

impl<S: Section> Default for Group<S> {
    fn default() -> Self {
        Self(None)
    }
}

impl<S: Section> Clone for Group<S> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<S: Section> Group<S> {
    fn new(raw: S::Raw) -> Self {
        Self(Some(Rc::new(SharedLines::new(raw))))
    }

    /// The lines of this level, if it has any.
    #[must_use]
    pub fn get(&self) -> Option<&S::Raw> {
        self.0.as_deref().map(|shared| &shared.raw)
    }

    /// The lines of this level, to be changed for this level alone.
    pub fn edit(&mut self) -> &mut S::Raw {
        let shared = self
            .0
            .get_or_insert_with(|| Rc::new(SharedLines::new(S::Raw::default())));
        if Rc::get_mut(shared).is_none() {
            *shared = Rc::new(SharedLines::new(shared.raw.clone()));
        }
        let shared = Rc::get_mut(shared).expect("if it was shared, it was just copied");
        shared.finished.take();
        shared.inherited.take();
        &mut shared.raw
    }

    /// Adds a line by calling `set`, which returns whether the line belongs to the group.
    ///
    /// # Errors
    /// The error of `set`.
    pub fn take_in(
        &mut self,
        set: impl FnOnce(&mut S::Raw) -> Result<bool, Error>,
    ) -> Result<bool, Error> {
        if self.0.is_some() {
            return set(self.edit());
        }
        let mut raw = S::Raw::default();
        let is_known = set(&mut raw)?;
        if is_known {
            *self = Self::new(raw);
        }
        Ok(is_known)
    }

    /// The lines in force at the inner level `child`.
    #[must_use]
    pub fn merge(&self, child: Self) -> Self {
        match (&self.0, child.0) {
            (None, child) => Self(child),
            (Some(shared), None) if S::IS_INHERITED_WHOLE => Self(Some(Rc::clone(shared))),
            (Some(shared), None) => {
                let make = || Self::new(S::merge(&shared.raw, S::Raw::default()));
                shared.inherited.get_or_init(make).clone()
            }
            (Some(shared), Some(own)) => {
                let own = Rc::try_unwrap(own).map_or_else(|own| own.raw.clone(), |own| own.raw);
                Self::new(S::merge(&shared.raw, own))
            }
        }
    }

    /// Fills in the defaults.
    ///
    /// # Errors
    /// As [`Section::fill`].
    pub fn fill(&mut self, scope: &mut Scope) -> Result<(), Error> {
        S::fill(self.edit(), scope)
    }

    /// The final values.
    ///
    /// # Errors
    /// As [`Section::finish`].
    pub fn finish(&self, scope: &mut Scope) -> Result<Arc<S>, Error> {
        let Some(shared) = &self.0 else {
            return S::finish(S::Raw::default(), scope).map(Arc::new);
        };
        if let Some(finished) = shared.finished.get() {
            return Ok(Arc::clone(finished));
        }
        let finished = Arc::new(S::finish(shared.raw.clone(), scope)?);
        Ok(Arc::clone(shared.finished.get_or_init(|| finished)))
    }
}
