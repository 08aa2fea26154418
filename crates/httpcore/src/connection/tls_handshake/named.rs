//! Certificates whose names have variables: their names for one handshake, and their files.
//!
//! Files are read through the disk layer, so that a loop does not wait for them; keys are worked on in the pool for
//! handshakes. Invariant: a file is read whole or not at all.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;

use disk::READ_MAX;
use logs::Level;
use logs::template::expand;
use message::RequestHead;
use runtime::cpu_pool;
use tls::certificates::{Certificates, Contents, FilesRead, Pair, Stamp};
use tls::handshake::Facts;
use tls::hello::Hello;
use tls::sessions::KeptSessions;
use tls::verify::Verdict;

use crate::client::Client;
use crate::files;
use crate::http_loop::generation::Generation;
use crate::request::Request;
use crate::route::ServerId;
use crate::tls::{CertificateLine, ClientTls, NamedCertificates, Rules};
use crate::transport::Transport;

/// Maximum size of a file of certificates or of a key in bytes.
const FILE_BYTES_MAX: u64 = READ_MAX as u64;

/// The certificates for a handshake; `None`: one cannot be used, which the log says.
pub(super) async fn certificates(
    client: &Client,
    (generation, server): (&Rc<Generation>, ServerId),
    hello: &Hello,
    named: &Arc<NamedCertificates>,
) -> Option<Arc<Certificates>> {
    let request = stand_in(client, (generation, server), hello);
    let mut pairs = Vec::new();
    for line in &named.lines {
        let name = |template| named.full_name(&expand(template, &*request));
        let found = match line {
            CertificateLine::Names(certificate, key) => {
                pair(&request, (name(certificate), name(key)), named).await
            }
            CertificateLine::Acme(slot) => slot
                .pair()
                .ok_or_else(|| format!("there is no certificate yet, {}", slot.name())),
        };
        match found {
            Ok(pair) => pairs.push(pair),
            Err(sentence) => {
                let text = format!("{sentence} while SSL handshaking");
                client.log_of((generation, server), Level::Error, &text);
                return None;
            }
        }
    }
    Some(named.certificates(pairs))
}

/// A request that there is none of yet: for the values of variables.
fn stand_in(
    client: &Client,
    (generation, server): (&Rc<Generation>, ServerId),
    hello: &Hello,
) -> Box<Request> {
    let facts = Facts {
        server_name: hello.server_name.clone(),
        ..Facts::default()
    };
    let client = client.in_handshake(ClientTls {
        facts,
        hello: hello.clone(),
        verdict: Cell::new(Verdict::None),
        judged: Cell::new((generation.number, Rules::default())),
        server: Cell::new((generation.number, server)),
        is_early: Rc::default(),
        kept: KeptSessions::default(),
    });
    let generation = Rc::clone(generation);
    let head = RequestHead::boxed();
    Request::new(Transport::none(), Rc::new(client), generation, head, server)
}

async fn pair(
    request: &Request,
    (certificate, key): (String, String),
    named: &Arc<NamedCertificates>,
) -> Result<Pair, String> {
    if let Some(pair) = named.find(&certificate, &key) {
        return Ok(pair);
    }
    let mut read = FilesRead::default();
    for name in [&certificate, &key] {
        if let Some(path) = tls::keys::path(name) {
            read.insert(path, contents(request, path).await);
        }
    }
    let named = Arc::clone(named);
    let work = move || {
        let stamp = |path: &str| read.stamp(path);
        let file = |path: &str| read.contents(path);
        named.fetch((&certificate, &key), &stamp, &file)
    };
    let disk = Arc::clone(request.client.loop_.disk.disk());
    let fetched = cpu_pool::run_handshake(disk, work).await;
    let fetched = fetched.map_err(|overflow| overflow.to_string())?;
    fetched.map_err(|error| error.to_string())
}

async fn contents(request: &Request, path: &str) -> Contents {
    let failed = |error: disk::Error| {
        let number = error.errno().unwrap_or(disk::Errno::IO);
        number.raw_os_error()
    };
    let access = files::access(request, path.as_bytes());
    let access = access.map_err(|_| disk::Errno::IO.raw_os_error())?;
    let disk = &request.client.loop_.disk;
    let file = disk.open(path.as_bytes(), &access).await.map_err(failed)?;
    let meta = file.meta();
    if meta.len > FILE_BYTES_MAX {
        return Err(disk::Errno::FBIG.raw_os_error());
    }
    let bytes = disk.read(&file, 0, READ_MAX, &access).await;
    let bytes = bytes.map_err(failed)?;
    let stamp = Stamp::new((meta.ctime, meta.ctime_nsec), meta.ino, meta.len);
    Ok((bytes.to_vec(), stamp))
}
