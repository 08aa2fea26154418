//! Checks names, contexts, block or `;`, and numbers of arguments, in nginx's order.
//!
//! A directive is looked up in the tables of this program and then among nginx's own ([`known`]), so that one that is
//! not implemented is refused or ignored as such. Values are not checked here.

use std::collections::{HashMap, HashSet};

use crate::advice;
use crate::known::{self, Fate, KnownDirective};
use crate::syntax::error::{Error, Problem, Voice};
use crate::syntax::lookalikes;
use crate::syntax::suggest;
use crate::syntax::tree::{Directive, Tree, Word};
use crate::table::args::Args;
use crate::table::context::Context;
use crate::table::{DirectiveEntry, DirectiveTable};

crate::blocks! {
    /// Including files.
    ///
    /// A configuration may be split into several files.
    pub(crate) fn include in Main {
        /// Inserts the content of another file, or of all files that match a pattern with `*`, `?` or `[…]`.
        ///
        /// A relative path starts at the directory of the main configuration file. A pattern that matches nothing is
        /// not an error; a missing file is.
        "include": [MAIN | EVENTS | HTTP | SERVER | SERVER_IF | LOCATION | LOCATION_IF | LIMIT_EXCEPT | UPSTREAM
            | STREAM | STREAM_SERVER | STREAM_UPSTREAM | MAIL | MAIL_SERVER | LINES | MGMT] 1, syntax "file | pattern";
        /// As `include`, for templates: variables of the environment are replaced in these files, and only in these.
        ///
        /// `${NAME}` is the value of the variable `NAME` (capital letters, digits and `_`); without it the configuration is
        /// refused. `${NAME:-text}` is the text where it is not set or empty. `$NAME` is the value if there is one,
        /// otherwise a variable of the configuration. Values are data: they are put into words that are read already,
        /// so that a blank, a `;` or a brace in them is part of the word; a `$` in them is refused. Templates of the
        /// official nginx image serve unchanged, unless a value was meant to be several words. The master reads
        /// the environment that it was started with; `-T` shows the result. The names of templates that these include
        /// are relative like all.
        "include_template": [MAIN | EVENTS | HTTP | SERVER | SERVER_IF | LOCATION | LOCATION_IF | LIMIT_EXCEPT | UPSTREAM
            | LINES] 1, syntax "file | pattern";
    }
}

/// Every directive of the program, by name.
pub struct Grammar {
    by_name: HashMap<&'static [u8], Vec<&'static DirectiveEntry>>,
}

/// The warnings of one check.
#[derive(Default)]
struct Warnings {
    list: Vec<Error>,
    /// The names already warned about: each gets one warning, however often it occurs.
    names: HashSet<&'static str>,
}

/// An error, and what was taken out of the tree for it.
#[derive(Debug, Clone)]
pub struct Fault {
    /// The error.
    pub error: Error,
    /// The directive, with its block; `None`: the error belongs to no directive, or the text ends with it.
    pub directive: Option<Directive>,
}

/// What a directive is to this program.
#[derive(Clone, Copy, Debug)]
pub enum Standing {
    /// It is implemented: its row in our tables.
    Built(&'static DirectiveEntry),
    /// nginx has it, and no table here: its row in nginx's grammar.
    Known(&'static KnownDirective),
}

impl Grammar {
    /// The grammar of these tables. `include` is always part of it.
    #[must_use]
    pub fn new(tables: impl IntoIterator<Item = &'static DirectiveTable>) -> Self {
        let mut by_name: HashMap<_, Vec<_>> = HashMap::new();
        for entry in [include()]
            .into_iter()
            .chain(tables)
            .flat_map(|table| &table.entries)
        {
            by_name
                .entry(entry.name.as_bytes())
                .or_default()
                .push(entry);
        }
        Self { by_name }
    }

    /// Checks every directive of the tree, in order. Returns the warnings: one for each name that is ignored.
    ///
    /// # Errors
    /// The first directive that is unknown, is used in the wrong context, has or lacks a block, or has too many or too
    /// few arguments, in nginx's words; or that nginx has and this program does not implement.
    pub fn check(&self, tree: &Tree) -> Result<Vec<Error>, Error> {
        let mut warnings = Warnings::default();
        self.check_all(&tree.directives, Context::MAIN, &mut warnings)?;
        Ok(warnings.list)
    }

    /// As [`Grammar::check`], for a report: takes every directive that is refused out of the tree. Returns the errors in
    /// order, with what was taken out, and the warnings.
    #[must_use]
    pub fn take_faulty(&self, tree: &mut Tree) -> (Vec<Fault>, Vec<Error>) {
        let (mut warnings, mut faults) = (Warnings::default(), Vec::new());
        let lines = &mut tree.directives;
        self.take_from(lines, Context::MAIN, &mut warnings, &mut faults);
        (faults, warnings.list)
    }

    fn take_from(
        &self,
        directives: &mut Vec<Directive>,
        context: Context,
        warnings: &mut Warnings,
        faults: &mut Vec<Fault>,
    ) {
        for mut directive in std::mem::take(directives) {
            let outcome = match self.entry(directive.name.bytes(), context) {
                Some(entry) => check_shape(&directive, entry.args).and_then(|()| {
                    match (entry.inner, &mut directive.block) {
                        (Some(Context::LINES), _) => check_lines(directive.children())?,
                        (Some(inner), Some(block)) => {
                            self.take_from(block, inner, warnings, faults);
                        }
                        _ => {}
                    }
                    let found = suspicion(&directive, context).map(Error::into_warning);
                    warnings.list.extend(found);
                    Ok(())
                }),
                None => self.check_not_built(&directive, context, warnings),
            };
            match outcome {
                Ok(()) => directives.push(directive),
                Err(error) => faults.push(Fault {
                    error: advice::add(error),
                    directive: Some(directive),
                }),
            }
        }
    }

    /// Calls `see` for every directive of a checked tree, with what it is to this program; lines of data are left out.
    pub fn each<'a>(&self, tree: &'a Tree, see: &mut dyn FnMut(&'a Directive, Standing)) {
        self.each_of(&tree.directives, Context::MAIN, see);
    }

    fn each_of<'a>(
        &self,
        directives: &'a [Directive],
        context: Context,
        see: &mut dyn FnMut(&'a Directive, Standing),
    ) {
        for directive in directives {
            let name = directive.name.bytes();
            if let Some(entry) = self.entry(name, context) {
                see(directive, Standing::Built(entry));
                if let Some(inner) = entry.inner.filter(|inner| *inner != Context::LINES) {
                    self.each_of(directive.children(), inner, see);
                }
            } else if let Some(known) = known::find_in(name, context) {
                see(directive, Standing::Known(known));
            }
        }
    }

    /// The table entry of a directive in `context`; `None` if it is not allowed there or not implemented.
    #[must_use]
    pub fn entry(&self, name: &[u8], context: Context) -> Option<&'static DirectiveEntry> {
        self.by_name
            .get(name)?
            .iter()
            .copied()
            .find(|entry| entry.contexts.contains(context))
    }

    fn check_all(
        &self,
        directives: &[Directive],
        context: Context,
        warnings: &mut Warnings,
    ) -> Result<(), Error> {
        for directive in directives {
            match self.entry(directive.name.bytes(), context) {
                Some(entry) => {
                    self.check_built(directive, entry, warnings)?;
                    let found = suspicion(directive, context).map(Error::into_warning);
                    warnings.list.extend(found);
                }
                None => self.check_not_built(directive, context, warnings)?,
            }
        }
        Ok(())
    }

    fn check_built(
        &self,
        directive: &Directive,
        entry: &DirectiveEntry,
        warnings: &mut Warnings,
    ) -> Result<(), Error> {
        check_shape(directive, entry.args)?;
        match entry.inner {
            Some(Context::LINES) => check_lines(directive.children()),
            Some(inner) => self.check_all(directive.children(), inner, warnings),
            None => Ok(()),
        }
    }

    fn check_not_built(
        &self,
        directive: &Directive,
        context: Context,
        warnings: &mut Warnings,
    ) -> Result<(), Error> {
        let name = directive.name.bytes();
        let Some(known) = known::find_in(name, context) else {
            return Err(self.misplaced(directive));
        };
        check_shape(directive, known.args)?;
        match known.fate {
            // A switch that is off asks for nothing.
            Fate::NotYet if known.args == Args::FLAG && is_off(directive) => Ok(()),
            Fate::NotYet => {
                let mut problem = Problem::directive("of nginx is not built yet").own();
                if let Some(missing) = known.missing() {
                    problem = problem.hint_that(missing.sentence());
                }
                Err(directive.error(&problem))
            }
            Fate::Refused(why) => {
                let problem = Problem::directive("of nginx is not supported").own();
                Err(directive.error(&problem.hint_that(why)))
            }
            Fate::Met(_) => Ok(()),
            Fate::Ignored(why) => {
                if warnings.names.insert(known.name) {
                    let problem = Problem::ignored(why);
                    warnings.list.push(directive.warning(&problem));
                }
                Ok(())
            }
        }
    }

    /// The error for a directive that is not allowed here, or unknown.
    fn misplaced(&self, directive: &Directive) -> Error {
        let name = &directive.name.bytes()[..];
        let here = self
            .by_name
            .get(name)
            .into_iter()
            .flatten()
            .map(|entry| entry.contexts);
        let in_nginx = known::find(name).iter().map(|known| known.contexts);
        let contexts = here.chain(in_nginx).fold(Context::NONE, Context::or);
        if contexts != Context::NONE {
            let problem = Problem::directive("is not allowed here");
            return directive.error(&problem.hint_that(format!("allowed in: {contexts}")));
        }
        let problem = Problem::new(format!(
            "unknown directive \"{}\"",
            directive.name.display()
        ));
        if let Some(why) = known::gone(name) {
            return directive.error(&problem.hint_that(why));
        }
        if let Some(whose) = known::foreign::told(&directive.name.display()) {
            return directive.error(&problem.hint_that(whose));
        }
        let names = self.by_name.values().map(|entries| entries[0].name);
        match suggest::nearest(
            name,
            names.chain(known::all().iter().map(|known| known.name)),
        ) {
            Some(near) => directive.error(&problem.hint_that(format!("did you mean \"{near}\"?"))),
            None => directive.error(&problem),
        }
    }
}

fn is_off(directive: &Directive) -> bool {
    let value = directive.args.first();
    value.is_some_and(|word| word.bytes().eq_ignore_ascii_case(b"off"))
}

/// The differences between the contexts and arguments in the tables and nginx's, one per line, for a test to check.
///
/// Directives that nginx does not know do not count, nor does a module of nginx none of whose contexts is implemented.
#[must_use]
pub fn differences(tables: &[&DirectiveTable]) -> Vec<String> {
    let mut found = Vec::new();
    for row in known::all() {
        let entries = tables
            .iter()
            .flat_map(|table| table.named(row.name.as_bytes()));
        let built: Vec<&DirectiveEntry> = entries
            .filter(|entry| entry.contexts.meets(row.contexts))
            .collect();
        let contexts = built
            .iter()
            .fold(Context::NONE, |all, entry| all | entry.contexts);
        if !built.is_empty() && contexts != row.contexts {
            found.push(format!(
                "{}: nginx has it in {}, we in {contexts}",
                row.name, row.contexts
            ));
        }
        for entry in built {
            if entry.args != row.args {
                found.push(format!(
                    "{}: nginx takes {:?}, we {:?}",
                    row.name, row.args, entry.args
                ));
            }
        }
    }
    found
}

/// Checks the `;` or block, then the number of arguments.
fn check_shape(directive: &Directive, args: Args) -> Result<(), Error> {
    let name = directive.name.display();
    let problem = match (args.has_block(), &directive.block) {
        (true, None) => Problem::new(format!("directive \"{name}\" has no opening \"{{\"")),
        (false, Some(_)) => {
            Problem::new(format!("directive \"{name}\" is not terminated by \";\""))
        }
        _ if args.accepts(directive.args.len()) => return Ok(()),
        _ => {
            let hint = format!("it takes {args}, not {}", directive.args.len());
            Problem::argument_count(&name).hint_that(hint)
        }
    };
    Err(directive.error(&match directive.swallowed() {
        Some(swallowed) => problem.at(swallowed.argument).hint_that(swallowed.hint),
        None => problem,
    }))
}

/// Warns of something that is valid but probably not what was meant.
fn suspicion(directive: &Directive, context: Context) -> Option<Error> {
    if let Some(word) = directive.args.iter().find(|word| is_typeset(word)) {
        let quote = word.display().chars().next()?;
        let sentence = format!("the argument \"{}\" begins with no quote", word.display());
        let problem = Problem::new(sentence).hint_that(lookalikes::typeset(quote));
        return Some(
            Error::at(problem.sentence_for(""), &word.place())
                .of(Voice::Own)
                .with_hint(problem.hint()),
        );
    }
    let swallowed = directive.swallowed()?;
    let behind = directive.args.len() - swallowed.argument - 1;
    let next = &directive.args[swallowed.argument];
    let known = known::find_in(next.bytes(), context)?;
    if behind == 0 || !known.args.accepts(behind) || known.args.has_block() {
        return None;
    }
    let sentence = format!(
        "\"{}\" opens a line and is an argument of \"{}\" all the same",
        next.display(),
        directive.name.display()
    );
    let problem = Problem::new(sentence).at(swallowed.argument).own();
    Some(directive.error(&problem.hint_that(swallowed.hint)))
}

fn is_typeset(word: &Word) -> bool {
    !word.is_quoted() && lookalikes::is_typeset(word.bytes())
}

fn check_lines(lines: &[Directive]) -> Result<(), Error> {
    match lines.iter().find(|line| line.block.is_some()) {
        Some(line) => Err(line.error(&Problem::new("unexpected \"{\""))),
        None => Ok(()),
    }
}
