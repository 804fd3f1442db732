//! Quoted texts within values: `"..."` and `'...'` with the escapes of Go, `` `...` `` without any.

use crate::kernels::values::code;

/// Reads a quoted text at the beginning of a value: what it says, and its length with the quotes.
pub(crate) fn unquote_prefix(value: &str) -> Option<(String, usize)> {
    match value.as_bytes().first()? {
        b'`' => {
            let end = value[1..].find('`')?;
            // As in Go, carriage returns do not belong to raw texts.
            Some((value[1..=end].replace('\r', ""), end + 2))
        }
        quote @ (b'"' | b'\'') => {
            let mut out = String::new();
            let mut rest = &value[1..];
            loop {
                let c = rest.chars().next()?;
                rest = match c {
                    _ if c == char::from(*quote) => return Some((out, value.len() - rest.len() + 1)),
                    '\n' if *quote == b'"' => return None,
                    '\\' => &rest[1 + escape(&rest[1..], *quote, &mut out)?..],
                    _ => {
                        out.push(c);
                        &rest[c.len_utf8()..]
                    }
                };
            }
        }
        _ => None,
    }
}

/// One escape after its backslash; gives its length. Bytes that make no character are refused; within `'` each is one.
fn escape(tail: &str, quote: u8, out: &mut String) -> Option<usize> {
    let plain = match tail.as_bytes().first()? {
        b'a' => '\u{7}',
        b'b' => '\u{8}',
        b'f' => '\u{c}',
        b'n' => '\n',
        b'r' => '\r',
        b't' => '\t',
        b'v' => '\u{b}',
        b'\\' => '\\',
        own if *own == quote => char::from(quote),
        kind @ (b'x' | b'0'..=b'7') => return bytes(tail, *kind == b'x', quote == b'\'', out),
        b'u' => return code_point(tail, 4, out),
        b'U' => return code_point(tail, 8, out),
        _ => return None,
    };
    out.push(plain);
    Some(1)
}

fn code_point(tail: &str, digits: usize, out: &mut String) -> Option<usize> {
    let hex = tail.get(1..=digits)?;
    out.push(char::from_u32(code(hex, 16)?)?);
    Some(digits + 1)
}

/// `x41` or `101`, and those that follow directly while they are needed to make a character.
fn bytes(tail: &str, hex: bool, alone: bool, out: &mut String) -> Option<usize> {
    let mut all = Vec::new();
    let mut at = 0;
    loop {
        let (digits, radix, skip) =
            if hex { (tail.get(at + 1..at + 3)?, 16, 3) } else { (tail.get(at..at + 3)?, 8, 3) };
        all.push(u8::try_from(code(digits, radix)?).ok()?);
        at += skip;
        if alone {
            out.push(char::from(all[0]));
            return Some(at);
        }
        if let Ok(text) = std::str::from_utf8(&all) {
            out.push_str(text);
            return Some(at);
        }
        let next = tail.as_bytes().get(at..at + 2)?;
        if all.len() == 4 || next[0] != b'\\' || (hex && next[1] != b'x') {
            return None;
        }
        at += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts() {
        let check = |value: &str, want: Option<(&str, usize)>| {
            assert_eq!(unquote_prefix(value).as_ref().map(|(s, n)| (s.as_str(), *n)), want, "{value}");
        };
        check(r#""foo,\"bar" x"#, Some(("foo,\"bar", 11)));
        check(r#""\n\t\x41\u0416\101\xd0\x96"x"#, Some(("\n\tAЖAЖ", 28)));
        check("`a\\b`c", Some(("a\\b", 5)));
        check("\"\"", Some(("", 2)));
        check("'a \"b\\'\\n\\xd0' c", Some(("a \"b'\n\u{d0}", 14)));
        check("'a\nb'", Some(("a\nb", 5)));
        for bad in ["", "a", "\"abc", "`abc", "'abc", r#""\q""#, r#""\xff""#, r#"'\"'"#, r#""\'""#, "\"a\nb\""] {
            check(bad, None);
        }
        for bad in [r#""\x+1""#, r#""\u+041""#, r#""\U+0000041""#, r#""\ud800""#, r#""\777""#, r#""\xd0\x+9""#] {
            check(bad, None);
        }
    }

    #[test]
    fn escapes_of_each_quote() {
        let check = |value: &str, want: Option<&str>| {
            let found = unquote_prefix(&format!("{value} x"));
            assert_eq!(found, want.map(|text| (text.to_owned(), value.len())), "{value}");
        };
        check(r#""\a\v\b\f\r\\""#, Some("\u{7}\u{b}\u{8}\u{c}\r\\"));
        check(r#""\U0001F600\u00e9é""#, Some("😀éé"));
        check(r#""\320\226\x41\xe2\x82\xac""#, Some("ЖA€"));
        check("'\\''", Some("'"));
        check("'\\xe9\\351'", Some("éé"));
        check("`a\r`", Some("a"));
        check("`a\"'\\`", Some("a\"'\\"));
        check("\"'`\"", Some("'`"));
        check("``", Some(""));
        for bad in [
            r#""\400""#,
            r#""\18""#,
            r#""\x4""#,
            r#""\u12""#,
            r#""\uD800""#,
            r#""\U00110000""#,
            r#""\xe2\x82""#,
            r#""\xe2é""#,
            r#""\é""#,
            "\"\\",
        ] {
            assert_eq!(unquote_prefix(bad), None, "{bad}");
        }
    }

    proptest::proptest! {
        #[test]
        fn texts_in_json_are_read_as_they_were(text in ".{0,12}", more in "[ a\"]{0,3}") {
            let mut quoted = String::new();
            crate::kernels::values::push_json_string(&mut quoted, &text);
            let length = quoted.len();
            quoted.push_str(&more);
            proptest::prop_assert_eq!(unquote_prefix(&quoted), Some((text, length)));
        }
    }
}
