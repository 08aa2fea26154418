//! How an upstream request differs from the client's where a cache asks.

use bytes::Bytes;

/// Differences between an upstream request and the client's.
#[derive(Debug, Clone, Default)]
pub struct Variation {
    /// Whether the response may be cached: then the client's conditions and ranges are not passed on.
    pub is_cacheable: bool,
    /// Whether the method is GET, whatever the client's is (`proxy_cache_convert_head`).
    pub as_get: bool,
    /// Further header lines: the conditions of a cache that revalidates.
    pub lines: Vec<(Bytes, Bytes)>,
}
