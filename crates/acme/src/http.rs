//! A client of HTTP/1.1 for an authority: one request at a time, on a connection that is kept for the next one.
//!
//! It blocks. Not here: what is asked ([`crate::client`]), and HTTP's grammar ([`wire::http1`]). Invariants: an answer has at
//! most [`HEAD_BYTES_MAX`] and [`BODY_BYTES_MAX`] bytes and comes within [`REQUEST_TIME_MAX`] on its connection; nothing is
//! sent before the server's certificate is judged.

mod stream;

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use message::ResponseHead;
use tls::keys;
use tls::verify::Trust;
use wire::http1::body_decoder::Decoder;
use wire::http1::response_parser::{ParsedResponse, ResponseParser};

use crate::clock::unix_now;
use crate::issuer::{Authorities, Issuer, Resolve};
use crate::{Error, Url};
use stream::Stream;

/// Maximum size of an answer's head in bytes.
const HEAD_BYTES_MAX: usize = 64 << 10;
/// Maximum size of an answer's body in bytes: a chain of certificates has some thousands.
const BODY_BYTES_MAX: usize = 1 << 20;
/// Maximum time for a request and its answer.
const REQUEST_TIME_MAX: Duration = Duration::from_secs(60);
/// Maximum number of addresses of a host that are tried.
const ADDRESSES_MAX: usize = 8;
/// How many certificates may stand between the server's and a trusted one.
const DEPTH_MAX: usize = 10;
/// Maximum size of a file of authorities in bytes.
const AUTHORITIES_BYTES_MAX: u64 = 16 << 20;

/// What requests say of this program.
const AGENT: &str = concat!("freewheel/", env!("CARGO_PKG_VERSION"));

/// A client.
pub(crate) struct HttpClient {
    tls: tls::configure::Client,
    /// `None`: any certificate is taken.
    trust: Option<Trust>,
    resolve: Resolve,
    /// The connection of the last request, and where it leads.
    kept: Option<((bool, String, u16), Stream)>,
}

/// An answer.
#[derive(Debug, Default)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    /// Header lines: names in small letters, values.
    fields: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    fn of(head: &ResponseHead) -> Self {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let fields = head.iter();
        let fields = fields.map(|(name, value, _)| (text(name).to_ascii_lowercase(), text(value)));
        Self {
            status: head.status,
            fields: fields.collect(),
            body: Vec::new(),
        }
    }

    /// The value of the first header line with this name, in small letters.
    pub(crate) fn field(&self, name: &'static str) -> Option<&str> {
        self.fields(name).next()
    }

    /// The values of all header lines with this name.
    pub(crate) fn fields(&self, name: &'static str) -> impl Iterator<Item = &str> {
        let all = self.fields.iter().filter(move |(known, _)| known == name);
        all.map(|(_, value)| value.as_str())
    }

    /// The time that `Retry-After` asks for.
    pub(crate) fn retry_after(&self) -> Option<Duration> {
        let text = self.field("retry-after")?;
        if let Ok(seconds) = text.parse() {
            return Some(Duration::from_secs(seconds));
        }
        let at = jiff::fmt::rfc2822::parse(text)
            .ok()?
            .timestamp()
            .as_second();
        let left = at.saturating_sub(unix_now());
        Some(Duration::from_secs(u64::try_from(left).unwrap_or(0)))
    }
}

impl HttpClient {
    /// For an issuer. Reads the system's authorities where they are asked for.
    pub(crate) fn new(issuer: &Issuer) -> Result<Self, Error> {
        let options = tls::configure::ClientOptions {
            sends_name: true,
            ..tls::configure::ClientOptions::default()
        };
        let tls = tls::configure::Client::new(options);
        Ok(Self {
            tls: tls.map_err(|error| Error::Local(error.to_string()))?,
            trust: trust(&issuer.authorities)?,
            resolve: issuer.resolve.clone(),
            kept: None,
        })
    }

    /// Sends a request; `body` is a signed one's.
    pub(crate) fn request(
        &mut self,
        method: &str,
        url: &Url,
        body: Option<&str>,
    ) -> Result<Answer, Error> {
        let request = text(method, url, body);
        let place = (url.is_https, url.host.clone(), url.port);
        let kept = self.kept.take().filter(|(known, _)| *known == place);
        if let Some((_, mut stream)) = kept {
            stream.set_deadline(Instant::now() + REQUEST_TIME_MAX);
            // It may have been closed meanwhile: then the request goes over another one.
            if let Ok((answer, is_kept)) = exchange(&mut stream, method, &request) {
                self.kept = is_kept.then_some((place, stream));
                return Ok(answer);
            }
        }
        // A kept one that is gone without a word has used up its time.
        let mut stream = self.connect(url, Instant::now() + REQUEST_TIME_MAX)?;
        let (answer, is_kept) = exchange(&mut stream, method, &request)?;
        self.kept = is_kept.then_some((place, stream));
        Ok(answer)
    }

    fn connect(&self, url: &Url, deadline: Instant) -> Result<Stream, Error> {
        let addresses = self.addresses(&url.host)?;
        let mut failed = Error::Connection(format!("{} has no address", url.host));
        for address in addresses.into_iter().take(ADDRESSES_MAX) {
            match self.connect_to((address, url.port).into(), url, deadline) {
                Ok(stream) => return Ok(stream),
                Err(error) => failed = error,
            }
        }
        Err(failed)
    }

    fn connect_to(&self, peer: SocketAddr, url: &Url, deadline: Instant) -> Result<Stream, Error> {
        let mut stream = Stream::connect(peer, deadline)?;
        if url.is_https {
            stream.begin_tls(&self.tls, &url.host, self.trust.as_ref())?;
        }
        Ok(stream)
    }

    /// The addresses of a host. `localhost` is this machine without a question to a name server (RFC 6761, 6.3).
    fn addresses(&self, host: &str) -> Result<Vec<IpAddr>, Error> {
        if let Ok(address) = host.parse() {
            return Ok(vec![address]);
        }
        if host == "localhost" {
            return Ok(vec![
                [127, 0, 0, 1].into(),
                std::net::Ipv6Addr::LOCALHOST.into(),
            ]);
        }
        (self.resolve)(host)
            .map_err(|reason| Error::Connection(format!("{host} could not be resolved {reason}")))
    }
}

fn trust(authorities: &Authorities) -> Result<Option<Trust>, Error> {
    let (name, bytes) = match authorities {
        Authorities::Unverified => return Ok(None),
        Authorities::Given(bytes) => ("ssl_trusted_certificate", bytes.to_vec()),
        Authorities::System(files) => {
            let read = files.iter().find_map(|path| {
                let length = std::fs::metadata(path).ok()?.len();
                let bytes = (length <= AUTHORITIES_BYTES_MAX).then(|| std::fs::read(path).ok());
                bytes.flatten().map(|bytes| (*path, bytes))
            });
            read.ok_or_else(|| {
                let names = files.join(", ");
                Error::Local(format!(
                    "the authority's certificate cannot be judged, since there is none of {names}"
                ))
            })?
        }
    };
    let read = |_: &str| Ok(bytes.clone());
    let certificates = keys::trusted(name, &read);
    let certificates = certificates.map_err(|error| Error::Local(error.to_string()))?;
    Ok(Some(Trust::new(certificates, Vec::new(), DEPTH_MAX)))
}

fn text(method: &str, url: &Url, body: Option<&str>) -> Vec<u8> {
    let mut text = format!(
        "{method} {} HTTP/1.1\r\nHost: {}\r\nUser-Agent: {AGENT}\r\n",
        url.path,
        url.authority()
    );
    match body {
        Some(body) => text.push_str(&format!(
            "Content-Type: application/jose+json\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        )),
        None => text.push_str("\r\n"),
    }
    text.into_bytes()
}

/// Sends a request and reads its answer; whether the connection may be used again.
fn exchange(stream: &mut Stream, method: &str, request: &[u8]) -> Result<(Answer, bool), Error> {
    stream.write(request)?;
    let mut received = Vec::new();
    let mut head = read_head(stream, &mut received)?;
    while head.is_interim() {
        head = read_head(stream, &mut received)?;
    }
    let mut decoder = Decoder::of_response(&head, method == "HEAD");
    let mut answer = Answer::of(&head);
    answer.body = read_body(stream, &mut decoder, received)?;
    Ok((answer, decoder.is_end() && !head.is_last))
}

/// Takes a head out of what was received, with as much more of it as is needed.
fn read_head(stream: &mut Stream, received: &mut Vec<u8>) -> Result<Arc<ResponseHead>, Error> {
    let mut parser = ResponseParser::new(HEAD_BYTES_MAX);
    loop {
        match parser.advance(received) {
            ParsedResponse::Complete(head, length) => {
                received.drain(..length);
                return Ok(head);
            }
            ParsedResponse::NotHttp => return Err(no_http(received)),
            ParsedResponse::Refused(why) => {
                return Err(Error::Answer(format!("the answer is refused: {why}")));
            }
            ParsedResponse::Partial => {}
        }
        if stream.read(received)? == 0 {
            return Err(Error::Connection(
                "the connection was closed before an answer".to_owned(),
            ));
        }
    }
}

fn no_http(bytes: &[u8]) -> Error {
    let line = String::from_utf8_lossy(bytes);
    let line = line.lines().next().unwrap_or_default();
    let line: String = line
        .chars()
        .filter(|letter| !letter.is_control())
        .take(80)
        .collect();
    Error::Answer(format!("the answer is not HTTP: \"{line}\""))
}

/// Reads the body, of which this much was received with the head.
fn read_body(
    stream: &mut Stream,
    decoder: &mut Decoder,
    mut received: Vec<u8>,
) -> Result<Vec<u8>, Error> {
    let mut body = Vec::new();
    loop {
        let mut at = 0;
        while at < received.len() && !decoder.is_end() {
            let decoded = decoder.decode(&received[at..]);
            let decoded = decoded
                .map_err(|_| Error::Answer("the chunks of an answer are broken".to_owned()))?;
            body.extend_from_slice(&received[at..][decoded.data]);
            at += decoded.used;
        }
        let to_come = decoder.remaining().unwrap_or(0);
        if to_come.saturating_add(body.len() as u64) > BODY_BYTES_MAX as u64 {
            return Err(Error::Answer(
                "the body of an answer is too long".to_owned(),
            ));
        }
        if decoder.is_end() {
            return Ok(body);
        }
        received.clear();
        if stream.read(&mut received)? == 0 {
            return match decoder.may_close() {
                true => Ok(body),
                false => Err(Error::Connection("an answer was cut off".to_owned())),
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read as _, Write as _};
    use std::net::TcpListener;

    fn issuer(port: u16) -> Issuer {
        Issuer::of_test(&format!("http://127.0.0.1:{port}/dir"))
    }

    /// The answer to a request, where the server sends these bytes and closes.
    fn answered(bytes: &'static [u8]) -> Result<Answer, Error> {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = [0; 4096];
            let length = stream.read(&mut request).unwrap();
            stream.write_all(bytes).unwrap();
            String::from_utf8_lossy(&request[..length]).into_owned()
        });
        let issuer = issuer(port);
        let answer = HttpClient::new(&issuer)
            .unwrap()
            .request("GET", &issuer.uri, None);
        let request = server.join().unwrap();
        assert!(
            request.starts_with("GET /dir HTTP/1.1\r\nHost: 127.0.0.1:"),
            "{request}"
        );
        answer
    }

    #[test]
    fn bodies_of_all_framings() {
        let known = answered(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nRetry-After: 7\r\n\r\nabcd")
            .unwrap();
        assert_eq!((known.status, &known.body[..]), (200, &b"ab"[..]));
        assert_eq!(known.retry_after(), Some(Duration::from_secs(7)));
        let chunked = answered(b"HTTP/1.1 201 Created\r\nTransfer-Encoding: chunked\r\n\r\n3;x\r\nabc\r\n1\r\nd\r\n0\r\n\r\n");
        assert_eq!(chunked.unwrap().body, b"abcd");
        assert_eq!(
            answered(b"HTTP/1.1 200 OK\r\n\r\nto the end").unwrap().body,
            b"to the end"
        );
        let interim =
            answered(b"HTTP/1.1 103 X\r\nA: b\r\n\r\nHTTP/1.1 204 No\r\nReplay-Nonce: n\r\n\r\n")
                .unwrap();
        assert_eq!(
            (interim.status, interim.field("replay-nonce")),
            (204, Some("n"))
        );
    }

    #[test]
    fn answers_that_are_none_are_errors() {
        for bytes in [
            &b"SSH-2.0-x\r\n\r\n"[..],
            b"HTTP/1.1 200 OK\r\nContent-Length: 9999999999\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nab",
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nfffffffff\r\n",
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nabc",
            b"HTTP/1.1 20",
            b"",
        ] {
            assert!(
                answered(bytes).is_err(),
                "{:?}",
                String::from_utf8_lossy(bytes)
            );
        }
    }

    #[test]
    fn where_no_handshake_succeeds_the_next_address_is_tried() {
        let first = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = first.local_addr().unwrap().port();
        let second = TcpListener::bind(("127.0.0.2", port)).unwrap();
        let (tells, told) = std::sync::mpsc::channel();
        for listener in [first, second] {
            let tells = tells.clone();
            std::thread::spawn(move || {
                let (stream, _) = listener.accept().unwrap();
                tells.send(stream.local_addr().unwrap().ip()).unwrap();
            });
        }
        let mut issuer = issuer(port);
        let addresses = vec![[127, 0, 0, 1].into(), [127, 0, 0, 2].into()];
        issuer.resolve = std::sync::Arc::new(move |_| Ok(addresses.clone()));
        let url = Url::parse(&format!("https://ca.example:{port}/")).unwrap();
        let mut client = HttpClient::new(&issuer).unwrap();
        assert!(client.request("GET", &url, None).is_err());
        let tried: Vec<IpAddr> = told.try_iter().collect();
        let wanted: [IpAddr; 2] = [[127, 0, 0, 1].into(), [127, 0, 0, 2].into()];
        assert_eq!(tried, wanted);
    }

    #[test]
    fn a_host_without_an_address_says_so() {
        let issuer = issuer(1);
        let url = Url::parse("https://nowhere.example/").unwrap();
        let error = HttpClient::new(&issuer)
            .unwrap()
            .request("GET", &url, None)
            .unwrap_err();
        assert_eq!(
            error.to_string(),
            "nowhere.example could not be resolved (3: Host not found)"
        );
    }
}
