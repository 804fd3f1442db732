//! Errors of the language: what is wrong, where in the text, and what may have been meant.

use quiver_types::Error;

/// Result of the language's own functions.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Makes an error about a place in the query. Positions count characters from 0.
pub(crate) fn at(query: &str, offset: usize, message: impl AsRef<str>) -> Error {
    let position = query.get(..offset).map_or(offset, |before| before.chars().count());
    Error::invalid(format!("{} at offset {position}", message.as_ref()))
}

/// Gives the known word nearest to an unknown one, if it is near: for `did you mean`.
pub(crate) fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let word = word.to_lowercase();
    known
        .into_iter()
        .map(|candidate| (distance(&word, candidate), candidate))
        .filter(|(distance, candidate)| *distance <= 1 + candidate.len() / 5 && *distance < candidate.len())
        .min()
        .map(|(_, candidate)| candidate)
}

/// Says `; did you mean ...?` or nothing.
pub(crate) fn suggestion<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    nearest(word, known).map_or_else(String::new, |near| format!("; did you mean `{near}`?"))
}

/// Number of edits (insert, remove, replace, swap neighbours) between two words.
fn distance(a: &str, b: &str) -> usize {
    let a: Vec<char> = a.chars().take(40).collect();
    let b: Vec<char> = b.chars().take(40).collect();
    let mut rows = vec![vec![0; b.len() + 1]; a.len() + 1];
    for (i, row) in rows.iter_mut().enumerate() {
        row[0] = i;
    }
    for (j, cell) in rows[0].iter_mut().enumerate() {
        *cell = j;
    }
    for i in 1..=a.len() {
        for j in 1..=b.len() {
            let replaced = rows[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut best = replaced.min(rows[i - 1][j] + 1).min(rows[i][j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                best = best.min(rows[i - 2][j - 2] + 1);
            }
            rows[i][j] = best;
        }
    }
    rows[a.len()][b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_words() {
        assert_eq!(nearest("lmit", ["limit", "len"]), Some("limit"));
        assert_eq!(nearest("Sotr", ["sort", "stats"]), Some("sort"));
        assert_eq!(nearest("foo", ["limit", "len"]), None);
    }
}
