//! A call of the kernel that failed, in the form of nginx's log lines.

use std::io;

/// `recv() failed (104: Connection reset by peer)`; a fault in TLS says itself what failed.
#[must_use]
pub fn call_failed(call: &str, error: &io::Error) -> String {
    let failure = error
        .get_ref()
        .and_then(|inner| inner.downcast_ref::<tls::Failure>());
    match failure {
        Some(failure) => failure.to_string(),
        None => format!("{call}() failed {}", numbered(error)),
    }
}

/// The kernel's error in brackets: `(111: Connection refused)`.
#[must_use]
pub fn numbered(error: &io::Error) -> String {
    format!("({})", errno(error))
}

/// The kernel's error: `98: Address already in use`.
#[must_use]
pub fn errno(error: &io::Error) -> String {
    let text = error.to_string();
    match error.raw_os_error() {
        Some(code) => {
            let text = text.split(" (os error").next().unwrap_or("");
            format!("{code}: {text}")
        }
        None => text,
    }
}

/// Makes an error of the kernel say which call failed: `open("/dev/null") failed (2: No such file or directory)`.
pub fn of_call(call: &str) -> impl Fn(io::Error) -> io::Error {
    move |error| io::Error::other(format!("{call} failed {}", numbered(&error)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_comes_before_the_words() {
        let error = io::Error::from_raw_os_error(104);
        let told = call_failed("writev", &error);
        assert_eq!(told, "writev() failed (104: Connection reset by peer)");
        assert_eq!(numbered(&io::Error::other("no number")), "(no number)");
    }
}
