//! State that modules keep with a request, found by its type: of its meaning a request knows what [`State`] says.
//!
//! Most requests have none, and pay for a few empty places. Not here: the state itself, which stands in its module.
//! Invariant: there is at most one value of a type.

use std::any::Any;
use std::cell::OnceCell;
use std::rc::Rc;

use disk::OpenFile;
use message::ResponseHead;

use super::Request;
use super::successor::Successor;

/// Number of values that a request has room for without a further allocation: as many as a request has that is passed
/// on through a cache.
const PLACES: usize = 2;

/// A value that a module keeps with a request. It says itself for how long it is valid.
pub trait State: Any {
    /// Whether it is still valid after an internal redirect. Called at each, before the new location is chosen.
    fn survives_redirect(&self) -> bool {
        true
    }

    /// Whether it is also the state of a stand-in of the request, which knows the variables of a page's parts.
    fn is_for_stand_in(&self) -> bool {
        false
    }

    /// The state of a sub-request that is not waited for, and may outlive the response (a mirror); `None`: it shares this one.
    fn apart(&self) -> Option<Rc<dyn State>> {
        None
    }

    /// Whether it is the record of another server's response, to which this request's response may be due.
    fn is_of_upstream(&self) -> bool {
        false
    }

    /// Whether an upstream's response with this head is not what was asked for, so that no cache may keep it.
    fn refuses(&self, head: &ResponseHead) -> bool {
        let _ = head;
        false
    }

    /// What has the rest of this file, where its disk fails while it is sent ([`Request::successor`]).
    fn successor(&self, file: &Rc<OpenFile>) -> Option<Successor> {
        let _ = file;
        None
    }

    /// Called when an error page replaces the content; `is_own`: the built-in one.
    fn covered(&self, is_own: bool) {
        let _ = is_own;
    }

    /// Called when the response was handed on, before its client sees the end of the connection.
    fn answered(&self) {}
}

type Place = OnceCell<Rc<dyn State>>;

/// The values of one request, or of all requests of a family. There are few, so they are compared one by one.
#[derive(Default)]
pub struct States {
    places: [Place; PLACES],
    /// Further ones.
    more: OnceCell<Box<States>>,
}

fn holds<T: State>(place: &Place) -> bool {
    place.get().is_some_and(|value| as_any(value).is::<T>())
}

fn as_any(value: &Rc<dyn State>) -> &dyn Any {
    &**value
}

/// The reason why a place holds a value of this type.
const JUST_PUT: &str = "it was found, or put there, by its type";

impl States {
    /// The value of this type, if there is one.
    #[must_use]
    pub fn get<T: State>(&self) -> Option<&T> {
        for value in self.places.iter().filter_map(OnceCell::get) {
            if let Some(value) = as_any(value).downcast_ref() {
                return Some(value);
            }
        }
        self.more.get()?.get()
    }

    /// The value of this type, made now if there is none.
    pub fn get_or_default<T: State + Default>(&self) -> &T {
        match self.get() {
            Some(value) => value,
            None => {
                let new = self.free().get_or_init(|| Rc::<T>::default());
                as_any(new).downcast_ref().expect(JUST_PUT)
            }
        }
    }

    /// The value of this type for who outlives the request.
    #[must_use]
    pub fn share<T: State>(&self) -> Option<Rc<T>> {
        for value in self.places.iter().filter_map(OnceCell::get) {
            if as_any(value).is::<T>() {
                let value: Rc<dyn Any> = Rc::clone(value) as Rc<dyn Any>;
                return value.downcast().ok();
            }
        }
        self.more.get()?.share()
    }

    /// The value of this type to be changed, made now if there is none. One that is shared is copied.
    pub fn edit<T: State + Default + Clone>(&mut self) -> &mut T {
        let place = match self.places.iter().position(holds::<T>) {
            Some(at) => &mut self.places[at],
            None => self.place_or_default::<T>(),
        };
        let value = place.get_mut().expect(JUST_PUT);
        if Rc::get_mut(value).is_none() {
            let shared: &T = as_any(value).downcast_ref().expect(JUST_PUT);
            *value = Rc::new(shared.clone());
        }
        let own: &mut dyn Any = Rc::get_mut(value).expect("if it was shared, it was just copied");
        own.downcast_mut().expect(JUST_PUT)
    }

    /// Keeps a value in the place of the one that was there.
    pub fn put<T: State>(&mut self, value: Rc<T>) {
        self.take::<T>();
        let value: Rc<dyn State> = value;
        self.free().get_or_init(|| value);
    }

    /// Takes the value of this type out.
    pub fn take<T: State>(&mut self) -> Option<Rc<T>> {
        let value: Rc<dyn Any> = self.place_mut::<T>()?.take()? as Rc<dyn Any>;
        value.downcast().ok()
    }

    /// Takes the value of this type out and keeps `value`, if there is one, in its place.
    pub fn replace<T: State>(&mut self, value: Option<Rc<T>>) -> Option<Rc<T>> {
        let before = self.take();
        if let Some(value) = value {
            self.put(value);
        }
        before
    }

    /// The place of the value of this type, made now if there is none.
    fn place_or_default<T: State + Default>(&mut self) -> &mut Place {
        self.get_or_default::<T>();
        self.place_mut::<T>().expect(JUST_PUT)
    }

    fn place_mut<T: State>(&mut self) -> Option<&mut Place> {
        match self.places.iter().position(holds::<T>) {
            Some(at) => Some(&mut self.places[at]),
            None => self.more.get_mut()?.place_mut::<T>(),
        }
    }

    /// A place without a value.
    fn free(&self) -> &Place {
        match self.places.iter().find(|place| place.get().is_none()) {
            Some(free) => free,
            None => self.more.get_or_init(Box::default).free(),
        }
    }

    fn any(&self, is: impl Fn(&dyn State) -> bool + Copy) -> bool {
        let mut values = self.places.iter().filter_map(OnceCell::get);
        values.any(|value| is(&**value)) || self.more.get().is_some_and(|more| more.any(is))
    }

    /// The first that `find` finds.
    pub(super) fn find<T>(&self, find: impl Fn(&dyn State) -> Option<T> + Copy) -> Option<T> {
        let mut values = self.places.iter().filter_map(OnceCell::get);
        let found = values.find_map(|value| find(&**value));
        found.or_else(|| self.more.get()?.find(find))
    }

    fn each(&self, work: impl Fn(&dyn State) + Copy) {
        self.any(|state| {
            work(state);
            false
        });
    }

    fn forget(&mut self, is_over: impl Fn(&dyn State) -> bool + Copy) {
        for place in &mut self.places {
            if place.get().is_some_and(|value| is_over(&**value)) {
                place.take();
            }
        }
        if let Some(more) = self.more.get_mut() {
            more.forget(is_over);
        }
    }

    /// Gives a sub-request that is not waited for its values.
    fn share_apart(&self, child: &Self) {
        for value in self.places.iter().filter_map(OnceCell::get) {
            let own = value.apart().unwrap_or_else(|| Rc::clone(value));
            child.free().get_or_init(|| own);
        }
        if let Some(more) = self.more.get() {
            more.share_apart(child);
        }
    }

    fn share_with_stand_in(&self, stand_in: &Self) {
        for value in self.places.iter().filter_map(OnceCell::get) {
            if value.is_for_stand_in() {
                stand_in.free().get_or_init(|| Rc::clone(value));
            }
        }
        if let Some(more) = self.more.get() {
            more.share_with_stand_in(stand_in);
        }
    }
}

impl Request {
    /// State that it shares with its sub-requests, and with the request that it is a sub-request of.
    pub fn family_states(&self) -> &States {
        self.family_states.get_or_init(Rc::default)
    }

    /// [`Request::family_states`], if there are any.
    #[must_use]
    pub fn family_states_if_any(&self) -> Option<&States> {
        self.family_states.get().map(|states| &**states)
    }

    /// Whether another server's response was, or was to be, part of its response.
    #[must_use]
    pub fn is_of_upstream(&self) -> bool {
        self.states.any(State::is_of_upstream)
    }

    /// Whether a module says that an upstream's response with this head is not what it asked for.
    #[must_use]
    pub fn refuses(&self, head: &ResponseHead) -> bool {
        self.states.any(|state| state.refuses(head))
    }

    /// Shares the family's state with a new sub-request.
    pub(super) fn share_family_states(&self, child: &mut Self) {
        let states = self.family_states.get_or_init(Rc::default);
        child.family_states = Rc::clone(states).into();
    }

    /// Parts a sub-request from its family: nothing waits for it, and what it takes is its own.
    pub fn set_apart(&mut self) {
        if let Some(states) = self.family_states.take() {
            let own = States::default();
            states.share_apart(&own);
            self.family_states = Rc::new(own).into();
        }
    }

    /// Shares the state of what is shown with a stand-in.
    pub(super) fn share_states(&self, stand_in: &mut Self) {
        self.states.share_with_stand_in(&stand_in.states);
    }

    /// Forgets the state that an internal redirect makes invalid.
    pub(super) fn forget_states(&mut self) {
        self.states.forget(|state| !state.survives_redirect());
    }

    /// Tells all state that an error page replaces the content.
    pub(crate) fn tell_covered(&self, is_own: bool) {
        self.states.each(|state| state.covered(is_own));
    }

    /// Tells all state that the response was handed on.
    pub(crate) fn tell_answered(&self) {
        self.states.each(State::answered);
        if let Some(states) = self.family_states_if_any() {
            states.each(State::answered);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Default, Clone, PartialEq)]
    struct Numbered<const N: u8>(u32);

    impl<const N: u8> State for Numbered<N> {
        fn survives_redirect(&self) -> bool {
            N != 1
        }

        fn is_for_stand_in(&self) -> bool {
            N == 2
        }
    }

    #[test]
    fn there_is_one_value_of_a_type() {
        let mut states = States::default();
        assert_eq!(states.get::<Numbered<0>>(), None);
        states.edit::<Numbered<0>>().0 = 1;
        states.put(Rc::new(Numbered::<1>(2)));
        states.put(Rc::new(Numbered::<2>(3)));
        assert_eq!(states.get_or_default::<Numbered<3>>(), &Numbered(0));
        states.edit::<Numbered<2>>().0 += 1;
        states.put(Rc::new(Numbered::<0>(7)));
        assert_eq!(states.get(), Some(&Numbered::<0>(7)));
        assert_eq!(states.get(), Some(&Numbered::<2>(4)));
        assert_eq!(states.take(), Some(Rc::new(Numbered::<1>(2))));
        assert_eq!(states.take::<Numbered<1>>(), None);
        // Its place is that of the next one.
        states.put(Rc::new(Numbered::<4>(5)));
        assert_eq!(states.get(), Some(&Numbered::<3>(0)));
        assert_eq!(
            states.replace::<Numbered<4>>(None),
            Some(Rc::new(Numbered(5)))
        );
        assert_eq!(states.get::<Numbered<4>>(), None);
    }

    #[test]
    fn a_shared_value_is_copied_before_it_is_changed() {
        let mut states = States::default();
        states.edit::<Numbered<0>>().0 = 1;
        let shared = states.share::<Numbered<0>>().expect("it was put");
        states.edit::<Numbered<0>>().0 = 2;
        assert_eq!((shared.0, states.get()), (1, Some(&Numbered::<0>(2))));
    }

    #[test]
    fn state_says_when_it_is_over_and_for_whom_it_is() {
        let mut states = States::default();
        states.put(Rc::new(Numbered::<0>(0)));
        states.put(Rc::new(Numbered::<1>(1)));
        states.put(Rc::new(Numbered::<2>(2)));
        let stand_in = States::default();
        states.share_with_stand_in(&stand_in);
        assert_eq!(stand_in.get::<Numbered<0>>(), None);
        assert_eq!(stand_in.get(), Some(&Numbered::<2>(2)));
        states.forget(|state| !state.survives_redirect());
        assert_eq!(states.get::<Numbered<1>>(), None);
        assert_eq!(states.get(), Some(&Numbered::<2>(2)));
    }
}
