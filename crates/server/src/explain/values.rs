//! The variables that decided how a request is served, each with the line that used it, and the values behind them.
//!
//! A variable of a rewrite instruction is read when the instruction runs, since the URI changes; all others are read at
//! the end. Invariant: reading changes nothing: a value that a request caches on first use is not read before its line
//! runs.

use std::collections::BTreeSet;

use config::{Directive, VariableIndex};

use httpcore::request::Request;

use super::lines::Lines;
use super::report::{Named, Report, Use, shown};
use crate::explain::lines;
use httpcore::variables::DefinedVariables;

/// Maximum bytes of a value that are shown.
const VALUE_BYTES_MAX: usize = 400;
/// Maximum depth of variables that are made of other variables.
const MADE_OF_MAX: usize = 10;

/// The variables that an instruction is about to use; `None` as a value: it is known only after the instruction ran.
pub(super) struct ValuesBefore(Vec<(String, Option<String>)>);

/// Reads the variables that an instruction will use.
pub(super) fn before(request: &Request, lines: &Lines<'_>, line: &Directive) -> ValuesBefore {
    let mut names = lines::names(line);
    if *line.name.bytes() == "set" {
        // Its first word is the variable that it sets.
        names = names.split_off(1.min(names.len()));
        names.retain(|name| Some(name) != lines::names(line).first());
    }
    let used = expanded(names, lines).into_iter().map(|name| {
        let index = lines.index(&name);
        let at_once = index.filter(|index| !request.is_asked_for_once(*index));
        let value = at_once.map(|index| value(request, index));
        (name, value)
    });
    ValuesBefore(used.collect())
}

/// The variables that the instruction has used and set.
pub(super) fn after(
    request: &Request,
    before: ValuesBefore,
    lines: &Lines<'_>,
    line: &Directive,
) -> Vec<Named> {
    let mut all = Vec::new();
    for (name, known) in before.0 {
        let remembered = || {
            let index = lines.index(&name)?;
            request.remembered(index)?;
            Some(value(request, index))
        };
        if let Some(value) = known.or_else(remembered) {
            all.push((name, value));
        }
    }
    if *line.name.bytes() == "set"
        && let Some(name) = lines::names(line).into_iter().next()
        && let Some(index) = lines.index(&name)
    {
        let value = value(request, index);
        all.push((name, value));
    }
    all
}

/// Reports all of them.
pub(super) fn tell(request: &Request, lines: &Lines<'_>, report: &mut Report) {
    let mut told: Vec<Named> = Vec::new();
    let mut title = "variables";
    report.pause();
    for Use {
        line,
        names,
        values,
    } in report.take_uses()
    {
        let values = values.unwrap_or_else(|| {
            let used = expanded(names.clone(), lines).into_iter();
            used.filter_map(|name| {
                let value = value(request, lines.index(&name)?);
                Some((name, value))
            })
            .collect()
        });
        for named in &values {
            if told.contains(named) {
                continue;
            }
            report.say(title, format!("${} = {}", named.0, named.1));
            title = "";
            // What another one is made of was asked for by that one's block.
            let makers = || values.iter().filter_map(|(name, _)| lines.maker(name));
            match makers().find(|maker| lines::names(maker).contains(&named.0)) {
                Some(maker) if !names.contains(&named.0) => {
                    report.say_aside("", "", &[maker]);
                }
                _ => report.by_text(&line),
            }
            tell_maker(request, &named.0, lines, report);
            told.push(named.clone());
        }
    }
    let known: BTreeSet<&String> = told.iter().map(|(name, _)| name).collect();
    let others = lines.variables(&lines.chain(request));
    title = "others";
    for name in others.iter().filter(|name| !known.contains(name)) {
        if let Some(index) = lines.index(name) {
            report.say(title, format!("${name} = {}", value(request, index)));
            title = "";
            tell_maker(request, name, lines, report);
        }
    }
}

fn tell_maker(request: &Request, name: &str, lines: &Lines<'_>, report: &mut Report) {
    let mut makers: Vec<_> = lines.maker(name).into_iter().collect();
    if let Some((entry, _)) = DefinedVariables::of(request.settings())
        .built_in()
        .find(name)
    {
        makers.extend(lines.of_each(&lines.chain(request), entry.made_by));
    }
    for maker in makers {
        report.by_text(&format!("{}: {}", maker.place(), lines::text(maker)));
    }
}

/// The variables, each after those that it is made of.
fn expanded(names: Vec<String>, lines: &Lines<'_>) -> Vec<String> {
    let mut all = Vec::new();
    for name in names {
        expand(name, lines, MADE_OF_MAX, &mut all);
    }
    all
}

fn expand(name: String, lines: &Lines<'_>, left: usize, all: &mut Vec<String>) {
    if left == 0 || all.contains(&name) {
        return;
    }
    if let Some(maker) = lines.maker(&name) {
        for source in lines::names(maker) {
            if source != name {
                expand(source, lines, left - 1, all);
            }
        }
    }
    all.push(name);
}

fn value(request: &Request, index: VariableIndex) -> String {
    let mut value = Vec::new();
    match request.append_variable(index, &mut value) {
        true => {
            value.truncate(VALUE_BYTES_MAX);
            format!("\"{}\"", shown(&value))
        }
        false => "(none)".to_owned(),
    }
}
