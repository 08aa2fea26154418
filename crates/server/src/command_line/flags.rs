//! nginx's flags.
//!
//! Not here: what they mean. Invariant: reads what `ngx_get_options` reads: letters may be combined (`-tq`), a value
//! may follow directly (`-cnginx.conf`) or as the next argument.

/// What `-s` takes.
pub(super) const SIGNALS: &[&str] = &["stop", "quit", "reopen", "reload"];

/// What the flags say.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Flags {
    /// `-v`, `-V`, `-h`, `-?`.
    pub shows_version: bool,
    /// `-h`, `-?`.
    pub shows_help: bool,
    /// `-V`.
    pub shows_configure: bool,
    /// `-t`, `-T`.
    pub tests: bool,
    /// `-T`.
    pub dumps: bool,
    /// `-q`.
    pub is_quiet: bool,
    /// `-s`: `stop`, `quit`, `reopen` or `reload`.
    pub signal: Option<String>,
    /// `-p`.
    pub prefix: Option<Vec<u8>>,
    /// `-c`.
    pub configuration: Option<Vec<u8>>,
    /// `-e`.
    pub error_log: Option<Vec<u8>>,
    /// `-g`.
    pub globals: Option<Vec<u8>>,
}

/// Reads the arguments behind the program's name.
///
/// # Errors
/// nginx's sentence.
pub(crate) fn parse(args: impl IntoIterator<Item = Vec<u8>>) -> Result<Flags, String> {
    let mut flags = Flags::default();
    let mut args = args.into_iter();
    while let Some(arg) = args.next() {
        let Some(letters) = arg.strip_prefix(b"-") else {
            return Err(format!(
                "invalid option: \"{}\"",
                String::from_utf8_lossy(&arg)
            ));
        };
        for (at, letter) in letters.iter().enumerate() {
            if !flags.set(*letter) {
                flags.set_value(*letter, &letters[at + 1..], &mut args)?;
                break;
            }
        }
    }
    Ok(flags)
}

impl Flags {
    /// A letter without a value.
    fn set(&mut self, letter: u8) -> bool {
        match letter {
            b'?' | b'h' => (self.shows_version, self.shows_help) = (true, true),
            b'v' => self.shows_version = true,
            b'V' => (self.shows_version, self.shows_configure) = (true, true),
            b't' => self.tests = true,
            b'T' => (self.tests, self.dumps) = (true, true),
            b'q' => self.is_quiet = true,
            _ => return false,
        }
        true
    }

    /// A letter whose value is the rest of the argument, or the next one.
    fn set_value(
        &mut self,
        letter: u8,
        rest: &[u8],
        args: &mut dyn Iterator<Item = Vec<u8>>,
    ) -> Result<(), String> {
        let what = match letter {
            b'p' => "directory name",
            b'e' | b'c' => "file name",
            b'g' | b's' => "parameter",
            _ => return Err(format!("invalid option: \"{}\"", char::from(letter))),
        };
        let given = if rest.is_empty() {
            args.next()
        } else {
            Some(rest.to_vec())
        };
        let value =
            given.ok_or_else(|| format!("option \"-{}\" requires {what}", char::from(letter)))?;
        match letter {
            b'p' => self.prefix = Some(value),
            b'e' => self.error_log = Some(value),
            b'c' => self.configuration = Some(value),
            b'g' => self.globals = Some(value),
            _ => {
                let name = String::from_utf8_lossy(&value).into_owned();
                if !SIGNALS.contains(&name.as_str()) {
                    return Err(format!("invalid option: \"-s {name}\""));
                }
                self.signal = Some(name);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Result<Flags, String> {
        parse(line.split_whitespace().map(|word| word.as_bytes().to_vec()))
    }

    #[test]
    fn letters_stand_alone_or_together() {
        let flags = read("-tq -p dir/ -cnginx.conf -e stderr").unwrap();
        assert!(flags.tests && flags.is_quiet && !flags.dumps);
        assert_eq!(flags.prefix.as_deref(), Some(&b"dir/"[..]));
        assert_eq!(flags.configuration.as_deref(), Some(&b"nginx.conf"[..]));
        assert_eq!(flags.error_log.as_deref(), Some(&b"stderr"[..]));
        let flags = read("-qtc a -s reload").unwrap();
        assert!(flags.tests && flags.is_quiet);
        assert_eq!(
            (flags.configuration.as_deref(), flags.signal.as_deref()),
            (Some(&b"a"[..]), Some("reload"))
        );
    }

    #[test]
    fn refusals_are_nginx_s() {
        assert_eq!(read("x").unwrap_err(), "invalid option: \"x\"");
        assert_eq!(read("-x").unwrap_err(), "invalid option: \"x\"");
        assert_eq!(
            read("-p").unwrap_err(),
            "option \"-p\" requires directory name"
        );
        assert_eq!(read("-c").unwrap_err(), "option \"-c\" requires file name");
        assert_eq!(read("-g").unwrap_err(), "option \"-g\" requires parameter");
        assert_eq!(read("-s go").unwrap_err(), "invalid option: \"-s go\"");
    }
}
