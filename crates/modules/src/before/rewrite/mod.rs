//! nginx's rewrite module: `set`, `if`, `rewrite`, `return` and `break`, in the order of the configuration.
//! nginx-drop-in 40 to 44.
//!
//! The lines of a server or a location are compiled into a [`Program`] when the configuration is built; a location
//! without one costs one check. An `if` of a location is a location of its own, without a name: a request that enters
//! it goes on there. Not here: the answer of a `return` (`return_`), and the scopes themselves (`settings::scopes`).

pub mod condition;
pub(crate) mod machine;
pub(crate) mod program;
mod replacement;

use std::sync::Arc;

use config::{
    Directive, DirectiveTable, Error, Problem, Scope, Section, Template, VariableIndex, blocks,
};
use logs::Level;

use crate::before::return_::{self, Return};
use httpcore::Failure;
use httpcore::outcome::Outcome;
use httpcore::request::Request;
use httpcore::steps::observe::{Obeyed, Observe};
use httpcore::variables;

use self::condition::Condition;
use self::machine::ProgramEnd;
pub use self::program::Program;
use self::replacement::Rewrite;

/// Lines of one level.
pub const LINES_MAX: usize = 1 << 20;

blocks! {
    /// Rewriting.
    ///
    /// These directives are executed in the order in which they are written.
    pub fn lines in Location {
        /// Replaces the URI where the regular expression matches it. `last` ends rewriting and searches for the
        /// location of the new URI, `break` ends it and stays in this location; without either, the next directive
        /// follows. `redirect` responds with 302, `permanent` with 301; a replacement that begins with `http://`,
        /// `https://` or `$scheme` also responds with 302. The arguments are appended unless the replacement ends in
        /// `?`.
        "rewrite": [SERVER | SERVER_IF | LOCATION | LOCATION_IF] 2..=3, syntax "regex replacement [last | break | redirect | permanent]";
        /// Sets a variable, which may be a built-in one: `$args`, `$limit_rate`, `$http_…`, `$arg_…` and others.
        "set": [SERVER | SERVER_IF | LOCATION | LOCATION_IF] 2, syntax "$variable value";
        /// Ends rewriting at this level.
        "break": [SERVER | SERVER_IF | LOCATION | LOCATION_IF] 0;
        /// Ends processing and responds with the code. With 301, 302, 303, 307 and 308 the second argument is the URL
        /// to redirect to, with other codes the text of the body. A URL alone means 302. 444 closes the connection
        /// without a response.
        "return": [SERVER | SERVER_IF | LOCATION | LOCATION_IF] 1..=2, syntax "code [text] | code URL | URL";
        /// Executes the directives inside if the condition is true: `($variable)`, neither empty nor `0`; `($variable =
        /// text)`, `!=`; `($variable ~ regex)`, `~*` without regard to case, and `!~`, `!~*`; `(-f file)`, `-d`, `-e`,
        /// `-x`, and each negated with `!`.
        "if": [SERVER] 1.. => SERVER_IF, syntax "(condition)";
        /// The same in a location. The directives inside also form a location of their own, which inherits from this
        /// one: a request for which the condition is true is answered there.
        "if": [LOCATION] 1.. => LOCATION_IF, syntax "(condition)";
    }
}

/// One line of a level.
#[derive(Debug, Clone)]
pub enum Line {
    /// `set`.
    Set(VariableIndex, Template),
    /// `rewrite`.
    Rewrite(Arc<Rewrite>),
    /// `return`.
    Return(Arc<Return>),
    /// `break`.
    Break,
    /// `if`.
    If {
        /// The condition.
        condition: Arc<Condition>,
        /// The lines inside.
        inner: Vec<Line>,
        /// Its number among the scopes of the location; `None` at a server.
        scope: Option<usize>,
    },
}

/// The instructions themselves are not a setting: see [`Program`].
#[derive(Debug, Clone)]
pub struct Rewriting;

config::own!(Rewriting);

/// Implemented by hand, since the order of different directives counts. They are not inherited.
impl Section for Rewriting {
    type Raw = Vec<Line>;

    fn tables() -> Vec<&'static DirectiveTable> {
        vec![lines()]
    }

    fn set(raw: &mut Self::Raw, directive: &Directive, scope: &mut Scope) -> Result<bool, Error> {
        let line = match &directive.name.bytes()[..] {
            b"set" => set(directive, scope),
            b"rewrite" => {
                Rewrite::parse(&directive.args, scope).map(|line| Line::Rewrite(Arc::new(line)))
            }
            b"return" => {
                Return::parse(&directive.args, scope).map(|line| Line::Return(Arc::new(line)))
            }
            b"break" => Ok(Line::Break),
            _ => return Ok(false),
        };
        let line = line.map_err(|problem| directive.error(&problem))?;
        add(raw, line).map_err(|problem| directive.error(&problem))?;
        Ok(true)
    }

    fn merge(_: &Self::Raw, child: Self::Raw) -> Self::Raw {
        child
    }

    fn fill(_: &mut Self::Raw, _: &mut Scope) -> Result<(), Error> {
        Ok(())
    }

    fn finish(_: Self::Raw, _: &mut Scope) -> Result<Self, Error> {
        Ok(Self)
    }
}

/// Adds a line to the lines of a level.
///
/// # Errors
/// There are too many.
pub fn add(lines: &mut Vec<Line>, line: Line) -> Result<(), Problem> {
    if lines.len() == LINES_MAX {
        return Err(Problem::new(format!(
            "more than {LINES_MAX} instructions at one level"
        )));
    }
    lines.push(line);
    Ok(())
}

fn set(directive: &Directive, scope: &mut Scope) -> Result<Line, Problem> {
    let [name, value] = &directive.args[..] else {
        return Err(Problem::argument_count("set"));
    };
    let variable = variables::to_assign(name, scope)?;
    let value = Template::of_word(value, scope).map_err(|problem| problem.at(1))?;
    Ok(Line::Set(variable, value))
}

/// The effect of rewriting on the later steps.
pub enum Rewritten {
    /// Nothing: the request stays where it is.
    Stays,
    /// The location of the new URI must be found.
    Moves,
    /// The request is answered.
    Answered(Outcome),
}

/// Runs the server's program, before a location is searched.
pub async fn run_server<O: Observe>(request: &mut Request, observer: O) -> Option<Outcome> {
    match run(request, observer).await {
        Rewritten::Stays | Rewritten::Moves => None,
        Rewritten::Answered(outcome) => Some(outcome),
    }
}

/// Runs the location's program.
pub async fn run_location<O: Observe>(request: &mut Request, observer: O) -> Rewritten {
    // The server's program has run already, if no location was found.
    if request.location == request.server().location {
        return Rewritten::Stays;
    }
    match run(request, observer).await {
        Rewritten::Moves if !request.may_change_uri() => {
            request.log(Level::Error, &|out| {
                out.extend_from_slice(b"rewrite or internal redirection cycle while processing \"");
                out.extend_from_slice(&request.uri);
                out.push(b'"');
            });
            Rewritten::Answered(Outcome::Failed(Failure::new(500)))
        }
        other => other,
    }
}

async fn run<O: Observe>(request: &mut Request, observer: O) -> Rewritten {
    let Some(program) = request.location().made::<Program>() else {
        return Rewritten::Stays;
    };
    let waits = program.waits() || program.uses(&request.settings().realpath_variables);
    if let Some(decided) = program.only_return().cloned()
        && !waits
    {
        observer.obeys(request, 0);
        let outcome = return_::answer(request, &decided);
        let obeyed = Obeyed {
            at: 0,
            next: 1,
            has_answered: true,
        };
        observer.obeyed(request, &obeyed);
        return Rewritten::Answered(outcome);
    }
    // The request changes while its program runs.
    let generation = request.generation.clone();
    let location = generation.settings.location(request.location);
    let Some(program) = location.made::<Program>() else {
        return Rewritten::Stays;
    };
    let ended = if waits {
        // Boxed: few programs wait.
        Box::pin(machine::run_waiting(request, program, observer)).await
    } else {
        machine::run(request, program, observer)
    };
    match ended {
        ProgramEnd::Whole { is_moved: true } => Rewritten::Moves,
        ProgramEnd::Whole { is_moved: false } => Rewritten::Stays,
        ProgramEnd::Answered(outcome) => Rewritten::Answered(outcome),
    }
}
