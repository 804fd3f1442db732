//! `json_array_concat "s" [from f] [as r]`.

use super::json::array_items;

/// Writes the items of a JSON array with a separator between them; nothing for what is no array.
pub fn json_array_concat(value: &str, separator: &str, out: &mut String) {
    if let Some(items) = array_items(value) {
        for (i, item) in items.iter().enumerate() {
            if i > 0 {
                out.push_str(separator);
            }
            out.push_str(item);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts() {
        let check = |value: &str, want: &str| {
            let mut out = String::new();
            json_array_concat(value, ", ", &mut out);
            assert_eq!(out, want, "{value}");
        };
        check(r#"["cherry","apple",1]"#, "cherry, apple, 1");
        check("[]", "");
        check("foo", "");
    }
}
