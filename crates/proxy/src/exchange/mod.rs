//! Asking upstream servers: `upstream_exchange` asks one after the other, each by an `attempt`; `protocol` is how
//! those of gateways are asked.

mod attempt;
mod protocol;
pub(crate) mod upstream_exchange;
