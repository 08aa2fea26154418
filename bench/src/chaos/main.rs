//! `chaos`: clients and origins that leave, cut, reset, refuse and give up at any moment, on both sides of a proxy. The path says every byte, in both directions:
//! what ends in order has to be whole.
//!
//! Not a load: nothing is timed but what never ends. HTTP is spoken by the crate `hyper`, so that the framing is not the server's own.
//! Invariant: an exchange is whole, or its end says that it is not; each of the others is a finding.

mod answer;
mod asked;
mod clients;
mod connect;
mod dav;
mod echo;
mod exchange;
mod fastcgi;
mod fickle;
mod files;
mod findings;
mod garbage;
mod gateway;
mod origins;
mod params;
mod pipeline;
mod plan;
mod tunnel;
mod uploads;

use std::process::ExitCode;

const USAGE: &str = "\
usage: chaos origins CERTIFICATE KEY
         prints their addresses as JSON: http1, http2 (in clear), tls, fastcgi, uwsgi, scgi, garbage, echo; ends with standard input, and prints what was found
       chaos clients SECONDS TASKS PLAIN TLS CLEAR2 LOCATIONS
         addresses of the server: HTTP/1, TLS, HTTP/2 in clear; LOCATIONS: a file with a prefix of paths on each line; prints what was found
       chaos files DIRECTORY
         the files of the locations that are no proxies
       chaos check DIRECTORY
         whether files that a server has stored below it are whole; prints what was found";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("the system gives an epoll descriptor");
    let outcome = match words.as_slice() {
        ["origins", certificate, key] => runtime.block_on(origins::run(certificate, key)),
        ["clients", seconds, tasks, plain, tls, clear2, locations] => runtime.block_on(
            clients::run(seconds, tasks, [*plain, *tls, *clear2], locations),
        ),
        ["files", directory] => files::make(directory),
        ["check", directory] => files::check(directory),
        _ => Err(USAGE.to_owned()),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("chaos: {message}");
            ExitCode::FAILURE
        }
    }
}
