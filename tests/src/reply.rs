//! One HTTP/1 answer, taken apart but not interpreted. Strict where a server must be exact: line ends, chunk sizes.

/// An answer as it came.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply {
    /// `HTTP/1.1`
    pub version: String,
    /// `200`
    pub status: u16,
    /// `OK`
    pub reason: String,
    /// Names as sent, in the order of sending.
    pub headers: Vec<(String, String)>,
    /// Chunks already joined.
    pub body: Vec<u8>,
    /// Fields behind the last chunk.
    pub trailers: Vec<(String, String)>,
}

impl Reply {
    /// The first header of that name, without regard to case.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers
            .iter()
            .find(|(key, _)| key.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.as_str())
    }

    /// All values of that header.
    pub fn all(&self, name: &str) -> Vec<&str> {
        self.headers
            .iter()
            .filter(|(key, _)| key.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.as_str())
            .collect()
    }

    /// The body as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

/// Takes one answer from the front of `bytes`: the answer and how many bytes it used. `None`: more bytes are needed. `ended`: no more
/// will come, so that an answer without a length is complete. `head`: the request was HEAD.
///
/// # Panics
/// On anything that is not HTTP/1: the server is wrong, and the test has failed.
pub fn split_reply(bytes: &[u8], head: bool, ended: bool) -> Option<(Reply, usize)> {
    let end = find(bytes, b"\r\n\r\n")?;
    let text = std::str::from_utf8(&bytes[..end]).expect("an answer's head is text");
    let mut lines = text.split("\r\n");
    let mut start = lines.next().unwrap_or_default().splitn(3, ' ');
    let version = start.next().unwrap_or_default().to_owned();
    assert!(version.starts_with("HTTP/1."), "not an answer: {text:?}");
    let status = start
        .next()
        .and_then(|code| code.parse().ok())
        .unwrap_or_else(|| panic!("no status: {text:?}"));
    let reason = start.next().unwrap_or_default().to_owned();
    let headers: Vec<_> = lines.map(field).collect();
    let mut reply = Reply {
        version,
        status,
        reason,
        headers,
        body: Vec::new(),
        trailers: Vec::new(),
    };
    let mut used = end + 4;
    if head || status < 200 || status == 204 || status == 304 {
        return Some((reply, used));
    }
    if reply.header("transfer-encoding").is_some() {
        used += take_chunks(&bytes[used..], &mut reply)?;
    } else if let Some(length) = reply.header("content-length") {
        let length: usize = length.parse().expect("Content-Length is a number");
        reply.body = bytes.get(used..used + length)?.to_vec();
        used += length;
    } else if ended {
        reply.body = bytes[used..].to_vec();
        used = bytes.len();
    } else {
        return None;
    }
    Some((reply, used))
}

fn take_chunks(bytes: &[u8], reply: &mut Reply) -> Option<usize> {
    let mut used = 0;
    loop {
        let line = find(&bytes[used..], b"\r\n")?;
        let size = std::str::from_utf8(&bytes[used..used + line]).expect("a chunk size is text");
        let size = usize::from_str_radix(size, 16)
            .unwrap_or_else(|_| panic!("not a chunk size: {size:?}"));
        used += line + 2;
        if size == 0 {
            return take_trailers(&bytes[used..], reply).map(|more| used + more);
        }
        reply.body.extend_from_slice(bytes.get(used..used + size)?);
        used += size;
        assert_eq!(bytes.get(used..used + 2)?, b"\r\n", "a chunk ends in CRLF");
        used += 2;
    }
}

fn take_trailers(bytes: &[u8], reply: &mut Reply) -> Option<usize> {
    let mut used = 0;
    loop {
        let line = find(&bytes[used..], b"\r\n")?;
        if line == 0 {
            return Some(used + 2);
        }
        reply.trailers.push(field(
            std::str::from_utf8(&bytes[used..used + line]).expect("a trailer is text"),
        ));
        used += line + 2;
    }
}

fn field(line: &str) -> (String, String) {
    let (name, value) = line
        .split_once(':')
        .unwrap_or_else(|| panic!("not a header: {line:?}"));
    (name.to_owned(), value.trim().to_owned())
}

fn find(bytes: &[u8], needle: &[u8]) -> Option<usize> {
    bytes
        .windows(needle.len())
        .position(|window| window == needle)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_with_a_length_leaves_the_next_one() {
        let bytes = b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabcHTTP/1.1";
        let (reply, used) = split_reply(bytes, false, false).unwrap();
        assert_eq!(
            (reply.status, reply.text().as_str(), &bytes[used..]),
            (200, "abc", &b"HTTP/1.1"[..])
        );
    }

    #[test]
    fn chunks_are_joined_and_trailers_kept() {
        let bytes = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n1\r\nd\r\n0\r\nX: y\r\n\r\n";
        let (reply, used) = split_reply(bytes, false, false).unwrap();
        assert_eq!((reply.text().as_str(), used), ("abcd", bytes.len()));
        assert_eq!(reply.trailers, [("X".to_owned(), "y".to_owned())]);
    }

    #[test]
    fn half_an_answer_is_none() {
        let bytes = b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nab";
        assert!(split_reply(bytes, false, true).is_none());
    }

    #[test]
    fn without_a_length_the_end_of_the_connection_counts() {
        let bytes = b"HTTP/1.1 200 OK\r\n\r\nab";
        assert!(split_reply(bytes, false, false).is_none());
        assert_eq!(split_reply(bytes, false, true).unwrap().0.text(), "ab");
    }

    #[test]
    fn an_answer_to_head_has_no_body() {
        let bytes = b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n";
        assert!(split_reply(bytes, false, false).is_none());
        assert_eq!(split_reply(bytes, true, false).unwrap().1, bytes.len());
    }
}
