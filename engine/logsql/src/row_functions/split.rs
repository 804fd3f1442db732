//! `split "s" [from f] [as r]`: the pieces of a value as a JSON array.

use super::unpack_words::push_array;

/// Writes the array. With an empty separator the pieces are the characters; with another one an empty value is one
/// empty piece.
pub fn split(value: &str, separator: &str, out: &mut String) {
    if separator.is_empty() {
        let mut buffer = [0; 4];
        out.push('[');
        for (i, c) in value.chars().enumerate() {
            if i > 0 {
                out.push(',');
            }
            crate::kernels::values::push_json_string(out, c.encode_utf8(&mut buffer));
        }
        out.push(']');
    } else {
        push_array(value.split(separator), out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrays() {
        let check = |value: &str, separator: &str, want: &str| {
            let mut out = String::new();
            split(value, separator, &mut out);
            assert_eq!(out, want, "{value}");
        };
        check("GET", "", r#"["G","E","T"]"#);
        check("a b  c", " ", r#"["a","b","","c"]"#);
        check("a", ", ", r#"["a"]"#);
        check("a,", ",", r#"["a",""]"#);
        check("", ",", r#"[""]"#);
        check("", "", "[]");
    }

    #[test]
    fn signs_of_several_bytes() {
        let check = |value: &str, separator: &str, want: &str| {
            let mut out = String::new();
            split(value, separator, &mut out);
            assert_eq!(out, want, "{value}");
        };
        check("aéb", "é", r#"["a","b"]"#);
        check("é😀\"", "", r#"["é","😀","\""]"#);
        check(",", ",", r#"["",""]"#);
        check("a\"b", "x", r#"["a\"b"]"#);
        check("aaa", "aa", r#"["","a"]"#);
    }
}
