//! The search of `sub_filter`: several texts at once, ignoring case, in a body that comes piece by piece.
//!
//! The leftmost match wins; of several that begin at the same byte, the pattern that was written first. Only the end of
//! a piece that may begin a match is held back. Not here: the replacement of a match.
//!
//! The crate aho-corasick (a DFA, leftmost-first, ASCII case ignored) was measured and not taken: it needs 1.5 times the
//! instructions for one pattern and 3 to 8 times for five, 0.2 to 0.8 times for fifty; making it of fifty costs 60 times
//! as many, and it cannot leave out patterns that have matched once.

use std::sync::Arc;

use bytes::Bytes;

/// Maximum patterns of one search, as in nginx.
pub const PATTERNS_MAX: usize = 255;

/// Patterns, prepared for the search.
#[derive(Debug)]
pub struct Patterns {
    /// In lower case, none empty, in configuration order.
    list: Vec<Box<[u8]>>,
    shortest: usize,
    longest: usize,
    /// By a byte of the text at the place where the shortest pattern would end: the minimum distance to the next
    /// possible match (Set Horspool).
    shift: [u8; 256],
    /// The patterns sorted by their byte at the end of the shortest one: indices into `list`.
    order: Vec<u8>,
    /// The start of each byte's patterns in `order`.
    begins: [u8; 257],
}

impl Patterns {
    /// Prepares patterns; the caller leaves out empty ones, which cannot match. `None`: there is no pattern, an empty
    /// one, or more than [`PATTERNS_MAX`].
    #[must_use]
    pub fn new(list: impl IntoIterator<Item = Bytes>) -> Option<Self> {
        let list: Vec<Box<[u8]>> = list
            .into_iter()
            .map(|pattern| pattern.to_ascii_lowercase().into())
            .collect();
        let shortest = list.iter().map(|pattern| pattern.len()).min()?;
        let longest = list.iter().map(|pattern| pattern.len()).max()?;
        if shortest == 0 || list.len() > PATTERNS_MAX {
            return None;
        }
        let end = shortest - 1;
        let reach = shortest.min(255);
        let mut shift = [reach as u8; 256];
        for pattern in &list {
            for back in 0..reach {
                let byte = usize::from(pattern[end - back]);
                shift[byte] = shift[byte].min(back as u8);
            }
        }
        let mut order: Vec<u8> = (0..list.len()).map(|number| number as u8).collect();
        // A stable sort: of the patterns with the same byte, the first written stays first.
        order.sort_by_key(|number| list[usize::from(*number)][end]);
        let mut begins = [list.len() as u8; 257];
        for (at, number) in order.iter().enumerate().rev() {
            begins[usize::from(list[usize::from(*number)][end])] = at as u8;
        }
        // The range of a byte that no pattern has there begins where the next byte's does.
        for byte in (0..256).rev() {
            let is_none = shift[byte] != 0;
            if is_none {
                begins[byte] = begins[byte + 1];
            }
        }
        Some(Self {
            list,
            shortest,
            longest,
            shift,
            order,
            begins,
        })
    }

    /// Bytes of the shortest pattern.
    #[must_use]
    pub fn shortest(&self) -> usize {
        self.shortest
    }

    /// The indices of the patterns that have this byte at the end of the shortest one.
    fn with(&self, byte: u8) -> impl Iterator<Item = usize> + '_ {
        let (from, to) = (
            self.begins[usize::from(byte)],
            self.begins[usize::from(byte) + 1],
        );
        let numbers = &self.order[usize::from(from)..usize::from(to)];
        numbers.iter().map(|number| usize::from(*number))
    }
}

/// A part of a searched body.
#[derive(Debug, PartialEq, Eq)]
pub enum Part {
    /// Text without a match.
    Text(Bytes),
    /// A match of the pattern with this index.
    Match(usize),
}

/// A search in one body.
#[derive(Debug)]
pub struct Search {
    patterns: Arc<Patterns>,
    /// Whether each pattern is no longer searched for; empty: each may match again and again.
    done: Vec<bool>,
    left: usize,
    /// The end of the previous input, which may be the beginning of a match.
    kept: Vec<u8>,
}

/// The comparison of a pattern with the text at one place.
enum PatternMatch {
    None,
    /// It fits as far as the text goes.
    Part,
    Whole(usize),
}

/// The progress of a search in a text.
struct SearchProgress {
    /// No further match begins before this.
    at: usize,
    /// The text from here on has not been given out.
    text: usize,
}

impl Search {
    /// Begins a search; `is_once`: each pattern matches only once.
    #[must_use]
    pub fn new(patterns: Arc<Patterns>, is_once: bool) -> Self {
        let count = patterns.list.len();
        Self {
            done: vec![false; if is_once { count } else { 0 }],
            left: count,
            patterns,
            kept: Vec::new(),
        }
    }

    /// Searches the next piece of the body.
    pub fn feed(&mut self, mut piece: Bytes, parts: &mut Vec<Part>) {
        if !self.kept.is_empty() {
            let kept = std::mem::take(&mut self.kept);
            let reach = (self.patterns.longest - 1).min(piece.len());
            let seam = Bytes::from([&kept[..], &piece[..reach]].concat());
            if reach == piece.len() {
                piece = seam;
            } else {
                // Any match that begins in the old part ends in the seam.
                let reached = self.scan(&seam, 0, kept.len(), parts);
                let text = reached.text.min(kept.len());
                push(parts, seam.slice(text..kept.len()));
                let skip = reached.text.saturating_sub(kept.len());
                self.search(piece, skip, reached.at - kept.len(), parts);
                return;
            }
        }
        self.search(piece, 0, 0, parts);
    }

    /// Ends the search and gives the rest.
    pub fn end(&mut self, parts: &mut Vec<Part>) {
        push(parts, Bytes::from(std::mem::take(&mut self.kept)));
    }

    /// Searches a piece from `at` on; its text from `text` on has not been given out. Keeps the end of the piece where
    /// a match may begin.
    fn search(&mut self, piece: Bytes, text: usize, at: usize, parts: &mut Vec<Part>) {
        let before = parts.len();
        let mut reached = self.scan(&piece.slice(text..), at - text, usize::MAX, parts);
        reached.text += text;
        reached.at += text;
        debug_assert!(parts.len() >= before);
        let end = (reached.at.min(piece.len())..piece.len())
            .find(|start| self.may_begin(&piece[*start..]))
            .unwrap_or(piece.len());
        push(parts, piece.slice(reached.text..end));
        self.kept = piece[end..].to_vec();
    }

    /// Finds the matches that begin before `limit`; stops at a possible match that the text is too short for.
    fn scan(
        &mut self,
        text: &Bytes,
        from: usize,
        limit: usize,
        parts: &mut Vec<Part>,
    ) -> SearchProgress {
        let patterns = Arc::clone(&self.patterns);
        let mut reached = SearchProgress { at: from, text: 0 };
        while self.left > 0 && reached.at < limit {
            let at = reached.at;
            let Some(byte) = text.get(at + patterns.shortest - 1) else {
                return reached;
            };
            let byte = byte.to_ascii_lowercase();
            let shift = patterns.shift[usize::from(byte)];
            if shift > 0 {
                reached.at += usize::from(shift);
                continue;
            }
            match self.fit(&patterns, byte, &text[at..]) {
                PatternMatch::None => reached.at += 1,
                PatternMatch::Part => return reached,
                PatternMatch::Whole(number) => {
                    push(parts, text.slice(reached.text..at));
                    parts.push(Part::Match(number));
                    self.count(number);
                    reached.at = at + patterns.list[number].len();
                    reached.text = reached.at;
                }
            }
        }
        if self.left == 0 {
            // No match can begin in the rest.
            reached.at = reached.at.max(text.len());
        }
        reached
    }

    /// The first pattern that matches at the beginning of `text`, or may match once more text has come.
    fn fit(&self, patterns: &Patterns, byte: u8, text: &[u8]) -> PatternMatch {
        for number in patterns.with(byte).filter(|number| !self.is_done(*number)) {
            let pattern = &patterns.list[number];
            let length = pattern.len().min(text.len());
            if !text[..length].eq_ignore_ascii_case(&pattern[..length]) {
                continue;
            }
            return if length == pattern.len() {
                PatternMatch::Whole(number)
            } else {
                PatternMatch::Part
            };
        }
        PatternMatch::None
    }

    /// Whether a match may begin with this end of a piece.
    fn may_begin(&self, end: &[u8]) -> bool {
        let mut patterns = self.patterns.list.iter().enumerate();
        self.left > 0
            && patterns.any(|(number, pattern)| {
                !self.is_done(number)
                    && end.len() < pattern.len()
                    && end.eq_ignore_ascii_case(&pattern[..end.len()])
            })
    }

    fn is_done(&self, number: usize) -> bool {
        self.done.get(number).is_some_and(|is_done| *is_done)
    }

    fn count(&mut self, number: usize) {
        if let Some(is_done) = self.done.get_mut(number) {
            *is_done = true;
            self.left -= 1;
        }
    }
}

fn push(parts: &mut Vec<Part>, text: Bytes) {
    if !text.is_empty() {
        parts.push(Part::Text(text));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn patterns(list: &[&str]) -> Arc<Patterns> {
        let list = list
            .iter()
            .map(|text| Bytes::copy_from_slice(text.as_bytes()));
        Arc::new(Patterns::new(list).expect("there are some"))
    }

    /// The text with `<number>` for each match.
    fn found(list: &[&str], is_once: bool, pieces: &[&str]) -> String {
        let mut search = Search::new(patterns(list), is_once);
        let mut parts = Vec::new();
        for piece in pieces {
            search.feed(Bytes::copy_from_slice(piece.as_bytes()), &mut parts);
        }
        search.end(&mut parts);
        let text = |part: &Part| match part {
            Part::Text(text) => String::from_utf8(text.to_vec()).unwrap(),
            Part::Match(number) => format!("<{number}>"),
        };
        parts.iter().map(text).collect()
    }

    /// The same, found the plain way.
    fn plainly(list: &[&str], is_once: bool, text: &str) -> String {
        let (mut out, mut at) = (String::new(), 0);
        let mut done = vec![false; list.len()];
        while at < text.len() {
            let rest = &text[at..];
            let begins = |(number, pattern): &(usize, &&str)| {
                let length = pattern.len().min(rest.len());
                !done[*number] && rest[..length].eq_ignore_ascii_case(&pattern[..length])
            };
            match list.iter().enumerate().find(begins) {
                // The text may still become it when the body ends.
                Some((_, pattern)) if pattern.len() > rest.len() => return out + rest,
                Some((number, pattern)) => {
                    done[number] = is_once;
                    out += &format!("<{number}>");
                    at += pattern.len();
                }
                None => {
                    out += &rest[..1];
                    at += 1;
                }
            }
        }
        out
    }

    #[test]
    fn the_leftmost_and_first_written_is_found() {
        assert_eq!(found(&["b", "abc"], false, &["xABCb"]), "x<1><0>");
        assert_eq!(found(&["ab", "abc"], false, &["abc"]), "<0>c");
        // At the end, what may begin the first written is given up as text, as in nginx.
        assert_eq!(
            found(&["abc", "ab"], false, &["abc", "abx", "ab"]),
            "<0><1>xab"
        );
        assert_eq!(found(&["aa"], false, &["aaa"]), "<0>a");
    }

    #[test]
    fn matches_cross_the_borders_of_pieces() {
        assert_eq!(
            found(&["hello"], false, &["he", "l", "lo hel", "lo"]),
            "<0> <0>"
        );
        assert_eq!(found(&["hello"], false, &["hel", "p"]), "help");
        assert_eq!(found(&["abab"], false, &["aba", "bab"]), "<0>ab");
        assert_eq!(found(&["abcd", "c"], false, &["abc", "x"]), "ab<1>x");
        assert_eq!(found(&["abcd", "c"], false, &["abc"]), "abc");
    }

    #[test]
    fn once_means_once_for_each() {
        assert_eq!(found(&["a", "b"], true, &["aab", "bab"]), "<0>a<1>bab");
        assert_eq!(found(&["ab"], true, &["a", "bab"]), "<0>ab");
    }

    #[test]
    fn what_cannot_match_is_not_kept() {
        let mut search = Search::new(patterns(&["za"]), false);
        let mut parts = Vec::new();
        search.feed("xyz".into(), &mut parts);
        assert_eq!(parts, [Part::Text("xy".into())]);
        let mut search = Search::new(patterns(&["ab"]), false);
        parts.clear();
        search.feed("xyz".into(), &mut parts);
        assert_eq!(parts, [Part::Text("xyz".into())]);
    }

    #[test]
    fn no_patterns() {
        assert!(Patterns::new([]).is_none());
        assert!(Patterns::new([Bytes::new()]).is_none());
        let many = (0..256).map(|n| Bytes::from(format!("x{n}")));
        assert!(Patterns::new(many).is_none());
        let most = (0..255).map(|n| Bytes::from(format!("x{n:03}")));
        let search = Search::new(Arc::new(Patterns::new(most).unwrap()), false);
        assert!(search.may_begin(b"x25"));
    }

    proptest! {
        #[test]
        fn pieces_make_no_difference(
            list in proptest::collection::vec("[abAB]{1,6}", 1..5),
            pieces in proptest::collection::vec("[abAB ]{0,9}", 0..8),
            is_once: bool,
        ) {
            let list: Vec<&str> = list.iter().map(|text| &text[..]).collect();
            let pieces: Vec<&str> = pieces.iter().map(|text| &text[..]).collect();
            let text = pieces.concat();
            prop_assert_eq!(found(&list, is_once, &pieces), plainly(&list, is_once, &text));
        }
    }
}
