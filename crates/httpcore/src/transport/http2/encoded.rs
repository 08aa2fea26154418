//! The fields of responses that change seldom, encoded: `date`, once a second, and `server`.
//!
//! Not here: how fields are encoded (`wire::http2`). Invariant: each loop's thread has its own.

use std::cell::RefCell;

use message::date::DATE_LEN;
use wire::http2::head_writer::FieldContext;
use wire::http2::hpack::encode;

/// The last texts, and their encoded fields.
struct Encoded {
    date_text: [u8; DATE_LEN],
    date: Vec<u8>,
    server_line: Vec<u8>,
    server: Vec<u8>,
}

thread_local! {
    static ENCODED: RefCell<Encoded> = const {
        RefCell::new(Encoded {
            date_text: [0; DATE_LEN],
            date: Vec::new(),
            server_line: Vec::new(),
            server: Vec::new(),
        })
    };
}

/// Lends the fields for a response whose `Server` is this complete line with its end; if that is empty, there is none.
pub(super) fn with_context(
    server_line: &[u8],
    owner: &wire::Loop,
    use_it: impl FnOnce(&FieldContext<'_>),
) {
    ENCODED.with_borrow_mut(|encoded| {
        encoded.set_date(owner.date());
        if encoded.server_line != server_line {
            encoded.set_server(server_line);
        }
        use_it(&FieldContext {
            server: &encoded.server,
            date: &encoded.date,
        });
    });
}

impl Encoded {
    fn set_date(&mut self, text: [u8; DATE_LEN]) {
        if self.date_text != text {
            self.date_text = text;
            self.date.clear();
            encode::field(&mut self.date, b"date", &text);
        }
    }

    fn set_server(&mut self, line: &[u8]) {
        self.server_line.clear();
        self.server_line.extend_from_slice(line);
        self.server.clear();
        let colon = line.iter().position(|byte| *byte == b':');
        if let Some(colon) = colon {
            encode::field(&mut self.server, b"server", line[colon + 1..].trim_ascii());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_follow_their_texts() {
        let loop_ = wire::Loop::new();
        let server = |line: &[u8]| {
            let mut out = Vec::new();
            with_context(line, &loop_, |context| out = context.server.to_vec());
            out
        };
        let mut expected = Vec::new();
        encode::field(&mut expected, b"server", b"freewheel/1");
        assert_eq!(server(b"Server: freewheel/1\r\n"), expected);
        assert_eq!(server(b""), b"");
        with_context(b"", &loop_, |context| {
            let mut date = Vec::new();
            encode::field(&mut date, b"date", &loop_.date());
            assert_eq!(context.date, date);
        });
    }
}
