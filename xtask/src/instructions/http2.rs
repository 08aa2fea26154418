//! A client of HTTP/2 that asks for so many answers at once, as they cost most: frames by hand (RFC 9113, 4 and 6).

use std::io::{BufReader, Read, Write};
use std::net::TcpStream;

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const GOAWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;
const END_STREAM: u8 = 1;
const ACK: u8 = 1;
/// END_STREAM and END_HEADERS.
const WHOLE: u8 = 5;
/// The largest room for all answers of a connection.
const ROOM: u32 = (1 << 31) - 65_536;
/// `:status: 200` of the static table (RFC 7541, appendix A).
const OK: u8 = 0x88;

/// A connection.
pub struct Http2 {
    connection: BufReader<TcpStream>,
    next: u32,
}

impl Http2 {
    /// Begins a connection.
    pub fn begin(mut stream: TcpStream) -> std::io::Result<Self> {
        let mut said = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
        said.extend(frame(SETTINGS, 0, 0, &[]));
        said.extend(frame(WINDOW_UPDATE, 0, 0, &ROOM.to_be_bytes()));
        stream.write_all(&said)?;
        Ok(Self {
            connection: BufReader::new(stream),
            next: 1,
        })
    }

    /// Asks for so many answers with one write, and reads them all.
    pub fn ask(&mut self, path: &str, count: u32) -> std::io::Result<()> {
        // GET, http, the path and the authority as literals.
        let mut block = vec![0x82, 0x86, 0x04, path.len() as u8];
        block.extend(path.as_bytes());
        block.extend([0x01, 9]);
        block.extend(b"localhost");
        let mut said = Vec::new();
        for _ in 0..count {
            said.extend(frame(HEADERS, WHOLE, self.next, &block));
            self.next += 2;
        }
        self.connection.get_mut().write_all(&said)?;
        let mut left = count;
        while left > 0 {
            let (kind, flags, payload) = self.frame()?;
            match kind {
                SETTINGS if flags & ACK == 0 => {
                    let ack = frame(SETTINGS, ACK, 0, &[]);
                    self.connection.get_mut().write_all(&ack)?;
                }
                HEADERS if payload.first() != Some(&OK) => {
                    return Err(std::io::Error::other("not answered with 200"));
                }
                RST_STREAM | GOAWAY => return Err(std::io::Error::other("not answered")),
                DATA | HEADERS if flags & END_STREAM != 0 => left -= 1,
                _ => {}
            }
        }
        Ok(())
    }

    /// Kind, flags and payload of the next frame.
    fn frame(&mut self) -> std::io::Result<(u8, u8, Vec<u8>)> {
        let mut head = [0; 9];
        self.connection.read_exact(&mut head)?;
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
        let mut payload = vec![0; length as usize];
        self.connection.read_exact(&mut payload)?;
        Ok((head[3], head[4], payload))
    }
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut bytes = (payload.len() as u32).to_be_bytes()[1..].to_vec();
    bytes.extend([kind, flags]);
    bytes.extend(stream.to_be_bytes());
    bytes.extend(payload);
    bytes
}
