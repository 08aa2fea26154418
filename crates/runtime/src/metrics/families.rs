//! Families of metrics: their names, types, units, labels and descriptions.
//!
//! Each source of metrics declares its own ([`crate::families!`]). Not here: the list of all of them, which stands where
//! all sources are known. Invariant: names are those of OpenMetrics, with the unit at the end; a counter's is listed
//! without `_total`, which its samples have.

/// What the numbers of a family do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// They grow.
    Counter,
    /// They go up and down.
    Gauge,
    /// They count times in buckets.
    Histogram,
}

impl Kind {
    /// The word of the formats.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        }
    }
}

/// A family of metrics.
#[derive(Debug)]
pub struct Family {
    /// Its name, which no other family has.
    pub name: &'static str,
    /// What its numbers do.
    pub kind: Kind,
    /// `seconds`, `bytes`, or nothing.
    pub unit: &'static str,
    /// The labels of its samples.
    pub labels: &'static [&'static str],
    /// Its description.
    pub help: &'static str,
}

/// The families of one source, in the order in which they are shown.
pub type Families = &'static [&'static Family];

/// Declares the families of one source, each a static, and the table of them.
///
/// A row is `NAME Kind "name" "unit" ["label", …] "description";`.
#[macro_export]
macro_rules! families {
    (
        $(#[$about:meta])*
        $vis:vis $TABLE:ident;
        $($NAME:ident $Kind:ident $name:literal $unit:literal [$($label:literal),*] $help:literal;)*
    ) => {
        $(
            #[doc = $help]
            static $NAME: $crate::metrics::Family = $crate::metrics::Family {
                name: $name,
                kind: $crate::metrics::families::Kind::$Kind,
                unit: $unit,
                labels: &[$($label),*],
                help: $help,
            };
        )*

        $(#[$about])*
        $vis static $TABLE: $crate::metrics::Families = &[$(&$NAME),*];
    };
}
