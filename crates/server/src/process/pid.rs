//! The pid file: the sign that the server is ready, and the way to its master.
//!
//! Not here: when it is written. Invariant: the file of a running master holds its number and a newline.
#![expect(
    clippy::disallowed_methods,
    reason = "the master and the sender of a signal: no loop runs in them"
)]

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use super::report::{Level, error_log};

/// Bytes that a pid file may have.
const LENGTH_MAX: u64 = 64;

/// A pid file that goes away with its owner.
#[derive(Debug)]
pub struct PidFile {
    path: PathBuf,
}

impl PidFile {
    /// Writes the number of this process.
    ///
    /// # Errors
    /// That of open(2) or write(2).
    pub fn write(path: &Path) -> io::Result<Self> {
        let mut file = OpenOptions::new()
            .write(true)
            .create(true)
            .mode(0o644)
            .truncate(true)
            .open(path)?;
        file.write_all(format!("{}\n", std::process::id()).as_bytes())?;
        Ok(Self {
            path: path.to_owned(),
        })
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for PidFile {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_file(&self.path) {
            let (path, text) = (self.path.display(), crate::listen::bind::errno(&error));
            error_log(
                Level::Alert,
                format_args!("unlink() \"{path}\" failed ({text})"),
            );
        }
    }
}

/// Whether a pid file could be written; leaves what is there as it is.
///
/// # Errors
/// nginx's sentence: the file cannot be opened.
pub fn test(path: &Path) -> Result<(), String> {
    let is_new = !path.exists();
    let opened = OpenOptions::new()
        .append(true)
        .create(true)
        .mode(0o644)
        .open(path);
    opened.map_err(|error| not_opened(path, &error))?;
    if is_new {
        let _ = std::fs::remove_file(path);
    }
    Ok(())
}

fn not_opened(path: &Path, error: &io::Error) -> String {
    let text = crate::listen::bind::errno(error);
    format!("open() \"{}\" failed ({text})", path.display())
}

/// The number in a pid file.
///
/// # Errors
/// nginx's sentence: the file cannot be opened, or holds no number.
pub fn read(path: &Path) -> Result<i32, String> {
    let failed = |error| not_opened(path, &error);
    let mut text = String::new();
    let file = File::open(path).map_err(failed)?;
    file.take(LENGTH_MAX)
        .read_to_string(&mut text)
        .map_err(failed)?;
    let number = text.trim_end_matches(['\r', '\n']);
    match number.parse::<i32>() {
        Ok(pid) if pid > 0 => Ok(pid),
        Ok(_) | Err(_) => Err(format!(
            "invalid PID number \"{number}\" in \"{}\"",
            path.display()
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_holds_the_number_and_goes_with_its_owner() {
        let path = std::env::temp_dir().join(format!("freewheel-pid-{}", std::process::id()));
        let file = PidFile::write(&path).unwrap();
        assert_eq!(read(&path), Ok(std::process::id().cast_signed()));
        drop(file);
        let sentence = format!(
            "open() \"{}\" failed (2: No such file or directory)",
            path.display()
        );
        assert_eq!(read(&path), Err(sentence));
        std::fs::write(&path, "x\n").unwrap();
        assert_eq!(
            read(&path),
            Err(format!(
                "invalid PID number \"x\" in \"{}\"",
                path.display()
            ))
        );
        std::fs::remove_file(&path).unwrap();
    }
}
