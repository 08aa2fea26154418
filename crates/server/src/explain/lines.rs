//! Where what holds for a request is written: the blocks around a location, and in which of them a directive was found.
//!
//! Not here: what directives mean. Invariant: only lines that really hold are given, so an inner level hides those of the outer ones
//! wherever the tables say so.

use std::collections::BTreeSet;

use config::{Directive, Inherit, Place, Table, Tree};

/// How often variables are made of variables that are looked at.
const MADE_OF_MAX: usize = 10;

/// A configuration's lines.
pub struct Lines<'a> {
    tree: &'a Tree,
    tables: Vec<&'static Table>,
}

impl<'a> Lines<'a> {
    /// Those of this tree.
    pub fn new(tree: &'a Tree, tables: Vec<&'static Table>) -> Self {
        Self { tree, tables }
    }

    /// The blocks around the one that stands at `place`, it included, from the outside in.
    pub fn around(&self, place: Option<&Place>) -> Vec<&'a Directive> {
        let mut chain = Vec::new();
        if let Some(place) = place {
            descend(&self.tree.directives, place, &mut chain);
        }
        chain
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

    /// The lines of each of these names that hold, name by name.
    pub fn of_each(&self, chain: &[&'a Directive], names: &[&str]) -> Vec<&'a Directive> {
        let each = names.iter().map(|name| self.of(chain, &[name]));
        each.flatten().collect()
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
        let mut makers = self.http().filter(|line| {
            ["map", "geo", "split_clients"]
                .iter()
                .any(|name| line.name == *name)
        });
        let name = format!("${variable}");
        makers.find(|line| {
            line.args
                .last()
                .is_some_and(|word| word.display().to_ascii_lowercase() == name)
        })
    }

    /// The names of the variables that the lines of these blocks use, and those that these are made of; lower-cased.
    pub fn variables(&self, chain: &[&'a Directive]) -> BTreeSet<String> {
        let mut names = BTreeSet::new();
        let Some((own, outer)) = chain.split_last() else {
            return names;
        };
        used(own, &mut names);
        for block in outer {
            let lines = block
                .children()
                .iter()
                .filter(|line| line.block.is_none() && line.name != "log_format");
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

/// The lines of these names that stand in a block itself.
pub fn named<'a>(block: &'a Directive, names: &[&str]) -> impl Iterator<Item = &'a Directive> {
    let children = block.children().iter();
    children.filter(move |line| names.iter().any(|name| line.name == *name))
}

fn descend<'a>(level: &'a [Directive], place: &Place, chain: &mut Vec<&'a Directive>) -> bool {
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

/// The instructions of a block, as its program has them: those inside an `if` behind it.
pub fn instructions<'a>(block: &'a Directive, out: &mut Vec<&'a Directive>) {
    for line in named(block, &["set", "rewrite", "return", "break", "if"]) {
        out.push(line);
        instructions(line, out);
    }
}

/// The variables that a line uses, and what stands in its block.
fn used(line: &Directive, names: &mut BTreeSet<String>) {
    of_words(line, names);
    line.children().iter().for_each(|inner| used(inner, names));
}

fn of_words(line: &Directive, names: &mut BTreeSet<String>) {
    for word in [&line.name].into_iter().chain(&line.args) {
        let text = word.display();
        for part in text.split('$').skip(1) {
            let part = part.strip_prefix('{').unwrap_or(part);
            let end = part.find(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_');
            names.insert(part[..end.unwrap_or(part.len())].to_ascii_lowercase());
        }
    }
}

/// A line as it stands in its file, in one line and without what is in its block.
pub fn text(line: &Directive) -> String {
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
