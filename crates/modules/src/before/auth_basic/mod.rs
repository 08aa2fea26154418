//! `auth_basic`: HTTP Basic authentication against a file of users. nginx-drop-in 49.
//!
//! The file is looked at for each request, so a change takes effect at once. Passwords are checked by a pool of threads
//! ([`runtime::cpu_pool`]), a few at a time, and correct ones are remembered for a short while (`proven`). Not here: the
//! password formats (`crate::password`).

mod counters;
mod proven;
mod users;

pub use counters::METRICS;

use std::sync::{Arc, LazyLock};

use bytes::Bytes;
use config::{Template, directives};
use disk::memory::{self, Holder};
use logs::Level;
use message::{HeaderId, Method, credentials};
use runtime::cpu_pool;
use runtime::timing::poll_timing;

use crate::password::{self, Unreadable};
use crate::turns::Turns;
use httpcore::Failure;
use httpcore::files;
use httpcore::request::Request;
use httpcore::settings::Location;
use httpcore::steps::satisfy::Verdict;

use counters::{Password, PasswordCounters};
use proven::Proof;

/// The turns of password checks.
static CHECKS: LazyLock<Turns> = LazyLock::new(|| {
    Turns::new(
        checks_max(),
        MEMORY_SHARE,
        "too many passwords wait to be checked",
    )
});
/// Checks take at most one part in this many of the memory's budget, all of them together.
const MEMORY_SHARE: u64 = 8;

directives! {
    /// HTTP basic authentication.
    pub struct AuthBasic in Location {
        /// Requires a user name and password; the text, which may contain variables, is the realm. `off` switches it
        /// off.
        auth_basic: Option<Template> = none, [HTTP | SERVER | LOCATION | LIMIT_EXCEPT] 1, syntax "string | off";
        /// Sets the file of users, one per line: name, password and, after another colon, an ignored comment. The path
        /// may contain variables; a relative one starts at the configuration's directory. Passwords may be in the
        /// formats of crypt(3) (DES, `$1$`, bcrypt, `$5$`, `$6$`, yescrypt), Apache's `$apr1$`, or `{PLAIN}`, `{SHA}`,
        /// `{SSHA}`. They are checked in the thread pool `cpu`; a correct password is remembered for a short time.
        auth_basic_user_file: Option<Template> = none, [HTTP | SERVER | LOCATION | LIMIT_EXCEPT] 1, syntax "file";
    }
}

httpcore::variables! {
    /// The user name of basic authentication.
    "remote_user" => fresh(remote_user);
}

/// Maximum password checks at once: as many as half of the cores, so that password guessing leaves the other half to all
/// other work.
fn checks_max() -> usize {
    cpu_pool::cores().div_ceil(2)
}

/// The credentials that the client sent.
struct Credentials {
    user: Vec<u8>,
    password: Vec<u8>,
}

/// Whether a password is asked for at a location.
#[must_use]
pub fn is_on(location: &Location) -> bool {
    location.own::<AuthBasic>().auth_basic.is_some()
}

/// Judges the client by its name and password.
pub async fn judge(request: &Request) -> Verdict {
    let settings = request.location().own::<AuthBasic>();
    let (Some(realm), Some(file)) = (&settings.auth_basic, &settings.auth_basic_user_file) else {
        return Verdict::Silent;
    };
    let realm = request.evaluate(realm);
    if realm == "off" {
        return Verdict::Silent;
    }
    let header = header(request);
    let counters = request.client.loop_.figures.of::<PasswordCounters>();
    let Some((user, password)) = header.and_then(credentials::basic) else {
        counters.count(Password::Missing);
        request.log(Level::Info, &|out| {
            out.extend_from_slice(b"no user/password was provided for basic authentication");
        });
        return refused(request, &realm);
    };
    let said = Credentials { user, password };
    let path = path_of(request, request.evaluate(file));
    let found = find_out(request, &said, &path).await;
    counters.count(*found.as_ref().unwrap_or(&Password::Failed));
    match found {
        Ok(Password::Right | Password::Remembered) => Verdict::Passed,
        Ok(_) => refused(request, &realm),
        Err(failure) => Verdict::Refused(failure),
    }
}

/// The header with the client's credentials; a tunnel's client sends them to the proxy in a header of its own.
#[must_use]
pub fn header(request: &Request) -> Option<&[u8]> {
    request.head.get(match request.method {
        Method::Connect => HeaderId::ProxyAuthorization,
        _ => HeaderId::Authorization,
    })
}

fn remote_user(request: &Request, out: &mut Vec<u8>) -> bool {
    let user = header(request).and_then(credentials::basic_user);
    user.map(|user| out.extend_from_slice(&user)).is_some()
}

/// 401 (407 for a tunnel), with the challenge.
fn refused(request: &Request, realm: &[u8]) -> Verdict {
    let (status, name) = match request.method {
        Method::Connect => (407, "Proxy-Authenticate"),
        _ => (401, "WWW-Authenticate"),
    };
    let challenge = [b"Basic realm=\"", realm, b"\""].concat();
    Verdict::Refused(Failure::new(status).with_header(name, challenge.into()))
}

fn path_of(request: &Request, file: Bytes) -> Bytes {
    use std::os::unix::ffi::OsStrExt as _;
    if file.starts_with(b"/") {
        return file;
    }
    let prefix = request.settings().conf_prefix.as_os_str().as_bytes();
    [prefix, &file].concat().into()
}

async fn find_out(request: &Request, said: &Credentials, path: &[u8]) -> Result<Password, Failure> {
    let pool = files::pool(request)?;
    let mut access = files::reading(request.location(), pool);
    access.moment = request.moment;
    access.directio = None;
    let Some(stored) = users::find(request, &said.user, path, &access).await? else {
        request.log(Level::Error, &|out| {
            append_user(said, out);
            out.extend_from_slice(b" was not found in \"");
            out.extend_from_slice(path);
            out.push(b'"');
        });
        return Ok(Password::UnknownUser);
    };
    let found = fits(request, said, stored).await?;
    if matches!(found, Password::Unreadable) {
        request.log(Level::Error, &|out| {
            append_user(said, out);
            out.extend_from_slice(b": the password in \"");
            out.extend_from_slice(path);
            out.extend_from_slice(b"\" is broken, or of a form that is not known");
        });
    }
    // Programs that count guesses (fail2ban) look for nginx's line, whatever the password's form.
    if matches!(found, Password::Wrong | Password::Unreadable) {
        request.log(Level::Error, &|out| {
            append_user(said, out);
            out.extend_from_slice(b": password mismatch");
        });
    }
    Ok(found)
}

fn append_user(said: &Credentials, out: &mut Vec<u8>) {
    out.extend_from_slice(b"user \"");
    out.extend_from_slice(&said.user);
    out.push(b'"');
}

/// Whether the password fits: remembered, or checked by the thread pool.
async fn fits(request: &Request, said: &Credentials, stored: Bytes) -> Result<Password, Failure> {
    let proof = Proof::of(&said.user, &said.password, &stored);
    let now_ms = wire::loop_clock::monotonic_ms;
    if proven::is_known(&proof, now_ms()) {
        return Ok(Password::Remembered);
    }
    let begun = poll_timing::now_ns();
    let bytes = password::memory_bytes(&stored);
    let turn = CHECKS.take(request, bytes).await?;
    // While this one waited, another request may have had the same password checked.
    if proven::is_known(&proof, now_ms()) {
        return Ok(Password::Remembered);
    }
    let password = said.password.clone();
    let check = move || {
        // A request that is given up meanwhile makes no room for another check.
        let _turn = turn;
        let _charge = memory::charge(Holder::Passwords, bytes);
        password::fits(&password, &stored)
    };
    let disk = Arc::clone(request.client.loop_.disk.disk());
    let checked = cpu_pool::run(disk, check).await;
    let answer = checked.map_err(|overflow| files::overflowed(request, &overflow))?;
    let took = poll_timing::now_ns().saturating_sub(begun);
    let counters = request.client.loop_.figures.of::<PasswordCounters>();
    counters.checks.record(took);
    Ok(match answer {
        Ok(true) => {
            proven::remember(proof, now_ms());
            Password::Right
        }
        Ok(false) => Password::Wrong,
        Err(Unreadable) => Password::Unreadable,
    })
}
