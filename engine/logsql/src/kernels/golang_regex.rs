//! RE2 expressions, as the language takes them, on the `regex` crate.

use quiver_types::matcher::{affordable, builder, reason, translate};
use regex::Regex;

/// Longest expression, in bytes: reading one takes some thousand times its size.
const PATTERN_BYTES_MAX: usize = 16 << 10;

/// Compiles an expression. `.` matches line breaks, too, unless the expression says otherwise (`(?-s)`): what is looked
/// for in a message may stand in any of its lines.
///
/// # Errors
/// The reason why it is none, or that it is too large.
pub fn compile(pattern: &str) -> Result<Regex, String> {
    if pattern.len() > PATTERN_BYTES_MAX {
        return Err(format!("the regular expression has {} bytes, more than {PATTERN_BYTES_MAX}", pattern.len()));
    }
    // As part of its text: whoever else reads the expression has nothing but that.
    let text = format!("(?s){}", translate(pattern)?);
    affordable(&text).map_err(|e| e.message)?;
    builder(&text).build().map_err(|e| match e {
        regex::Error::CompiledTooBig(_) => format!("the regular expression `{pattern}` is too large"),
        _ => format!("invalid regular expression `{pattern}`: {}", reason(&e.to_string())),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_as_re2() {
        let check = |pattern: &str, value: &str, want: bool| {
            let regex = compile(pattern).unwrap_or_else(|e| panic!("{e}"));
            assert_eq!(regex.is_match(value), want, "{pattern} on {value}");
        };
        check(r"^\d+$", "123", true);
        check(r"^\d+$", "١٢", false);
        check(r"^\w+$", "aб", false);
        check(r"^[\w-]+$", "a-b", true);
        check(r"^[^\d]$", "x", true);
        check(r"^[\D]$", "x", true);
        check(r"a{b", "a{b", true);
        check(r"{", "{", true);
        check(r"a{2}", "aa", true);
        check(r"^a{1,2}?b*?c+?$", "aac", true);
        check(r"^[a*+]+$", "a*+", true);
        check(r"^\Qa.b\E.$", "a.bc", true);
        check(r"^[[a]$", "[", true);
        check(r"^[]a]+$", "]a", true);
        check(r"^[a&&b]+$", "a&b", true);
        check(r"^[[:alpha:]]+$", "abc", true);
        check(r"\<b\>", "<b>", true);
        check(r"a.b", "a\nb", true);
        check(r"(?i)A.*C", "a\nb\nc", true);
        check(r"^a.+b$", "a\n\nb", true);
        check(r"(?-s)a.b", "a\nb", false);
        check(r"a(?-s:.)b", "a\nb", false);
        check(r"^b", "a\nb", false);
        check(r"(?m)^b", "a\nb", true);
        check(r"(?i)ERR", "err", true);
        check(r"\bfoo\b", "a foo b", true);
        check(r"\/x\-y", "/x-y", true);
        check(r"\pL+", "б", true);
        check(r"^\x41\101$", "AA", true);
    }

    #[test]
    fn refuses() {
        for bad in
            ["(", "[", "a**", "a+*", "a{2}*", "a*??", "a{1001}", r"\", "(?x)a", r"\C", "*", "a{3,2}", "[z-a]", "(?=a)"]
        {
            assert!(compile(bad).is_err(), "{bad}");
        }
        assert!(compile(&"a".repeat(PATTERN_BYTES_MAX + 1)).is_err());
        assert!(compile("(foo").unwrap_err().contains("unclosed group"));
    }
}
