//! `unpack_logfmt`: `name=value name="quoted value" name`.

use super::fields::Fields;
use super::quoting::unquote_prefix;

/// Appends the fields of a text. A name alone has the empty value; a value alone is the message.
pub fn unpack_logfmt(value: &str, out: &mut Fields) {
    let mut rest = value;
    loop {
        let Some(at) = memchr::memchr2(b'=', b' ', rest.as_bytes()) else {
            push(rest, "", out);
            return;
        };
        let name = &rest[..at];
        let is_blank = rest.as_bytes()[at] == b' ';
        rest = &rest[at + 1..];
        if is_blank {
            push(name, "", out);
            continue;
        }
        if let Some((text, length)) = unquote_prefix(rest) {
            push(name, &text, out);
            // What follows a quote without a blank is not of the format.
            let Some(after) = rest[length..].strip_prefix(' ') else { return };
            rest = after;
        } else {
            let end = memchr::memchr(b' ', rest.as_bytes()).unwrap_or(rest.len());
            push(name, &rest[..end], out);
            let Some(after) = rest.get(end + 1..) else { return };
            rest = after;
        }
    }
}

fn push(name: &str, value: &str, out: &mut Fields) {
    let name = name.trim();
    if !name.is_empty() || !value.is_empty() {
        out.push(name, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts() {
        let check = |value: &str, want: &[(&str, &str)]| {
            let mut fields = Fields::default();
            unpack_logfmt(value, &mut fields);
            assert_eq!(fields.iter().collect::<Vec<_>>(), want, "{value}");
        };
        check("", &[]);
        check("foo=bar", &[("foo", "bar")]);
        check("foo=\"bar=baz x=y\"", &[("foo", "bar=baz x=y")]);
        check("foo=", &[("foo", "")]);
        check("foo bar", &[("foo", ""), ("bar", "")]);
        check("  foo=bar  baz=x =z qwe", &[("foo", "bar"), ("baz", "x"), ("_msg", "z"), ("qwe", "")]);
        check("a=\"b\"c d=e", &[("a", "b")]);
        check("a=\"b c", &[("a", "\"b"), ("c", "")]);
    }

    #[test]
    fn values_with_and_without_quotes() {
        let check = |value: &str, want: &[(&str, &str)]| {
            let mut fields = Fields::default();
            unpack_logfmt(value, &mut fields);
            assert_eq!(fields.iter().collect::<Vec<_>>(), want, "{value}");
        };
        check("a=b=c", &[("a", "b=c")]);
        check("a==b", &[("a", "=b")]);
        check("=", &[]);
        check("a=\"\" b=''", &[("a", ""), ("b", "")]);
        check("a='x y' b=`z w`", &[("a", "x y"), ("b", "z w")]);
        check("a=\"x\" ", &[("a", "x")]);
        check("a=\"x\\\"y\\n\" b", &[("a", "x\"y\n"), ("b", "")]);
        check("a=x\tb=y", &[("a", "x\tb=y")]);
        check("\ta=x", &[("a", "x")]);
        check("ä=ö \u{a0}ü=1", &[("ä", "ö"), ("ü", "1")]);
        check("a=1 a=2", &[("a", "1"), ("a", "2")]);
        check("   ", &[]);
    }

    proptest::proptest! {
        #[test]
        fn what_is_packed_is_unpacked(fields in proptest::collection::vec(("[a-zä.]{1,4}", "[^`'].{0,8}"), 0..5)) {
            let mut packed = String::new();
            crate::row_functions::pack_logfmt(fields.iter().map(|(name, value)| (name.as_str(), value.as_str())), &mut packed);
            let mut found = Fields::default();
            unpack_logfmt(&packed, &mut found);
            let own: Vec<(&str, &str)> = fields.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
            proptest::prop_assert_eq!(found.iter().collect::<Vec<_>>(), own, "{}", packed);
        }
    }
}
