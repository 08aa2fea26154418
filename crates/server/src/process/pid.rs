//! The pid file: the sign that the server is ready, and the way to find its master.
//!
//! Not here: when it is written. Invariant: the file of a running master holds its process id and a newline.
#![expect(
    clippy::disallowed_methods,
    reason = "the master and the sender of a signal: no loop runs in them"
)]

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use logs::process_log::{Level, error_log};
use rustix::fs::{Mode, OFlags};

use super::privileges::is_root;
use super::trust::Refusal;
use crate::process::trust;

/// Bytes that a pid file may have.
const LENGTH_MAX: u64 = 64;

const MODE: Mode = Mode::from_raw_mode(0o644);

/// A pid file that goes away with its owner.
#[derive(Debug)]
pub(crate) struct PidFile {
    path: PathBuf,
    /// Whether it is at [`old_name`] at the moment.
    is_old: bool,
}

/// Name of the pid file of a master whose successor runs.
#[must_use]
pub(crate) fn old_name(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".oldbin");
    name.into()
}

impl PidFile {
    /// Writes the number of this process.
    ///
    /// # Errors
    /// nginx's sentence: it cannot be opened or written.
    pub(crate) fn write(path: &Path) -> Result<Self, String> {
        Self::try_write(path).map_err(|refusal| not_opened(path, &refusal))
    }

    fn try_write(path: &Path) -> Result<Self, Refusal> {
        let opened = trust::open(path, OFlags::WRONLY | OFlags::CREATE, MODE)?;
        // Not truncated before: only now it is certain that no other user put the file there.
        let mut file = File::from(opened);
        file.set_len(0)?;
        file.write_all(format!("{}\n", std::process::id()).as_bytes())?;
        Ok(Self {
            path: path.to_owned(),
            is_old: false,
        })
    }

    /// Gives it the name for a master whose successor runs, or takes that name back.
    ///
    /// # Errors
    /// nginx's sentence, up to the reason: it cannot be renamed, and keeps its name.
    pub(crate) fn set_old(&mut self, is_old: bool) -> Result<(), String> {
        if self.is_old == is_old {
            return Ok(());
        }
        let (normal, old) = (self.path.clone(), old_name(&self.path));
        let (from, to) = if is_old { (normal, old) } else { (old, normal) };
        let rename = || -> Result<(), Refusal> {
            if !is_root() {
                return Ok(rustix::fs::rename(&from, &to)?);
            }
            // As root, not through links that another user may have put there.
            let spot = trust::find(&from)?;
            let to = to.file_name().unwrap_or_default();
            rustix::fs::renameat(&spot.directory, &spot.name, &spot.directory, to)?;
            Ok(())
        };
        rename().map_err(|refusal| {
            let (from, to) = (from.display(), to.display());
            format!("rename() {from} to {to} failed ({refusal})")
        })?;
        self.is_old = is_old;
        Ok(())
    }

    /// Where it is now.
    fn place(&self) -> PathBuf {
        match self.is_old {
            true => old_name(&self.path),
            false => self.path.clone(),
        }
    }

    /// Its path by the configuration.
    #[must_use]
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for PidFile {
    fn drop(&mut self) {
        let path = self.place();
        if let Err(error) = std::fs::remove_file(&path) {
            let (path, text) = (path.display(), wire::errno(&error));
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
pub(crate) fn test(path: &Path) -> Result<(), String> {
    let is_new = !path.exists();
    let opened = trust::open(path, OFlags::WRONLY | OFlags::CREATE, MODE);
    opened.map_err(|refusal| not_opened(path, &refusal))?;
    if is_new {
        let _ = std::fs::remove_file(path);
    }
    Ok(())
}

fn not_opened(path: &Path, refusal: &Refusal) -> String {
    format!("open() \"{}\" failed ({refusal})", path.display())
}

/// The number in a pid file.
///
/// # Errors
/// nginx's sentence: the file cannot be opened, or holds no number.
pub(crate) fn read(path: &Path) -> Result<i32, String> {
    let failed = |error: io::Error| not_opened(path, &error.into());
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
