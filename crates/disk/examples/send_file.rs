//! The smallest server on this crate: a client connects, sends a path and a newline, and gets the file.
//!
//! `cargo run -p freewheel-disk --example send_file -- /srv/www 127.0.0.1:8000`, then `echo /index.html | nc 127.0.0.1 8000`.
//! No loop ever waits for a disk: data in memory goes out at once, the pool `files` reads the rest.

use disk::{Access, Disk, FileKind, Local, Pool};
use std::rc::Rc;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};

/// Bytes of a request line at most.
const LINE_MAX: u64 = 4096;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let root = arguments.next().unwrap_or_else(|| "/srv/www".to_owned());
    let address = arguments
        .next()
        .unwrap_or_else(|| "127.0.0.1:8000".to_owned());
    // One per process. A process that drops privileges calls `prepare` before it does.
    let disk = Disk::new(Disk::prepare());
    let pool = disk.define_pool("files", 32, 65536);
    println!("{}", disk.abilities());
    println!("{}", disk.probe(root.as_bytes()));
    // One `LocalRuntime` with one `Local` per loop.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build_local(Default::default())?;
    runtime.block_on(async {
        let local = Local::new(&disk);
        let root: Rc<str> = root.trim_end_matches('/').into();
        let listener = TcpListener::bind(address).await?;
        println!("listening on {}", listener.local_addr()?);
        loop {
            let (stream, _) = listener.accept().await?;
            let (local, pool, root) = (local.clone(), pool.clone(), root.clone());
            tokio::task::spawn_local(async move {
                if let Err(error) = answer(stream, &local, &pool, &root).await {
                    eprintln!("{error}");
                }
            });
        }
    })
}

async fn answer(
    mut stream: TcpStream,
    local: &Local,
    pool: &Pool,
    root: &str,
) -> Result<(), Box<dyn std::error::Error>> {
    let mut line = String::new();
    BufReader::new(tokio::io::AsyncReadExt::take(&mut stream, LINE_MAX))
        .read_line(&mut line)
        .await?;
    let name = line.trim_end();
    if !name.starts_with('/') || name.split('/').any(|part| part == "..") {
        return Err("a path starts with a slash and has no dots".into());
    }
    let access = Access::new(pool);
    let file = local
        .open(format!("{root}{name}").as_bytes(), &access)
        .await?;
    if file.meta().kind != FileKind::File {
        return Err("no regular file".into());
    }
    match file.body() {
        Some(body) => stream.write_all(&body).await?,
        None => {
            local
                .send(&file, &mut 0, file.meta().len, &stream, &access)
                .await?
        }
    }
    Ok(())
}
