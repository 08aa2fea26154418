//! Runs a rewrite program for a request.
//!
//! Invariant: a program has no backward jumps, so it ends after at most as many steps as it has instructions.

use bytes::Bytes;
use config::{Template, VariableIndex};
use logs::Level;
use logs::template::{self, Quoting, is_true};

use crate::before::return_;
use crate::realpath_root;
use httpcore::Failure;
use httpcore::outcome::Outcome;
use httpcore::regex::Regex;
use httpcore::request::{Request, UriOrigin};
use httpcore::steps::observe::{Obeyed, Observe};

use super::condition::{Condition, FileTest};
use super::program::{Instruction, Program};
use super::replacement::{Rewrite, Then};

/// The end of a run.
pub(crate) enum ProgramEnd {
    /// After the last instruction, or at a `break`.
    Whole {
        /// Whether the URI has changed, so that its location must be found.
        is_moved: bool,
    },
    /// With an answer.
    Answered(Outcome),
}

/// Runs a program that tests no files.
pub(crate) fn run<O: Observe>(request: &mut Request, program: &Program, observer: O) -> ProgramEnd {
    let mut machine = Machine::new(request, program);
    loop {
        if let Some(ended) = machine.run_next(request, false, observer) {
            return ended;
        }
    }
}

/// Runs a program that tests files or uses `$realpath_root`.
pub(crate) async fn run_waiting<O: Observe>(
    request: &mut Request,
    program: &Program,
    observer: O,
) -> ProgramEnd {
    let mut machine = Machine::new(request, program);
    loop {
        // Not before it is used: the root may be made of what the program sets, and of values that are found once.
        let settings = &request.generation.settings;
        if program
            .at(machine.at)
            .is_some_and(|next| next.uses(&settings.realpath_variables))
        {
            realpath_root::run(request).await;
        }
        let is_met = match machine.file_test() {
            None => false,
            Some(test) => {
                let path = machine.value(request, test.text());
                match test.ask(request, &path).await {
                    Ok(is_met) => is_met,
                    Err(failure) => return ProgramEnd::Answered(Outcome::Failed(failure)),
                }
            }
        };
        if let Some(ended) = machine.run_next(request, is_met, observer) {
            return ended;
        }
    }
}

/// A running program.
struct Machine<'a> {
    program: &'a Program,
    /// The next instruction.
    at: usize,
    is_moved: bool,
    /// `rewrite_log`, of the location that the program belongs to.
    is_logged: bool,
    /// Whether a `rewrite` has matched. Until then captures are escaped if the client's own path was, as in nginx.
    is_rewritten: bool,
}

impl<'a> Machine<'a> {
    /// At the first instruction.
    fn new(request: &Request, program: &'a Program) -> Self {
        Self {
            program,
            at: 0,
            is_moved: false,
            is_logged: request.location().settings.rewrite_messages.rewrite_log,
            is_rewritten: false,
        }
    }

    /// The file test that the next step needs.
    fn file_test(&self) -> Option<&'a FileTest> {
        match self.program.at(self.at)? {
            Instruction::If { condition, .. } => match &**condition {
                Condition::File(test) => Some(test),
                _ => None,
            },
            _ => None,
        }
    }

    /// As [`Machine::step`], observed.
    fn run_next<O: Observe>(
        &mut self,
        request: &mut Request,
        is_met: bool,
        observer: O,
    ) -> Option<ProgramEnd> {
        let at = self.at;
        observer.obeys(request, at);
        let ended = self.step(request, is_met);
        let obeyed = Obeyed {
            at,
            next: self.at,
            has_answered: matches!(ended, Some(ProgramEnd::Answered(_))),
        };
        observer.obeyed(request, &obeyed);
        ended
    }

    /// Executes one instruction; `is_met` is the result of the file test, if it needs one.
    fn step(&mut self, request: &mut Request, is_met: bool) -> Option<ProgramEnd> {
        let Some(instruction) = self.program.at(self.at) else {
            return Some(ProgramEnd::Whole {
                is_moved: self.is_moved,
            });
        };
        self.at += 1;
        match instruction {
            Instruction::Set(variable, value) => {
                let value = self.value(request, value);
                if request.is_too_long(&value) {
                    return Some(ProgramEnd::Answered(Outcome::Failed(Failure::new(500))));
                }
                request.assign(*variable, value);
                None
            }
            Instruction::If {
                condition,
                scope,
                otherwise,
            } => {
                let holds = match self.holds(request, condition, is_met) {
                    Ok(holds) => holds,
                    Err(failure) => return Some(ProgramEnd::Answered(Outcome::Failed(failure))),
                };
                match (holds, scope) {
                    (true, Some(scope)) => request.enter(*scope),
                    (true, None) => {}
                    (false, _) => self.at = *otherwise,
                }
                None
            }
            Instruction::Rewrite(rewrite) => self.rewrite(request, rewrite),
            Instruction::Return(decided) => {
                Some(ProgramEnd::Answered(return_::answer(request, decided)))
            }
            Instruction::Break => {
                if self.is_moved {
                    request.uri_origin = UriOrigin::Kept;
                }
                Some(ProgramEnd::Whole { is_moved: false })
            }
        }
    }

    /// The text of a value.
    fn value(&self, request: &Request, value: &Template) -> Bytes {
        if let Some(literal) = value.literal() {
            return literal.clone();
        }
        if self.is_rewritten || quoting(request) == Quoting::Plain {
            return request.evaluate(value);
        }
        let mut out = Vec::with_capacity(64);
        template::evaluate_quoted(value, request, Quoting::Escaped, &mut out);
        out.into()
    }

    /// # Errors
    /// The match with a pattern failed.
    fn holds(
        &self,
        request: &Request,
        condition: &Condition,
        is_met: bool,
    ) -> Result<bool, Failure> {
        Ok(match condition {
            Condition::File(_) => is_met,
            Condition::Holds(variable) => is_true(&text_of(request, *variable)),
            Condition::Equals {
                variable,
                value,
                is_negated,
            } => {
                let is_equal = text_of(request, *variable) == self.value(request, value);
                is_equal != *is_negated
            }
            Condition::Matches {
                variable,
                regex,
                is_negated,
            } => {
                let subject = Bytes::from(text_of(request, *variable));
                self.matches(request, regex, &subject)? != *is_negated
            }
        })
    }

    /// Whether the pattern matches. If so, the captures become those of this match; otherwise there are none any more.
    ///
    /// # Errors
    /// The match failed.
    fn matches(&self, request: &Request, regex: &Regex, subject: &Bytes) -> Result<bool, Failure> {
        let is_match = request.matches(regex, subject)?;
        if !is_match {
            request.forget_captures();
        }
        if self.is_logged {
            request.log(Level::Notice, &|out| {
                let verb = match is_match {
                    true => &b"\" matches \""[..],
                    false => b"\" does not match \"",
                };
                out.push(b'"');
                out.extend_from_slice(regex.pattern.as_bytes());
                out.extend_from_slice(verb);
                out.extend_from_slice(subject);
                out.push(b'"');
            });
        }
        Ok(is_match)
    }

    fn rewrite(&mut self, request: &mut Request, rewrite: &Rewrite) -> Option<ProgramEnd> {
        let uri = request.uri.clone();
        match self.matches(request, &rewrite.regex, &uri) {
            Ok(true) => {}
            Ok(false) => return None,
            Err(failure) => return Some(ProgramEnd::Answered(Outcome::Failed(failure))),
        }
        request.is_internal = true;
        request.uri_origin = request.uri_origin.changed();
        if let Then::Redirect(status) = rewrite.then {
            let url = rewrite.url(request);
            if self.is_logged {
                request.log(Level::Notice, &|out| {
                    out.extend_from_slice(b"rewritten redirect: \"");
                    out.extend_from_slice(&url);
                    out.push(b'"');
                });
            }
            return Some(ProgramEnd::Answered(Outcome::Failed(Failure::redirect(
                status, url,
            ))));
        }
        if let Err(failure) = rewrite.replace(request, self.is_logged) {
            return Some(ProgramEnd::Answered(Outcome::Failed(failure)));
        }
        self.is_rewritten = true;
        match rewrite.then {
            Then::Next | Then::Redirect(_) => {
                self.is_moved = true;
                None
            }
            Then::Last => Some(ProgramEnd::Whole { is_moved: true }),
            Then::Break => {
                request.uri_origin = UriOrigin::Kept;
                Some(ProgramEnd::Whole { is_moved: false })
            }
        }
    }
}

/// How captures are inserted where a URI expects them escaped: escaped only if the client's own path was.
pub(super) fn quoting(request: &Request) -> Quoting {
    let target = request.head.target();
    let path = memchr::memchr(b'?', target).map_or(target, |end| &target[..end]);
    match !request.is_subrequest() && memchr::memchr2(b'%', b'+', path).is_some() {
        true => Quoting::Escaped,
        false => Quoting::Plain,
    }
}

fn text_of(request: &Request, variable: VariableIndex) -> Vec<u8> {
    let mut text = Vec::new();
    request.append_variable(variable, &mut text);
    text
}
