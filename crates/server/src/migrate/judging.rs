//! All that is wrong with a configuration, in one run: what is refused is taken out, and the rest judged again.
//!
//! It opens files and looks names up as `-t` does, and changes nothing: no log is opened, no directory made, no address
//! bound. Invariant: what cannot be read or found here is told as such, and not as a fault.

use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};

use config::{Error, Fault, Grammar, Scope, TextSource, Tree};
use httpcore::handler::Modules;

use crate::process::hints;
use crate::process::load::{self, Origin};
use crate::process::log_files::{self, Wanted};
use crate::process::privileges::Account;
use crate::process::source::Files;
use crate::settings::circumstances::Circumstances;

/// Maximum number of faults that values have, after which the rest is not judged.
pub(super) const FAULTS_MAX: usize = 500;
/// What the sentences about names say that no line declares.
const MISSES: [&str; 3] = ["unknown", "zero size shared memory zone", "not found"];
/// The address that stands for names that this machine does not know (RFC 5737).
const SOMEWHERE: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));

/// What was found.
pub(super) struct Judged {
    /// The configuration without what is refused.
    pub tree: Tree,
    /// What is refused.
    pub faults: Vec<Fault>,
    /// What only refers to something that is refused.
    pub follows: Vec<Fault>,
    /// What could not be judged on this machine, as sentences.
    pub unjudged: Vec<String>,
    /// Files and users that are named and missing, as sentences; nginx refuses these, too.
    pub missing: Vec<String>,
    /// Warnings.
    pub warnings: Vec<Error>,
}

/// The files of the machine; what cannot be read is empty.
struct Lenient {
    files: Files,
    failed: Vec<(PathBuf, io::Error)>,
}

impl TextSource for Lenient {
    fn read(&mut self, path: &Path) -> io::Result<Vec<u8>> {
        Ok(self.files.read(path).unwrap_or_else(|error| {
            self.failed.push((path.to_owned(), error));
            Vec::new()
        }))
    }

    fn glob(&mut self, pattern: &Path) -> io::Result<Vec<PathBuf>> {
        Ok(self.files.glob(pattern).unwrap_or_else(|error| {
            self.failed.push((pattern.to_owned(), error));
            Vec::new()
        }))
    }

    fn variable(&mut self, name: &str) -> Option<Vec<u8>> {
        self.files.variable(name)
    }
}

/// Reads and judges a configuration.
pub(super) fn judge(origin: &Origin, grammar: &Grammar, modules: Modules) -> Judged {
    let mut source = Lenient {
        files: Files::default(),
        failed: Vec::new(),
    };
    let (tree, faults, warnings) = config::load_with_faults(&origin.root, &mut source, grammar);
    let mut judged = Judged {
        tree,
        faults,
        follows: Vec::new(),
        unjudged: Vec::new(),
        missing: Vec::new(),
        warnings,
    };
    for (path, error) in source.failed {
        judged.file(&path, &error);
    }
    judged.judge_values(origin, modules);
    judged
}

impl Judged {
    fn file(&mut self, path: &Path, error: &io::Error) {
        let path = path.display();
        match error.kind() {
            io::ErrorKind::PermissionDenied => self
                .unjudged
                .push(format!("{path}: needs root to be read and judged")),
            _ => self.missing.push(format!("{path}: {error}")),
        }
    }

    fn judge_values(&mut self, origin: &Origin, modules: Modules) {
        let mut around = Circumstances::here();
        // As the server that is meant: its master is root's.
        around.is_root = true;
        let mut taken_out = 0;
        loop {
            let (outcome, warnings, faults) = build(&self.tree, origin, &around, modules);
            let error = match outcome {
                Ok(account) => {
                    self.missing.extend(account.map(|error| error.to_string()));
                    self.warnings.extend(warnings);
                    return self.files_of_directives(faults);
                }
                Err(error) => error,
            };
            let (hosts, unknown) = around.hosts.assuming(SOMEWHERE);
            if !unknown.is_empty() {
                let tell = |name: &String| format!("{name}: this machine finds no address for it");
                self.unjudged.extend(unknown.iter().map(tell));
                around.hosts = hosts;
                continue;
            }
            let place = error.place().cloned();
            let directive = place.and_then(|place| self.tree.take_at(&place));
            let is_end = directive.is_none() || taken_out == FAULTS_MAX;
            let fault = Fault {
                error: hints::add(error, &self.tree).advised(),
                directive,
            };
            match self.is_consequence(&fault.error) {
                true => self.follows.push(fault),
                false => self.faults.push(fault),
            }
            if is_end {
                self.warnings.extend(warnings);
                self.files_of_directives(faults);
                return self
                    .unjudged
                    .push("the rest of the values, behind the last fault".to_owned());
            }
            taken_out += 1;
        }
    }

    /// Sorts the faults of files that directives name: certificates and keys.
    fn files_of_directives(&mut self, faults: Vec<Error>) {
        for error in faults {
            let told = error.to_string();
            if told.contains("Permission denied") {
                self.unjudged.push(format!("needs root: {told}"));
            } else if told.contains("No such file") {
                self.missing.push(told);
            } else {
                self.faults.push(Fault {
                    error,
                    directive: None,
                });
            }
        }
    }

    /// Whether an error misses a name that a line declared which was taken out.
    fn is_consequence(&self, error: &Error) -> bool {
        if !MISSES.iter().any(|text| error.sentence().contains(text)) {
            return false;
        }
        let names: Vec<&str> = error.sentence().split('"').skip(1).step_by(2).collect();
        let lines = self.faults.iter().chain(&self.follows);
        let mut words = lines
            .filter_map(|fault| fault.directive.as_ref())
            .flat_map(|line| &line.args);
        words.any(|word| {
            let word = word.display();
            let value = word.split_once('=').map_or(&*word, |(_, value)| value);
            let name = value.split(':').next().unwrap_or_default();
            let name = name.trim_start_matches('$');
            !name.is_empty() && names.contains(&name)
        })
    }
}

type Outcome = (Result<Option<Error>, Error>, Vec<Error>, Vec<Error>);

/// The outcome (with what is missing of the worker's user), the warnings, and the faults of files that directives name.
fn build(tree: &Tree, origin: &Origin, around: &Circumstances, modules: Modules) -> Outcome {
    let mut scope = Scope::new();
    let built = load::build(tree, &mut scope, origin, around, modules);
    let outcome = built.and_then(|(main, _)| {
        Wanted::main(tree, &origin.prefix, &around.hosts, None)?;
        log_files::find_servers(&tree.directives, &around.hosts)?;
        Ok(Account::missing(tree, &main))
    });
    (outcome, scope.take_warnings(), scope.take_faults())
}
