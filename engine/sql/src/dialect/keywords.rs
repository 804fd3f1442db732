//! `pg_get_keywords()`: the key words of PostgreSQL's SQL, which clients ask for to know which names need quotes.

use quiver_query::functions::KEYWORDS;

/// Words that cannot name an output without `AS` before them.
const AFTER_AS: &str = "\
    array as char character create day except fetch filter for from grant group having hour intersect into \
    isnull limit minute month notnull offset on order over overlaps precision returning second to union varying \
    where window with within without year";

/// A query that returns the table of key words.
pub(super) fn query() -> String {
    let listed: Vec<String> = KEYWORDS
        .iter()
        .flat_map(|(kind, words)| words.split_whitespace().map(move |word| (kind, word)))
        .map(|(kind, word)| {
            let is_bare = !AFTER_AS.split_whitespace().any(|other| other == word);
            format!("{word}:{kind}:{is_bare}")
        })
        .collect();
    format!(
        "SELECT split_part(k, ':', 1) AS word, split_part(k, ':', 2) AS catcode, \
         split_part(k, ':', 3) = 'true' AS barelabel, CASE split_part(k, ':', 2) WHEN 'U' THEN 'unreserved' \
         WHEN 'C' THEN 'unreserved (cannot be function or type name)' \
         WHEN 'T' THEN 'reserved (can be function or type name)' ELSE 'reserved' END AS catdesc, \
         CASE split_part(k, ':', 3) WHEN 'true' THEN 'can be bare label' ELSE 'requires AS' END AS baredesc \
         FROM (SELECT unnest(string_to_array('{}', ' ')) AS k) AS listed",
        listed.join(" ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_have_a_kind() {
        let query = query();
        for known in ["abort:U:true", "between:C:true", "left:T:true", "all:R:true", "array:R:false", "year:U:false"] {
            assert!(query.contains(known), "{known}");
        }
    }
}
