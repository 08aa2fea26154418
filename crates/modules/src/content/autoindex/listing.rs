//! Formats a directory's entries: nginx's HTML, XML, JSON and JSONP listings.
//!
//! Pure: entries in, bytes out. Not here: reading the directory and choosing the format.

use std::fmt::Write as _;

use message::date::{self, Civil};
use message::escape::{self, Escape};

/// Maximum number of characters of a name in the HTML listing (`NGX_HTTP_AUTOINDEX_NAME_LEN`).
pub(crate) const NAME_SHOWN: usize = 50;

/// The kind of an entry, as the listings show it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A directory (or a link to one): sorted first.
    Directory,
    /// A regular file: only it has a size.
    File,
    /// Anything else, dangling links included.
    Other,
}

impl Kind {
    const fn word(self) -> &'static str {
        match self {
            Self::Directory => "directory",
            Self::File => "file",
            Self::Other => "other",
        }
    }
}

/// One name of a directory.
#[derive(Debug, Clone)]
pub(crate) struct Entry {
    /// The name, without a slash.
    pub name: Vec<u8>,
    /// Its kind.
    pub kind: Kind,
    /// Last modification, in seconds since the epoch.
    pub mtime: i64,
    /// Bytes.
    pub size: u64,
}

/// Directories first, then by bytes of the name.
pub(crate) fn sort(entries: &mut [Entry]) {
    entries.sort_by(|a, b| {
        let directory = |e: &Entry| e.kind != Kind::Directory;
        (directory(a), &a.name).cmp(&(directory(b), &b.name))
    });
}

/// The options of the HTML listing.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Html<'a> {
    /// The decoded URI of the directory.
    pub uri: &'a [u8],
    /// Whether names are UTF-8: characters are counted, not bytes.
    pub utf8: bool,
    /// `autoindex_exact_size`.
    pub exact_size: bool,
    /// Seconds to add to UTC: the local offset with `autoindex_localtime`, else 0.
    pub utc_offset: i64,
}

impl Html<'_> {
    /// The page.
    #[must_use]
    pub(crate) fn page(&self, entries: &[Entry]) -> Vec<u8> {
        let mut out = Vec::with_capacity(512 + entries.len() * 160);
        out.extend_from_slice(b"<html>\r\n<head><title>Index of ");
        escape::html(self.uri, &mut out);
        out.extend_from_slice(b"</title></head>\r\n<body>\r\n<h1>Index of ");
        escape::html(self.uri, &mut out);
        out.extend_from_slice(b"</h1><hr><pre><a href=\"../\">../</a>\r\n");
        for entry in entries {
            self.line(entry, &mut out);
        }
        out.extend_from_slice(b"</pre><hr></body>\r\n</html>\r\n");
        out
    }

    fn line(&self, entry: &Entry, out: &mut Vec<u8>) {
        let directory = entry.kind == Kind::Directory;
        out.extend_from_slice(b"<a href=\"");
        Escape::Component.write(&entry.name, out);
        if directory {
            out.push(b'/');
        }
        out.extend_from_slice(b"\">");
        self.name(entry, directory, out);
        out.push(b' ');
        let text = stamp(entry.mtime + self.utc_offset);
        out.extend_from_slice(text.as_bytes());
        out.push(b' ');
        let size = match (directory, self.exact_size) {
            (true, true) => format!("{:>19}", "-"),
            (true, false) => format!("{:>7}", "-"),
            (false, true) => format!("{:>19}", entry.size),
            (false, false) => rounded(entry.size),
        };
        out.extend_from_slice(size.as_bytes());
        out.extend_from_slice(b"\r\n");
    }

    fn name(&self, entry: &Entry, directory: bool, out: &mut Vec<u8>) {
        let ends = character_ends(&entry.name, self.utf8);
        let mut length = ends.len();
        if length > NAME_SHOWN {
            escape::html(&entry.name[..ends[NAME_SHOWN - 4]], out);
            out.extend_from_slice(b"..&gt;</a>");
            return;
        }
        escape::html(&entry.name, out);
        if directory && length < NAME_SHOWN {
            out.push(b'/');
            length += 1;
        }
        out.extend_from_slice(b"</a>");
        out.resize(out.len() + NAME_SHOWN - length, b' ');
    }
}

/// Where each character ends; bytes count one by one unless the name is valid UTF-8.
fn character_ends(name: &[u8], utf8: bool) -> Vec<usize> {
    match std::str::from_utf8(name) {
        Ok(text) if utf8 => text
            .char_indices()
            .map(|(at, c)| at + c.len_utf8())
            .collect(),
        _ => (1..=name.len()).collect(),
    }
}

/// `28-Sep-1970 12:00`.
fn stamp(seconds: i64) -> String {
    let Civil {
        year,
        month_name,
        day,
        hour,
        minute,
        ..
    } = Civil::at(seconds);
    format!("{day:02}-{month_name}-{year} {hour:02}:{minute:02}")
}

/// Seven characters: bytes up to 9999, then K, M, G rounded half up.
fn rounded(size: u64) -> String {
    const K: u64 = 1 << 10;
    const M: u64 = 1 << 20;
    const G: u64 = 1 << 30;
    let (unit, letter) = match size {
        G.. => (G, 'G'),
        M.. => (M, 'M'),
        10_000.. => (K, 'K'),
        _ => return format!(" {size:>6}"),
    };
    let whole = size / unit + u64::from(size % unit > unit / 2 - 1);
    format!("{whole:>6}{letter}")
}

/// `autoindex_format json`, or `jsonp` with a callback's name.
#[must_use]
pub(crate) fn json(entries: &[Entry], callback: Option<&[u8]>) -> Vec<u8> {
    let mut out = Vec::with_capacity(64 + entries.len() * 128);
    if let Some(callback) = callback {
        out.extend_from_slice(b"/* callback */\r\n");
        out.extend_from_slice(callback);
        out.push(b'(');
    }
    out.push(b'[');
    for (i, entry) in entries.iter().enumerate() {
        if i > 0 {
            out.push(b',');
        }
        out.extend_from_slice(b"\r\n{ \"name\":\"");
        append_json(&entry.name, &mut out);
        let mut rest = format!(
            "\", \"type\":\"{}\", \"mtime\":\"{}\"",
            entry.kind.word(),
            String::from_utf8_lossy(&date::format(entry.mtime))
        );
        if entry.kind == Kind::File {
            let _ = write!(rest, ", \"size\":{}", entry.size);
        }
        rest.push_str(" }");
        out.extend_from_slice(rest.as_bytes());
    }
    out.extend_from_slice(b"\r\n]");
    if callback.is_some() {
        out.extend_from_slice(b");");
    }
    out
}

/// Quotes and backslashes get a backslash, control characters `\u00XX`, as nginx writes them.
fn append_json(text: &[u8], out: &mut Vec<u8>) {
    for byte in text {
        match byte {
            b'"' | b'\\' => out.extend_from_slice(&[b'\\', *byte]),
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\r' => out.extend_from_slice(b"\\r"),
            b'\t' => out.extend_from_slice(b"\\t"),
            0x08 => out.extend_from_slice(b"\\b"),
            0x0c => out.extend_from_slice(b"\\f"),
            0..=0x1f => out.extend_from_slice(format!("\\u{byte:04X}").as_bytes()),
            _ => out.push(*byte),
        }
    }
}

/// `autoindex_format xml`.
#[must_use]
pub(crate) fn xml(entries: &[Entry]) -> Vec<u8> {
    let mut out = Vec::with_capacity(64 + entries.len() * 128);
    out.extend_from_slice(b"<?xml version=\"1.0\"?>\r\n<list>\r\n");
    for entry in entries {
        let civil = Civil::at(entry.mtime);
        let word = entry.kind.word();
        let mut head = format!(
            "<{word} mtime=\"{:04}-{:02}-{:02}T{:02}:{:02}:{:02}Z\"",
            civil.year, civil.month, civil.day, civil.hour, civil.minute, civil.second
        );
        if entry.kind == Kind::File {
            let _ = write!(head, " size=\"{}\"", entry.size);
        }
        head.push('>');
        out.extend_from_slice(head.as_bytes());
        escape::html(&entry.name, &mut out);
        out.extend_from_slice(format!("</{word}>\r\n").as_bytes());
    }
    out.extend_from_slice(b"</list>\r\n");
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(name: &str, kind: Kind, size: u64) -> Entry {
        Entry {
            name: name.into(),
            kind,
            mtime: 784_111_777,
            size,
        }
    }

    const HTML: Html<'_> = Html {
        uri: b"/a<b/",
        utf8: false,
        exact_size: true,
        utc_offset: 0,
    };

    fn lines(html: Html<'_>, entries: &[Entry]) -> Vec<String> {
        let page = String::from_utf8(html.page(entries)).expect("UTF-8");
        page.split("\r\n").map(str::to_owned).collect()
    }

    #[test]
    fn directories_come_first() {
        let mut all = [
            entry("b", Kind::File, 1),
            entry("z", Kind::Directory, 0),
            entry("a", Kind::Other, 1),
        ];
        sort(&mut all);
        let names: Vec<_> = all.iter().map(|e| e.name.clone()).collect();
        assert_eq!(names, [b"z", b"a", b"b"]);
    }

    #[test]
    fn a_line_of_each_kind() {
        let html = lines(
            HTML,
            &[entry("d", Kind::Directory, 0), entry("f x", Kind::File, 12)],
        );
        assert_eq!(html[1], "<head><title>Index of /a&lt;b/</title></head>");
        let d = format!(
            "<a href=\"d/\">d/</a>{} 06-Nov-1994 08:49 {:>19}",
            " ".repeat(48),
            "-"
        );
        assert_eq!(html[4], d);
        let f = format!(
            "<a href=\"f%20x\">f x</a>{} 06-Nov-1994 08:49 {:>19}",
            " ".repeat(47),
            12
        );
        assert_eq!(html[5], f);
    }

    #[test]
    fn long_names_are_cut() {
        let html = lines(HTML, &[entry(&"n".repeat(51), Kind::File, 0)]);
        assert!(
            html[4].contains(&format!(">{}..&gt;</a> 06-", "n".repeat(47))),
            "{}",
            html[4]
        );
        let wide = lines(
            Html { utf8: true, ..HTML },
            &[entry(&"ж".repeat(51), Kind::File, 0)],
        );
        assert!(
            wide[4].contains(&format!(">{}..&gt;</a> 06-", "ж".repeat(47))),
            "{}",
            wide[4]
        );
    }

    #[test]
    fn sizes_are_rounded_half_up() {
        assert_eq!(rounded(9999), "   9999");
        assert_eq!(rounded(10_000), "    10K");
        assert_eq!(rounded(1536 * 1024), "     2M");
        assert_eq!(rounded(1535 * 1024), "     1M");
        assert_eq!(rounded(5 << 30), "     5G");
    }

    #[test]
    fn machine_readable_forms() {
        let all = [entry("d", Kind::Directory, 0), entry("q\"", Kind::File, 7)];
        let text = String::from_utf8(json(&all, Some(b"cb"))).expect("UTF-8");
        assert_eq!(
            text,
            "/* callback */\r\ncb([\r\n{ \"name\":\"d\", \"type\":\"directory\", \
             \"mtime\":\"Sun, 06 Nov 1994 08:49:37 GMT\" },\r\n{ \"name\":\"q\\\"\", \
             \"type\":\"file\", \"mtime\":\"Sun, 06 Nov 1994 08:49:37 GMT\", \"size\":7 }\r\n]);"
        );
        let text = String::from_utf8(xml(&all)).expect("UTF-8");
        assert!(text.contains("<file mtime=\"1994-11-06T08:49:37Z\" size=\"7\">q&quot;</file>"));
    }
}
