//! "Did you mean …": the nearest of the words that are known.

/// The candidate that needs the fewest edits to become `word`, when that is few enough to be a slip of the hand, or that `word` begins.
pub fn nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let length = word.chars().count();
    // A third of the word: `urll` is near `url`, but nothing is near to everything.
    let most = length.div_ceil(3);
    let begun = |candidate: &str| length >= 3 && candidate.starts_with(word);
    let near = |candidate: &'a str| (if begun(candidate) { 1 } else { edits(word, candidate) }, candidate);
    candidates.into_iter().map(near).filter(|(edits, _)| *edits <= most).min().map(|(_, candidate)| candidate)
}

/// Levenshtein's distance, by rows.
fn edits(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut diagonal = i;
        let mut left = i + 1;
        for (cell, y) in row.iter_mut().skip(1).zip(&b) {
            let best = (diagonal + usize::from(x != *y)).min(left + 1).min(*cell + 1);
            diagonal = std::mem::replace(cell, best);
            left = best;
        }
        if let Some(first) = row.first_mut() {
            *first = i + 1;
        }
    }
    row.last().copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_distance_is_the_number_of_edits() {
        for (a, b, expected) in [("", "", 0), ("abc", "", 3), ("", "abc", 3), ("kitten", "sitting", 3), ("url", "urll", 1), ("ab", "ba", 2)] {
            assert_eq!(edits(a, b), expected, "{a} {b}");
            assert_eq!(edits(b, a), expected, "{b} {a}");
        }
    }

    #[test]
    fn a_slip_finds_its_word_and_a_stranger_finds_none() {
        let known = ["url", "token_file", "ca_file", "server_name"];
        assert_eq!(nearest("tokenfile", known), Some("token_file"));
        assert_eq!(nearest("urls", known), Some("url"));
        assert_eq!(nearest("servername", known), Some("server_name"));
        assert_eq!(nearest("token", known), Some("token_file"));
        assert_eq!(nearest("replicas", known), None);
    }
}
