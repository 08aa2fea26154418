//! Programs that a task starts.

use std::net::TcpStream;
use std::process::Child;
use std::time::{Duration, Instant};

/// Interval at which a server is tried.
const TICK: Duration = Duration::from_millis(20);

/// A program that ends with this value.
#[derive(Debug)]
pub struct Running(pub Child);

impl Drop for Running {
    fn drop(&mut self) {
        // Ended already: well.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Waits until a server that was started listens. `log`: what it says, for the error.
pub fn listens(
    server: &mut Child,
    port: u16,
    patience: Duration,
    log: impl Fn() -> String,
) -> Result<(), String> {
    let deadline = Instant::now() + patience;
    while TcpStream::connect(("127.0.0.1", port)).is_err() {
        let has_ended = !matches!(server.try_wait(), Ok(None));
        if has_ended || Instant::now() > deadline {
            return Err(format!("the server does not listen\n{}", log()));
        }
        std::thread::sleep(TICK);
    }
    Ok(())
}
