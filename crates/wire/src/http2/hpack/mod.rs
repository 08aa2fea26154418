//! HPACK, the compression of header fields (RFC 7541). The decoder: `integer`, `huffman`, `static_table`,
//! `dynamic_table`, `decode`. The encoder: `encode`, which has no dynamic table (as nginx's).
//!
//! Knows no frame. Invariant: after a fault the tables of both ends differ, so that the connection must end.

pub mod decode;
pub mod dynamic_table;
pub mod encode;
pub mod huffman;
pub mod integer;
pub mod static_table;

pub use decode::{BlockLimits, DecodedLine, Decoder};
pub use encode::Encoder;

use super::Reason;

/// Why a header block cannot be decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HpackFault {
    /// An index of no entry (RFC 7541, 2.3.3).
    #[error("invalid index")]
    Index,
    /// An integer of too many octets (RFC 7541, 5.1).
    #[error("too large integer")]
    Integer,
    /// A string that is not a whole number of Huffman codes (RFC 7541, 5.2).
    #[error("invalid Huffman code")]
    Huffman,
    /// A block that ends within a field.
    #[error("truncated header block")]
    Truncated,
    /// A table size above the announced one, or behind the first field (RFC 7541, 4.2 and 6.3).
    #[error("invalid dynamic table size update")]
    TableSize,
    /// A name or value above [`BlockLimits::string_max`].
    #[error("too large header field")]
    FieldTooLarge,
    /// Fields that together are above [`BlockLimits::block_max`].
    #[error("too large header block")]
    BlockTooLarge,
}

impl HpackFault {
    /// The reason for which the connection ends.
    pub fn reason(self) -> Reason {
        match self {
            HpackFault::FieldTooLarge => Reason::FieldTooLarge,
            HpackFault::BlockTooLarge => Reason::BlockTooLarge,
            _ => Reason::Compression,
        }
    }
}
