//! Small files and pieces whose contents are kept: every way of sending gives their bytes.

use super::sending::{open, sent};
use crate::files::memfd_copies::COPY_MIN;
use crate::opening::open::BODY_MAX;
use crate::tests::{block_on, local};
use crate::*;
use bytes::Bytes;
use std::io;
use std::os::fd::BorrowedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;
use tokio::io::AsyncReadExt;
use tokio::net::UnixStream;

/// Writes a small file, and opens it with its copy in memory.
async fn copied(local: &Local, path: &Path, contents: &[u8], access: &Access<'_>) -> Rc<OpenFile> {
    std::fs::write(path, contents).unwrap();
    // Until its time stamp would show the next change it is not kept.
    tokio::time::sleep(Duration::from_millis(100)).await;
    let mut file = open(local, path, access).await;
    for _ in 0..2 * COPY_USES {
        local.read(&file, 0, contents.len(), access).await.unwrap();
        file = open(local, path, access).await;
    }
    assert!(file.gets_copy());
    while !file.has_copy() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    file
}

#[test]
fn a_small_file_is_sent_from_its_copy_until_it_changes() {
    block_on(async {
        let (local, pool) = local();
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("small");
        let access = Access::new(&pool);
        let mut before: Option<(Rc<OpenFile>, Vec<u8>)> = None;
        for fill in [b'a', b'b'] {
            let contents = vec![fill; COPY_MIN + 5000];
            let file = copied(&local, &path, &contents, &access).await;
            let (got, result) = sent(&local, &file, 0..contents.len() as u64, &access).await;
            result.unwrap();
            assert_eq!(got, contents);
            let part = local.read(&file, 4000, 200, &access).await.unwrap();
            assert_eq!(part, contents[4000..4200]);
            // A holder of the old state sends the old bytes.
            if let Some((file, contents)) = &before {
                let (got, result) = sent(&local, file, 0..contents.len() as u64, &access).await;
                result.unwrap();
                assert_eq!(got, *contents);
            }
            before = Some((file, contents));
        }
    });
}

#[test]
fn a_body_is_kept_from_the_second_use_on_and_copied_after_some_more() {
    block_on(async {
        let (local, pool) = local();
        let dir = tempfile::tempdir().unwrap();
        let access = Access::new(&pool);
        let contents = vec![b'a'; COPY_MIN];
        // The pool opens the first file of a mount, and reads its body with it.
        let first = dir.path().join("first");
        let path = dir.path().join("small");
        std::fs::write(&first, &contents).unwrap();
        std::fs::write(&path, &contents).unwrap();
        tokio::time::sleep(Duration::from_millis(100)).await;
        drop(open(&local, &first, &access).await);
        // And one whose first read records its time.
        std::fs::read(&path).unwrap();
        let mut seen = Vec::new();
        for _ in 0..=COPY_USES + 1 {
            let file = open(&local, &path, &access).await;
            let read = local.read(&file, 0, contents.len(), &access).await;
            assert_eq!(read.unwrap(), contents);
            seen.push((file.body().is_some() || file.has_copy(), file.gets_copy()));
        }
        assert_eq!(seen[..2], [(false, false), (true, false)]);
        assert_eq!(seen.last(), Some(&(true, true)));
    });
}

#[test]
fn of_more_bodies_in_use_than_there_is_room_for_most_stay() {
    block_on(async {
        let (local, pool) = local();
        let dir = tempfile::tempdir().unwrap();
        let access = Access::new(&pool);
        let len = BODY_MAX;
        let count = crate::keeping::open_files::BODY_BYTES_MAX / len + 100;
        let paths: Vec<_> = (0..count).map(|i| dir.path().join(i.to_string())).collect();
        for path in &paths {
            let file = std::fs::File::create(path).unwrap();
            file.set_len(len as u64).unwrap();
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
        let mut kept = Vec::new();
        for _ in 0..12 {
            kept.clear();
            for path in &paths {
                let file = open(&local, path, &access).await;
                kept.push(file.body().is_some() || file.gets_copy());
                local.read(&file, 0, len, &access).await.unwrap();
            }
        }
        // Each was used as often as any other.
        let kept = kept.iter().filter(|kept| **kept).count();
        assert!(kept > count / 2, "{kept} of {count}");
    });
}

/// A socket that takes bytes only, as one with TLS does.
struct Transforming(UnixStream);

impl Sink for Transforming {
    fn socket(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn try_io<R>(&self, operation: impl FnOnce() -> io::Result<R>) -> io::Result<R> {
        Sink::try_io(&self.0, operation)
    }

    fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        Sink::try_write(&self.0, bytes)
    }

    fn writable(&self) -> impl Future<Output = io::Result<()>> {
        Sink::writable(&self.0)
    }
}

#[test]
fn a_file_of_direct_reads_with_a_copy_is_sent_over_tls_too() {
    block_on(async {
        let (local, pool) = local();
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("small");
        let access = Access {
            directio: Some(1),
            ..Access::new(&pool)
        };
        let contents = vec![b'a'; COPY_MIN + 5000];
        let file = copied(&local, &path, &contents, &access).await;
        let (here, mut there) = UnixStream::pair().unwrap();
        let (mut got, mut offset) = (vec![0; contents.len()], 0);
        let sink = Transforming(here);
        let sent = local.send(&file, &mut offset, contents.len() as u64, &sink, &access);
        let receive = async { there.read_exact(&mut got).await.map_err(Error::Socket) };
        tokio::try_join!(sent, receive).unwrap();
        assert_eq!(got, contents);
    });
}

/// The bytes that arrive where they come through [`Sink::try_write`] alone.
async fn transformed(local: &Local, file: &Rc<OpenFile>, access: &Access<'_>) -> Vec<u8> {
    let (here, mut there) = UnixStream::pair().unwrap();
    let (mut got, mut offset) = (Vec::new(), 0);
    let send = async {
        let sink = Transforming(here);
        local
            .send(file, &mut offset, file.meta().len, &sink, access)
            .await
    };
    let (sent, _) = tokio::join!(send, there.read_to_end(&mut got));
    sent.unwrap();
    got
}

#[test]
fn a_piece_gives_its_own_bytes_whichever_way_they_go() {
    block_on(async {
        let (local, pool) = local();
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("segment");
        let path = path.as_os_str().as_bytes();
        let segment = SegmentFile::open(local.disk(), path, 0o600, &pool).unwrap();
        let others = Bytes::from(vec![b'o'; 64 << 10]);
        segment.write(0, &[others]).unwrap();
        let body = Bytes::from(vec![b'p'; COPY_MIN + 5000]);
        let len = body.len() as u64;
        let access = Access::new(&pool);
        for is_copied in [false, true] {
            let piece = Rc::new(segment.piece(body.clone()));
            if is_copied {
                assert!(local.copy_body(&piece, 0));
                while !piece.has_copy() {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
            }
            assert_eq!(piece.body().is_some(), !is_copied);
            let (got, result) = sent(&local, &piece, 0..len, &access).await;
            result.unwrap();
            assert!(got == body, "by sendfile, {is_copied}");
            let got = transformed(&local, &piece, &access).await;
            assert!(got == body, "transformed, {is_copied}");
            let part = local.try_read(&piece, 4000, 200).unwrap().unwrap();
            assert_eq!(part, body[4000..4200], "{is_copied}");
        }
    });
}
