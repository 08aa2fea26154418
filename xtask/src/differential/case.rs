//! One case of the differential test: a configuration, what lies beside it, and what is asked, as a small text file says it.
//!
//! The format stands in `tests/differential/README.md`. Not here: what becomes of a case. Invariant: a section that is not known is a
//! fault, so that nothing of a case is silently not run.

use super::gateway::Speech;
use std::io::Write as _;
use std::time::Duration;

/// Steps of one case; each is one connection or one change of a file.
const STEPS_MAX: usize = 64;
/// The longest that a case may wait at once.
const WAIT_MAX: Duration = Duration::from_secs(3);

/// A case as its file says it; places and ports are not put in yet.
#[derive(Default)]
pub struct Case {
    /// Folder and file without its ending.
    pub name: String,
    /// Lines outside of `http`.
    pub main: String,
    /// What stands in `http`.
    pub http: String,
    /// Both servers are to refuse the configuration, with the same words.
    pub is_refused: bool,
    /// What lies in the directory before the server starts.
    pub files: Vec<File>,
    /// What the two origins speak.
    pub speech: [Speech; 2],
    /// What they answer.
    pub answers: Vec<Answer>,
    /// What is done, in order.
    pub steps: Vec<Step>,
}

/// A file below the case's directory.
pub struct File {
    /// Its place.
    pub path: String,
    /// What lies there.
    pub kind: Kind,
}

/// What may lie in a directory.
pub enum Kind {
    /// A file with these bytes.
    Bytes(Vec<u8>),
    /// An empty directory.
    Directory,
    /// A symbolic link that leads there.
    Link(String),
}

/// What an origin answers to requests whose target begins so. Of several with one beginning each is given once, the last again and again.
#[derive(Clone)]
pub struct Answer {
    /// 0 or 1.
    pub origin: usize,
    /// The beginning of the target.
    pub prefix: String,
    /// Waited before it is sent.
    pub delay: Duration,
    /// All that is sent; nothing closes the connection without a byte.
    pub bytes: Vec<u8>,
    /// How much of it the answer to HEAD has.
    pub head: usize,
    /// Is it sent as it is, where others are put into records (FastCGI)?
    pub is_raw: bool,
}

/// One thing to do.
pub enum Step {
    /// A connection: what is sent, and read until its end.
    Ask(Question),
    /// The same, but read only when all other steps are done.
    Hold(Question),
    /// Nothing, for this long.
    Wait(Duration),
    /// A file is written anew.
    Write(File),
    /// A file is removed.
    Remove(String),
}

/// What is sent over one connection.
#[derive(Clone)]
pub struct Question {
    /// Which of the case's ports, from 0.
    pub port: usize,
    /// The section's line, for the report.
    pub label: String,
    /// Whether its answer has no body for being the answer to HEAD.
    pub is_head: bool,
    /// What is sent.
    pub bytes: Vec<u8>,
}

/// What stands for the name of a family of directives that is not `proxy_…`.
const FAMILY: &str = "<family>";

/// Reads a case's file: one case, or one for each family where it is about all of them.
pub fn parse_each(name: &str, text: &str) -> Result<Vec<Case>, String> {
    if !text.contains(FAMILY) {
        return Ok(vec![parse(name, text)?]);
    }
    let each = Speech::GATEWAYS
        .iter()
        .map(|(family, _)| parse(&format!("{name}-{family}"), &text.replace(FAMILY, family)));
    each.collect()
}

/// Reads a case's text.
pub fn parse(name: &str, text: &str) -> Result<Case, String> {
    let mut case = Case {
        name: name.to_owned(),
        ..Case::default()
    };
    let mut sections = text.split("\n--- ");
    let opening = sections.next().unwrap_or_default();
    if opening.lines().any(|line| !line.starts_with('#')) {
        return Err(format!(
            "{name}: does not open with a comment that says what it is about"
        ));
    }
    for section in sections {
        let (head, body) = section.split_once('\n').unwrap_or((section, ""));
        section_of(&mut case, head.trim(), body).map_err(|fault| format!("{name}: {fault}"))?;
    }
    if case.steps.is_empty() && !case.is_refused {
        return Err(format!("{name}: asks nothing"));
    }
    if case.steps.len() > STEPS_MAX {
        return Err(format!("{name}: more than {STEPS_MAX} steps"));
    }
    Ok(case)
}

fn section_of(case: &mut Case, head: &str, body: &str) -> Result<(), String> {
    let mut words = head.split_ascii_whitespace();
    let kind = words.next().unwrap_or_default();
    let words: Vec<&str> = words.collect();
    match kind {
        "main" => case.main.push_str(&line_ended(body)),
        "http" => case.http.push_str(&line_ended(body)),
        "server" => case.http.push_str(&format!(
            "server {{\nlisten 127.0.0.1:<port>{}{};\nroot <dir>/www;\n{}}}\n",
            if words.is_empty() { "" } else { " " },
            words.join(" "),
            line_ended(body)
        )),
        "refused" => case.is_refused = true,
        "file" => case.files.push(file(&words, body)?),
        "speech" | "speech2" => {
            let family = words.concat();
            let speech =
                Speech::of(&family).ok_or_else(|| format!("nobody speaks \"{family}\""))?;
            case.speech[usize::from(kind == "speech2")] = speech;
        }
        "origin" | "origin2" => {
            let origin = usize::from(kind == "origin2");
            let one = answer(origin, case.speech[origin], &words, body)?;
            case.answers.push(one);
        }
        "write" => case.steps.push(Step::Write(file(&words, body)?)),
        "remove" => case.steps.push(Step::Remove(words.concat())),
        "wait" => case.steps.push(Step::Wait(milliseconds(&words.concat())?)),
        "raw" => case.steps.push(Step::Ask(Question {
            port: 0,
            label: head.to_owned(),
            is_head: false,
            bytes: unescaped(&body.replace('\n', "")),
        })),
        "hold" => {
            let (method, rest) = words.split_first().ok_or("hold what?")?;
            case.steps
                .push(Step::Hold(question(head, method, rest, body)?));
        }
        method if method.starts_with(|first: char| first.is_ascii_uppercase()) => case
            .steps
            .push(Step::Ask(question(head, method, &words, body)?)),
        other => return Err(format!("a section \"{other}\" is not known")),
    }
    Ok(())
}

/// The text without empty lines at its end, ending with one line feed.
fn line_ended(body: &str) -> String {
    format!("{}\n", body.trim_end_matches('\n'))
}

fn milliseconds(text: &str) -> Result<Duration, String> {
    let time = text
        .parse()
        .map(Duration::from_millis)
        .map_err(|_| format!("\"{text}\" is no number of milliseconds"))?;
    if time > WAIT_MAX {
        return Err(format!("{text} ms is too long"));
    }
    Ok(time)
}

fn file(words: &[&str], body: &str) -> Result<File, String> {
    let (path, how) = words.split_first().ok_or("a file needs a path")?;
    let text = body.strip_suffix('\n').unwrap_or(body);
    let kind = match how {
        [] => Kind::Bytes(body.as_bytes().to_vec()),
        ["bare"] => Kind::Bytes(text.as_bytes().to_vec()),
        ["escaped"] => Kind::Bytes(unescaped(&body.replace('\n', ""))),
        ["repeat", times] => {
            let times: usize = times.parse().map_err(|_| "how many times?".to_owned())?;
            Kind::Bytes(body.as_bytes().repeat(times))
        }
        ["hex"] => Kind::Bytes(hexadecimal(body)?),
        ["gzip"] => Kind::Bytes(gzipped(body.as_bytes())),
        ["directory"] => Kind::Directory,
        ["link", target] => Kind::Link((*target).to_owned()),
        other => {
            return Err(format!(
                "a file that is \"{}\" is not known",
                other.join(" ")
            ));
        }
    };
    Ok(File {
        path: String::from_utf8_lossy(&unescaped(path)).into_owned(),
        kind,
    })
}

fn hexadecimal(text: &str) -> Result<Vec<u8>, String> {
    let digits: Vec<u32> = text
        .chars()
        .filter_map(|letter| letter.to_digit(16))
        .collect();
    if !digits.len().is_multiple_of(2) {
        return Err("half a byte is left".to_owned());
    }
    Ok(digits
        .chunks_exact(2)
        .map(|pair| (pair[0] * 16 + pair[1]) as u8)
        .collect())
}

fn gzipped(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::new(6));
    encoder
        .write_all(bytes)
        .and_then(|()| encoder.finish())
        .expect("memory takes what is written")
}

fn answer(origin: usize, speech: Speech, words: &[&str], body: &str) -> Result<Answer, String> {
    let (prefix, how) = words.split_first().ok_or("an answer needs a target")?;
    let mut delay = Duration::ZERO;
    let mut bytes = None;
    for word in how {
        match word.split_once('=') {
            Some(("delay", ms)) => delay = milliseconds(ms)?,
            None if *word == "raw" => bytes = Some(unescaped(&body.replace('\n', ""))),
            None if *word == "gzip" => bytes = Some(response(body, gzipped)),
            _ => return Err(format!("an answer that is \"{word}\" is not known")),
        }
    }
    let plain = |text: &[u8]| text.to_vec();
    let is_raw = how.contains(&"raw");
    let bytes = bytes.unwrap_or_else(|| match speech {
        Speech::Http => response(body, plain),
        _ => program_s(body),
    });
    let end = bytes.windows(4).position(|four| four == b"\r\n\r\n");
    Ok(Answer {
        head: end.filter(|_| !is_raw).map_or(bytes.len(), |end| end + 4),
        origin,
        prefix: (*prefix).to_owned(),
        delay,
        bytes,
        is_raw,
    })
}

/// What a program behind a gateway says: head, empty line, body, and nothing that is not written.
fn program_s(text: &str) -> Vec<u8> {
    let (head, body) = text.split_once("\n\n").unwrap_or((text, ""));
    let lines = head.lines().flat_map(|line| [line, "\r\n"]);
    let body = body.strip_suffix('\n').unwrap_or(body);
    let text: String = lines.chain(["\r\n", body]).collect();
    text.into_bytes()
}

/// A response from its text: head, empty line, body. Its length is said unless the head says where the body ends.
fn response(text: &str, coding: fn(&[u8]) -> Vec<u8>) -> Vec<u8> {
    let (head, body) = text.split_once("\n\n").unwrap_or((text, ""));
    let body = coding(body.strip_suffix('\n').unwrap_or(body).as_bytes());
    let mut out = String::new();
    for line in head.lines() {
        out.push_str(line);
        out.push_str("\r\n");
    }
    let lower = head.to_ascii_lowercase();
    let has = |name: &str| lower.contains(&format!("\n{name}:"));
    let status = head.split(' ').nth(1).unwrap_or_default();
    let is_bare = matches!(status, "204" | "304");
    if !is_bare && !has("content-length") && !has("transfer-encoding") && !has("x-until-close") {
        out.push_str(&format!("Content-Length: {}\r\n", body.len()));
    }
    if !has("connection") {
        out.push_str("Connection: close\r\n");
    }
    out.push_str("\r\n");
    [out.as_bytes(), &body].concat()
}

fn question(label: &str, method: &str, words: &[&str], body: &str) -> Result<Question, String> {
    let (method, port) = match method.split_once(':') {
        Some((method, port)) => {
            let port: usize = port.parse().map_err(|_| "which port?".to_owned())?;
            (method, port.saturating_sub(1))
        }
        None => (method, 0),
    };
    let (target, version) = match words {
        [target] => (*target, "HTTP/1.1"),
        [target, version] => (*target, *version),
        _ => return Err(format!("\"{label}\" is not METHOD TARGET [VERSION]")),
    };
    let (head, content) = match body.strip_prefix('\n') {
        Some(content) => ("", content),
        None => body.split_once("\n\n").unwrap_or((body, "")),
    };
    let content = content.strip_suffix('\n').unwrap_or(content);
    let lower = format!("\n{}", head.to_ascii_lowercase());
    let has = |name: &str| lower.contains(&format!("\n{name}:"));
    let mut out = format!("{method} {target} {version}\r\n");
    if !has("host") {
        out.push_str("Host: localhost\r\n");
    }
    if !has("connection") {
        out.push_str("Connection: close\r\n");
    }
    for line in head.lines().filter(|line| !line.is_empty()) {
        out.push_str(line);
        out.push_str("\r\n");
    }
    if !content.is_empty() && !has("content-length") && !has("transfer-encoding") {
        out.push_str(&format!("Content-Length: {}\r\n", content.len()));
    }
    out.push_str("\r\n");
    out.push_str(content);
    Ok(Question {
        port,
        label: label.to_owned(),
        is_head: method == "HEAD",
        bytes: out.into_bytes(),
    })
}

/// The bytes of a text in which `\r`, `\n`, `\t`, `\\` and `\xHH` stand for bytes.
fn unescaped(text: &str) -> Vec<u8> {
    let mut out = Vec::new();
    let mut letters = text.bytes();
    while let Some(letter) = letters.next() {
        out.push(match letter {
            b'\\' => match letters.next() {
                Some(b'r') => b'\r',
                Some(b'n') => b'\n',
                Some(b't') => b'\t',
                Some(b'x') => digit(letters.next()) * 16 + digit(letters.next()),
                other => other.unwrap_or(b'\\'),
            },
            plain => plain,
        });
    }
    out
}

fn digit(letter: Option<u8>) -> u8 {
    let value = letter.and_then(|letter| char::from(letter).to_digit(16));
    value.unwrap_or(0) as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_case_is_read() {
        let text = "# About.\n--- server\nreturn 204;\n\n--- POST:2 /a HTTP/1.0\nX: y\n\nbody\n--- raw\nA\\r\\n\nB\\x41\n";
        let case = parse("a/b", text).unwrap();
        assert!(case.http.contains("return 204;\n}"));
        let Step::Ask(question) = &case.steps[0] else {
            panic!("it asks")
        };
        assert_eq!(question.port, 1);
        assert_eq!(
            String::from_utf8_lossy(&question.bytes),
            "POST /a HTTP/1.0\r\nHost: localhost\r\nConnection: close\r\nX: y\r\nContent-Length: 4\r\n\r\nbody"
        );
        let Step::Ask(raw) = &case.steps[1] else {
            panic!("it asks")
        };
        assert_eq!(raw.bytes, b"A\r\nBA");
    }

    #[test]
    fn a_case_about_families_is_one_for_each() {
        let text = "# About.\n--- speech <family>\n--- origin /a\nA: b\n\nc\n--- GET /\n";
        let cases = parse_each("a/b", text).unwrap();
        let names: Vec<&str> = cases.iter().map(|case| &case.name[..]).collect();
        assert_eq!(names, ["a/b-fastcgi", "a/b-uwsgi", "a/b-scgi"]);
        assert_eq!(cases[2].speech, [Speech::Scgi, Speech::Http]);
        assert_eq!(cases[0].answers[0].bytes, b"A: b\r\n\r\nc");
        assert_eq!(parse_each("a", "# A.\n--- GET /\n").unwrap().len(), 1);
    }

    #[test]
    fn what_is_not_known_is_a_fault() {
        assert!(parse("a", "# A.\n--- nothing\n").is_err());
        assert!(parse("a", "# A.\n--- speech http\n--- GET /\n").is_err());
        assert!(parse("a", "# A.\n--- file x strange\n--- GET /\n").is_err());
        assert!(parse("a", "no comment\n--- GET /\n").is_err());
        assert!(parse("a", "# A.\n--- server\n").is_err());
        assert!(parse("a", "# A.\n--- wait 99999\n").is_err());
    }
}
