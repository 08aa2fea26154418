//! `freewheel migrate [PATH] [--json] [--long]`.
//!
//! Not here: the page ([`crate::migrate`]).

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

use httpcore::handler::Modules;

use crate::migrate::{self, Wish};

const USAGE: &str = "usage: freewheel migrate [DIR | FILE] [--json] [--long]
  one page about a configuration of nginx (by default /etc/nginx/nginx.conf): what is the same here, what is ignored or
  refused, the differences that it meets, how to try it, to switch and to go back; it changes nothing
  --json  the same as a JSON document
  --long  differences with their whole texts
  status: 0 it runs unchanged, 1 something is refused, 2 there is no configuration, 3 something could not be judged here
";

/// Runs the command; `args` begins with its name.
pub(super) fn run(args: &[OsString], modules: Modules) -> ExitCode {
    match wish(&args[1..]) {
        Ok(Some(wish)) => migrate::run(&wish, modules),
        Ok(None) => super::tell(USAGE),
        Err(sentence) => {
            eprint!("freewheel: {sentence}\n{USAGE}");
            ExitCode::from(2)
        }
    }
}

/// `None`: the usage is asked for.
fn wish(args: &[OsString]) -> Result<Option<Wish>, String> {
    let (mut path, mut is_json, mut is_long) = (None, false, false);
    for argument in args {
        match argument.to_str() {
            Some("--json") => is_json = true,
            Some("--long") => is_long = true,
            Some("--help" | "-h") => return Ok(None),
            Some(flag) if flag.starts_with('-') => {
                return Err(format!("there is no flag \"{flag}\""));
            }
            _ if path.is_some() => return Err("more than one configuration".to_owned()),
            _ => path = Some(Path::new(argument)),
        }
    }
    Ok(Some(Wish::of(path, is_json, is_long)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_path_and_flags() {
        let wish = |line: &str| {
            let args: Vec<OsString> = line.split_whitespace().map(OsString::from).collect();
            wish(&args)
        };
        let found = wish("/nowhere/x.conf --json").unwrap().unwrap();
        assert_eq!(found.root, Path::new("/nowhere/x.conf"));
        assert!(found.is_json && !found.is_long);
        assert_eq!(
            wish("").unwrap().unwrap().root,
            Path::new("/etc/nginx/nginx.conf")
        );
        assert_eq!(wish("-h"), Ok(None));
        assert!(wish("a b").is_err() && wish("--jsn").is_err());
    }
}
