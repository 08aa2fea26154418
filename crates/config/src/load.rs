//! Loads texts into a tree: nests blocks, follows `include`.
//!
//! Does no I/O itself: a [`TextSource`] does, which is the file system in the master, and in the worker a map of the
//! files that the master read. Invariants: a file is read once, however often it is included; every recursion and list
//! has a limit, so that files that include themselves, or double with every include, end in an error.

use std::collections::{BTreeMap, HashMap};
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;

use crate::advice;
use crate::grammar::Grammar;
use crate::syntax::error::{Error, Problem};
use crate::syntax::lexer::{Lexer, Statement};
use crate::syntax::text::{Text, TextPlace, TextSpan};
use crate::syntax::tree::{BLOCKS_DEEP_MAX, Directive, Tree, Word};

/// Maximum size of one file in bytes.
pub const FILE_BYTES_MAX: usize = 256 << 20;
/// Maximum nesting depth of includes.
pub const INCLUDES_DEEP_MAX: usize = 64;
/// Maximum number of files opened by all includes together, counted each time, plus their patterns. It is there for includes
/// that double with every file: of those with directives memory ([`DIRECTIVES_MAX`]) is the bound.
pub const INCLUDES_MAX: usize = 1_000_000;
/// Maximum number of directives and data lines of a configuration.
pub const DIRECTIVES_MAX: usize = 8_000_000;

/// The name of the directive that includes templates.
const TEMPLATE: &str = "include_template";

/// A source of the texts of a configuration.
pub trait TextSource {
    /// Reads a file.
    ///
    /// # Errors
    /// Those of the file system; the message shows the error's number and text.
    fn read(&mut self, path: &Path) -> io::Result<Vec<u8>>;

    /// The paths that match a pattern of glob(3) (`*`, `?`, `[…]`). No match is not an error.
    ///
    /// # Errors
    /// Those of glob(3): a directory that cannot be read.
    fn glob(&mut self, pattern: &Path) -> io::Result<Vec<PathBuf>>;

    /// The value of a variable of the environment, for templates. `None`: it is not set.
    fn variable(&mut self, name: &str) -> Option<Vec<u8>> {
        let _ = name;
        None
    }
}

/// Texts that were read earlier, as a source: the worker parses what the master sent.
#[derive(Clone, Debug, Default)]
pub struct Recorded {
    /// The files, by the path under which they were opened.
    pub files: HashMap<PathBuf, Bytes>,
    /// The patterns, with the paths that they matched.
    pub globs: HashMap<PathBuf, Vec<PathBuf>>,
    /// The variables of the environment that templates named and that were set.
    pub environment: BTreeMap<String, Bytes>,
}

impl Recorded {
    /// The size of all texts in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.files.values().map(Bytes::len).sum()
    }
}

impl TextSource for Recorded {
    fn read(&mut self, path: &Path) -> io::Result<Vec<u8>> {
        let bytes = self.files.get(path).ok_or(io::ErrorKind::NotFound)?;
        Ok(bytes.to_vec())
    }

    fn glob(&mut self, pattern: &Path) -> io::Result<Vec<PathBuf>> {
        Ok(self.globs.get(pattern).cloned().unwrap_or_default())
    }

    fn variable(&mut self, name: &str) -> Option<Vec<u8>> {
        self.environment.get(name).map(|value| value.to_vec())
    }
}

impl Tree {
    /// The texts read for this tree, from which the same tree can be loaded again elsewhere.
    #[must_use]
    pub fn recorded(&self) -> Recorded {
        let files = self
            .texts
            .iter()
            .map(|text| (text.path().to_owned(), text.bytes().clone()))
            .collect();
        Recorded {
            files,
            globs: self.globs.iter().cloned().collect(),
            environment: self
                .taken
                .asked
                .iter()
                .filter_map(|(name, value)| Some((name.clone(), value.clone()?)))
                .collect(),
        }
    }
}

/// Reads the file `root` and everything that it includes. Relative includes start at the root file's directory.
///
/// # Errors
/// The first error of syntax, or a file that cannot be read.
pub fn load(root: &Path, source: &mut dyn TextSource) -> Result<Tree, Error> {
    let (tree, outcome) = read(root, None, source);
    outcome.map(|()| tree)
}

/// Reads the globals of `-g`, then the file `root` and everything that it includes, and checks every name, context and
/// number of arguments. Returns the tree and the warnings.
///
/// # Errors
/// The first error in the order of the text, as in nginx: an unknown directive before a missing `}`, for instance.
pub fn load_checked(
    root: &Path,
    globals: Option<&[u8]>,
    source: &mut dyn TextSource,
    grammar: &Grammar,
) -> Result<(Tree, Vec<Error>), Error> {
    let (tree, outcome) = read(root, globals, source);
    let warnings = grammar.check(&tree).map_err(advice::add)?;
    match outcome {
        Ok(()) => Ok((tree, warnings)),
        Err(error) => Err(advice::add(error)),
    }
}

/// Parses a single text, for example for a fuzzer: follows no include, checks no name.
///
/// # Errors
/// The first error of syntax.
pub fn parse_bytes(bytes: &[u8]) -> Result<Tree, Error> {
    struct Alone<'a>(&'a [u8]);
    impl TextSource for Alone<'_> {
        fn read(&mut self, path: &Path) -> io::Result<Vec<u8>> {
            if path == Path::new("nginx.conf") {
                Ok(self.0.to_vec())
            } else {
                Ok(Vec::new())
            }
        }
        fn glob(&mut self, _pattern: &Path) -> io::Result<Vec<PathBuf>> {
            Ok(Vec::new())
        }
    }
    load(Path::new("nginx.conf"), &mut Alone(bytes))
}

/// Reads as far as possible: the tree holds everything before the error.
pub(crate) fn read(
    root: &Path,
    globals: Option<&[u8]>,
    source: &mut dyn TextSource,
) -> (Tree, Result<(), Error>) {
    let directory = root.parent().unwrap_or(Path::new("")).to_owned();
    let mut loader = Loader {
        source,
        directory,
        tree: Tree::default(),
        by_path: HashMap::new(),
        by_pattern: HashMap::new(),
        open: Vec::new(),
        includes: 0,
        directives: 0,
        is_template: false,
    };
    let mut directives = Vec::new();
    let outcome = loader
        .globals(globals, &mut directives)
        .and_then(|()| loader.file(root, None, &mut directives, 0));
    let mut tree = loader.tree;
    tree.directives = directives;
    (tree, outcome)
}

struct Loader<'a> {
    source: &'a mut dyn TextSource,
    directory: PathBuf,
    tree: Tree,
    by_path: HashMap<PathBuf, Arc<Text>>,
    /// The index of each pattern in the tree's list.
    by_pattern: HashMap<PathBuf, usize>,
    /// The chain of files being read: the root, a file that it includes, a file that that one includes, …
    open: Vec<PathBuf>,
    includes: usize,
    directives: usize,
    /// Whether the file being read is a template.
    is_template: bool,
}

/// The kind of text being read, which decides how it may end.
#[derive(Clone, Copy)]
enum Within<'a> {
    File,
    Globals,
    Block(&'a Word),
}

impl Loader<'_> {
    fn globals(&mut self, globals: Option<&[u8]>, out: &mut Vec<Directive>) -> Result<(), Error> {
        let Some(globals) = globals else {
            return Ok(());
        };
        if globals.len() > FILE_BYTES_MAX {
            return Err(Error::without_place("the argument of \"-g\" is too long"));
        }
        let text = Arc::new(Text::command_line(Bytes::copy_from_slice(globals)));
        self.statements(&mut Lexer::new(&text), Within::Globals, out, 0)
    }

    fn file(
        &mut self,
        path: &Path,
        by: Option<&Directive>,
        out: &mut Vec<Directive>,
        depth: usize,
    ) -> Result<(), Error> {
        self.bound_includes(path, by)?;
        let text = self.text(path, by)?;
        self.open.push(path.to_owned());
        let is_template = by.is_some_and(|by| by.name == TEMPLATE);
        let outer = std::mem::replace(&mut self.is_template, is_template);
        let outcome = self.statements(&mut Lexer::new(&text), Within::File, out, depth);
        self.is_template = outer;
        self.open.pop();
        outcome
    }

    fn bound_includes(&mut self, path: &Path, by: Option<&Directive>) -> Result<(), Error> {
        // By bytes: to compare paths part by part takes its time with a million of them.
        let name = path.as_os_str();
        let problem = if self.open.iter().any(|open| open.as_os_str() == name) {
            let hint = format!("it is being read already: {}", self.chain(path));
            Problem::new(format!("\"{}\" includes itself", path.display())).hint_that(hint)
        } else if self.open.len() > INCLUDES_DEEP_MAX {
            Problem::new(format!(
                "too deep includes, there may be {INCLUDES_DEEP_MAX}"
            ))
        } else if self.includes == INCLUDES_MAX {
            Problem::new(format!(
                "too many included files, there may be {INCLUDES_MAX}"
            ))
        } else {
            self.includes += 1;
            return Ok(());
        };
        Err(located(&problem.at(0), by))
    }

    fn chain(&self, again: &Path) -> String {
        let from = self.open.iter().position(|open| open == again).unwrap_or(0);
        let names = self.open[from..]
            .iter()
            .map(PathBuf::as_path)
            .chain([again]);
        names
            .map(|path| path.display().to_string())
            .collect::<Vec<_>>()
            .join(" -> ")
    }

    fn text(&mut self, path: &Path, by: Option<&Directive>) -> Result<Arc<Text>, Error> {
        if let Some(text) = self.by_path.get(path) {
            return Ok(Arc::clone(text));
        }
        let bytes = self.source.read(path).map_err(|error| {
            let sentence = format!("open() \"{}\" failed ({})", path.display(), errno(&error));
            located(&Problem::new(sentence).at(0), by)
        })?;
        if bytes.len() > FILE_BYTES_MAX {
            let sentence = format!(
                "\"{}\" is too large, a file may have {FILE_BYTES_MAX} bytes",
                path.display()
            );
            return Err(located(&Problem::new(sentence).at(0), by));
        }
        let text = Arc::new(Text::file(path.to_owned(), bytes.into()));
        self.by_path.insert(path.to_owned(), Arc::clone(&text));
        self.tree.texts.push(Arc::clone(&text));
        Ok(text)
    }

    fn statements(
        &mut self,
        lexer: &mut Lexer<'_>,
        within: Within<'_>,
        out: &mut Vec<Directive>,
        depth: usize,
    ) -> Result<(), Error> {
        loop {
            match lexer.statement()? {
                Statement::Line(words, end) => {
                    let words = self.replaced(words)?;
                    self.line(directive(words, end), out, depth)?
                }
                Statement::Opening(words, end) => {
                    let words = self.replaced(words)?;
                    self.block(lexer, within, directive(words, end), out, depth)?
                }
                Statement::Closing(at) => return closed(lexer, within, at),
                Statement::End => return ended(lexer, within),
            }
        }
    }

    /// The words of a template, with the variables of the environment replaced; others as they are.
    fn replaced(&mut self, words: Vec<Word>) -> Result<Vec<Word>, Error> {
        if !self.is_template {
            return Ok(words);
        }
        let (source, taken) = (&mut self.source, &mut self.tree.taken);
        let replaced = words
            .into_iter()
            .map(|word| taken.replace(word, &mut |name| source.variable(name)));
        replaced.collect()
    }

    fn line(
        &mut self,
        line: Directive,
        out: &mut Vec<Directive>,
        depth: usize,
    ) -> Result<(), Error> {
        let is_include = line.name == "include" || line.name == TEMPLATE;
        if !is_include || line.args.len() != 1 {
            return self.push(line, out);
        }
        let path = self.directory.join(OsStr::from_bytes(line.args[0].bytes()));
        if !path
            .as_os_str()
            .as_bytes()
            .iter()
            .any(|byte| b"*?[".contains(byte))
        {
            return self.file(&path, Some(&line), out, depth);
        }
        for matched in self.matches(path, &line)? {
            self.file(&matched, Some(&line), out, depth)?;
        }
        Ok(())
    }

    fn matches(&mut self, pattern: PathBuf, by: &Directive) -> Result<Vec<PathBuf>, Error> {
        self.bound_includes(&pattern, Some(by))?;
        if let Some(known) = self.by_pattern.get(&pattern) {
            return Ok(self.tree.globs[*known].1.clone());
        }
        let mut paths = self.source.glob(&pattern).map_err(|error| {
            let sentence = format!(
                "glob() \"{}\" failed ({})",
                pattern.display(),
                errno(&error)
            );
            by.error(&Problem::new(sentence).at(0))
        })?;
        paths.sort_by(|one, two| one.as_os_str().as_bytes().cmp(two.as_os_str().as_bytes()));
        self.by_pattern
            .insert(pattern.clone(), self.tree.globs.len());
        self.tree.globs.push((pattern, paths.clone()));
        Ok(paths)
    }

    fn block(
        &mut self,
        lexer: &mut Lexer<'_>,
        within: Within<'_>,
        mut opening: Directive,
        out: &mut Vec<Directive>,
        depth: usize,
    ) -> Result<(), Error> {
        if matches!(within, Within::Globals) {
            return Err(opening.error(&Problem::new(
                "block directives are not supported in -g option",
            )));
        }
        if depth == BLOCKS_DEEP_MAX {
            let sentence = format!("too deep blocks, there may be {BLOCKS_DEEP_MAX}");
            return Err(opening.error(&Problem::new(sentence)));
        }
        let mut inner = Vec::new();
        let outcome = self.statements(lexer, Within::Block(&opening.name), &mut inner, depth + 1);
        opening.block = Some(inner);
        self.push(opening, out).and(outcome)
    }

    fn push(&mut self, directive: Directive, out: &mut Vec<Directive>) -> Result<(), Error> {
        if self.directives == DIRECTIVES_MAX {
            let sentence = format!("too many directives, there may be {DIRECTIVES_MAX}");
            return Err(directive.error(&Problem::new(sentence)));
        }
        self.directives += 1;
        out.push(directive);
        Ok(())
    }
}

fn directive(mut words: Vec<Word>, end: u32) -> Directive {
    let args = words.split_off(1);
    let name = words
        .pop()
        .expect("a statement of the lexer has at least one word");
    Directive {
        name,
        args,
        block: None,
        end,
    }
}

fn closed(lexer: &Lexer<'_>, within: Within<'_>, at: u32) -> Result<(), Error> {
    match within {
        Within::Block(_) => Ok(()),
        Within::File | Within::Globals => {
            let span = TextSpan {
                start: at,
                end: at + 1,
            };
            let error = Error::at(
                "unexpected \"}\"",
                &TextPlace {
                    text: Arc::clone(lexer.text()),
                    span,
                },
            );
            Err(error.with_hint(Some("no block of this file is open here")))
        }
    }
}

fn ended(lexer: &Lexer<'_>, within: Within<'_>) -> Result<(), Error> {
    let Within::Block(name) = within else {
        return Ok(());
    };
    let end = lexer.text().bytes().len();
    let hint = format!("this block \"{}\" is never closed", name.display());
    let error = Error::at("unexpected end of file, expecting \"}\"", &name.place());
    Err(error
        .on_line_of(TextSpan::new(end, end).end)
        .with_hint(Some(&hint)))
}

fn located(problem: &Problem, by: Option<&Directive>) -> Error {
    match by {
        Some(directive) => directive.error(problem),
        None => Error::without_place(problem.sentence_for("include")).with_hint(problem.hint()),
    }
}

/// `2: No such file or directory`.
fn errno(error: &io::Error) -> String {
    let text = error.to_string();
    match error.raw_os_error() {
        None if error.kind() == io::ErrorKind::NotFound => {
            "2: No such file or directory".to_owned()
        }
        None => text,
        Some(number) => {
            let known_end = format!(" (os error {number})");
            format!(
                "{number}: {}",
                text.strip_suffix(&known_end).unwrap_or(&text)
            )
        }
    }
}
