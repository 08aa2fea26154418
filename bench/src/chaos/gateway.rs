//! The origins that speak uwsgi and SCGI: one request for each connection, whose end is the answer's unless a length says otherwise.

use crate::answer::{self, Answer};
use crate::asked::How;
use crate::fickle::Fickle;
use crate::params::{self, PARAMS_MAX, Params};
use std::io::{self, ErrorKind};
use tokio::io::{AsyncReadExt, AsyncWriteExt, BufReader, BufWriter};

type Connection = BufReader<BufWriter<Fickle>>;

/// Of a piece of a request's body, in bytes.
const PIECE: u64 = 1 << 14;
/// Digits of the length of SCGI's parameters.
const DIGITS_MAX: usize = 6;

/// uwsgi: a kind, the length of the parameters, another kind, the parameters, the body.
pub async fn serve_uwsgi(stream: Fickle) {
    let mut connection = BufReader::new(BufWriter::new(stream));
    let served = async {
        let params = uwsgi(&mut connection).await?;
        exchange(&mut connection, &params, "uwsgi").await
    };
    let _: io::Result<()> = served.await;
}

/// SCGI: the parameters as a netstring, the body.
pub async fn serve_scgi(stream: Fickle) {
    let mut connection = BufReader::new(BufWriter::new(stream));
    let served = async {
        let params = scgi(&mut connection).await?;
        exchange(&mut connection, &params, "SCGI").await
    };
    let _: io::Result<()> = served.await;
}

async fn exchange(connection: &mut Connection, params: &Params, protocol: &str) -> io::Result<()> {
    let asked = params.asked().ok_or(ErrorKind::InvalidData)?;
    if asked.how != How::Early {
        take(connection, params, &params.place(protocol, &asked)).await?;
    }
    let answer = answer::answer(&asked, &params.request()).await;
    let mut answer = answer.ok_or(ErrorKind::ConnectionAborted)?;
    // Without a length an end that comes too early would be a proper one.
    answer.has_length = answer.status != 304;
    send(connection, &answer, params.is_head()).await?;
    // A client that is still sending would lose an answer whose connection ends with something unread.
    if asked.how == How::Early {
        connection.get_mut().shutdown().await?;
        let _ = take(connection, params, "").await;
    }
    Ok(())
}

async fn take(connection: &mut Connection, params: &Params, place: &str) -> io::Result<()> {
    let length = params.get("CONTENT_LENGTH").unwrap_or_default();
    let mut left: u64 = length.parse().unwrap_or(0);
    let mut arriving = params.arriving(place);
    while left > 0 {
        let mut piece = Vec::new();
        let most = left.min(PIECE);
        if (&mut *connection)
            .take(most)
            .read_to_end(&mut piece)
            .await? as u64
            != most
        {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        left -= most;
        if let Some(arriving) = &mut arriving
            && !arriving.take(&piece)
        {
            return Err(ErrorKind::InvalidData.into());
        }
    }
    if let Some(arriving) = arriving {
        arriving.end();
    }
    Ok(())
}

async fn send(connection: &mut Connection, answer: &Answer, is_head: bool) -> io::Result<()> {
    connection
        .write_all(params::head(answer).as_bytes())
        .await?;
    let mut at = answer.range.0;
    while !is_head && let Some(piece) = answer.piece(at) {
        connection.write_all(piece).await?;
        at += piece.len() as u64;
        if !answer.pause.is_zero() {
            connection.flush().await?;
        }
        answer.rest().await;
    }
    connection.flush().await?;
    if answer.cut.is_some() && !is_head {
        Answer::linger().await;
    }
    Ok(())
}

async fn uwsgi(connection: &mut Connection) -> io::Result<Params> {
    let mut head = [0; 4];
    connection.read_exact(&mut head).await?;
    let mut bytes = vec![0; u16::from_le_bytes([head[1], head[2]]).into()];
    connection.read_exact(&mut bytes).await?;
    uwsgi_pairs(&bytes).ok_or_else(|| ErrorKind::InvalidData.into())
}

fn uwsgi_pairs(mut bytes: &[u8]) -> Option<Params> {
    let mut params = Params::default();
    while !bytes.is_empty() {
        let (name, value) = (uwsgi_string(&mut bytes)?, uwsgi_string(&mut bytes)?);
        params.insert(name, value);
    }
    Some(params)
}

fn uwsgi_string<'a>(bytes: &mut &'a [u8]) -> Option<&'a [u8]> {
    let (length, rest) = bytes.split_first_chunk::<2>()?;
    let (string, rest) = rest.split_at_checked(u16::from_le_bytes(*length).into())?;
    *bytes = rest;
    Some(string)
}

async fn scgi(connection: &mut Connection) -> io::Result<Params> {
    let mut digits = String::new();
    loop {
        match connection.read_u8().await? {
            b':' => break,
            digit if digits.len() < DIGITS_MAX => digits.push(digit.into()),
            _ => return Err(ErrorKind::InvalidData.into()),
        }
    }
    let length: usize = digits.parse().map_err(io::Error::other)?;
    if length > PARAMS_MAX {
        return Err(ErrorKind::InvalidData.into());
    }
    // With the comma.
    let mut bytes = vec![0; length + 1];
    connection.read_exact(&mut bytes).await?;
    scgi_pairs(&bytes).ok_or_else(|| ErrorKind::InvalidData.into())
}

fn scgi_pairs(bytes: &[u8]) -> Option<Params> {
    let mut params = Params::default();
    let mut strings = bytes.strip_suffix(b"\0,")?.split(|byte| *byte == 0);
    while let Some(name) = strings.next() {
        params.insert(name, strings.next()?);
    }
    Some(params)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_of_both_protocols_are_read() {
        let uwsgi = uwsgi_pairs(b"\x01\0a\x02\0bc\x01\0z\0\0").expect("pairs");
        let scgi = scgi_pairs(b"a\0bc\0z\0\0,").expect("pairs");
        for params in [uwsgi, scgi] {
            assert_eq!((params.get("a"), params.get("z")), (Some("bc"), Some("")));
        }
        assert!(uwsgi_pairs(b"\x05\0abc").is_none());
        assert!(scgi_pairs(b"a\0bc").is_none() && scgi_pairs(b"a\0,").is_none());
    }
}
