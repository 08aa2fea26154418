//! The conditions of `if`. nginx-drop-in 42.

use std::borrow::Cow;
use std::os::unix::ffi::OsStrExt as _;

use bytes::Bytes;
use config::{Problem, Scope, Template, VariableIndex, VariableSet, Word};
use disk::{Errno, FileKind, Meta};
use logs::Level;

use httpcore::Failure;
use httpcore::files;
use httpcore::regex::Regex;
use httpcore::request::Request;

/// Permission bit: the owner may execute it.
const OWNER_EXECUTES: u32 = 0o100;

/// The condition of an `if`, and whether it is negated.
#[derive(Debug)]
pub enum Condition {
    /// `($x)`: true unless it is empty or `0`.
    Holds(VariableIndex),
    /// `=` and `!=`.
    Equals {
        /// On the left.
        variable: VariableIndex,
        /// On the right.
        value: Template,
        /// `!`.
        is_negated: bool,
    },
    /// `~`, `~*`, `!~`, `!~*`.
    Matches {
        /// On the left.
        variable: VariableIndex,
        /// On the right.
        regex: Regex,
        /// `!`.
        is_negated: bool,
    },
    /// `-f`, `-d`, `-e`, `-x`.
    File(FileTest),
}

/// A test of a file.
#[derive(Debug)]
pub struct FileTest {
    asked: FileProperty,
    path: Template,
    is_negated: bool,
}

/// The property of a file that is tested.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FileProperty {
    File,
    Directory,
    Exists,
    Executes,
}

impl Condition {
    /// Whether the value of one of these variables is used.
    #[must_use]
    pub fn uses(&self, variables: &VariableSet) -> bool {
        match self {
            Self::Holds(variable) | Self::Matches { variable, .. } => variables.has(*variable),
            Self::Equals {
                variable, value, ..
            } => variables.has(*variable) || variables.is_in(value),
            Self::File(test) => variables.is_in(&test.path),
        }
    }

    /// Parses the arguments of an `if`: the parentheses may stand by themselves or touch a word.
    ///
    /// # Errors
    /// nginx's.
    pub fn parse(args: &[Word], scope: &mut Scope) -> Result<Self, Problem> {
        let words = without_parentheses(args)?;
        let [(first, _), ..] = &words[..] else {
            return Err(invalid(b")", args.len() - 1));
        };
        if first.len() > 1 && first.starts_with(b"$") {
            return about_variable(&words, args, scope);
        }
        let (is_negated, flag) = match first.strip_prefix(b"!") {
            Some(flag) => (true, flag),
            None => (false, &first[..]),
        };
        let asked = match flag {
            b"-f" => FileProperty::File,
            b"-d" => FileProperty::Directory,
            b"-e" => FileProperty::Exists,
            b"-x" => FileProperty::Executes,
            _ => return Err(invalid(first, words[0].1)),
        };
        let [_, (path, at)] = &words[..] else {
            return Err(invalid(first, words[0].1));
        };
        let path = Template::parse(path, &args[*at].place(), scope);
        Ok(Self::File(FileTest {
            asked,
            path: path.map_err(|problem| problem.at(*at))?,
            is_negated,
        }))
    }
}

fn invalid(word: &[u8], at: usize) -> Problem {
    let word = String::from_utf8_lossy(word);
    Problem::new(format!("invalid condition \"{word}\"")).at(at)
}

/// The words between `(` and `)`, each with the number of its argument.
fn without_parentheses(args: &[Word]) -> Result<Vec<(Bytes, usize)>, Problem> {
    let numbered = args.iter().enumerate();
    let mut words: Vec<(Bytes, usize)> = numbered
        .map(|(at, word)| (word.bytes().clone(), at))
        .collect();
    let (first, _) = &mut words[0];
    if !first.starts_with(b"(") {
        return Err(invalid(first, 0));
    }
    *first = first.slice(1..);
    if first.is_empty() && words.len() > 1 {
        words.remove(0);
    }
    let Some((last, at)) = words.last_mut() else {
        return Ok(words);
    };
    if !last.ends_with(b")") {
        return Err(invalid(last, *at));
    }
    *last = last.slice(..last.len() - 1);
    if last.is_empty() {
        words.pop();
    }
    Ok(words)
}

/// `$variable`, `$variable OPERATOR value`.
fn about_variable(
    words: &[(Bytes, usize)],
    args: &[Word],
    scope: &mut Scope,
) -> Result<Condition, Problem> {
    let (name, at) = &words[0];
    let text = String::from_utf8_lossy(&name[1..]);
    let variable = scope.intern(&text, Some(&args[*at].place()));
    let variable = variable.map_err(|problem| problem.at(*at))?;
    let (operator, operator_at, value, value_at) = match words {
        [_] => return Ok(Condition::Holds(variable)),
        [_, (operator, operator_at), (value, value_at)] => {
            (operator, *operator_at, value, *value_at)
        }
        _ => return Err(one_comparison(invalid(name, *at), words)),
    };
    let is_negated = operator.starts_with(b"!");
    match &operator[usize::from(is_negated)..] {
        b"=" => {
            let value = Template::parse(value, &args[value_at].place(), scope);
            Ok(Condition::Equals {
                variable,
                value: value.map_err(|problem| problem.at(value_at))?,
                is_negated,
            })
        }
        kind @ (b"~" | b"~*") => {
            let is_caseless = kind.len() == 2;
            let regex = Regex::of_configuration(value, is_caseless, &args[value_at], scope);
            Ok(Condition::Matches {
                variable,
                regex: regex.map_err(|problem| problem.at(value_at))?,
                is_negated,
            })
        }
        _ => {
            let operator = String::from_utf8_lossy(operator);
            let sentence = format!("unexpected \"{operator}\" in condition");
            let problem = Problem::new(sentence).at(operator_at);
            Err(match &*operator {
                "==" | "===" => problem.hint_that("equality is \"=\" here"),
                "<" | ">" | "<=" | ">=" => problem.hint_that(
                    "numbers are not compared here: a \"map\" with a pattern (\"~\") can",
                ),
                _ => problem.hint_that("an operator is =, !=, ~, ~*, !~ or !~*"),
            })
        }
    }
}

/// Explains the alternative to several conditions in one; of words without quotes, that they need quotes.
fn one_comparison(problem: Problem, words: &[(Bytes, usize)]) -> Problem {
    let joins = |(word, _): &(Bytes, usize)| matches!(&word[..], b"&&" | b"||" | b"and" | b"or");
    problem.hint_that(if words.iter().any(joins) {
        "an \"if\" has one condition: a \"map\" of \"$a:$b\" looks at several variables"
    } else {
        "one comparison is three words, \"$variable = value\"; a value with spaces stands in quotes"
    })
}

impl FileTest {
    /// The path's text, which is a value of the program as that of a `set` is.
    pub fn text(&self) -> &Template {
        &self.path
    }

    /// Tests the file at this path, which is the text's value.
    ///
    /// # Errors
    /// The pool cannot be asked.
    pub async fn ask(&self, request: &Request, path: &[u8]) -> Result<bool, Failure> {
        let path = from_prefix(request, path);
        if path.is_empty() {
            return Ok(self.is_negated);
        }
        let access = files::access(request, &path)?;
        let disk = &request.client.loop_.disk;
        let found = files::within(request, || disk.stat(&path, &access)).await;
        let is_so = match found {
            Ok(meta) => self.is_met_by(&meta),
            Err(error) => {
                if let Some(failure) = files::unavailable(request, &error, &path) {
                    return Err(failure);
                }
                let is_absent = matches!(
                    error.errno(),
                    Some(Errno::NOENT | Errno::NOTDIR | Errno::NAMETOOLONG)
                );
                if !is_absent {
                    files::log_error(request, Level::Crit, &error, &path);
                }
                false
            }
        };
        Ok(is_so != self.is_negated)
    }

    fn is_met_by(&self, meta: &Meta) -> bool {
        match self.asked {
            FileProperty::File => meta.kind == FileKind::File,
            FileProperty::Directory => meta.kind == FileKind::Directory,
            FileProperty::Exists => meta.kind != FileKind::Other,
            FileProperty::Executes => meta.mode & OWNER_EXECUTES != 0,
        }
    }
}

/// The path; a relative one begins at the prefix. An empty one names no file, as in the kernel.
fn from_prefix<'a>(request: &Request, path: &'a [u8]) -> Cow<'a, [u8]> {
    if path.is_empty() || path.starts_with(b"/") {
        return Cow::Borrowed(path);
    }
    let prefix = request.settings().prefix.as_os_str().as_bytes();
    Cow::Owned([prefix, path].concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<String, String> {
        let tree = config::parse_bytes(format!("if {text} {{}}").as_bytes()).expect("parses");
        let mut scope = Scope::new();
        let not = |is_negated: bool| if is_negated { "not " } else { "" };
        match Condition::parse(&tree.directives[0].args, &mut scope) {
            Ok(Condition::Holds(variable)) => Ok(scope.name_of(variable).to_owned()),
            Ok(Condition::Equals {
                variable,
                value,
                is_negated,
            }) => Ok(format!(
                "{}{} = [{}]",
                not(is_negated),
                scope.name_of(variable),
                String::from_utf8_lossy(value.source())
            )),
            Ok(Condition::Matches {
                variable,
                regex,
                is_negated,
            }) => Ok(format!(
                "{}{} ~ [{}]",
                not(is_negated),
                scope.name_of(variable),
                regex.pattern
            )),
            Ok(Condition::File(test)) => Ok(format!(
                "{}{:?} [{}]",
                not(test.is_negated),
                test.asked,
                String::from_utf8_lossy(test.path.source())
            )),
            Err(problem) => Err(problem.sentence_for("if")),
        }
    }

    #[test]
    fn conditions_are_taken_apart() {
        for (text, expected) in [
            ("($a)", "a"),
            ("( $a )", "a"),
            ("($a = b)", "a = [b]"),
            ("( $a != \"b c\" )", "not a = [b c]"),
            ("($a = \"\")", "a = []"),
            ("($a ~ \"b|c\")", "a ~ [b|c]"),
            ("($a !~* ^b$)", "not a ~ [^b$]"),
            ("(-f $a/b)", "File [$a/b]"),
            ("(!-d /tmp)", "not Directory [/tmp]"),
            ("(-e x)", "Exists [x]"),
            ("( !-x x )", "not Executes [x]"),
        ] {
            assert_eq!(parse(text).as_deref(), Ok(expected), "{text}");
        }
    }

    #[test]
    fn what_is_no_condition_is_refused_in_nginx_words() {
        for (text, expected) in [
            ("$a", "invalid condition \"$a\""),
            ("($a", "invalid condition \"$a\""),
            ("()", "invalid condition \")\""),
            ("(a)", "invalid condition \"a\""),
            ("($a = b c)", "invalid condition \"$a\""),
            ("($a =)", "invalid condition \"$a\""),
            ("($a == b)", "unexpected \"==\" in condition"),
            ("(-f a b)", "invalid condition \"-f\""),
            ("(-q a)", "invalid condition \"-q\""),
        ] {
            assert_eq!(parse(text), Err(expected.to_owned()), "{text}");
        }
    }
}
