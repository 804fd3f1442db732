//! Conditions of a query that is still being typed. Completion asks for names and values under the conditions so far,
//! the last of which often has no value yet and is left out.

use std::ops::Range;

use quiver_types::spans::SpanFilter;

use super::ast::{Query, Spanset};

/// Deepest parentheses that are looked into, and most parts within each.
const DEPTH_MAX: usize = 8;
const PARTS_MAX: usize = 64;

impl Query {
    /// Gives a filter of the spans that a text asks for, as far as each span alone tells it. What is no condition, or
    /// none yet, leaves all spans in, and so does what is more than one set of spans.
    pub fn hint(text: &str) -> SpanFilter {
        match Self::parse(text) {
            Ok(query) if is_one(&query.spans) => query.filter(),
            Ok(_) => SpanFilter::All,
            Err(_) => IncompleteQuery { text, mask: mask(text) }.filter(),
        }
    }
}

fn is_one(spans: &Spanset) -> bool {
    match spans {
        Spanset::Filter(_) => true,
        Spanset::Piped(spans, _) => is_one(spans),
        Spanset::Both(..) => false,
    }
}

/// Gives the bytes of a text, with `_` in place of what stands in quotes.
fn mask(text: &str) -> Vec<u8> {
    let (mut quote, mut is_escaped) = (None, false);
    let masked = |byte: u8| match quote {
        None if matches!(byte, b'"' | b'`') => {
            quote = Some(byte);
            b'_'
        }
        None => byte,
        Some(begun) => {
            if is_escaped {
                is_escaped = false;
            } else if byte == begun {
                quote = None;
            } else {
                is_escaped = byte == b'\\' && begun == b'"';
            }
            b'_'
        }
    };
    text.bytes().map(masked).collect()
}

/// A text that is no query.
struct IncompleteQuery<'t> {
    text: &'t str,
    /// Its bytes, without those in quotes.
    mask: Vec<u8>,
}

impl IncompleteQuery<'_> {
    fn filter(&self) -> SpanFilter {
        let begin = self.mask.iter().position(|b| !b.is_ascii_whitespace()).unwrap_or(0);
        if self.mask.get(begin) != Some(&b'{') {
            return SpanFilter::All;
        }
        let end = self.mask.iter().position(|b| *b == b'}').unwrap_or(self.mask.len());
        let behind = self.text.get(end + 1..).unwrap_or_default().trim_start();
        // Stages behind a set do not matter, other sets do.
        if behind.is_empty() || (behind.starts_with('|') && !behind.starts_with("||")) {
            self.within(&(begin + 1..end), 0)
        } else {
            SpanFilter::All
        }
    }

    /// Joins the conditions of a range that are there.
    fn within(&self, range: &Range<usize>, depth: usize) -> SpanFilter {
        let Some(parts) = self.parts(range) else { return SpanFilter::All };
        parts.iter().map(|part| self.part(part, depth)).fold(SpanFilter::All, SpanFilter::and)
    }

    /// Cuts a range at `&&` outside of parentheses; none where there is `||`, too, or too much.
    fn parts(&self, range: &Range<usize>) -> Option<Vec<Range<usize>>> {
        let (mut parts, mut from, mut level) = (Vec::new(), range.start, 0usize);
        let mut at = range.start;
        while at < range.end {
            match &self.mask[at..range.end] {
                [b'(', ..] => level += 1,
                [b')', ..] => level = level.saturating_sub(1),
                [b'|', b'|', ..] if level == 0 => return None,
                [b'&', b'&', ..] if level == 0 => {
                    parts.push(from..at);
                    at += 1;
                    from = at + 1;
                }
                _ => {}
            }
            at += 1;
        }
        parts.push(from..range.end);
        (parts.len() <= PARTS_MAX).then_some(parts)
    }

    /// Gives the condition that a range is, or those in its parentheses.
    fn part(&self, range: &Range<usize>, depth: usize) -> SpanFilter {
        let text = &self.text[range.start..range.end];
        let begin = range.start + (text.len() - text.trim_start().len());
        let text = text.trim();
        if let Ok(query) = Query::parse(&format!("{{{text}}}")) {
            return query.filter();
        }
        if depth < DEPTH_MAX && text.len() > 1 && text.starts_with('(') && text.ends_with(')') {
            return self.within(&(begin + 1..begin + text.len() - 1), depth + 1);
        }
        SpanFilter::All
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions_that_are_there() {
        let check = |text: &str, expected: &str| assert_eq!(Query::hint(text).to_string(), expected, "{text}");
        check(r#"{ name = "a" && status = error }"#, r#"(name = "a" and status = 2)"#);
        check(r#"{ name = "a" && .x = }"#, r#"name = "a""#);
        check(r#"{ name = "a" && .x = "#, r#"name = "a""#);
        check(r#"{ name = "a" && span."#, r#"name = "a""#);
        check(r#"{ name = "a && "#, "all");
        check(r#"{ name = "} && (" && .x = } | select(.c)"#, r#"name = "} && (""#);
        check(r#"{ (name = "a" && .b = ) && status = error"#, r#"(name = "a" and status = 2)"#);
        check(r"{ (.a = && .b = ) && name = `a` }", r#"name = "a""#);
        check(r#"{ name = "a" || .b = }"#, "all");
        check(r#"{ name = "a" } >> { name = "b" }"#, "all");
        check(r#"{ name = "a" && .b = } >> { name = "b" }"#, "all");
        check(r"{ status = 5 && kind = server }", "kind in [2]");
        for all in ["", "{}", "{", "name", "{} | rate()", "}", "{ ö && ", "{ ()()) "] {
            check(all, "all");
        }
        check(&format!("{{ {}", "(".repeat(10_000)), "all");
    }
}
