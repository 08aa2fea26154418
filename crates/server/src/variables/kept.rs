//! Module variables whose value is computed once for each request and then remembered, as in nginx.

use bytes::Bytes;
use message::HeaderId;

use crate::after::userid;
use crate::request::Request;
use crate::user_agent::Browser;

use super::names::Core;
use super::{referer, secure_link};

/// The value of a variable for which [`Core::is_kept`] is true.
pub fn make(request: &Request, core: Core) -> Option<Bytes> {
    let agent = request.head.get(HeaderId::UserAgent);
    let browser = &request.location().settings.browser;
    match core {
        Core::AncientBrowser => Some(browser.ancient(agent)),
        Core::InvalidReferer => Some(referer::value(request)),
        Core::ModernBrowser => Some(browser.modern(agent)),
        Core::Msie => Some(match agent.map(Browser::of) {
            Some(Browser::Msie | Browser::Msie6) => Bytes::from_static(b"1"),
            _ => Bytes::new(),
        }),
        Core::SecureLink => secure_link::value(request),
        Core::SecureLinkExpires => secure_link::expires(request),
        Core::UidGot => userid::got(request),
        Core::UidReset => Some(Bytes::new()),
        Core::UidSet => userid::set(request),
        _ => None,
    }
}
