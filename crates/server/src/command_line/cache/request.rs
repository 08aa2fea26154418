//! The request that a question is about, and what a cache would be asked for it: by the server's own steps, as for
//! `--explain-url` ([`crate::explain`]).

use std::net::{IpAddr, Ipv4Addr};

use super::place::Configuration;
use crate::explain::{self, CacheQuestion, Question};
use httpcore::handler::Modules;

/// Maximum number of header lines of a request.
const HEADERS_MAX: usize = 100;

/// The request, but for its URL.
#[derive(Debug, clap::Args)]
pub(super) struct Request {
    /// A header line of the request
    #[arg(short = 'H', long = "header", value_name = "NAME: VALUE")]
    headers: Vec<String>,
    /// Its method
    #[arg(long, value_name = "METHOD", default_value = "GET")]
    method: String,
    /// The client's address
    #[arg(long, value_name = "ADDRESS", default_value_t = IpAddr::V4(Ipv4Addr::LOCALHOST))]
    from: IpAddr,
}

/// Computes what the cache would be asked for a request, and the lines of the configuration that say so.
///
/// # Errors
/// The configuration or the URL is at fault.
pub(super) fn ask(
    configuration: &Configuration,
    url: &str,
    request: &Request,
    modules: Modules,
) -> Result<(String, Option<CacheQuestion>), String> {
    if request.headers.len() > HEADERS_MAX {
        return Err(format!("more than {HEADERS_MAX} header lines"));
    }
    let loaded = configuration.load(modules)?;
    let question = Question {
        url: url.to_owned(),
        method: request.method.clone(),
        headers: request.headers.clone(),
        from: request.from,
    };
    explain::cache_question(&loaded, &question)
}
