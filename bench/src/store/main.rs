//! `store`: what the cache's own calls cost, without HTTP around them: fills, finds, a start, the index shared by threads.
//!
//! One loop and one pool, as a worker with one loop has them. CPU is that of the whole process (getrusage). Prints one line per
//! figure; judges nothing.
#![expect(
    clippy::disallowed_methods,
    reason = "a tool: what it measures are the crate's calls, not its own"
)]

mod bench;
mod damages;
mod runs;

use cache::store::StoreKind;
use std::process::ExitCode;

const USAGE: &str = "\
usage: store fills DIR [--entries N] [--size BYTES] [--max-size BYTES] [--at-once N] [--rate PER_SECOND [--seconds N]] [--segments]
       store finds DIR [--entries N] [--size BYTES] [--rounds N] [--segments]
       store start DIR [--entries N] [--size BYTES] [--at-once N] [--tagged N] [--segments]
       store index [--entries N] [--threads N] [--segments]
       store damages DIR [--entries N] [--size BYTES] [--count N] [--segments]
  DIR is a cache directory, made if it is not there; --segments: small entries lie in segments; --tagged: so many entries have the tag \"tagged\". With --max-size, the bytes below DIR
  are counted ten times a second.";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let outcome = Options::parse(&arguments).and_then(|options| match options.what.as_str() {
        "fills" => runs::fills(&options),
        "finds" => runs::finds(&options),
        "start" => runs::start(&options),
        "index" => runs::index(&options),
        "damages" => damages::damages(&options),
        _ => Err(USAGE.to_owned()),
    });
    outcome.map_or_else(
        |message| {
            eprintln!("{message}");
            ExitCode::FAILURE
        },
        |()| ExitCode::SUCCESS,
    )
}

/// The command line.
pub struct Options {
    what: String,
    dir: String,
    entries: u64,
    size: u64,
    max_size: Option<u64>,
    at_once: u64,
    rate: Option<u64>,
    rounds: u64,
    threads: u64,
    count: u64,
    tagged: u64,
    kind: StoreKind,
}

impl Options {
    fn parse(arguments: &[String]) -> Result<Self, String> {
        let (words, flags): (Vec<_>, Vec<_>) = {
            let end = arguments
                .iter()
                .position(|argument| argument.starts_with("--"));
            let (words, flags) = arguments.split_at(end.unwrap_or(arguments.len()));
            (words.to_vec(), flags.to_vec())
        };
        let number = |name: &str| -> Result<Option<u64>, String> {
            let Some(at) = flags.iter().position(|flag| flag == name) else {
                return Ok(None);
            };
            let value = flags.get(at + 1).ok_or(USAGE)?;
            value
                .parse()
                .map(Some)
                .map_err(|_| format!("{name} {value}: not a number"))
        };
        Ok(Self {
            what: words.first().ok_or(USAGE)?.clone(),
            dir: words.get(1).cloned().unwrap_or_default(),
            entries: match (number("--rate")?, number("--seconds")?) {
                (Some(rate), Some(seconds)) => rate * seconds,
                _ => number("--entries")?.unwrap_or(20_000),
            },
            size: number("--size")?.unwrap_or(16 << 10),
            max_size: number("--max-size")?,
            at_once: number("--at-once")?.unwrap_or(32),
            rate: number("--rate")?,
            rounds: number("--rounds")?.unwrap_or(20),
            threads: number("--threads")?.unwrap_or(4),
            count: number("--count")?.unwrap_or(10_000),
            tagged: number("--tagged")?.unwrap_or(0),
            kind: match flags.iter().any(|flag| flag == "--segments") {
                true => StoreKind::Segments,
                false => StoreKind::Files,
            },
        })
    }
}
