//! Go's regular expressions (RE2), on the `regex` crate.
//!
//! The syntaxes differ only in details. In Go, `\d \w \s \b \B` are ASCII, `\Q..\E` quotes, `\101` is octal, `\<` is a
//! plain character, and so is a brace that begins no repetition; within a class `[`, `&` and `~` stand for themselves;
//! and a repetition cannot be repeated. Patterns are rewritten so that the crate reads them as RE2 would.

use std::fmt::Write as _;

/// Rewrites an expression for the crate.
///
/// # Errors
/// The reason why RE2 would refuse what the crate would take.
pub fn translate(pattern: &str) -> Result<String, String> {
    let mut out = String::with_capacity(pattern.len() + 8);
    let mut rest = pattern;
    let mut in_class = false;
    // Whether a character of the class has been read: `]` right at its beginning means itself.
    let mut class_begun = false;
    let mut repeated = RepetitionState::No;
    while let Some(c) = rest.chars().next() {
        let tail = &rest[c.len_utf8()..];
        if !in_class {
            repeated = repeated.then(c, tail)?;
        }
        rest = match c {
            '\\' => {
                class_begun = true;
                escape(&mut out, tail, in_class)?
            }
            _ if in_class => {
                let was_begun = std::mem::replace(&mut class_begun, true);
                in_class_char(&mut out, c, rest, was_begun, &mut in_class)
            }
            '[' => {
                in_class = true;
                class_begun = false;
                out.push('[');
                match tail.strip_prefix('^') {
                    Some(after) => {
                        out.push('^');
                        after
                    }
                    None => tail,
                }
            }
            '(' => {
                check_flags(tail)?;
                out.push('(');
                tail
            }
            '{' if !is_repetition(tail) => {
                out.push_str("\\{");
                tail
            }
            '{' => {
                let end = tail.find('}').map_or(0, |end| end + 1);
                out.push('{');
                out.push_str(&tail[..end]);
                &tail[end..]
            }
            _ => {
                out.push(c);
                tail
            }
        };
    }
    Ok(out)
}

/// Whether a repetition was just read: a second one is refused, but for the `?` that makes the first lazy.
#[derive(Clone, Copy)]
enum RepetitionState {
    No,
    Once,
    Lazily,
}

impl RepetitionState {
    fn then(self, c: char, tail: &str) -> Result<Self, String> {
        let counted = c == '{' && is_repetition(tail);
        if counted {
            let bounds = &tail[..tail.find('}').unwrap_or(0)];
            if bounds.split(',').any(|n| n.parse::<u32>().is_ok_and(|n| n > 1000)) {
                return Err(format!("a repetition of more than 1000 times: `{{{bounds}}}`"));
            }
        }
        match (self, c) {
            (Self::Once, '?') => Ok(Self::Lazily),
            (Self::No, '*' | '+' | '?') => Ok(Self::Once),
            (_, '*' | '+' | '?') => Err(format!("a repetition after a repetition: `{c}`")),
            (Self::No, _) if counted => Ok(Self::Once),
            _ if counted => Err("a repetition after a repetition: `{`".to_owned()),
            _ => Ok(Self::No),
        }
    }
}

/// One character of a class that is no escape.
fn in_class_char<'a>(out: &mut String, c: char, rest: &'a str, begun: bool, in_class: &mut bool) -> &'a str {
    let tail = &rest[c.len_utf8()..];
    match c {
        ']' if begun => {
            *in_class = false;
            out.push(']');
        }
        '[' if tail.starts_with(':') => {
            if let Some(end) = tail.find(":]") {
                out.push_str(&rest[..end + 3]);
                return &rest[end + 3..];
            }
            out.push_str("\\[");
        }
        '[' | ']' | '&' | '~' => {
            out.push('\\');
            out.push(c);
        }
        // Only one in a row can stand for a range; two would be a difference of classes for the crate.
        '-' if tail.starts_with('-') => out.push_str("\\-"),
        _ => out.push(c),
    }
    tail
}

/// What follows a backslash.
fn escape<'a>(out: &mut String, tail: &'a str, in_class: bool) -> Result<&'a str, String> {
    let Some(c) = tail.chars().next() else { return Err("a backslash at the end of the expression".into()) };
    let after = &tail[c.len_utf8()..];
    let class = |out: &mut String, inner: &str, negated: bool| match (in_class, negated) {
        (true, false) => out.push_str(inner),
        (_, true) => {
            let _ = write!(out, "[^{inner}]");
        }
        (false, false) => {
            let _ = write!(out, "[{inner}]");
        }
    };
    match c {
        'Q' => {
            let end = after.find("\\E").unwrap_or(after.len());
            out.push_str(&regex_syntax::escape(&after[..end]));
            return Ok(after[end..].strip_prefix("\\E").unwrap_or(""));
        }
        'p' | 'P' | 'x' if after.starts_with('{') => return Ok(braced(out, c, after)),
        'd' | 'D' => class(out, "0-9", c == 'D'),
        'w' | 'W' => class(out, "0-9A-Za-z_", c == 'W'),
        's' | 'S' => class(out, "\\t\\n\\f\\r\\x20", c == 'S'),
        'b' | 'B' if !in_class => {
            let _ = write!(out, "(?-u:\\{c})");
        }
        '0'..='9' => {
            let (code, after) = octal(tail).ok_or_else(|| format!("unknown escape `\\{c}` in the expression"))?;
            let _ = write!(out, "\\x{{{code:x}}}");
            return Ok(after);
        }
        'C' | 'E' | 'R' | 'X' | 'Z' | 'G' | 'K' | 'k' | 'h' | 'H' | 'N' | 'u' | 'U' => {
            return Err(format!("unknown escape `\\{c}` in the expression"));
        }
        _ if c.is_ascii_punctuation() => {
            if regex_syntax::is_meta_character(c) {
                out.push('\\');
            }
            out.push(c);
        }
        _ => {
            out.push('\\');
            out.push(c);
        }
    }
    Ok(after)
}

/// A character by up to three octal digits, and what follows. One digit alone, unless it is zero, would refer back to
/// a group, which there is not.
fn octal(tail: &str) -> Option<(u32, &str)> {
    let digits = tail.bytes().take(3).take_while(|b| matches!(b, b'0'..=b'7')).count();
    if digits == 0 || (digits == 1 && !tail.starts_with('0')) {
        return None;
    }
    let code = u32::from_str_radix(&tail[..digits], 8).ok()?;
    Some((code, &tail[digits..]))
}

/// A class or a character that is named in braces behind the escape; gives what follows.
fn braced<'a>(out: &mut String, letter: char, after: &'a str) -> &'a str {
    let end = after.find('}').map_or(after.len(), |end| end + 1);
    // The crate knows the other letter, not the sign within.
    let (letter, name) = match (letter, after[..end].strip_prefix("{^")) {
        ('p', Some(name)) => ('P', name),
        ('P', Some(name)) => ('p', name),
        _ => (letter, &after[1..end]),
    };
    out.extend(['\\', letter, '{']);
    out.push_str(name);
    &after[end..]
}

/// Refuses flags that only the crate knows.
fn check_flags(after_paren: &str) -> Result<(), String> {
    let Some(flags) = after_paren.strip_prefix('?') else { return Ok(()) };
    let end = flags.find(|c: char| !c.is_ascii_alphabetic() && c != '-').unwrap_or(flags.len());
    if !matches!(flags[end..].chars().next(), Some(':' | ')')) {
        return Ok(());
    }
    match flags[..end].chars().find(|c| !matches!(c, 'i' | 'm' | 's' | 'U' | '-')) {
        Some(flag) => Err(format!("unknown flag `{flag}` in the expression")),
        None => Ok(()),
    }
}

/// Whether `{` before this text begins a repetition.
fn is_repetition(tail: &str) -> bool {
    let Some(end) = tail.find('}') else { return false };
    let (least, most) = match tail[..end].split_once(',') {
        Some((least, most)) => (least, most),
        None => (&tail[..end], ""),
    };
    let digits = |s: &str| s.bytes().all(|b| b.is_ascii_digit());
    !least.is_empty() && digits(least) && digits(most)
}

#[cfg(test)]
mod tests {
    use crate::matcher::compile;

    #[test]
    fn patterns_are_read_as_go_reads_them() {
        let check = |pattern: &str, value: &str, expected: bool| {
            let regex = compile(pattern).unwrap_or_else(|e| panic!("{e}"));
            assert_eq!(regex.is_match(value), expected, "{pattern} on {value}");
        };
        check(r"\Qa.b\E+", "a.bbb", true);
        check(r"\Qa.b\E", "axb", false);
        check(r"\d+", "\u{661}", false);
        check(r"[a&&b]+", "a&b", true);
        check(r"[[:alpha:]]+", "abc", true);
        check(r"a{b", "a{b", true);
        check(r"\p{Greek}+\x{41}*", "\u{3b1}\u{3b2}A", true);
        check(r"\p{^Greek}[\P{^L}]", "a\u{3b1}", true);
        check(r"\p{^Greek}", "\u{3b1}", false);
        check(r"(?i)ERR.*", "err\nor", true);
        check(r"(?P<n>x)(?<m>y)", "xy", true);
        for bad in ["a**", "a{1001}", "(?x)a", r"\C", "[z-a]", "(", ")", "a)|(b", r"\"] {
            assert!(compile(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn signs_within_classes() {
        let check = |pattern: &str, yes: &[&str], no: &[&str]| {
            let regex = compile(pattern).unwrap_or_else(|e| panic!("{pattern}: {e}"));
            assert!(yes.iter().all(|text| regex.is_match(text)), "{pattern} {yes:?}");
            assert!(!no.iter().any(|text| regex.is_match(text)), "{pattern} {no:?}");
        };
        check("[]a]", &["]", "a"], &["[", ""]);
        check("[^]a]", &["b", "["], &["]", "a"]);
        check("[[a]", &["[", "a"], &["]"]);
        check("[a~~b]", &["a", "~", "b"], &["c"]);
        check(r"[\d\-x]", &["7", "-", "x"], &["\\", "d"]);
        check(r"[\D]", &["x", "\u{661}"], &["7"]);
        check(r"[\w.]+", &["a_9."], &["é", "-"]);
        check("[[:^alpha:]]", &["1", "é"], &["a"]);
        check(r"[\]]", &["]"], &["a"]);
        check("[a-c-]", &["b", "-"], &["d"]);
    }

    #[test]
    fn braces_and_escapes_outside_of_them() {
        let check = |pattern: &str, yes: &[&str], no: &[&str]| {
            let regex = compile(pattern).unwrap_or_else(|e| panic!("{pattern}: {e}"));
            assert!(yes.iter().all(|text| regex.is_match(text)), "{pattern} {yes:?}");
            assert!(!no.iter().any(|text| regex.is_match(text)), "{pattern} {no:?}");
        };
        check("a{2}", &["aa"], &["a", "aaa"]);
        check("a{2,}", &["aa", "aaaa"], &["a"]);
        check("a{1,2}?b", &["ab", "aab"], &["b"]);
        check("a{,2}", &["a{,2}"], &["a", "aa"]);
        check("a{x}", &["a{x}"], &["ax"]);
        check("{", &["{"], &[""]);
        check("a}", &["a}"], &["a"]);
        check(r"\s\S", &[" x", "\tx", "\u{c}x"], &["\u{b}x", "\u{a0}x"]);
        check(r"\w+", &["a_9"], &["é"]);
        check(r"\bab\b.*", &["ab", "ab é"], &["abc"]);
        check(r".\B", &["é", "ẞ", "-"], &["a", "_"]);
        check(r"a\B.*", &["ab", "a_é"], &["a", "aé", "a-"]);
        check(r"\101\60\0", &["A0\0"], &["1010"]);
        check(r"[\101-\103]\1012", &["BA2"], &["D102", "\\12"]);
        check(r"\351", &["é"], &["ë"]);
        check(r"\<a\>\-\#", &["<a>-#"], &["a-#"]);
        check(r"\Qa.b", &["a.b"], &["axb"]);
        check(r"\Q*\E\Q+\E", &["*+"], &["*"]);
        check(r"\x41\x{1F642}", &["A🙂"], &["A"]);
        check("(?s:a.b)|(?-s:c.d)", &["a\nb", "cxd"], &["c\nd"]);
        check("(?U)a+", &["a", "aa"], &[""]);
    }

    #[test]
    fn what_go_refuses() {
        for (pattern, why) in [
            ("a{2}{3}", "a repetition after a repetition"),
            ("a+*", "a repetition after a repetition"),
            ("a??*", "a repetition after a repetition"),
            ("a{1001}", "a repetition of more than 1000 times"),
            ("a{1,1001}", "a repetition of more than 1000 times"),
            ("(?x)a", "unknown flag `x`"),
            ("(?u:a)", "unknown flag `u`"),
            (r"\Za", "unknown escape `\\Z`"),
            (r"\h", "unknown escape `\\h`"),
            (r"(a)\1", "unknown escape `\\1`"),
            (r"\18", "unknown escape `\\1`"),
            (r"\80", "unknown escape `\\8`"),
            ("a\\", "a backslash at the end"),
        ] {
            let told = compile(pattern).expect_err(pattern).to_string();
            assert!(told.contains(why), "{pattern}: {told}");
        }
        assert!(compile("a{1000}").is_ok() && compile("a+?").is_ok() && compile("a{2}?").is_ok());
    }
}
