//! What stands for `crate::settings` until it exists: reads `listen` and nothing else.

use std::path::Path;
use std::pin::Pin;
use std::rc::Rc;

use config::{Error, Problem, Scope, Tree};

use crate::listen::{Listen, Table};
use crate::loops::{Accepted, Loop};

/// The configuration, built.
#[derive(Debug, Default)]
pub struct Settings {
    /// Where it listens.
    pub listens: Table,
}

impl Settings {
    /// Builds it.
    ///
    /// # Errors
    /// A wrong `listen`.
    pub fn build(tree: &Tree, _scope: &mut Scope, _prefix: &Path) -> Result<Self, Error> {
        let mut listens = Table::default();
        let mut number = 0;
        for http in tree.directives.iter().filter(|d| d.name == "http") {
            for server in http.children().iter().filter(|d| d.name == "server") {
                for line in server.children().iter().filter(|d| d.name == "listen") {
                    let args: Vec<&[u8]> = line.args.iter().map(|word| &word.bytes()[..]).collect();
                    let listen = Listen::parse(&args).map_err(|refusal| {
                        line.error(&Problem::new(refusal.sentence).at(refusal.argument))
                    })?;
                    let added = listens.add(&listen, number, &mut super::resolve::host);
                    added.map_err(|sentence| line.error(&Problem::new(sentence)))?;
                }
                number += 1;
            }
        }
        Ok(Self { listens })
    }
}

/// Answers every request with the loop's number.
pub fn serve(loop_: Rc<Loop>, accepted: Accepted) -> Pin<Box<dyn Future<Output = ()>>> {
    Box::pin(async move {
        let stream = std::net::TcpStream::from(accepted.socket);
        let Ok(stream) = tokio::net::TcpStream::from_std(stream) else {
            return;
        };
        let mut buffer = [0; 4096];
        loop {
            let idle = loop_.idle.enter();
            let closed = std::future::poll_fn(|context| {
                if idle.poll_close(context).is_ready() {
                    return std::task::Poll::Ready(true);
                }
                stream.poll_read_ready(context).map(|ready| ready.is_err())
            });
            if closed.await {
                return;
            }
            drop(idle);
            match stream.try_read(&mut buffer) {
                Ok(0) => return,
                Ok(_) => {
                    let connection = if loop_.is_leaving() {
                        "close"
                    } else {
                        "keep-alive"
                    };
                    let text = format!(
                        "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: {connection}\r\n\r\n{:2}",
                        loop_.index
                    );
                    let _ = stream.try_write(text.as_bytes());
                    if loop_.is_leaving() {
                        return;
                    }
                }
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                Err(_) => return,
            }
        }
    })
}

config::blocks! {
    /// To come.
    pub fn blocks in Main {
        /// To come.
        "error_log": [MAIN | HTTP | SERVER | LOCATION] 1..;
        /// To come.
        "http": [MAIN] 0 => HTTP;
        /// To come.
        "server": [HTTP] 0 => SERVER;
        /// To come.
        "listen": [SERVER] 1..;
    }
}
