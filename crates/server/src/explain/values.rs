//! The variables that the lines of a request's blocks use, with their values at the end of its way.

use config::VariableIndex;

use crate::process::load::Loaded;
use crate::request::Request;

use super::lines::Lines;
use super::report::{Report, shown};
use super::walk::chain;

/// Bytes of a value that are shown.
const VALUE_BYTES_MAX: usize = 400;

/// Tells them, and the maps and groups of expressions that they come from.
pub fn tell(request: &Request, loaded: &Loaded, lines: &Lines<'_>, report: &mut Report) {
    let chain = chain(request, lines);
    let used = lines.variables(&chain);
    let mut told = Vec::new();
    for (number, name) in loaded.variables.iter().enumerate() {
        if !used.contains(name) {
            continue;
        }
        let index = VariableIndex(u32::try_from(number).unwrap_or(u32::MAX));
        let mut value = Vec::new();
        let has_value = request.append_variable(index, &mut value);
        value.truncate(VALUE_BYTES_MAX);
        let value = match has_value {
            true => format!("\"{}\"", shown(&value)),
            false => "(none)".to_owned(),
        };
        told.push((name, format!("${name} = {value}")));
    }
    if told.is_empty() {
        return;
    }
    report.pause();
    told.sort();
    let mut title = "variables";
    for (name, text) in told {
        report.say_by(title, text, lines.maker(name).as_slice());
        title = "";
    }
}
