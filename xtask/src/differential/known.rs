//! The deliberate differences: cases in which Freewheel is not to answer as nginx does, each with its kind and its reason.
//!
//! What is listed is left out of the comparison of its case, and nothing else. Invariant: the list may only shrink; what stands there
//! and does not differ any more is a fault.

use std::collections::BTreeMap;

/// What may differ in a case.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// The order of header lines with different names.
    Order,
    /// A line `Age`, which nginx does not send.
    Age,
    /// The access logs.
    Logs,
    /// Everything.
    Whole,
}

/// Kinds by case.
pub type Known = BTreeMap<String, Vec<Kind>>;

/// Reads lines `CASE KIND[,KIND] REASON`; `#` opens a comment.
pub fn parse(text: &str) -> Result<Known, String> {
    let mut known = Known::new();
    let lines = text.lines().map(str::trim);
    for line in lines.filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let words: Vec<&str> = line.splitn(3, ' ').collect();
        let [case, kinds, _reason] = words[..] else {
            return Err(format!("\"{line}\" is not CASE KIND REASON"));
        };
        let kinds: Result<Vec<Kind>, String> = kinds.split(',').map(kind).collect();
        if known.insert(case.to_owned(), kinds?).is_some() {
            return Err(format!("{case} stands there twice"));
        }
    }
    Ok(known)
}

fn kind(name: &str) -> Result<Kind, String> {
    Ok(match name {
        "order" => Kind::Order,
        "age" => Kind::Age,
        "logs" => Kind::Logs,
        "whole" => Kind::Whole,
        other => return Err(format!("\"{other}\" is no kind of difference")),
    })
}

/// A part of what a server told, without what may differ.
pub fn softened(title: &str, text: &str, kinds: &[Kind]) -> String {
    if kinds.contains(&Kind::Whole) || (kinds.contains(&Kind::Logs) && title == "logs") {
        return String::new();
    }
    let mut out: Vec<String> = Vec::new();
    let mut head: Vec<String> = Vec::new();
    let mut is_head = false;
    for line in text.lines() {
        let is_first = line.starts_with("HTTP/1.") && head.is_empty();
        if is_first || (is_head && !line.is_empty()) {
            is_head = true;
            if !(kinds.contains(&Kind::Age) && line.starts_with("Age: ")) {
                head.push(line.to_owned());
            }
            continue;
        }
        is_head = false;
        end(&mut head, &mut out, kinds);
        out.push(line.to_owned());
    }
    end(&mut head, &mut out, kinds);
    out.join("\n")
}

/// Moves a whole head to the other lines.
fn end(head: &mut Vec<String>, out: &mut Vec<String>, kinds: &[Kind]) {
    if kinds.contains(&Kind::Order) && head.len() > 1 {
        // Stable: lines of one name stay in their order.
        head[1..].sort_by_key(|line| line.split(':').next().map(str::to_ascii_lowercase));
    }
    out.append(head);
}

/// What came of a case that ran.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Came {
    /// The same of both, to the byte.
    Same,
    /// What is listed differs, and nothing else.
    AsListed,
    /// More than what is listed, or nothing is.
    Different,
}

/// What is wrong with what came of the cases.
pub fn faults(known: &Known, ran: &BTreeMap<String, Came>, is_whole: bool) -> Vec<String> {
    let mut faults = Vec::new();
    for (case, came) in ran {
        match came {
            Came::Different => faults.push(format!("{case}: differs from nginx")),
            Came::Same if known.contains_key(case) => faults.push(format!(
                "{case}: does not differ any more, take it out of the list of differences"
            )),
            Came::Same | Came::AsListed => {}
        }
    }
    let gone = known
        .keys()
        .filter(|case| is_whole && !ran.contains_key(*case));
    faults.extend(
        gone.map(|case| format!("{case}: a difference is listed, but there is no such case")),
    );
    faults
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_may_only_shrink() {
        let known = parse("# x\n\na/b order because\na/c age,logs for another reason\n").unwrap();
        let ran = |b, d| {
            BTreeMap::from([
                ("a/b".to_owned(), b),
                ("a/c".to_owned(), Came::AsListed),
                ("a/d".to_owned(), d),
            ])
        };
        assert!(faults(&known, &ran(Came::AsListed, Came::Same), true).is_empty());
        assert_eq!(faults(&known, &ran(Came::Same, Came::Same), true).len(), 1);
        assert_eq!(
            faults(&known, &ran(Came::Different, Came::Different), true).len(),
            2
        );
        assert_eq!(faults(&known, &BTreeMap::new(), true).len(), 2);
        assert!(faults(&known, &BTreeMap::new(), false).is_empty());
        assert!(parse("a/b order\n").is_err());
        assert!(parse("a/b strange x\n").is_err());
        assert!(parse("a whole x\na age y\n").is_err());
    }

    #[test]
    fn only_what_is_listed_is_left_out() {
        let ours = "HTTP/1.1 200 OK\nB: 1\nAge: 0\nA: 2\nA: 1\n\nAge: body\n";
        let nginx = "HTTP/1.1 200 OK\nA: 2\nA: 1\nB: 1\n\nAge: body\n";
        let both = |text| softened("GET /", text, &[Kind::Order, Kind::Age]);
        assert_eq!(both(ours), both(nginx));
        assert!(both(ours).contains("Age: body"));
        let age = |text| softened("GET /", text, &[Kind::Age]);
        assert_ne!(age(ours), age(nginx));
        let turned = nginx.replace("A: 2\nA: 1", "A: 1\nA: 2");
        assert_ne!(both(&turned), both(nginx));
    }
}
