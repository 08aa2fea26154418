//! Spans of addresses that do not overlap, each with a value; an address is looked up by binary search.

use std::collections::BTreeMap;

/// An address as a number.
pub(super) trait AddressBits: Copy + Ord {
    /// The address before this one, which is not the first.
    fn before(self) -> Self;
    /// The next one; none behind the last.
    fn after(self) -> Option<Self>;
    /// The last address of the network that begins here and has a prefix of so many bits.
    fn last_of(self, prefix: u8) -> Self;
}

macro_rules! bits {
    ($($Number:ty),*) => {$(
        impl AddressBits for $Number {
            fn before(self) -> Self {
                self - 1
            }

            fn after(self) -> Option<Self> {
                self.checked_add(1)
            }

            fn last_of(self, prefix: u8) -> Self {
                self | <$Number>::MAX.checked_shr(u32::from(prefix)).unwrap_or(0)
            }
        }
    )*};
}

bits!(u32, u128);

/// One span, both ends included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Span<A> {
    /// Its first address.
    pub first: A,
    /// Its last address.
    pub last: A,
    /// Its value.
    pub value: u32,
}

/// All spans, in order.
#[derive(Debug)]
pub(super) struct Spans<A>(Box<[Span<A>]>);

impl<A: AddressBits> Spans<A> {
    /// Of spans in order.
    #[must_use]
    pub(super) fn new(spans: Vec<Span<A>>) -> Self {
        debug_assert!(
            spans.windows(2).all(|two| two[0].last < two[1].first),
            "the spans are in order"
        );
        Self(spans.into())
    }

    /// Of networks, where the narrowest counts: by address and length of the prefix, so that each stands before those inside it.
    #[must_use]
    pub(super) fn of_networks(networks: BTreeMap<(A, u8), u32>) -> Self {
        let mut spans = Vec::with_capacity(networks.len());
        // Networks that have begun and not ended, the widest first.
        let mut open: Vec<(A, u32)> = Vec::new();
        // What comes next, while a network is open.
        let mut next = None;
        for ((first, prefix), value) in networks {
            close(&mut open, &mut next, Some(first), &mut spans);
            next = Some(first);
            open.push((first.last_of(prefix), value));
        }
        close(&mut open, &mut next, None, &mut spans);
        Self::new(spans)
    }

    /// The value of an address.
    #[must_use]
    pub(super) fn find(&self, address: A) -> Option<u32> {
        let at = self.0.partition_point(|span| span.last < address);
        let span = self.0.get(at)?;
        (span.first <= address).then_some(span.value)
    }
}

/// Writes what lies before `upto` (none: everything) of the open networks, and ends those that end there.
fn close<A: AddressBits>(
    open: &mut Vec<(A, u32)>,
    next: &mut Option<A>,
    upto: Option<A>,
    spans: &mut Vec<Span<A>>,
) {
    while let (Some(&(last, value)), Some(first)) = (open.last(), *next) {
        let is_over = upto.is_none_or(|upto| last < upto);
        let last = match upto {
            Some(upto) if !is_over && upto > first => upto.before(),
            Some(_) if !is_over => return,
            _ => last,
        };
        if first <= last {
            spans.push(Span { first, last, value });
            *next = last.after();
        }
        if !is_over {
            return;
        }
        open.pop();
    }
}
