//! `userid`: a cookie that identifies a returning client.
//!
//! Not here: any use of it; logs show `$uid_got` and `$uid_set`. Invariant: no two clients of one worker are given the
//! same value.

use std::cell::Cell;
use std::net::IpAddr;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use config::{Number, Problem, Scope, Value, VariableIndex, Word, directives};
use logs::Level;
use message::{HeaderId, base64, date};

use httpcore::request::Request;
use httpcore::request::state::State;

/// Digits of a cookie's value; a mark may follow them.
const DIGITS: usize = 22;
/// The first number of a cookie of the second version; two digits of each byte tell it from one of the first version.
const FIRST_OF_V2: u32 = 0x0303_0302;
/// The step from one client's number to the next.
const STEP: u32 = 0x100;

config::choices! {
    /// `userid`.
    pub enum Use {
        /// Nothing is done.
        Off = "off",
        /// Cookies that come are logged, none is set.
        Log = "log",
        /// Cookies of the first version are set.
        V1 = "v1",
        /// Cookies of the second version are set.
        On = "on",
    }
}

impl Use {
    fn sets(self) -> bool {
        matches!(self, Self::V1 | Self::On)
    }
}

/// `userid`, and the variable that demands new cookies.
#[derive(Debug, Clone, Copy)]
pub struct Mode {
    /// The action.
    pub what: Use,
    /// `$uid_reset`, where cookies are set.
    reset: Option<VariableIndex>,
}

impl Value for Mode {
    const SYNTAX: &'static str = Use::SYNTAX;

    fn parse(args: &[Word], scope: &mut Scope) -> Result<Self, Problem> {
        let what = Use::parse(args, scope)?;
        let reset = match what.sets() {
            true => Some(scope.intern("uid_reset", None)?),
            false => None,
        };
        Ok(Self { what, reset })
    }
}

config::choice_set! {
    /// `userid_flags`.
    pub struct Flags: u32 {
        /// None.
        OFF = "off",
        /// Only over TLS.
        SECURE = "secure",
        /// Not for scripts.
        HTTPONLY = "httponly",
        /// Not from other sites.
        STRICT = "samesite=strict",
        /// From other sites only when followed by a link.
        LAX = "samesite=lax",
        /// From everywhere.
        NONE = "samesite=none",
    }
}

/// The expiry of the cookie.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expiry {
    /// At the end of the browser's session.
    Session,
    /// Never, which means the end of 2037.
    Max,
    /// After so many seconds.
    After(u64),
}

impl Value for Expiry {
    const SYNTAX: &'static str = "time | max | off";

    fn parse(args: &[Word], _: &mut Scope) -> Result<Self, Problem> {
        let word = &args[0];
        if *word == "max" {
            return Ok(Self::Max);
        }
        if *word == "off" {
            return Ok(Self::Session);
        }
        match config::parse_sec(word.bytes()) {
            Some(0) => Ok(Self::Session),
            Some(seconds) => Ok(Self::After(seconds)),
            None => Err(Problem::directive("invalid value").at(0)),
        }
    }
}

/// The mark that a client's cookie must have: a cookie without it is set again.
#[derive(Debug, Clone, Copy)]
pub struct Mark(Option<u8>);

impl Value for Mark {
    const SYNTAX: &'static str = "letter | digit | = | off";

    fn parse(args: &[Word], _: &mut Scope) -> Result<Self, Problem> {
        match &args[0].bytes()[..] {
            b"off" => Ok(Self(None)),
            [mark] if mark.is_ascii_alphanumeric() || *mark == b'=' => Ok(Self(Some(*mark))),
            _ => Err(Problem::directive(
                "value must be \"off\" or a single letter, digit or \"=\"",
            )
            .at(0)),
        }
    }
}

directives! {
    /// Client identification by a cookie (userid).
    pub struct UserId in Location {
        /// Gives clients a cookie: `on` sets version 2, `v1` version 1; `log` only logs the cookies that are received.
        userid: Mode = "off", [HTTP | SERVER | LOCATION] 1;
        /// Sets the cookie's name.
        userid_name: Bytes = "uid", [HTTP | SERVER | LOCATION] 1, syntax "name";
        /// Sets the cookie's domain; `none` means no domain.
        userid_domain: Bytes = "none", [HTTP | SERVER | LOCATION] 1, syntax "name | none";
        /// Sets the cookie's path.
        userid_path: Bytes = "/", [HTTP | SERVER | LOCATION] 1, syntax "path";
        /// Sets when the cookie expires: after a time, at the end of 2037 (`max`), or with the browser's session
        /// (`off`).
        userid_expires: Expiry = "off", [HTTP | SERVER | LOCATION] 1;
        /// Sets the cookie's flags.
        userid_flags: Flags = "off", [HTTP | SERVER | LOCATION] 1..=3;
        /// Marks the cookie. A client whose cookie has another mark is sent the same cookie with this mark.
        userid_mark: Mark = "off", [HTTP | SERVER | LOCATION] 1;
        /// Sends this value of `P3P` with the cookie.
        userid_p3p: Bytes = "none", [HTTP | SERVER | LOCATION] 1, syntax "string | none";
        /// Sets the number of the server that issues the cookie, if there are several. By default 0 for version 1, and
        /// the last four bytes of the server's address for version 2.
        userid_service: Option<Number> = none, [HTTP | SERVER | LOCATION] 1, syntax "number";
    }
}

impl UserId {
    /// Whether cookies are set.
    #[must_use]
    pub fn sets(&self) -> bool {
        self.userid.what.sets()
    }
}

/// The 16 bytes of a cookie's value, in the cookie's order.
type Uid = [u8; 16];

/// A client's cookies: received and sent.
#[derive(Debug, Clone, Copy, Default)]
pub struct Uids {
    /// The value that the client sent.
    got: Option<Uid>,
    /// The digits as they were sent.
    digits: [u8; DIGITS],
    /// The mark after them.
    mark: Option<u8>,
    /// The value that it is sent; `Some(None)`: none.
    set: Option<Option<Uid>>,
    /// Whether the value sent is a new one.
    is_new: bool,
}

httpcore::variables! {
    /// The client's `userid` cookie: its name and value in hexadecimal digits.
    "uid_got" => memo(got);
    /// If neither empty nor `0`, the client's `userid` cookie is replaced, with `log` also logged. To be set by the
    /// configuration.
    "uid_reset" => fresh(|_, _| true).changeable();
    /// The `userid` cookie that is sent to the client.
    "uid_set" => memo(set);
}

/// The same, kept with the request.
#[derive(Default)]
struct KeptUids(Cell<Option<Uids>>);

impl State for KeptUids {
    fn survives_redirect(&self) -> bool {
        false
    }
}

/// `$uid_got`: `name=value` in hexadecimal digits.
#[must_use]
pub fn got(request: &Request) -> Option<Bytes> {
    let settings = request.location().own::<UserId>();
    if settings.userid.what == Use::Off {
        return None;
    }
    Some(shown(&settings.userid_name, &known(request).got?))
}

/// `$uid_set`: the same for the value sent.
#[must_use]
pub fn set(request: &Request) -> Option<Bytes> {
    let settings = request.location().own::<UserId>();
    if !settings.sets() {
        return None;
    }
    Some(shown(&settings.userid_name, &decided(request).set??))
}

/// Sets the cookie, if the client is to get one.
pub fn apply(request: &mut Request) {
    let generation = request.generation.clone();
    let settings = &generation
        .settings
        .location(request.location)
        .own::<UserId>();
    let uids = decided(request);
    let Some(uid) = uids.set.flatten() else {
        return;
    };
    let now = request.client.loop_.feed.clock().now().second();
    let cookie = cookie(settings, &uids, &uid, now);
    let Some(response) = &mut request.response else {
        return;
    };
    response.headers.push("Set-Cookie", cookie);
    if settings.userid_p3p != "none" && !settings.userid_p3p.is_empty() {
        response.headers.push("P3P", settings.userid_p3p.clone());
    }
}

/// The cookie that the client sent: parsed once.
fn known(request: &Request) -> Uids {
    let cell = &request.states.get_or_default::<KeptUids>().0;
    if let Some(known) = cell.get() {
        return known;
    }
    let uids = read(request);
    cell.set(Some(uids));
    uids
}

fn read(request: &Request) -> Uids {
    let name = &request.location().own::<UserId>().userid_name;
    let mut uids = Uids::default();
    let Some(value) = request.head.cookie(name) else {
        return uids;
    };
    let complain = |what: &str| {
        request.log(Level::Error, &|out| {
            let line = request.head.get(HeaderId::Cookie).unwrap_or_default();
            out.extend_from_slice(format!("client sent {what} userid cookie \"").as_bytes());
            out.extend_from_slice(line);
            out.push(b'"');
        });
    };
    // A mark may follow the digits, and the padding of many clients is not base64's.
    let Some((digits, rest)) = value.split_first_chunk::<DIGITS>() else {
        complain("too short");
        return uids;
    };
    let decoded = base64::decode(digits).and_then(|bytes| Uid::try_from(bytes).ok());
    let Some(uid) = decoded else {
        complain("invalid");
        return uids;
    };
    uids.digits = *digits;
    uids.mark = match rest {
        [mark, b'=', ..] => Some(*mark),
        _ => None,
    };
    // No server issues a value whose last number is 0.
    uids.got = (uid[12..] != [0; 4]).then_some(uid);
    uids
}

/// The cookie for the client: decided once, so that the logs show the value that was sent.
fn decided(request: &Request) -> Uids {
    let mut uids = known(request);
    if uids.set.is_some() {
        return uids;
    }
    let settings = request.location().own::<UserId>();
    uids.set = Some(match uids.got {
        Some(uid) if !is_reset(request, settings, &uid) => {
            let Mark(wanted) = settings.userid_mark;
            (wanted.is_some() && uids.mark != wanted).then_some(uid)
        }
        _ => {
            uids.is_new = true;
            Some(made(request, settings))
        }
    });
    request
        .states
        .get_or_default::<KeptUids>()
        .0
        .set(Some(uids));
    uids
}

/// Whether `$uid_reset` demands a new cookie for the client.
fn is_reset(request: &Request, settings: &UserId, uid: &Uid) -> bool {
    let Some(variable) = settings.userid.reset else {
        return false;
    };
    let mut value = Vec::new();
    request.append_variable(variable, &mut value);
    if !logs::template::is_true(&value) {
        return false;
    }
    if value == b"log" {
        let shown = shown(&settings.userid_name, uid);
        request.log(Level::Notice, &|out| {
            out.extend_from_slice(b"userid cookie \"");
            out.extend_from_slice(&shown);
            out.extend_from_slice(b"\" was reset");
        });
    }
    true
}

/// A number that differs at each start of a worker: microseconds, as far as they fit, and the process id.
static START: LazyLock<u32> = LazyLock::new(|| {
    let micros = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.subsec_micros());
    (micros / 20) << 16 | (std::process::id() & 0xffff)
});
static NEXT_V1: AtomicU32 = AtomicU32::new(1);
static NEXT_V2: AtomicU32 = AtomicU32::new(FIRST_OF_V2);

fn made(request: &Request, settings: &UserId) -> Uid {
    let now = request.client.loop_.feed.clock().now().second() as u32;
    let service = settings.userid_service.map(|service| service.0 as u32);
    let parts = if settings.userid.what == Use::V1 {
        let number = NEXT_V1.fetch_add(STEP, Ordering::Relaxed);
        [service.unwrap_or(0), now, *START, number].map(u32::to_ne_bytes)
    } else {
        let next = |number: u32| Some(number.wrapping_add(STEP).max(FIRST_OF_V2));
        let (one, other) = (Ordering::Relaxed, Ordering::Relaxed);
        let number = NEXT_V2.fetch_update(one, other, next);
        let number = number.unwrap_or(FIRST_OF_V2);
        let address = || match request.client.local.map(|local| local.ip()) {
            Some(IpAddr::V4(ip)) => ip.octets(),
            Some(IpAddr::V6(ip)) => {
                let [.., a, b, c, d] = ip.octets();
                [a, b, c, d]
            }
            None => [0; 4],
        };
        [
            service.map_or_else(address, u32::to_be_bytes),
            now.to_be_bytes(),
            START.to_be_bytes(),
            number.to_be_bytes(),
        ]
    };
    let mut uid = [0; 16];
    uid.copy_from_slice(parts.as_flattened());
    uid
}

fn cookie(settings: &UserId, uids: &Uids, uid: &Uid, now: i64) -> Bytes {
    let mut out = [&settings.userid_name[..], b"="].concat();
    let Mark(mark) = settings.userid_mark;
    if uids.is_new {
        out.extend_from_slice(&base64::encode(uid).as_bytes()[..DIGITS]);
    } else {
        out.extend_from_slice(&uids.digits);
    }
    out.extend_from_slice(&[mark.unwrap_or(b'='), b'=']);
    match settings.userid_expires {
        Expiry::Session => {}
        Expiry::Max => out.extend_from_slice(b"; expires=Thu, 31-Dec-37 23:55:55 GMT"),
        Expiry::After(seconds) => {
            let time = now.saturating_add_unsigned(seconds);
            out.extend_from_slice(b"; expires=");
            out.extend_from_slice(&date::format_for_cookie(time));
        }
    }
    if settings.userid_domain != "none" {
        out.extend_from_slice(b"; domain=");
        out.extend_from_slice(&settings.userid_domain);
    }
    out.extend_from_slice(b"; path=");
    out.extend_from_slice(&settings.userid_path);
    let flags = Flags::WORDS.iter().filter(|(flag, _)| *flag != Flags::OFF);
    for (_, word) in flags.filter(|(flag, _)| settings.userid_flags.contains(*flag)) {
        out.extend_from_slice(b"; ");
        out.extend_from_slice(word.as_bytes());
    }
    out.into()
}

/// `name=` and the four numbers in the machine's byte order, as nginx shows them.
fn shown(name: &[u8], uid: &Uid) -> Bytes {
    let mut out = [name, b"="].concat();
    for part in uid.as_chunks::<4>().0 {
        let number = u32::from_ne_bytes(*part);
        out.extend_from_slice(format!("{number:08X}").as_bytes());
    }
    out.into()
}

#[cfg(test)]
mod tests {
    use config::Section;

    use super::*;

    fn settings(text: &str) -> UserId {
        let tree = config::parse_bytes(text.as_bytes()).expect("parses");
        let mut raw = <UserId as Section>::Raw::default();
        let mut scope = Scope::new();
        for line in &tree.directives {
            assert!(UserId::set(&mut raw, line, &mut scope).expect("is right"));
        }
        UserId::finish(raw, &mut scope).expect("is right")
    }

    fn cookie_of(text: &str) -> String {
        let new = Uids {
            is_new: true,
            ..Uids::default()
        };
        let cookie = cookie(&settings(text), &new, &[0xff; 16], 0);
        String::from_utf8(cookie.to_vec()).expect("is ASCII")
    }

    #[test]
    fn cookies() {
        const VALUE: &str = "/////////////////////w";
        assert_eq!(cookie_of(""), format!("uid={VALUE}==; path=/"));
        assert_eq!(
            cookie_of(
                "userid_name n; userid_mark q; userid_expires 1d; userid_domain .a.org; userid_path /p; \
                 userid_flags samesite=lax httponly secure;"
            ),
            format!(
                "n={VALUE}q=; expires=Fri, 02-Jan-70 00:00:00 GMT; domain=.a.org; path=/p; secure; httponly; samesite=lax"
            )
        );
        assert_eq!(
            cookie_of("userid_expires max;"),
            format!("uid={VALUE}==; expires=Thu, 31-Dec-37 23:55:55 GMT; path=/")
        );
    }

    #[test]
    fn numbers_are_shown_as_the_machine_has_them() {
        let uid = std::array::from_fn(|i| i as u8);
        let shown = shown(b"uid", &uid);
        let first = format!("{:08X}", u32::from_ne_bytes([0, 1, 2, 3]));
        assert!(shown.starts_with(format!("uid={first}").as_bytes()));
        assert_eq!(shown.len(), "uid=".len() + 32);
    }
}
