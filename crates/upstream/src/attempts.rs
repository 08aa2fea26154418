//! The attempts of a request, peer after peer, and the variables that show them (`$upstream_addr` and its kin).
//!
//! Not here: how times and bytes are measured. Invariant: every variable has one value for each attempt, in the same
//! order.

use std::sync::Arc;

use smallvec::SmallVec;

/// Maximum of tries of one request that are recorded; later ones overwrite the last.
pub const TRIES_MAX: usize = 1024;

/// One try.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AttemptRecord {
    /// The peer's address; the upstream's name when no peer could be had.
    pub address: Arc<str>,
    /// The response's status, or the one that stands for its failure; 0: none.
    pub status: u16,
    /// Time until the connection was established; `None`: it never was. 0 for a kept one.
    pub connect_ms: Option<u64>,
    /// Time until the head had arrived.
    pub header_ms: Option<u64>,
    /// Time until the whole response had arrived, or the try was over.
    pub response_ms: Option<u64>,
    /// Bytes of the body.
    pub response_length: u64,
    /// Bytes sent.
    pub bytes_sent: u64,
    /// Bytes received.
    pub bytes_received: u64,
}

/// The variable that is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Figure {
    /// `$upstream_addr`
    Address,
    /// `$upstream_status`
    Status,
    /// `$upstream_connect_time`
    ConnectTime,
    /// `$upstream_header_time`
    HeaderTime,
    /// `$upstream_response_time`
    ResponseTime,
    /// `$upstream_response_length`
    ResponseLength,
    /// `$upstream_bytes_sent`
    BytesSent,
    /// `$upstream_bytes_received`
    BytesReceived,
}

/// All tries of a request.
#[derive(Clone, Debug, Default)]
pub struct Attempts {
    list: SmallVec<[AttemptRecord; 1]>,
    /// Indices of the tries before which the request was sent on to another location (X-Accel-Redirect, `error_page`).
    redirects: SmallVec<[usize; 1]>,
}

impl Attempts {
    /// Begins a try; its result is written into it.
    pub fn begin(&mut self, address: impl Into<Arc<str>>) -> &mut AttemptRecord {
        let begun = AttemptRecord {
            address: address.into(),
            ..AttemptRecord::default()
        };
        if self.list.len() == TRIES_MAX {
            self.list.pop();
        }
        self.list.push(begun);
        let last = self.list.len() - 1;
        &mut self.list[last]
    }

    /// Records that the request goes to another upstream of another location; the next tries follow a colon.
    pub fn redirect(&mut self) {
        if !self.list.is_empty() && self.redirects.last() != Some(&self.list.len()) {
            self.redirects.push(self.list.len());
        }
    }

    /// Whether nothing was tried.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// The current try, or the last one.
    pub fn last(&mut self) -> Option<&mut AttemptRecord> {
        self.list.last_mut()
    }

    /// Appends a variable's value. `false`: it has none, since nothing was tried.
    pub fn write(&self, figure: Figure, out: &mut Vec<u8>) -> bool {
        for (number, one) in self.list.iter().enumerate() {
            if self.redirects.contains(&number) {
                out.extend_from_slice(b" : ");
            } else if number > 0 {
                out.extend_from_slice(b", ");
            }
            one.write(figure, out);
        }
        if self.redirects.last() == Some(&self.list.len()) {
            out.extend_from_slice(b" : ");
        }
        !self.list.is_empty()
    }
}

impl AttemptRecord {
    fn write(&self, figure: Figure, out: &mut Vec<u8>) {
        match figure {
            Figure::Address => out.extend_from_slice(self.address.as_bytes()),
            Figure::Status if self.status == 0 => out.push(b'-'),
            Figure::Status => number(out, self.status.into()),
            Figure::ConnectTime => seconds(out, self.connect_ms),
            Figure::HeaderTime => seconds(out, self.header_ms),
            Figure::ResponseTime => seconds(out, self.response_ms),
            Figure::ResponseLength => number(out, self.response_length),
            Figure::BytesSent => number(out, self.bytes_sent),
            Figure::BytesReceived => number(out, self.bytes_received),
        }
    }
}

fn number(out: &mut Vec<u8>, number: u64) {
    out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
}

/// Seconds with three decimals; `-` where unknown.
fn seconds(out: &mut Vec<u8>, ms: Option<u64>) {
    let Some(ms) = ms else {
        return out.push(b'-');
    };
    number(out, ms / 1000);
    out.push(b'.');
    for unit in [100, 10, 1] {
        out.push(b'0' + u8::try_from(ms / unit % 10).expect("a digit"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(tries: &Attempts) -> String {
        use Figure::*;
        let figures = [
            Address,
            Status,
            ConnectTime,
            HeaderTime,
            ResponseTime,
            ResponseLength,
            BytesSent,
            BytesReceived,
        ];
        let values = figures.map(|figure| {
            let mut out = Vec::new();
            match tries.write(figure, &mut out) {
                true => String::from_utf8(out).unwrap(),
                false => "-".to_owned(),
            }
        });
        values.join(" | ")
    }

    fn tried(address: &str, status: u16, ms: [Option<u64>; 3], bytes: [u64; 3]) -> AttemptRecord {
        AttemptRecord {
            address: address.into(),
            status,
            connect_ms: ms[0],
            header_ms: ms[1],
            response_ms: ms[2],
            response_length: bytes[0],
            bytes_sent: bytes[1],
            bytes_received: bytes[2],
        }
    }

    // What nginx 1.31.5 logged of a server that refused, one that answered with X-Accel-Redirect, one with 500 and one
    // with 200.
    #[test]
    fn tries_are_told_as_nginx_tells_them() {
        let mut tries = Attempts::default();
        assert_eq!(shown(&tries), "- | - | - | - | - | - | - | -");
        tries.redirect(); // before any try it is none
        *tries.begin("") = tried("a:1", 502, [None, None, Some(0)], [0, 0, 0]);
        *tries.begin("") = tried("a:2", 200, [Some(0); 3], [0, 30, 84]);
        tries.redirect();
        *tries.begin("") = tried("b:1", 500, [Some(0); 3], [0, 30, 62]);
        *tries.begin("") = tried("b:2", 200, [Some(1); 3], [5, 30, 62]);
        assert_eq!(
            shown(&tries),
            "a:1, a:2 : b:1, b:2 | 502, 200 : 500, 200 | -, 0.000 : 0.000, 0.001 | -, 0.000 : 0.000, 0.001 | \
             0.000, 0.000 : 0.000, 0.001 | 0, 0 : 0, 5 | 0, 30 : 30, 30 | 0, 84 : 62, 62"
        );
    }

    // And of an upstream of which all servers were disabled, with an error_page that was proxied too.
    #[test]
    fn a_request_without_a_peer_names_its_upstream() {
        let mut tries = Attempts::default();
        *tries.begin("dead") = tried("dead", 502, [None, None, Some(0)], [0, 0, 0]);
        assert_eq!(shown(&tries), "dead | 502 | - | - | 0.000 | 0 | 0 | 0");
        tries.redirect();
        *tries.begin("") = tried("b:2", 200, [Some(0), Some(0), Some(61_005)], [5, 30, 62]);
        assert_eq!(
            shown(&tries),
            "dead : b:2 | 502 : 200 | - : 0.000 | - : 0.000 | 0.000 : 61.005 | 0 : 5 | 0 : 30 | 0 : 62"
        );
    }

    #[test]
    fn the_list_is_bounded() {
        let mut tries = Attempts::default();
        for number in 0..TRIES_MAX + 9 {
            tries.begin(number.to_string());
        }
        assert_eq!(*tries.last().unwrap().address, (TRIES_MAX + 8).to_string());
        assert_eq!(tries.list.len(), TRIES_MAX);
    }
}
