//! Finds the configuration lines that hold for a request: the blocks around a location, and the one of them in which a
//! directive was found.
//!
//! Not here: what directives mean. Invariant: only lines that really hold are given, so an inner level hides those of
//! the outer ones wherever the tables say so.

use std::collections::BTreeSet;
use std::iter;

use config::{Directive, DirectiveTable, Inherit, TextPlace, Tree, VariableIndex};

use crate::process::load::Loaded;
use crate::settings::tables;
use httpcore::request::Request;
use httpcore::route::LocationId;
use httpcore::settings::Settings;

/// Maximum depth of variables that are made of other variables.
const MADE_OF_MAX: usize = 10;

/// A configuration's lines.
pub struct Lines<'a> {
    tree: &'a Tree,
    tables: Vec<&'static DirectiveTable>,
    variables: &'a [String],
}

impl<'a> Lines<'a> {
    /// Those of this configuration.
    pub fn new(loaded: &'a Loaded, tables: Vec<&'static DirectiveTable>) -> Self {
        Self {
            tree: &loaded.tree,
            tables,
            variables: &loaded.variables,
        }
    }

    /// The number of a variable that the configuration uses.
    pub fn index(&self, variable: &str) -> Option<VariableIndex> {
        let at = self.variables.iter().position(|name| name == variable)?;
        u32::try_from(at).ok().map(VariableIndex)
    }

    /// The blocks around that of a location, it included, from the outside in.
    pub fn around(&self, settings: &Settings, location: LocationId) -> Vec<&'a Directive> {
        let outer = |id: &LocationId| settings.location(*id).outer;
        let mut ids: Vec<_> = iter::successors(Some(location), outer).collect();
        let Some(own) = ids.pop() else {
            return Vec::new();
        };
        // Places alone do not tell one block from another: a file may be included in several.
        let number = settings.servers.iter().position(|one| one.location == own);
        let block = number.and_then(|number| self.servers().nth(number));
        let Some((http, server)) = block else {
            return Vec::new();
        };
        let mut chain = vec![http, server];
        for id in ids.into_iter().rev() {
            let level = chain.last().map_or(&[][..], |block| block.children());
            if let Some(place) = &settings.location(id).place {
                descend(level, place, &mut chain);
            }
        }
        chain
    }

    /// The blocks around the request's location.
    pub fn chain(&self, request: &Request) -> Vec<&'a Directive> {
        self.around(request.settings(), request.location)
    }

    /// The lines of these names that hold in the innermost block of `chain`.
    pub fn of(&self, chain: &[&'a Directive], names: &[&str]) -> Vec<&'a Directive> {
        let mut found = Vec::new();
        for (depth, block) in chain.iter().rev().enumerate() {
            let mut own: Vec<&Directive> = named(block, names).collect();
            if depth > 0 {
                own.retain(|line| !self.is(line, Inherit::Never));
            }
            let is_added_to = own.first().is_none_or(|line| {
                self.is(line, Inherit::Append) || self.is(line, Inherit::Joined)
            });
            own.append(&mut found);
            found = own;
            if !found.is_empty() && !is_added_to {
                break;
            }
        }
        found
    }

    /// The lines of this name in outer levels that do not hold, since an inner level has lines of its own.
    pub fn hidden(&self, chain: &[&'a Directive], name: &str) -> Vec<&'a Directive> {
        let names = [name];
        let held = self.of(chain, &names);
        let mut hidden = Vec::new();
        for block in chain.iter().filter(|_| !held.is_empty()) {
            let lines = named(block, &names);
            hidden.extend(lines.filter(|line| held.iter().all(|one| !std::ptr::eq(*one, *line))));
        }
        hidden
    }

    /// The lines of each of these names that hold, name by name.
    pub fn of_each(&self, chain: &[&'a Directive], names: &[&str]) -> Vec<&'a Directive> {
        let each = names.iter().map(|name| self.of(chain, &[name]));
        each.flatten().collect()
    }

    /// The blocks of the servers, by their numbers, each with the block around it.
    fn servers(&self) -> impl Iterator<Item = (&'a Directive, &'a Directive)> {
        let blocks = self.tree.directives.iter();
        let blocks = blocks.filter(|block| block.name == "http");
        let all = blocks.flat_map(|http| http.children().iter().map(move |line| (http, line)));
        all.filter(|(_, line)| line.name == "server")
    }

    /// The blocks and lines directly inside of `http`.
    fn http(&self) -> impl Iterator<Item = &'a Directive> {
        let blocks = self
            .tree
            .directives
            .iter()
            .filter(|block| block.name == "http");
        blocks.flat_map(Directive::children)
    }

    /// The block of a group of servers.
    pub fn upstream(&self, name: &str) -> Option<&'a Directive> {
        let mut blocks = self.http().filter(|line| line.name == "upstream");
        blocks.find(|block| {
            block
                .args
                .first()
                .is_some_and(|word| word.display() == name)
        })
    }

    /// The line that declares a cache.
    pub fn zone(&self, name: &[u8]) -> Vec<&'a Directive> {
        let wanted = [b"keys_zone=", name, b":"].concat();
        let lines = self
            .http()
            .filter(|line| line.name.bytes().ends_with(b"_cache_path"));
        lines
            .filter(|line| {
                line.args
                    .iter()
                    .any(|word| word.bytes().starts_with(&wanted))
            })
            .collect()
    }

    /// The block that makes a variable.
    pub fn maker(&self, variable: &str) -> Option<&'a Directive> {
        let is_block = |line: &&Directive| {
            let mut blocks = tables::variable_blocks(&[]);
            blocks.any(|kind| line.name == *kind.name)
        };
        let mut makers = self.http().filter(is_block);
        let name = format!("${variable}");
        makers.find(|line| {
            line.args
                .last()
                .is_some_and(|word| word.display().to_ascii_lowercase() == name)
        })
    }

    /// The names of the variables that the lines of these blocks use, and of those behind them; lower-cased.
    pub fn variables(&self, chain: &[&'a Directive]) -> BTreeSet<String> {
        let mut names = BTreeSet::new();
        for block in chain {
            of_words(block, &mut names);
            let lines = block
                .children()
                .iter()
                .filter(|line| line.block.is_none() && !is_told_otherwise(line));
            lines.for_each(|line| of_words(line, &mut names));
        }
        // One that is made of others, which may be made of others again.
        for _ in 0..MADE_OF_MAX {
            let makers: Vec<_> = names.iter().filter_map(|name| self.maker(name)).collect();
            let before = names.len();
            makers.iter().for_each(|maker| used(maker, &mut names));
            if names.len() == before {
                break;
            }
        }
        names
    }

    fn is(&self, line: &Directive, inherit: Inherit) -> bool {
        let mut entries = self
            .tables
            .iter()
            .flat_map(|table| table.named(line.name.bytes()));
        entries.any(|entry| entry.inherit == inherit && entry.inner.is_none())
    }
}

/// Whether it is an instruction, which is reported when it runs, or a line that is not about this request alone.
fn is_told_otherwise(line: &Directive) -> bool {
    let names = ["set", "rewrite", "return", "log_format"];
    names.iter().any(|name| line.name == *name)
}

/// The lines of these names that stand in a block itself.
pub(super) fn named<'a>(
    block: &'a Directive,
    names: &[&str],
) -> impl Iterator<Item = &'a Directive> {
    let children = block.children().iter();
    children.filter(move |line| names.iter().any(|name| line.name == *name))
}

fn descend<'a>(level: &'a [Directive], place: &TextPlace, chain: &mut Vec<&'a Directive>) -> bool {
    for directive in level {
        chain.push(directive);
        if directive.block.is_some()
            && (directive.place() == *place || descend(directive.children(), place, chain))
        {
            return true;
        }
        chain.pop();
    }
    false
}

/// The instructions of a block, as its program has them: those inside an `if` follow it.
pub(super) fn instructions<'a>(block: &'a Directive, out: &mut Vec<&'a Directive>) {
    for line in named(block, &["set", "rewrite", "return", "break", "if"]) {
        out.push(line);
        instructions(line, out);
    }
}

/// The names of the variables in a line's words, lower-cased, in order.
pub(super) fn names(line: &Directive) -> Vec<String> {
    let mut names = Vec::new();
    for word in &line.args {
        each_name(&word.display(), &mut |name| {
            if !names.contains(&name) {
                names.push(name);
            }
        });
    }
    names
}

/// The variables that a line and the lines in its block use.
fn used(line: &Directive, names: &mut BTreeSet<String>) {
    of_words(line, names);
    line.children().iter().for_each(|inner| used(inner, names));
}

fn of_words(line: &Directive, names: &mut BTreeSet<String>) {
    for word in [&line.name].into_iter().chain(&line.args) {
        each_name(&word.display(), &mut |name| {
            names.insert(name);
        });
    }
}

fn each_name(text: &str, take: &mut dyn FnMut(String)) {
    for part in text.split('$').skip(1) {
        let part = part.strip_prefix('{').unwrap_or(part);
        let end = part.find(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_');
        take(part[..end.unwrap_or(part.len())].to_ascii_lowercase());
    }
}

/// A line of the file, on one line and without the content of its block.
pub(super) fn text(line: &Directive) -> String {
    let mut out = line.name.display().into_owned();
    for word in &line.args {
        let text = word.display();
        let is_plain = !text.is_empty() && !text.contains([' ', '\t', '\n', ';', '{', '}']);
        out.push(' ');
        match is_plain || (!word.is_quoted() && !text.is_empty()) {
            true => out.push_str(&text),
            false => out.push_str(&format!("\"{text}\"")),
        }
    }
    out.push_str(if line.block.is_some() {
        " { … }"
    } else {
        ";"
    });
    out
}
