//! The directives of error pages.
//!
//! Not here: when a page is shown ([`error_page`](crate::steps::error_page)).

use config::{Flag, Problem, Scope, Template, Value, Word, directives};

/// Maximum number of codes of one `error_page` line.
pub const CODES_MAX: usize = 300;

/// One code of an `error_page` line.
#[derive(Debug, Clone)]
pub struct Page {
    /// The status that it covers.
    pub status: u16,
    /// Status of the response. `=CODE`: that status; `=`: the status of the error page's own response (`None`
    /// inside); without: the failure's.
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
            let status = number(word.bytes()).filter(|status| *status != 499);
            let status = status.ok_or_else(|| invalid(word, i))?;
            if !(300..=599).contains(&status) {
                return Err(Problem::new(format!(
                    "value \"{status}\" must be between 300 and 599"
                ))
                .at(i));
            }
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
    let overwrite = match code {
        b"" => Overwrite::Answer,
        _ => Overwrite::Code(number(code).ok_or_else(|| invalid(last, codes.len()))?),
    };
    Ok((codes, overwrite))
}

fn invalid(word: &Word, at: usize) -> Problem {
    Problem::new(format!("invalid value \"{}\"", word.display())).at(at)
}

fn number(text: &[u8]) -> Option<u16> {
    std::str::from_utf8(text).ok()?.parse().ok()
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
