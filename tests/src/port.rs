//! Free TCP ports for servers, below the range from which the kernel takes ports for clients.
//! Each is held by a lock file as long as it is used, so that tests in parallel, also of several runs, never share one.

use std::fs::{File, OpenOptions};
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU16, Ordering};

const FIRST: u16 = 11_000;
const COUNT: u16 = 20_000;

/// A port that nobody else of these tests uses while this value lives.
pub struct Port {
    number: u16,
    /// Holds the lock.
    _file: File,
}

impl Port {
    /// Takes the next free port.
    ///
    /// # Panics
    /// When none of 20 000 is free.
    pub fn take() -> Port {
        static NEXT: AtomicU16 = AtomicU16::new(0);
        let start = (std::process::id().wrapping_mul(61) % u32::from(COUNT)) as u16;
        let locks = locks();
        for _ in 0..COUNT {
            let step = NEXT.fetch_add(1, Ordering::Relaxed) % COUNT;
            let number = FIRST + (start + step) % COUNT;
            if let Some(file) = lock(&locks, number)
                && TcpListener::bind((Ipv4Addr::UNSPECIFIED, number)).is_ok()
            {
                return Port {
                    number,
                    _file: file,
                };
            }
        }
        panic!("no free port between {FIRST} and {}", FIRST + COUNT);
    }

    /// This one; none when somebody has it.
    #[must_use]
    pub fn exactly(number: u16) -> Option<Port> {
        let file = lock(&locks(), number)?;
        let is_free = TcpListener::bind((Ipv4Addr::UNSPECIFIED, number)).is_ok();
        is_free.then_some(Port {
            number,
            _file: file,
        })
    }

    /// The number.
    pub fn number(&self) -> u16 {
        self.number
    }
}

fn locks() -> PathBuf {
    let user = nix::unistd::geteuid();
    let locks = std::env::temp_dir().join(format!("freewheel-test-ports.{user}"));
    std::fs::create_dir_all(&locks).expect("the directory for temporary files can be written");
    locks
}

fn lock(locks: &Path, number: u16) -> Option<File> {
    let file = OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .open(locks.join(number.to_string()))
        .ok()?;
    file.try_lock().ok()?;
    Some(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_differ() {
        let ports: Vec<Port> = (0..50).map(|_| Port::take()).collect();
        let mut numbers: Vec<u16> = ports.iter().map(Port::number).collect();
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!(numbers.len(), 50);
    }
}
