//! The text form of labels, which aggregators push and `_stream` contains: `{app="nginx",host="h1"}`.

use quiver_types::label::push_pair;

/// Parses labels in braces; `None` if the text is not of this form.
pub(crate) fn parse(text: &str) -> Option<Vec<(&str, String)>> {
    let mut pairs = Vec::new();
    each(text, |name, value| pairs.push((name, value)))?;
    Some(pairs)
}

/// Calls a function with each label; `None` if the text is not of this form, in which case some labels may have been
/// passed.
pub(crate) fn each<'a>(text: &'a str, mut label: impl FnMut(&'a str, String)) -> Option<()> {
    let mut rest = text.trim().strip_prefix('{')?.strip_suffix('}')?.trim_start();
    while !rest.is_empty() {
        let at = rest.find('=')?;
        let name = rest[..at].trim();
        let name = name.strip_prefix('"').and_then(|n| n.strip_suffix('"')).unwrap_or(name);
        if name.is_empty() || name.contains(['"', '{', '}', ',']) {
            return None;
        }
        rest = rest[at + 1..].trim_start();
        let (value, behind) = if let Some(raw) = rest.strip_prefix('`') {
            // As in Go, raw strings are literal, except that carriage returns are removed.
            let (raw, behind) = raw.split_once('`')?;
            (raw.replace('\r', ""), behind)
        } else {
            let quote = *rest.as_bytes().first().filter(|b| matches!(b, b'"' | b'\''))?;
            let text = &rest[1..];
            let (value, len) = quoted(text, quote)?;
            (value, &text[len..])
        };
        label(name, value);
        rest = behind.trim_start();
        if rest.is_empty() {
            break;
        }
        rest = rest.strip_prefix(',')?.trim_start();
    }
    Some(())
}

/// Parses a quoted string from behind its opening quote, with Go's escapes; returns it and the bytes consumed.
fn quoted(text: &str, quote: u8) -> Option<(String, usize)> {
    let mut out = String::new();
    let mut raw: Vec<u8> = Vec::new();
    let bytes = text.as_bytes();
    let mut at = 0;
    loop {
        let found = memchr::memchr2(quote, b'\\', bytes.get(at..)?)?;
        raw.extend_from_slice(&bytes[at..at + found]);
        at += found + 1;
        if bytes[at - 1] == quote {
            out.push_str(&String::from_utf8_lossy(&raw));
            return Some((out, at));
        }
        let kind = *bytes.get(at)?;
        at += 1;
        let mut number = |len: usize, radix: u32| {
            let digits = std::str::from_utf8(bytes.get(at..at + len)?).ok()?;
            at += len;
            digits.bytes().all(|b| b.is_ascii_alphanumeric()).then(|| u32::from_str_radix(digits, radix).ok())?
        };
        let code = match kind {
            b'n' => b'\n'.into(),
            b'r' => b'\r'.into(),
            b't' => b'\t'.into(),
            b'a' => 7,
            b'b' => 8,
            b'f' => 12,
            b'v' => 11,
            b'"' | b'\\' | b'\'' => kind.into(),
            b'x' => {
                raw.push(number(2, 16)? as u8);
                continue;
            }
            b'u' => number(4, 16)?,
            b'U' => number(8, 16)?,
            b'0'..=b'7' => {
                at -= 1;
                raw.push(
                    u8::try_from({
                        let digits = std::str::from_utf8(bytes.get(at..at + 3)?).ok()?;
                        u32::from_str_radix(digits, 8).ok()?
                    })
                    .ok()?,
                );
                at += 3;
                continue;
            }
            _ => return None,
        };
        let mut buffer = [0; 4];
        raw.extend_from_slice(char::from_u32(code)?.encode_utf8(&mut buffer).as_bytes());
    }
}

/// Writes labels in canonical form: sorted, without empty values, the last of equal names.
pub(crate) fn canonical<N: AsRef<str>, V: AsRef<str>>(mut pairs: Vec<(N, V)>, out: &mut Vec<u8>) {
    pairs.sort_by(|a, b| a.0.as_ref().cmp(b.0.as_ref()));
    out.clear();
    for (i, (name, value)) in pairs.iter().enumerate() {
        let again = pairs.get(i + 1).is_some_and(|next| next.0.as_ref() == name.as_ref());
        if !again && !value.as_ref().is_empty() {
            push_pair(out, name.as_ref(), value.as_ref());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_of_labels() {
        let check = |text: &str, expected: Option<&[(&str, &str)]>| {
            let found = parse(text);
            let found: Option<Vec<_>> = found.as_ref().map(|p| p.iter().map(|(n, v)| (*n, &**v)).collect());
            assert_eq!(found.as_deref(), expected, "{text}");
        };
        check("{}", Some(&[]));
        check(" { } ", Some(&[]));
        check("{foo=\"bar\"}", Some(&[("foo", "bar")]));
        check("{foo=\"bar\", baz=\"x\" , y=\"z\",}", Some(&[("foo", "bar"), ("baz", "x"), ("y", "z")]));
        check(r#"{foo="ba\"r\\z\n", a="", b="\"\\"}"#, Some(&[("foo", "ba\"r\\z\n"), ("a", ""), ("b", "\"\\")]));
        check(r#"{a="\x41\u00e9\101",k8s.pod="}"}"#, Some(&[("a", "AéA"), ("k8s.pod", "}")]));
        check("{a=\"zoë\"}", Some(&[("a", "zoë")]));
        check(r#"{a=`b\"}=,`, c="`d`",e=``}"#, Some(&[("a", r#"b\"}=,"#), ("c", "`d`"), ("e", "")]));
        check(r#"{a='b"=,}', c='d\'\n', e=''}"#, Some(&[("a", "b\"=,}"), ("c", "d'\n"), ("e", "")]));
        for bad in [
            "",
            "{a='b\"}",
            "{a='b}",
            "{foo=\"bar}",
            "foo{bar=\"baz\"}",
            "{foo}",
            "{foo=bar}",
            "{a=\"b\" c=\"d\"}",
            "{=\"b\"}",
            "{a=\"\\q\"}",
            "{a=`b}",
            "{a=`b`c}",
            "{,}",
        ] {
            check(bad, None);
        }
        let mut out = Vec::new();
        canonical(vec![("b", "2"), ("a", "1"), ("b", "3"), ("c", "")], &mut out);
        assert_eq!(out, b"\x01a\x011\x01b\x013");
    }

    #[test]
    fn escapes_of_go() {
        let value = |escaped: &str| parse(&format!("{{a=\"{escaped}\"}}")).map(|mut pairs| pairs.remove(0).1);
        let check =
            |escaped: &str, expected: Option<&str>| assert_eq!(value(escaped).as_deref(), expected, "{escaped}");
        check(r"\a\b\t\n\v\f\r", Some("\u{7}\u{8}\t\n\u{b}\u{c}\r"));
        check(r"\U0001f600\u00e9\x41\101\0007", Some("😀éAA\u{0}7"));
        // Escaped bytes may or may not form characters.
        check(r"\xc3\xa9\303\251", Some("éé"));
        check(r"x\xffy", Some("x\u{fffd}y"));
        check(r"é\\\x22", Some("é\\\""));
        for bad in [
            r"\x4",
            r"\xg0",
            r"\x+1",
            r"\u00e",
            r"\ud800",
            r"\U00110000",
            r"\400",
            r"\18",
            r"\8",
            r"\",
            r"\é",
            r"\u00é",
        ] {
            check(bad, None);
        }
        let raw = parse("{a=`x\r\ny`, \"b c\" = \"d\"}").unwrap();
        assert_eq!(raw, [("a", "x\ny".to_owned()), ("b c", "d".to_owned())], "as in Go, but for line ends of Windows");
    }

    #[test]
    fn what_is_written_is_read_back() {
        use quiver_types::LabelSet;
        use rand::rngs::StdRng;
        use rand::{RngExt, SeedableRng};
        const PIECES: [&str; 10] = ["a", "é", "\"", "\\", "\n", "{", "}", ",", "=", " "];
        let mut rng = StdRng::seed_from_u64(11);
        for _ in 0..500 {
            let pairs: Vec<(String, String)> = (0..rng.random_range(0..5))
                .map(|i| {
                    let value =
                        (0..rng.random_range(0..5)).map(|_| PIECES[rng.random_range(0..PIECES.len())]).collect();
                    (format!("n{}.{i}", rng.random_range(0..9)), value)
                })
                .collect();
            let quoted = |text: &str| text.replace('\\', r"\\").replace('"', "\\\"").replace('\n', r"\n");
            let texts: Vec<String> = pairs.iter().map(|(n, v)| format!("{n} = \"{}\"", quoted(v))).collect();
            let text = format!(" {{ {} }}", texts.join(" , "));
            let found = parse(&text).unwrap_or_else(|| panic!("{text}"));
            let found: Vec<(String, String)> = found.into_iter().map(|(n, v)| (n.to_owned(), v)).collect();
            assert_eq!(found, pairs, "{text}");
            let mut out = vec![9];
            canonical(found, &mut out);
            let expected = LabelSet::from_pairs(pairs.iter().map(|(n, v)| (n.as_str(), v.as_str())));
            assert_eq!(out, expected.canonical(), "{text}");
        }
    }
}
