//! What the origin serves, known to those who check it: a path says everything about its answer, and each byte follows from it.

pub mod content;
