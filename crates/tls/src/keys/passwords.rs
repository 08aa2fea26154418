//! `ssl_password_file`: one password a line, tried in order.
//!
//! Not here: reading the file.

use crate::Error;
use crate::keys::ReadFile;
use zeroize::Zeroizing;

/// Maximum length of a line in bytes.
pub const LINE_BYTES_MAX: usize = 511;
/// Maximum of passwords of a file.
pub const PASSWORDS_MAX: usize = 1000;

/// A password's bytes; overwritten when dropped.
pub type Password = Zeroizing<Vec<u8>>;

/// The passwords of the file at `path`.
///
/// # Errors
/// The file cannot be read; the errors of [`read`].
pub fn of_file(path: &str, file: ReadFile<'_>) -> Result<Vec<Password>, Error> {
    let contents = file(path).map_err(|error| Error::file("open", path, &error))?;
    read(path, &contents)
}

/// The passwords of a file's contents: lines without their ends, empty ones left out. An empty file is one empty
/// password.
///
/// # Errors
/// A line that is longer than [`LINE_BYTES_MAX`], or more than [`PASSWORDS_MAX`].
pub fn read(path: &str, contents: &[u8]) -> Result<Vec<Password>, Error> {
    let lines = contents
        .split(|byte| *byte == b'\n')
        .map(|line| line.strip_suffix(b"\r").unwrap_or(line))
        .filter(|line| !line.is_empty());
    let mut passwords = Vec::new();
    for line in lines {
        if line.len() > LINE_BYTES_MAX || passwords.len() == PASSWORDS_MAX {
            return Err(Error::PasswordLine(path.to_owned()));
        }
        passwords.push(Zeroizing::new(line.to_vec()));
    }
    if passwords.is_empty() {
        passwords.push(Zeroizing::default());
    }
    Ok(passwords)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_a_line() {
        let read = |text: &[u8]| {
            let passwords = read("p", text).unwrap();
            passwords.iter().map(|one| one.to_vec()).collect::<Vec<_>>()
        };
        assert_eq!(read(b"a\r\n\nb c\nd"), [&b"a"[..], b"b c", b"d"]);
        assert_eq!(read(b""), [b""]);
    }

    #[test]
    fn a_line_has_a_limit() {
        let error = read("p", &[b'x'; LINE_BYTES_MAX + 1]).unwrap_err();
        assert_eq!(error.to_string(), "too long line in \"p\"");
    }
}
