//! The limits of a request head, in the words of the directives that set them.

/// Limits and options for a head. Once the host is known, those of its virtual server apply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeadLimits {
    /// `client_header_buffer_size` in bytes: lines are read into this buffer first.
    pub client_header_buffer_size: usize,
    /// `large_client_header_buffers`, their number.
    pub large_buffers: usize,
    /// `large_client_header_buffers`, bytes of each: the maximum length of a line.
    pub large_buffer_size: usize,
    /// `max_headers`.
    pub max_headers: usize,
    /// `ignore_invalid_headers`: whether to drop header lines with invalid names.
    pub ignore_invalid_headers: bool,
    /// `underscores_in_headers`: whether underscores are valid in names.
    pub underscores_in_headers: bool,
    /// `merge_slashes`.
    pub merge_slashes: bool,
    /// Whether CONNECT is accepted (`tunnel_pass`) rather than answered with 405.
    pub allow_connect: bool,
}

impl Default for HeadLimits {
    /// The defaults of nginx.
    fn default() -> Self {
        Self {
            client_header_buffer_size: 1024,
            large_buffers: 4,
            large_buffer_size: 8192,
            max_headers: 1000,
            ignore_invalid_headers: true,
            underscores_in_headers: false,
            merge_slashes: true,
            allow_connect: false,
        }
    }
}
