//! The origin that speaks FastCGI (FastCGI 1.0, section 3): one request at a time over each connection, which may be kept.

use crate::answer::{self, Answer};
use crate::asked::How;
use crate::fickle::Fickle;
use crate::params::{self, PARAMS_MAX, Params};
use crate::uploads::Arriving;
use std::io::{self, ErrorKind};
use tokio::io::{AsyncReadExt, AsyncWriteExt, BufReader, BufWriter};

const BEGIN: u8 = 1;
const END: u8 = 3;
const PARAMS: u8 = 4;
const STDIN: u8 = 5;
const STDOUT: u8 = 6;
/// FCGI_KEEP_CONN.
const KEEP: u8 = 1;

type Connection = BufReader<BufWriter<Fickle>>;

/// Answers until the peer ends, or an answer is to break off.
pub async fn serve(stream: Fickle) {
    let mut connection = BufReader::new(BufWriter::new(stream));
    while matches!(exchange(&mut connection).await, Ok(true)) {}
}

/// Whether the connection is kept.
async fn exchange(connection: &mut Connection) -> io::Result<bool> {
    let (kind, begin) = record(connection).await?;
    if kind != BEGIN || begin.len() < 3 {
        return Ok(false);
    }
    let is_kept = begin[2] & KEEP != 0;
    let params = read_params(connection).await?;
    let Some(asked) = params.asked() else {
        return Ok(false);
    };
    let place = params.place("FastCGI", &asked);
    let mut arriving = params.arriving(&place);
    if asked.how != How::Early && !take(connection, &mut arriving).await? {
        return Ok(false);
    }
    let Some(answer) = answer::answer(&asked, &params.request()).await else {
        return Ok(false);
    };
    let is_whole = send(connection, &answer, params.is_head()).await?;
    // What was not read of the body is not looked for.
    Ok(is_whole && is_kept && asked.how != How::Early)
}

/// The body; false: it is not the right one.
async fn take(
    connection: &mut Connection,
    arriving: &mut Option<Arriving<'_>>,
) -> io::Result<bool> {
    loop {
        let (kind, piece) = record(connection).await?;
        if kind != STDIN {
            return Ok(false);
        }
        if piece.is_empty() {
            if let Some(arriving) = arriving {
                arriving.end();
            }
            return Ok(true);
        }
        if arriving
            .as_mut()
            .is_some_and(|arriving| !arriving.take(&piece))
        {
            return Ok(false);
        }
    }
}

/// Whether it went to its end.
async fn send(connection: &mut Connection, answer: &Answer, is_head: bool) -> io::Result<bool> {
    write(connection, STDOUT, params::head(answer).as_bytes()).await?;
    let mut at = answer.range.0;
    while !is_head && let Some(piece) = answer.piece(at) {
        write(connection, STDOUT, piece).await?;
        at += piece.len() as u64;
        if !answer.pause.is_zero() {
            connection.flush().await?;
        }
        answer.rest().await;
    }
    if answer.cut.is_some() && !is_head {
        connection.flush().await?;
        Answer::linger().await;
        return Ok(false);
    }
    write(connection, STDOUT, b"").await?;
    write(connection, END, &[0; 8]).await?;
    connection.flush().await?;
    Ok(true)
}

async fn write(connection: &mut Connection, kind: u8, content: &[u8]) -> io::Result<()> {
    let length = u16::try_from(content.len()).map_err(|_| ErrorKind::InvalidInput)?;
    let [high, low] = length.to_be_bytes();
    connection
        .write_all(&[1, kind, 0, 1, high, low, 0, 0])
        .await?;
    connection.write_all(content).await
}

/// Kind and content.
async fn record(connection: &mut Connection) -> io::Result<(u8, Vec<u8>)> {
    let mut head = [0; 8];
    connection.read_exact(&mut head).await?;
    let length = usize::from(u16::from_be_bytes([head[4], head[5]]));
    let mut content = vec![0; length + usize::from(head[6])];
    connection.read_exact(&mut content).await?;
    content.truncate(length);
    Ok((head[1], content))
}

/// The parameters, from all their records.
async fn read_params(connection: &mut Connection) -> io::Result<Params> {
    let mut all = Vec::new();
    loop {
        let (kind, part) = record(connection).await?;
        if kind != PARAMS || all.len() + part.len() > PARAMS_MAX {
            return Err(ErrorKind::InvalidData.into());
        }
        if part.is_empty() {
            return pairs(&all).ok_or_else(|| ErrorKind::InvalidData.into());
        }
        all.extend_from_slice(&part);
    }
}

fn pairs(mut bytes: &[u8]) -> Option<Params> {
    let mut params = Params::default();
    while !bytes.is_empty() {
        let (name, value) = (length(&mut bytes)?, length(&mut bytes)?);
        let (pair, rest) = bytes.split_at_checked(name + value)?;
        params.insert(&pair[..name], &pair[name..]);
        bytes = rest;
    }
    Some(params)
}

/// One byte, or four with the highest bit set.
fn length(bytes: &mut &[u8]) -> Option<usize> {
    let (&first, rest) = bytes.split_first()?;
    if first < 128 {
        *bytes = rest;
        return Some(first.into());
    }
    let (four, rest) = bytes.split_first_chunk::<4>()?;
    *bytes = rest;
    Some((u32::from_be_bytes(*four) & 0x7fff_ffff) as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_have_lengths_of_one_byte_or_four() {
        let bytes = [&b"\x01\x02abc\x80\x00\x00\x01\x00z"[..]].concat();
        let found = pairs(&bytes).expect("pairs");
        assert_eq!(found.get("a"), Some("bc"));
        assert_eq!(found.get("z"), Some(""));
        assert!(pairs(b"\x05\x05abc").is_none());
    }
}
