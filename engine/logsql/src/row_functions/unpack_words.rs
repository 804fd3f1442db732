//! `unpack_words [drop_duplicates]`: the words of a value as a JSON array.

use foldhash::HashSet;
use quiver_types::logs::words;

use crate::kernels::values::push_json_string;

/// Writes the array.
pub fn unpack_words(value: &str, drop_duplicates: bool, out: &mut String) {
    let mut seen = HashSet::default();
    push_array(words(value).filter(|word| !drop_duplicates || seen.insert(*word)), out);
}

/// Writes texts as a JSON array.
pub(crate) fn push_array<'a>(items: impl Iterator<Item = &'a str>, out: &mut String) {
    out.push('[');
    for (i, item) in items.enumerate() {
        if i > 0 {
            out.push(',');
        }
        push_json_string(out, item);
    }
    out.push(']');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrays() {
        let check = |value: &str, drop_duplicates: bool, want: &str| {
            let mut out = String::new();
            unpack_words(value, drop_duplicates, &mut out);
            assert_eq!(out, want, "{value}");
        };
        check("", false, "[]");
        check("!#$%,", false, "[]");
        check("foo,bar foo", false, r#"["foo","bar","foo"]"#);
        check("foo,bar foo", true, r#"["foo","bar"]"#);
    }

    #[test]
    fn words_of_all_letters() {
        let check = |value: &str, want: &str| {
            let mut out = String::new();
            unpack_words(value, true, &mut out);
            assert_eq!(out, want, "{value}");
        };
        check("größe, naïve_1 (größe) GRÖSSE", r#"["größe","naïve_1","GRÖSSE"]"#);
        check("ж-ж.ж 😀x", r#"["ж","x"]"#);
        check("a'b<c>", r#"["a","b","c"]"#);
    }
}
