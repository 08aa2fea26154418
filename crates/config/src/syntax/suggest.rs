//! "Did you mean …?": finds the known name nearest to a mistyped one.

/// Length in bytes of the words that are compared; a longer one gets no suggestion.
const WORD_BYTES_MAX: usize = 64;
/// Declared names that a message lists.
const SHOWN_MAX: usize = 8;

/// The candidate nearest to `word`, if it is near enough: at most one edit for every three letters.
pub fn nearest<'a>(word: &[u8], candidates: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    if word.len() > WORD_BYTES_MAX {
        return None;
    }
    let most = (word.len() / 3).clamp(1, 4);
    let near = candidates
        .filter(|name| name.len().abs_diff(word.len()) <= most && name.len() <= WORD_BYTES_MAX);
    let rated = near.map(|name| (distance(word, name.as_bytes()), name));
    rated
        .filter(|(edits, _)| *edits <= most)
        .min_by_key(|(edits, name)| (*edits, *name))
        .map(|(_, name)| name)
}

/// The hint for a name that is not declared: the nearest declared one, or a list of them.
#[must_use]
pub fn of_declared(word: &[u8], declared: &[String], by: &str) -> String {
    if declared.is_empty() {
        return format!("no \"{by}\" declares it");
    }
    if let Some(near) = nearest(word, declared.iter().map(String::as_str)) {
        return format!("did you mean \"{near}\"?");
    }
    let shown: Vec<String> = declared
        .iter()
        .take(SHOWN_MAX)
        .map(|name| format!("\"{name}\""))
        .collect();
    let more = if declared.len() > SHOWN_MAX {
        ", …"
    } else {
        ""
    };
    format!("\"{by}\" declares {}{more}", shown.join(", "))
}

/// The edit distance of two words. An edit inserts, deletes or replaces a letter, or swaps two adjacent ones (optimal
/// string alignment).
fn distance(one: &[u8], two: &[u8]) -> usize {
    let mut before = vec![0; two.len() + 1];
    let mut above: Vec<usize> = (0..=two.len()).collect();
    for row in 1..=one.len() {
        let mut here = vec![row; two.len() + 1];
        for column in 1..=two.len() {
            let is_same = one[row - 1].eq_ignore_ascii_case(&two[column - 1]);
            let replaced = above[column - 1] + usize::from(!is_same);
            here[column] = replaced.min(above[column] + 1).min(here[column - 1] + 1);
            let is_swapped = row > 1
                && column > 1
                && one[row - 1] == two[column - 2]
                && one[row - 2] == two[column - 1];
            if is_swapped {
                here[column] = here[column].min(before[column - 2] + 1);
            }
        }
        before = above;
        above = here;
    }
    above[two.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_near_name_is_suggested_and_a_far_one_is_not() {
        let names = ["root", "return", "sendfile", "server_name", "gzip"];
        let nearest = |word: &str| nearest(word.as_bytes(), names.into_iter());
        assert_eq!(nearest("rooot"), Some("root"));
        assert_eq!(nearest("sendfiel"), Some("sendfile"));
        assert_eq!(nearest("servername"), Some("server_name"));
        assert_eq!(nearest("gizp"), Some("gzip"));
        assert_eq!(nearest("banana"), None);
        assert_eq!(nearest(""), None);
    }
}
