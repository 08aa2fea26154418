//! The variables that no request changes: the machine, the process, the time.

use crate::request::Request;
use crate::settings::server_tokens::NGINX_VERSION;

use super::append::{number, put};

crate::variables! {
    /// The machine's name.
    "hostname" => fresh(|request, out| put(&request.settings().hostname, out));
    /// The time in seconds with milliseconds.
    "msec" => fresh(msec);
    /// The version of nginx that the server is compatible with.
    "nginx_version" => fresh(|_, out| put(NGINX_VERSION.as_bytes(), out));
    /// The worker's process id.
    "pid" => fresh(|_, out| number(u64::from(std::process::id()), out));
    /// Local time in ISO 8601.
    "time_iso8601" => fresh(|request, out| put(&request.client.loop_.feed.clock().time_iso8601(), out));
    /// Local time in the common log format.
    "time_local" => fresh(|request, out| put(&request.client.loop_.feed.clock().time_local(), out));
}

fn msec(request: &Request, out: &mut Vec<u8>) -> bool {
    request.client.loop_.feed.clock().tick().append_msec(out);
    true
}
