//! `unroll by (a, b)`: one row per item of JSON arrays, in parallel.

use super::json::array_items;

/// Gives, for each new row, the values of the fields: as many rows as the longest array has items, missing items
/// empty; one row of empty values where no field is an array with items.
pub fn unroll(values: &[&str]) -> Vec<Vec<String>> {
    let mut items: Vec<Vec<String>> = values.iter().map(|v| items_of(v)).collect();
    let rows = items.iter().map(Vec::len).max().unwrap_or(0).max(1);
    (0..rows)
        .map(|row| items.iter_mut().map(|list| list.get_mut(row).map(std::mem::take).unwrap_or_default()).collect())
        .collect()
}

fn items_of(value: &str) -> Vec<String> {
    if value.trim_ascii_start().starts_with('[') { array_items(value).unwrap_or_default() } else { Vec::new() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows() {
        let check = |values: &[&str], want: &[&[&str]]| assert_eq!(unroll(values), want, "{values:?}");
        check(&["w"], &[&[""]]);
        check(&[""], &[&[""]]);
        check(&["[]"], &[&[""]]);
        check(&["[\"foo\",1,{\"baz\":\"x\"},null]"], &[&["foo"], &["1"], &["{\"baz\":\"x\"}"], &["null"]]);
        check(&["[1]", "[\"foo\",\"bar\"]"], &[&["1", "foo"], &["", "bar"]]);
        check(&["[1]", "bar"], &[&["1", ""]]);
    }

    #[test]
    fn arrays_of_different_lengths() {
        let check = |values: &[&str], want: &[&[&str]]| assert_eq!(unroll(values), want, "{values:?}");
        check(&[" [1,2] ", "[[3],\"é\\n\"]", ""], &[&["1", "[3]", ""], &["2", "é\n", ""]]);
        check(&["[1,2", "{\"a\":1}", "null"], &[&["", "", ""]]);
        check(&["[\"\",\"\"]"], &[&[""], &[""]]);
        check(&[], &[&[]]);
    }
}
