//! An SSI page: runs its commands, one after the other.
//!
//! Not here: the order in which their output is shown (`composed`). State that a page shares with the other pages of
//! its answer is in [`Memory`](super::Memory).

use std::rc::Rc;

use bytes::Bytes;
use config::VariableIndex;
use logs::Level;
use message::escape::{self, Escape};
use message::uri;

use httpcore::Response;
use httpcore::regex::Regex;
use httpcore::request::Request;
use httpcore::subrequest::include::{self, Inclusion, Whole};

use super::commands::{Kind, Values};
use super::condition::Condition;
use super::date;
use super::memory::MemoryFull;
use super::parser::Command;
use crate::after::ssi::commands;
use crate::after::ssi::memory;

/// Maximum bytes of a value after its variables were substituted.
const TEXT_MAX: usize = 1 << 20;

/// The output of a command.
pub(super) enum CommandOutput {
    /// Nothing to show.
    Nothing,
    /// This text.
    Text(Bytes),
    /// The answer to a sub-request.
    Part(Part),
}

/// A sub-request of a page.
pub(super) struct Part {
    /// The sub-request.
    pub child: Box<Request>,
    /// The use of its answer.
    pub purpose: Purpose,
}

/// The use of the answer to a sub-request.
pub(super) enum Purpose {
    /// It is shown; the page is read on meanwhile.
    Shown,
    /// It is shown; the page is read on after its end.
    Awaited,
    /// It becomes the value of this variable; the page is read on after that.
    Value(Vec<u8>),
}

/// The encoding of values that are shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Encoding {
    None,
    Url,
    Entity,
}

/// The branch of a condition that the page is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Branch {
    None,
    If,
    Else,
}

/// A command has failed; the reason is in the log.
#[derive(Debug)]
struct CommandFailed;

/// An SSI page that is being run.
pub(super) struct Page {
    /// A stand-in for the page's request.
    about: Box<Request>,
    whole: Rc<Whole>,
    /// Whether errors are hidden.
    is_silent: bool,
    error_text: Bytes,
    encoding: Encoding,
    /// Whether the following text is shown.
    is_shown: bool,
    /// Whether a condition of this `if` has held already.
    is_chosen: bool,
    branch: Branch,
    /// Whether the following text is stored in a block.
    is_block: bool,
}

impl Page {
    /// Begins a page; `about` stands in for its request.
    #[must_use]
    pub(super) fn new(about: Box<Request>, whole: Rc<Whole>, is_silent: bool) -> Self {
        Self {
            about,
            whole,
            is_silent,
            error_text: Bytes::from_static(b"[an error occurred while processing the directive]"),
            encoding: Encoding::Entity,
            is_shown: true,
            is_chosen: false,
            branch: Branch::None,
            is_block: false,
        }
    }

    /// The state that all pages of the answer share.
    #[must_use]
    pub(super) fn whole(&self) -> &Rc<Whole> {
        &self.whole
    }

    /// Takes text between commands; returns it if it is to be shown.
    pub(super) fn text(&mut self, text: Bytes) -> Option<Bytes> {
        if self.is_shown {
            return Some(text);
        }
        if self.is_block {
            self.keep(&text);
        }
        None
    }

    /// Logs a fault of the page.
    pub(super) fn complain(&self, sentence: &str) {
        self.about.log_sending(Level::Error, &|out| {
            out.extend_from_slice(sentence.as_bytes())
        });
    }

    /// The text in place of a command that failed.
    #[must_use]
    pub(super) fn error(&self) -> CommandOutput {
        match self.is_silent {
            true => CommandOutput::Nothing,
            false => CommandOutput::Text(self.error_text.clone()),
        }
    }

    /// Runs a command.
    pub(super) fn obey(&mut self, command: Command) -> CommandOutput {
        self.try_obey(command)
            .unwrap_or_else(|CommandFailed| self.error())
    }

    /// Sets a variable to the answer of a sub-request.
    pub(super) fn set(&self, name: &[u8], value: &[u8]) {
        self.remember(name, value);
    }

    fn try_obey(&mut self, command: Command) -> Result<CommandOutput, CommandFailed> {
        let name = String::from_utf8_lossy(&command.name).into_owned();
        let Some(kind) = Kind::of(&command.name) else {
            return match self.is_shown {
                true => self.fail(&format!("invalid SSI command: \"{name}\"")),
                false => Ok(CommandOutput::Nothing),
            };
        };
        let is_conditional = matches!(kind, Kind::Elif | Kind::Else | Kind::Endif);
        if !self.is_shown && kind != Kind::Endblock {
            if self.is_block {
                self.keep(&commands::text_of(&command));
                return Ok(CommandOutput::Nothing);
            }
            if !is_conditional {
                return Ok(CommandOutput::Nothing);
            }
        }
        let fits = match kind {
            Kind::Elif | Kind::Else => self.branch == Branch::If,
            Kind::Endif => self.branch != Branch::None,
            _ => true,
        };
        if !fits {
            return self.fail(&format!("invalid context of SSI command: \"{name}\""));
        }
        let values = kind
            .values(command)
            .or_else(|sentence| self.fail(&sentence))?;
        self.run(kind, values)
    }

    fn run(&mut self, kind: Kind, values: Values) -> Result<CommandOutput, CommandFailed> {
        match kind {
            Kind::Include => return self.include(values),
            Kind::Echo => return self.echo(values),
            Kind::Config => self.configure(values),
            Kind::Set => {
                let [name, value, ..] = values.map(Option::unwrap_or_default);
                let value = self.evaluate(&value)?;
                self.remember(&name, &value);
            }
            Kind::If | Kind::Elif => self.choose(kind, values)?,
            Kind::Else => {
                self.is_shown = !self.is_chosen;
                self.branch = Branch::Else;
            }
            Kind::Endif => {
                self.is_shown = true;
                self.is_chosen = false;
                self.branch = Branch::None;
            }
            Kind::Block => {
                let [name, ..] = values.map(Option::unwrap_or_default);
                let begun = memory::of(&self.whole).borrow_mut().begin_block(&name);
                begun.or_else(|MemoryFull| self.fail("too many SSI blocks"))?;
                self.is_shown = false;
                self.is_block = true;
            }
            Kind::Endblock => {
                self.is_shown = true;
                self.is_block = false;
            }
        }
        Ok(CommandOutput::Nothing)
    }

    fn fail<T>(&self, sentence: &str) -> Result<T, CommandFailed> {
        self.complain(sentence);
        Err(CommandFailed)
    }

    fn keep(&self, text: &[u8]) {
        let kept = memory::of(&self.whole).borrow_mut().add_to_block(text);
        if let Err(MemoryFull) = kept {
            self.complain("too long SSI blocks");
        }
    }

    fn remember(&self, name: &[u8], value: &[u8]) {
        let set = memory::of(&self.whole)
            .borrow_mut()
            .set(&name.to_ascii_lowercase(), value);
        if let Err(MemoryFull) = set {
            self.complain("too many or too long SSI variables");
        }
    }

    /// A variable that awaits a value is empty until then, unless it has one.
    fn make_known(&self, name: &[u8]) {
        let known = memory::of(&self.whole)
            .borrow()
            .get(&name.to_ascii_lowercase());
        if known.is_none() {
            self.remember(name, b"");
        }
    }

    fn configure(&mut self, values: Values) {
        let [error_text, time_format, ..] = values;
        if let Some(format) = time_format {
            date::set_format(&self.about, format.into());
        }
        if let Some(text) = error_text {
            self.error_text = text.into();
        }
    }

    fn echo(&mut self, values: Values) -> Result<CommandOutput, CommandFailed> {
        let [name, default, encoding, ..] = values;
        let mut value = Vec::new();
        if !self.append(&name.unwrap_or_default(), &mut value)? {
            value = default.unwrap_or_else(|| b"(none)".to_vec());
        }
        if value.is_empty() {
            return Ok(CommandOutput::Nothing);
        }
        match encoding.as_deref() {
            None => {}
            Some(b"none") => self.encoding = Encoding::None,
            Some(b"url") => self.encoding = Encoding::Url,
            Some(b"entity") => self.encoding = Encoding::Entity,
            Some(other) => self.complain(&format!(
                "unknown encoding \"{}\" in the \"echo\" command",
                String::from_utf8_lossy(other)
            )),
        }
        let text = match self.encoding {
            Encoding::None => value,
            Encoding::Url => Escape::Html.apply(&value),
            Encoding::Entity => {
                let mut text = Vec::with_capacity(value.len());
                escape::html(&value, &mut text);
                text
            }
        };
        Ok(CommandOutput::Text(text.into()))
    }

    /// Decides whether the text after a condition is shown.
    fn choose(&mut self, kind: Kind, values: Values) -> Result<(), CommandFailed> {
        if kind == Kind::If && self.branch != Branch::None {
            return self.fail("the \"if\" command inside the \"if\" command");
        }
        if self.is_chosen {
            self.is_shown = false;
            return Ok(());
        }
        let [expression, ..] = values.map(Option::unwrap_or_default);
        let Some(condition) = Condition::parse(&expression) else {
            let expression = String::from_utf8_lossy(&expression);
            return self.fail(&format!("invalid expression in \"{expression}\""));
        };
        let holds = self.holds(&condition)?;
        self.is_shown = holds;
        self.is_chosen |= holds;
        self.branch = Branch::If;
        Ok(())
    }

    fn holds(&self, condition: &Condition<'_>) -> Result<bool, CommandFailed> {
        let left = self.evaluate(&condition.left)?;
        let Some(right) = &condition.right else {
            return Ok(!left.is_empty());
        };
        let text = self.evaluate(right.text)?;
        let is_same = match right.is_regex {
            true => self.matches(&text, left.into())?,
            false => left == text,
        };
        Ok(is_same != right.is_negated)
    }

    /// Whether a pattern matches; its captures are stored.
    fn matches(&self, pattern: &[u8], subject: Bytes) -> Result<bool, CommandFailed> {
        let mut names = Vec::new();
        let compiled = Regex::compile(pattern, false, |name| {
            names.push(name.to_owned());
            VariableIndex(names.len() as u32 - 1)
        });
        let regex = compiled.or_else(|sentence| self.fail(&sentence))?;
        let matched = regex.captures(&subject);
        let Some(spans) = matched.or_else(|failed| self.fail(&failed.sentence))? else {
            return Ok(false);
        };
        for (group, name) in &regex.groups {
            let span = spans.get(*group).cloned().flatten();
            let span = span.map_or(0..0, |span| span.start as usize..span.end as usize);
            self.remember(names[name.0 as usize].as_bytes(), &subject[span]);
        }
        memory::of(&self.whole).borrow_mut().capture(subject, spans);
        Ok(true)
    }

    fn include(&mut self, values: Values) -> Result<CommandOutput, CommandFailed> {
        let [virtual_, file, wait, set, stub] = values;
        let shown = |text: &[u8]| String::from_utf8_lossy(text).into_owned();
        let target = match (&virtual_, &file) {
            (Some(uri), Some(file)) => {
                let (uri, file) = (shown(uri), shown(file));
                return self.fail(&format!(
                    "inclusion may be either virtual=\"{uri}\" or file=\"{file}\""
                ));
            }
            (None, None) => return self.fail("no parameter in \"include\" SSI command"),
            (Some(target), None) | (None, Some(target)) => target,
        };
        if set.is_some() && stub.is_some() {
            return self
                .fail("\"set\" and \"stub\" cannot be used together in \"include\" SSI command");
        }
        let must_wait = self.waits(wait.as_deref(), file.as_deref())? || file.is_some();
        let made = self.evaluate(target)?;
        // A target whose variables are all empty names no page; only one that is written empty means the page's
        // directory.
        let target = match made.is_empty() && !target.is_empty() {
            true => made,
            false => self.place(made),
        };
        let Some((path, args)) = uri::safe(&target) else {
            return self.fail(&format!("unsafe URI \"{}\" was detected", shown(&target)));
        };
        let inclusion = Inclusion {
            whole: Rc::clone(&self.whole),
            stub: stub.map(|name| self.stub(&name)).transpose()?,
            is_value: set.is_some(),
        };
        if let Some(name) = &set {
            self.make_known(name);
        }
        let args = Bytes::copy_from_slice(args);
        let child = include::make(&self.about, path.into(), args, inclusion);
        let purpose = match set {
            Some(name) => Purpose::Value(name),
            None if must_wait => Purpose::Awaited,
            None => Purpose::Shown,
        };
        let child = child.map_err(|_| CommandFailed)?;
        Ok(CommandOutput::Part(Part { child, purpose }))
    }

    fn waits(&self, wait: Option<&[u8]>, file: Option<&[u8]>) -> Result<bool, CommandFailed> {
        let shown = |text: &[u8]| String::from_utf8_lossy(text).into_owned();
        match (wait, file) {
            (None, _) => Ok(false),
            (Some(_), Some(file)) => {
                let file = shown(file);
                self.fail(&format!("\"wait\" cannot be used with file=\"{file}\""))
            }
            (Some(wait), None) if wait.eq_ignore_ascii_case(b"no") => Ok(false),
            (Some(wait), None) if wait.eq_ignore_ascii_case(b"yes") => Ok(true),
            (Some(wait), None) => {
                let wait = shown(wait);
                self.fail(&format!(
                    "invalid value \"{wait}\" in the \"wait\" parameter"
                ))
            }
        }
    }

    /// Resolves a URI: a relative one begins at the page's directory.
    fn place(&self, target: Vec<u8>) -> Vec<u8> {
        if target.starts_with(b"/") {
            return target;
        }
        let uri = &self.about.uri;
        let directory = memchr::memrchr(b'/', uri).map_or(0, |at| at + 1);
        [&uri[..directory], &target].concat()
    }

    fn stub(&self, name: &[u8]) -> Result<Box<Response>, CommandFailed> {
        let Some(text) = memory::of(&self.whole).borrow_mut().block(name) else {
            let name = String::from_utf8_lossy(name);
            return self.fail(&format!("\"stub\"=\"{name}\" for \"include\" not found"));
        };
        let mut stub = Response::boxed(200);
        if let Some(head) = &self.about.response {
            stub.take_type_of(head);
        }
        stub.body = message::Body::bytes(text);
        Ok(stub)
    }

    /// Appends a variable's value: the one that a page set, else the request's; `false` if it has none.
    fn append(&self, name: &[u8], out: &mut Vec<u8>) -> Result<bool, CommandFailed> {
        let name = name.to_ascii_lowercase();
        let known = memory::of(&self.whole).borrow().get(&name);
        match known {
            Some(value) => {
                out.extend_from_slice(&value);
                Ok(true)
            }
            None => match self.about.append_named(&name, out) {
                false if date::is_date(&name) => Err(CommandFailed),
                is_found => Ok(is_found),
            },
        }
    }

    /// Substitutes the variables in a text, and removes the backslashes that protect.
    fn evaluate(&self, text: &[u8]) -> Result<Vec<u8>, CommandFailed> {
        let mut out = Vec::with_capacity(text.len());
        let mut rest = text;
        while let [first, tail @ ..] = rest {
            rest = match (first, tail) {
                (b'\\', [protected @ (b'\\' | b'\'' | b'"' | b'$'), tail @ ..]) => {
                    out.push(*protected);
                    tail
                }
                (b'\\', [other, tail @ ..]) => {
                    out.extend_from_slice(&[b'\\', *other]);
                    tail
                }
                (b'\\', []) => tail,
                (b'$', tail) => self.put_variable(text, tail, &mut out)?,
                (other, tail) => {
                    out.push(*other);
                    tail
                }
            };
            if out.len() > TEXT_MAX {
                return self.fail("too long value in an SSI command");
            }
        }
        Ok(out)
    }

    /// Appends the value of the variable that `rest` begins with; returns the text after it.
    fn put_variable<'a>(
        &self,
        text: &[u8],
        rest: &'a [u8],
        out: &mut Vec<u8>,
    ) -> Result<&'a [u8], CommandFailed> {
        let is_braced = rest.first() == Some(&b'{');
        let rest = &rest[usize::from(is_braced)..];
        let is_name = |byte: &&u8| byte.is_ascii_alphanumeric() || **byte == b'_';
        let (name, behind) = rest.split_at(rest.iter().take_while(is_name).count());
        if is_braced && !rest.is_empty() && behind.first() != Some(&b'}') {
            let name = String::from_utf8_lossy(name);
            return self.fail(&format!(
                "the closing bracket in \"{name}\" variable is missing"
            ));
        }
        if name.is_empty() {
            let text = String::from_utf8_lossy(text);
            return self.fail(&format!("invalid variable name in \"{text}\""));
        }
        self.append(name, out)?;
        Ok(&behind[usize::from(is_braced)..])
    }
}
