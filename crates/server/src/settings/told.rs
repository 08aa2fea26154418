//! The form of what `--explain-url` says of modules ([`super::tables::TOLD`]).

/// What `--explain-url` says of one step.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Told {
    /// The step, by its name in the lists of steps.
    pub step: &'static str,
    /// The directives that decide what it does.
    pub lines: &'static [&'static str],
    /// What is said.
    pub how: How,
}

/// How a step is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum How {
    /// Not run, and one of the limits.
    Limit,
    /// Not run, and not told.
    Silent,
    /// Not run; a text under a title stands for it.
    Instead(&'static str, &'static str),
    /// A judge: the text of a request that passes, and of one that is refused.
    Judge(&'static str, &'static str),
    /// A film of which a part is sent.
    Film,
}
