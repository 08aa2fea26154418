//! Lines that are valid only after another line. The order is checked while the text is read, since the modules that
//! obey the lines do not see it.
//!
//! Not here: what the lines say.

use bytes::Bytes;
use config::{Directive, Error, Problem};
use logs::format::{COMBINED, JSON};

/// What was seen so far of a configuration.
#[derive(Debug, Default)]
pub(super) struct Order {
    formats: Vec<Bytes>,
}

impl Order {
    /// Checks a line of `http`, with all that stands in it; `all` are the lines of `http`.
    ///
    /// # Errors
    /// A line that should stand behind another one, in nginx's words, at its place.
    pub(super) fn check(&mut self, line: &Directive, all: &[Directive]) -> Result<(), Error> {
        if line.name == "log_format" {
            self.formats
                .extend(line.args.first().map(|name| name.bytes().clone()));
        }
        self.check_all(std::slice::from_ref(line), all)
    }

    fn check_all(&self, lines: &[Directive], all: &[Directive]) -> Result<(), Error> {
        let mut is_passed_on = false;
        for line in lines {
            match &line.name.bytes()[..] {
                b"access_log" => self.check_format(line, all)?,
                b"proxy_pass" => is_passed_on = true,
                b"proxy_redirect" if !is_passed_on => check_redirect(line)?,
                _ => {}
            }
            self.check_all(line.children(), all)?;
        }
        Ok(())
    }

    fn check_format(&self, line: &Directive, all: &[Directive]) -> Result<(), Error> {
        let [target, name, ..] = &line.args[..] else {
            return Ok(());
        };
        let is_it = |known: &[u8]| known.eq_ignore_ascii_case(name.bytes());
        if *target == "off" || is_it(COMBINED) || self.formats.iter().any(|known| is_it(known)) {
            return Ok(());
        }
        let problem = Problem::new(format!("unknown log format \"{}\"", name.display())).at(1);
        let mut formats = all.iter().filter(|line| line.name == "log_format");
        let is_later =
            formats.any(|line| line.args.first().is_some_and(|known| is_it(known.bytes())));
        if name.bytes() == JSON && !is_later {
            return Ok(());
        }
        let hint = "its \"log_format\" stands further down: it must come first";
        Err(line.error(&if is_later {
            problem.hint_that(hint)
        } else {
            problem
        }))
    }
}

fn check_redirect(line: &Directive) -> Result<(), Error> {
    match &line.args[..] {
        [word] if *word == "default" => {
            let sentence =
                "\"proxy_redirect default\" should be placed after the \"proxy_pass\" directive";
            Err(line.error(&Problem::new(sentence).at(0)))
        }
        _ => Ok(()),
    }
}
