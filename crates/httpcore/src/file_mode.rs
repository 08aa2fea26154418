//! Permissions of the files that the server creates (`proxy_store_access`, `dav_access`).

use config::{Problem, Scope, Value, Word};

/// Permissions of files, as `proxy_store_access` and `dav_access` write them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Permissions(u32);

impl Permissions {
    /// Mode of the files.
    #[must_use]
    pub const fn of_files(self) -> u32 {
        self.0
    }

    /// Mode of directories that are created for them: read permission brings search permission with it.
    #[must_use]
    pub const fn of_directories(self) -> u32 {
        self.0 | (self.0 & 0o444) >> 2
    }
}

impl Value for Permissions {
    const SYNTAX: &'static str = "users:permissions …";

    fn parse(args: &[Word], _: &mut Scope) -> Result<Self, Problem> {
        let (mut access, mut user) = (0, 0o600);
        for (at, word) in args.iter().enumerate() {
            let invalid = || Problem::new(format!("invalid value \"{}\"", word.display())).at(at);
            let text = word.bytes();
            let place = text.iter().position(|byte| *byte == b':');
            let (who, what) = text.split_at(place.ok_or_else(invalid)?);
            let right = match what {
                b":rw" => 0o6,
                b":r" => 0o4,
                _ => return Err(invalid()),
            };
            access |= match who {
                b"user" => {
                    user = 0;
                    right << 6
                }
                b"group" => right << 3,
                b"all" => right,
                _ => return Err(invalid()),
            };
        }
        Ok(Self(access | user))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_may_read_may_enter() {
        assert_eq!(Permissions(0o644).of_directories(), 0o755);
        assert_eq!(Permissions(0o600).of_directories(), 0o700);
        assert_eq!(Permissions(0o664).of_files(), 0o664);
    }
}
