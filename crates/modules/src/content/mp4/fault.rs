//! The reasons why a film cannot be cut, in nginx's words.

use logs::Level;

/// Why nothing can be cut.
#[derive(Debug)]
pub enum Fault {
    /// The disk.
    Disk(disk::Error),
    /// The file.
    File {
        /// How bad it is.
        level: Level,
        /// Before the path.
        before: String,
        /// Behind it.
        after: String,
    },
}

impl Fault {
    /// `"PATH" text`.
    pub fn named(text: impl Into<String>) -> Fault {
        Fault::File {
            level: Level::Error,
            before: String::new(),
            after: format!(" {}", text.into()),
        }
    }

    /// `text in "PATH"`.
    pub fn of(text: impl Into<String>) -> Fault {
        Fault::File {
            level: Level::Error,
            before: format!("{} in ", text.into()),
            after: String::new(),
        }
    }

    /// A box that may be there once.
    #[must_use]
    pub fn duplicate(name: &str) -> Fault {
        Fault::of(format!("duplicate mp4 {name} atom"))
    }

    /// The file became shorter.
    #[must_use]
    pub fn short(got: usize, wanted: usize) -> Fault {
        Fault::File {
            level: Level::Crit,
            before: format!("read() read only {got} of {wanted} from "),
            after: String::new(),
        }
    }
}
