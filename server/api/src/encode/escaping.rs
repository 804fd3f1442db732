//! Escapes names for readers that do not support all of UTF-8 in names.
//!
//! Source: `prometheus/common` 0.7x, `model/metric.go` (`EscapeName`, `EscapeMetricFamily`): plain names are not
//! changed.

use std::borrow::Cow;
use std::fmt::Write as _;

/// How characters are escaped that plain names cannot have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum EscapingScheme {
    /// Names are written as they are.
    AllowUtf8,
    /// Each becomes `_`.
    #[default]
    Underscores,
    /// A dot becomes `_dot_`, all others and `_` become `__`.
    Dots,
    /// A dot becomes `_2e_`, and so on; `_` becomes `__`, and the name is prefixed by `U__`.
    Values,
}

/// Whose name it is: only metrics may have colons.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NameOf {
    Metric,
    Label,
}

impl EscapingScheme {
    /// Parses the value in a content type.
    pub(crate) fn of(word: &str) -> Option<Self> {
        [Self::AllowUtf8, Self::Underscores, Self::Dots, Self::Values].into_iter().find(|e| e.as_str() == word)
    }

    /// The value in a content type.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::AllowUtf8 => "allow-utf-8",
            Self::Underscores => "underscores",
            Self::Dots => "dots",
            Self::Values => "values",
        }
    }

    /// Escapes a name.
    pub(crate) fn name(self, name: &str, of: NameOf) -> Cow<'_, str> {
        if self == Self::AllowUtf8 || is_plain(name, of) {
            return Cow::Borrowed(name);
        }
        let mut out = String::with_capacity(2 * name.len());
        if self == Self::Values {
            out.push_str("U__");
        }
        for (at, c) in name.chars().enumerate() {
            match self {
                Self::Dots | Self::Values if c == '_' => out.push_str("__"),
                _ if fits(at, c, of) => out.push(c),
                Self::Dots if c == '.' => out.push_str("_dot_"),
                Self::Dots => out.push_str("__"),
                Self::Values => {
                    let _ = write!(out, "_{:x}_", u32::from(c));
                }
                Self::Underscores | Self::AllowUtf8 => out.push('_'),
            }
        }
        Cow::Owned(out)
    }
}

/// Whether a name needs no quotes.
pub(crate) fn is_plain(name: &str, of: NameOf) -> bool {
    !name.is_empty() && name.chars().enumerate().all(|(at, c)| fits(at, c, of))
}

fn fits(at: usize, c: char, of: NameOf) -> bool {
    c.is_ascii_alphabetic() || c == '_' || (of == NameOf::Metric && c == ':') || (at > 0 && c.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        let check = |name: &str, of: NameOf, expected: [&str; 4]| {
            let escapings =
                [EscapingScheme::AllowUtf8, EscapingScheme::Underscores, EscapingScheme::Dots, EscapingScheme::Values];
            assert_eq!(escapings.map(|e| e.name(name, of)), expected, "{name}");
        };
        check("a_b:c1", NameOf::Metric, ["a_b:c1"; 4]);
        check("my.na_me", NameOf::Metric, ["my.na_me", "my_na_me", "my_dot_na__me", "U__my_2e_na__me"]);
        check("1st é", NameOf::Label, ["1st é", "_st__", "__st____", "U___31_st_20__e9_"]);
        check("a:b", NameOf::Label, ["a:b", "a_b", "a__b", "U__a_3a_b"]);
        assert_eq!(EscapingScheme::of("dots"), Some(EscapingScheme::Dots));
        assert_eq!(EscapingScheme::of("none"), None);
    }

    /// Every escaped name is plain, and plain names are not changed.
    #[test]
    fn escaped_names_are_plain() {
        let letters = ['a', 'Z', '_', ':', '.', '0', '9', ' ', '-', 'é', '\u{1f600}', '\n', '"', '\0'];
        let mut state = 7_u64;
        let mut next = |below: usize| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as usize % below
        };
        for _ in 0..500 {
            let name: String = (0..=next(6)).map(|_| letters[next(letters.len())]).collect();
            for of in [NameOf::Label, NameOf::Metric] {
                for escaping in [EscapingScheme::Underscores, EscapingScheme::Dots, EscapingScheme::Values] {
                    let escaped = escaping.name(&name, of);
                    // A leading digit is escaped as well, so each result is plain.
                    assert!(is_plain(&escaped, of), "{name:?} {escaping:?} {escaped}");
                    assert!(!is_plain(&name, of) || escaped == name.as_str(), "{name:?} {escaping:?} {escaped}");
                    assert_eq!(escaping.name(&escaped, of), escaped, "what is plain is not escaped again");
                }
                assert_eq!(EscapingScheme::AllowUtf8.name(&name, of), name);
            }
        }
    }

    #[test]
    fn names_that_may_stand_without_quotes() {
        for (name, of_metric, of_label) in [
            ("", false, false),
            ("a", true, true),
            ("_", true, true),
            ("_1", true, true),
            ("1", false, false),
            ("a1", true, true),
            (":", true, false),
            ("a:b", true, false),
            ("a-b", false, false),
            ("a b", false, false),
            ("ä", false, false),
            ("aä", false, false),
            ("a٣", false, false),
        ] {
            assert_eq!(
                (is_plain(name, NameOf::Metric), is_plain(name, NameOf::Label)),
                (of_metric, of_label),
                "{name}"
            );
        }
        for escaping in
            [EscapingScheme::AllowUtf8, EscapingScheme::Underscores, EscapingScheme::Dots, EscapingScheme::Values]
        {
            assert_eq!(EscapingScheme::of(escaping.as_str()), Some(escaping));
            assert_eq!(EscapingScheme::of(&escaping.as_str().to_uppercase()), None);
        }
        assert_eq!(EscapingScheme::of(""), None);
    }
}
