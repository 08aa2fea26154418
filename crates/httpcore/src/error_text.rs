//! The built-in pages: the body for a status when nothing else provides one.
//!
//! Pure: a status in, HTML out. The wording is nginx's, since scripts compare it; the signature is this server's.

/// Titles of the statuses that have a page; others are sent with an empty body.
const TITLES: &[(u16, &str)] = &[
    (301, "301 Moved Permanently"),
    (302, "302 Found"),
    (303, "303 See Other"),
    (307, "307 Temporary Redirect"),
    (308, "308 Permanent Redirect"),
    (400, "400 Bad Request"),
    (401, "401 Authorization Required"),
    (402, "402 Payment Required"),
    (403, "403 Forbidden"),
    (404, "404 Not Found"),
    (405, "405 Not Allowed"),
    (406, "406 Not Acceptable"),
    (407, "407 Proxy Authentication Required"),
    (408, "408 Request Time-out"),
    (409, "409 Conflict"),
    (410, "410 Gone"),
    (411, "411 Length Required"),
    (412, "412 Precondition Failed"),
    (413, "413 Request Entity Too Large"),
    (414, "414 Request-URI Too Large"),
    (415, "415 Unsupported Media Type"),
    (416, "416 Requested Range Not Satisfiable"),
    (421, "421 Misdirected Request"),
    (429, "429 Too Many Requests"),
    (494, "400 Request Header Or Cookie Too Large"),
    (495, "400 The SSL certificate error"),
    (496, "400 No required SSL certificate was sent"),
    (497, "400 The plain HTTP request was sent to HTTPS port"),
    (498, "404 Not Found"),
    (500, "500 Internal Server Error"),
    (501, "501 Not Implemented"),
    (502, "502 Bad Gateway"),
    (503, "503 Service Temporarily Unavailable"),
    (504, "504 Gateway Time-out"),
    (505, "505 HTTP Version Not Supported"),
    (507, "507 Insufficient Storage"),
];

/// Statuses of nginx's own that are sent as 400, with what the page says under the title.
const DETAILS: &[(u16, &str, &str)] = &[
    (494, "400 Bad Request", "Request Header Or Cookie Too Large"),
    (495, "400 Bad Request", "The SSL certificate error"),
    (
        496,
        "400 Bad Request",
        "No required SSL certificate was sent",
    ),
    (
        497,
        "400 Bad Request",
        "The plain HTTP request was sent to HTTPS port",
    ),
];

/// Six comment lines behind an error page for browsers that hide short ones
/// (`msie_padding`): with them the page is over 512 bytes.
pub const PADDING: &str = "<!-- a padding to disable MSIE and Chrome friendly error page -->\r\n";
/// Number of times that [`PADDING`] is written.
pub const PADDING_LINES: usize = 6;

/// The page of `status` signed with `signature`, or `None` when it has none.
#[must_use]
pub fn page(status: u16, signature: &str, padded: bool) -> Option<Vec<u8>> {
    let title = TITLES.iter().find(|(s, _)| *s == status)?.1;
    let (heading, detail) = match DETAILS.iter().find(|(s, ..)| *s == status) {
        Some((_, heading, detail)) => (*heading, Some(*detail)),
        None => (title, None),
    };
    let mut out = format!(
        "<html>\r\n<head><title>{title}</title></head>\r\n<body>\r\n<center><h1>{heading}</h1></center>\r\n"
    );
    if let Some(detail) = detail {
        out.push_str("<center>");
        out.push_str(detail);
        out.push_str("</center>\r\n");
    }
    out.push_str("<hr><center>");
    out.push_str(signature);
    out.push_str("</center>\r\n</body>\r\n</html>\r\n");
    if padded && status >= 400 {
        for _ in 0..PADDING_LINES {
            out.push_str(PADDING);
        }
    }
    Some(out.into_bytes())
}

/// The status that goes on the wire for nginx's internal ones (494–497 are 400).
#[must_use]
pub const fn on_the_wire(status: u16) -> u16 {
    match status {
        494..=497 => 400,
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_signed_and_padded() {
        let text =
            String::from_utf8(page(404, "freewheel", false).expect("a page")).expect("UTF-8");
        assert_eq!(
            text,
            "<html>\r\n<head><title>404 Not Found</title></head>\r\n<body>\r\n\
             <center><h1>404 Not Found</h1></center>\r\n<hr><center>freewheel</center>\r\n\
             </body>\r\n</html>\r\n"
        );
        assert!(page(404, "freewheel", true).expect("a page").len() > 512);
        assert_eq!(page(301, "x", true), page(301, "x", false));
        assert_eq!(page(418, "x", true), None);
    }

    #[test]
    fn internal_statuses_are_hidden() {
        assert_eq!(on_the_wire(494), 400);
        assert_eq!(on_the_wire(404), 404);
        let text = String::from_utf8(page(494, "f", false).expect("a page")).expect("UTF-8");
        assert!(text.contains("<h1>400 Bad Request</h1></center>\r\n<center>Request Header"));
    }
}
