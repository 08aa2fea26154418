//! The directives of error pages.
//!
//! Not here: when a page is shown ([`error_page`](crate::steps::error_page)).

use config::{Flag, Problem, Scope, Template, Value, Word, directives, parse_number};

/// Maximum number of codes of one `error_page` line.
pub const CODES_MAX: usize = 300;
/// Maximum of `=CODE`: a status has three digits (RFC 9110, section 15). nginx sends more of them.
const STATUS_MAX: u64 = 999;

/// One code of an `error_page` line.
#[derive(Debug, Clone)]
pub struct Page {
    /// The status that it covers.
    pub status: u16,
    /// Status of the response. `=CODE`: that status; `=`: the status of the error page's own response; without: the failure's.
    pub overwrite: Overwrite,
    /// A URI, `@name`, or a URL.
    pub target: Template,
}

/// The status of an error page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Overwrite {
    /// The failure's own.
    Keep,
    /// `=`: the status of the error page's own response.
    Answer,
    /// `=CODE`.
    Code(u16),
}

/// All pages of a level, in order.
#[derive(Debug, Clone, Default)]
pub struct Pages(pub Vec<Page>);

impl Value for Pages {
    const SYNTAX: &'static str = "code … [=[response]] uri";

    fn parse(args: &[Word], scope: &mut Scope) -> Result<Self, Problem> {
        let [words @ .., target] = args else {
            return Err(Problem::argument_count("error_page"));
        };
        let (codes, overwrite) = overwrite(words)?;
        let target = Template::of_word(target, scope).map_err(|problem| problem.at(words.len()))?;
        let mut pages = Vec::with_capacity(codes.len());
        for (i, word) in codes.iter().enumerate() {
            // 499 means that the client has gone: no page would be seen.
            let status = parse_number(word.bytes()).filter(|status| *status != 499);
            let status = status.ok_or_else(|| invalid(word, i))?;
            let status = u16::try_from(status).ok();
            let status = status.filter(|status| (300..=599).contains(status));
            let status = status.ok_or_else(|| {
                let sentence = format!("value \"{}\" must be between 300 and 599", word.display());
                Problem::new(sentence).at(i)
            })?;
            let overwrite = match (overwrite, status) {
                (Overwrite::Keep, 494..=497) => Overwrite::Code(400),
                (other, _) => other,
            };
            pages.push(Page {
                status,
                overwrite,
                target: target.clone(),
            });
        }
        Ok(Self(pages))
    }

    fn set(slot: &mut Option<Self>, args: &[Word], scope: &mut Scope) -> Result<(), Problem> {
        let line = Self::parse(args, scope)?;
        let pages = slot.get_or_insert_with(Self::default);
        pages.0.extend(line.0);
        if pages.0.len() > CODES_MAX {
            return Err(Problem::new(format!(
                "more than {CODES_MAX} error pages at one level"
            )));
        }
        Ok(())
    }
}

/// Takes `=` or `=CODE` off the end of the codes.
fn overwrite(words: &[Word]) -> Result<(&[Word], Overwrite), Problem> {
    let [codes @ .., last] = words else {
        return Ok((words, Overwrite::Keep));
    };
    let Some(code) = last.bytes().strip_prefix(b"=") else {
        return Ok((words, Overwrite::Keep));
    };
    if codes.is_empty() {
        return Err(invalid(last, 0));
    }
    let code = match code {
        b"" => Some(0),
        _ => parse_number(code).filter(|code| *code <= STATUS_MAX),
    };
    // `=0` is `=` in nginx.
    let overwrite = match code.ok_or_else(|| invalid(last, codes.len()))? {
        0 => Overwrite::Answer,
        code => Overwrite::Code(code as u16),
    };
    Ok((codes, overwrite))
}

fn invalid(word: &Word, at: usize) -> Problem {
    Problem::new(format!("invalid value \"{}\"", word.display())).at(at)
}

directives! {
    /// Error pages.
    pub struct ErrorPages in Location {
        /// Handles requests that fail with one of the codes by a URI, a named location, or a URL (with 302). `=CODE`
        /// changes the status, `=` takes the status of the page's response.
        error_page: Option<Pages> = none, [HTTP | SERVER | LOCATION | LOCATION_IF] 2..;
        /// Lets an error page that fails have error pages itself.
        recursive_error_pages: Flag = "off", [HTTP | SERVER | LOCATION] FLAG;
        /// Pads built-in 4xx and 5xx pages to over 512 bytes for MSIE and Chrome, which hide shorter ones.
        msie_padding: Flag = "on", [HTTP | SERVER | LOCATION] FLAG;
        /// Responds to MSIE with a page that refreshes instead of a redirect.
        msie_refresh: Flag = "off", [HTTP | SERVER | LOCATION] FLAG;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Overwrite, String> {
        let tree =
            config::parse_bytes(format!("error_page {text} /x;").as_bytes()).expect("parses");
        let pages = Pages::parse(&tree.directives[0].args, &mut Scope::new());
        let pages = pages.map_err(|problem| problem.sentence_for("error_page"))?;
        Ok(pages.0[0].overwrite)
    }

    #[test]
    fn statuses() {
        for (text, overwrite) in [
            ("404", Overwrite::Keep),
            ("404 =", Overwrite::Answer),
            ("404 =0", Overwrite::Answer),
            ("404 =000", Overwrite::Answer),
            ("404 =200", Overwrite::Code(200)),
            ("497", Overwrite::Code(400)),
        ] {
            assert_eq!(read(text), Ok(overwrite), "{text}");
        }
        for (text, sentence) in [
            ("+404", "invalid value \"+404\""),
            ("499", "invalid value \"499\""),
            ("404 =+200", "invalid value \"=+200\""),
            ("404 =1000", "invalid value \"=1000\""),
            ("70000", "value \"70000\" must be between 300 and 599"),
            ("0200", "value \"0200\" must be between 300 and 599"),
        ] {
            assert_eq!(read(text).unwrap_err(), sentence);
        }
    }
}
