//! `--explain-url URL [--method M] [--header 'K: V'] [--from ADDRESS]`, beside nginx's flags.
//!
//! Not here: the explanation ([`crate::explain`]). Invariant: arguments without `--explain-url` are left as they are.

use std::ffi::OsString;
use std::io::{IsTerminal as _, Write as _};
use std::net::{IpAddr, Ipv4Addr};
use std::process::ExitCode;

use crate::explain::{self, Question};
use crate::process::load::{self, Loaded};
use crate::process::start::Options;
use crate::settings::circumstances::Circumstances;

const URL: &str = "--explain-url";
/// Maximum number of header lines of a question.
const HEADERS_MAX: usize = 100;

/// Takes the words of a question out of the arguments.
///
/// # Errors
/// The error in them.
pub(super) fn take(args: &mut Vec<OsString>) -> Result<Option<Question>, String> {
    let Some(url) = value(args, URL)? else {
        return Ok(None);
    };
    let mut headers = Vec::new();
    while let Some(line) = value(args, "--header")? {
        headers.push(line);
        if headers.len() > HEADERS_MAX {
            return Err(format!("more than {HEADERS_MAX} header lines"));
        }
    }
    let from = match value(args, "--from")? {
        Some(text) => text
            .parse()
            .map_err(|_| format!("\"{text}\" is no address"))?,
        None => IpAddr::V4(Ipv4Addr::LOCALHOST),
    };
    Ok(Some(Question {
        url,
        method: value(args, "--method")?.unwrap_or_else(|| "GET".to_owned()),
        headers,
        from,
    }))
}

/// The value behind the first `name`, taken out of the arguments.
fn value(args: &mut Vec<OsString>, name: &str) -> Result<Option<String>, String> {
    let Some(at) = args.iter().position(|argument| argument == name) else {
        return Ok(None);
    };
    if at + 1 == args.len() {
        return Err(format!("{name} needs a value"));
    }
    args.remove(at);
    let value = args.remove(at).into_string();
    let value = value.map_err(|_| format!("the value of {name} is no text"))?;
    Ok(Some(value))
}

/// Reads the configuration, and prints its errors. Nothing is written to a log: nothing is served.
pub(super) fn load(options: &Options) -> Option<Loaded> {
    let loaded = load::load(
        &options.origin,
        &Circumstances::here(),
        &mut options.files(),
        options.modules,
    );
    loaded
        .map_err(|refused| {
            for error in refused.errors() {
                eprint!("{}", error.render(std::io::stderr().is_terminal()));
            }
        })
        .ok()
}

/// Reads the configuration and prints the explanation of the request.
pub(super) fn answer(options: &Options, question: &Question) -> ExitCode {
    let Some(loaded) = load(options) else {
        return ExitCode::FAILURE;
    };
    match explain::explain(&loaded, question) {
        Ok(text) if std::io::stdout().write_all(text.as_bytes()).is_ok() => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(sentence) => {
            eprintln!("freewheel: {sentence}");
            ExitCode::FAILURE
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(line: &str) -> (Result<Option<Question>, String>, String) {
        let mut args: Vec<OsString> = line.split(' ').map(OsString::from).collect();
        let question = take(&mut args);
        let rest: Vec<_> = args.iter().map(|word| word.to_string_lossy()).collect();
        (question, rest.join(" "))
    }

    #[test]
    fn a_question_is_taken_out_of_nginx_s_arguments() {
        let (question, rest) = taken(
            "-t --explain-url http://a/ -c x --method POST --header A:b --header C:d --from ::1",
        );
        let question = question.unwrap().unwrap();
        assert_eq!(rest, "-t -c x");
        assert_eq!(question.method, "POST");
        assert_eq!(question.headers, ["A:b", "C:d"]);
        assert_eq!(question.from, "::1".parse::<IpAddr>().unwrap());
        let (question, rest) = taken("-t --method GET");
        assert_eq!((question, rest.as_str()), (Ok(None), "-t --method GET"));
        assert!(taken("--explain-url").0.is_err());
        assert!(taken("--explain-url http://a/ --from b").0.is_err());
    }
}
