//! Path patterns: `*` is a segment or a part of one, `**` is anything, `{name}` is a named segment.

use memchr::memchr;

use super::{Captures, Case};
use crate::matcher::{WatchedRegex, builder};

/// Maximum length of a pattern in bytes.
const BYTES_MAX: usize = 1024;

/// A compiled pattern.
#[derive(Debug, Clone)]
pub struct Glob {
    /// The pattern as written.
    text: String,
    case: Case,
    regex: WatchedRegex,
    names: Vec<String>,
    /// Common prefix of all matching texts; empty if the pattern ignores case.
    prefix: String,
}

impl Glob {
    /// Compiles a pattern.
    ///
    /// # Errors
    /// Describes what is wrong with it.
    pub fn parse(text: &str, case: Case) -> Result<Self, String> {
        if text.is_empty() || text.len() > BYTES_MAX {
            return Err(format!("must have 1 to {BYTES_MAX} bytes"));
        }
        let prefix = text.split(['*', '{', '}']).next().filter(|_| !case.is_ignored()).unwrap_or_default().to_owned();
        // The flags are part of the pattern's text, so that whoever gets only the text knows that case is ignored.
        let (mut pattern, mut names) = (String::from(if case.is_ignored() { "(?is)^" } else { "(?s)^" }), Vec::new());
        let (mut rest, mut at_start) = (text, true);
        while let Some(c) = rest.chars().next() {
            rest = &rest[c.len_utf8()..];
            match c {
                '*' if rest.starts_with('*') => {
                    rest = &rest[1..];
                    pattern.push_str(".*");
                }
                // A star that makes up a whole segment matches only non-empty segments.
                '*' if at_start && (rest.is_empty() || rest.starts_with('/')) => pattern.push_str("[^/]+"),
                '*' => pattern.push_str("[^/]*"),
                '{' => {
                    let (name, behind) = rest.split_once('}').ok_or("`{` is not closed")?;
                    let plain = !name.is_empty() && name.chars().all(|c| c.is_alphanumeric() || "_.-".contains(c));
                    if !plain {
                        return Err(format!("`{{{name}}}` must be a name of letters, digits, `_`, `.` or `-`"));
                    }
                    if names.iter().any(|known| known == name) {
                        return Err(format!("`{{{name}}}` is given more than once"));
                    }
                    names.push(name.to_owned());
                    pattern.push_str("([^/]+)");
                    rest = behind;
                }
                '}' => return Err("`}` closes nothing".to_owned()),
                c => pattern.push_str(&regex::escape(c.encode_utf8(&mut [0; 4]))),
            }
            at_start = c == '/';
        }
        pattern.push('$');
        let regex = builder(&pattern).build().map_err(|_| "is too large when it is compiled")?;
        Ok(Self { text: text.to_owned(), case, regex: WatchedRegex::new(regex), names, prefix })
    }

    /// Tells whether a whole text matches.
    pub fn matches(&self, text: &str) -> bool {
        text.starts_with(&self.prefix) && self.regex.is_match(text)
    }

    /// The pattern as written.
    pub(super) fn text(&self) -> &str {
        &self.text
    }

    /// How it compares letters.
    pub(super) fn case(&self) -> Case {
        self.case
    }

    /// Names of segments.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.names.iter().map(String::as_str)
    }

    /// The pattern as a regular expression, anchored at both ends.
    pub fn regex(&self) -> &WatchedRegex {
        &self.regex
    }

    /// Like [`Self::matches`]; also adds the content of named segments.
    pub fn captures(&self, text: &str, into: &mut Captures) -> bool {
        if self.names.is_empty() || !text.starts_with(&self.prefix) {
            return self.matches(text);
        }
        let mut places = self.regex.group_places();
        if !self.regex.find(text, 0, &mut places) {
            return false;
        }
        for (n, name) in self.names.iter().enumerate() {
            into.push((name.clone(), places.get(n + 1).map_or("", |(from, to)| &text[from..to]).to_owned()));
        }
        true
    }
}

/// Tells whether a service matches a name or a pattern in which `*` stands for anything, including slashes.
pub fn glob_of_services(pattern: &str, service: &str) -> bool {
    // Most rules are for one service, and every rule is tested with each service of each batch, so this must be fast.
    let Some(star) = memchr(b'*', pattern.as_bytes()) else { return pattern == service };
    let Some(mut rest) = service.strip_prefix(&pattern[..star]) else { return false };
    let mut parts = pattern[star + 1..].split('*').peekable();
    while let Some(part) = parts.next() {
        if parts.peek().is_none() {
            return rest.ends_with(part);
        }
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns() {
        let check = |pattern: &str, text: &str, expected: bool| {
            assert_eq!(Glob::parse(pattern, Case::Sensitive).unwrap().matches(text), expected, "{pattern} {text}");
        };
        check("/cart/*", "/cart/1", true);
        check("/cart/*", "/cart/", false);
        check("/cart/*", "/cart/1/2", false);
        check("/cart/**", "/cart/1/2", true);
        check("/cart*", "/cart", true);
        check("a.c", "abc", false);
        check("/{a}/x", "/b/x", true);
        check("/{a}/x", "//x", false);
        check("GET *", "GET /", false);
        check("GET **", "GET /", true);
        assert!(Glob::parse("/Cart", Case::Insensitive).unwrap().matches("/cART"));
        for wrong in ["", "{", "{}", "}", "{a}/{a}", "{a b}"] {
            assert!(Glob::parse(wrong, Case::Sensitive).is_err(), "{wrong}");
        }
    }

    #[test]
    fn services() {
        let check = |pattern: &str, service: &str, expected: bool| {
            assert_eq!(glob_of_services(pattern, service), expected, "{pattern} {service}");
        };
        check("*", "a/b", true);
        check("*", "", true);
        check("cart", "cart", true);
        check("cart", "cart2", false);
        check("cart*", "cart-db", true);
        check("*-db", "cart-db", true);
        check("c*-*b", "cart-db", true);
        check("c*x*b", "cart-db", false);
        check("a*a", "a", false);
    }

    /// What a pattern of stars means, letter by letter.
    fn fits(pattern: &[u8], at_start: bool, text: &[u8]) -> bool {
        match pattern {
            [] => text.is_empty(),
            [b'*', b'*', rest @ ..] => (0..=text.len()).any(|n| fits(rest, false, &text[n..])),
            [b'*', rest @ ..] => {
                let least = usize::from(at_start && rest.first().is_none_or(|next| *next == b'/'));
                let segment = text.iter().take_while(|c| **c != b'/').count();
                (least..=segment).any(|n| fits(rest, false, &text[n..]))
            }
            [c, rest @ ..] => text.first() == Some(c) && fits(rest, *c == b'/', &text[1..]),
        }
    }

    #[test]
    fn stars_as_they_are_meant() {
        let mut random = 11_u64;
        let mut next = |below: usize| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (random >> 33) as usize % below
        };
        for _ in 0..150 {
            let pattern: String = (0..=next(6)).map(|_| ["a", "/", "*", "**", ".", "b"][next(6)]).collect();
            let glob = Glob::parse(&pattern, Case::Sensitive).expect("a pattern");
            for _ in 0..30 {
                let text: String = (0..next(7)).map(|_| ["a", "/", "b", ".", "\n"][next(5)]).collect();
                assert_eq!(glob.matches(&text), fits(pattern.as_bytes(), true, text.as_bytes()), "{pattern} {text:?}");
            }
        }
    }

    #[test]
    fn segments_with_names() {
        let captured = |pattern: &str, text: &str| {
            let mut into = Captures::new();
            let glob = Glob::parse(pattern, Case::Sensitive).expect("a pattern");
            let holds = glob.captures(text, &mut into);
            assert_eq!(holds, glob.matches(text), "{pattern} {text}");
            holds.then(|| into.into_iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(" "))
        };
        assert_eq!(captured("/{area}/{id}/**", "/cart/42/items/7").as_deref(), Some("area=cart id=42"));
        assert_eq!(captured("/v{n}-{m}", "/v1-2-3").as_deref(), Some("n=1-2 m=3"), "as much as there is");
        assert_eq!(captured("{é.x-_}", "日本").as_deref(), Some("é.x-_=日本"));
        assert_eq!(captured("/cart/*", "/cart/1").as_deref(), Some(""));
        assert_eq!(captured("/{area}/x", "/cart/y"), None);
        assert_eq!(captured("/a/{x}", "/b/1"), None, "the beginning tells");
        for (wrong, why) in [
            ("", "must have 1 to 1024 bytes"),
            ("{a", "`{` is not closed"),
            ("a}", "`}` closes nothing"),
            ("{a}{a}", "`{a}` is given more than once"),
            ("{a/b}", "`{a/b}` must be a name of letters, digits, `_`, `.` or `-`"),
        ] {
            assert_eq!(Glob::parse(wrong, Case::Sensitive).err().as_deref(), Some(why), "{wrong}");
        }
        assert!(
            Glob::parse(&"a".repeat(BYTES_MAX), Case::Sensitive).is_ok()
                && Glob::parse(&"a".repeat(BYTES_MAX + 1), Case::Sensitive).is_err()
        );
    }

    #[test]
    fn stars_of_services_stand_for_anything() {
        for (pattern, service, expected) in [
            ("", "", true),
            ("", "a", false),
            ("a**b", "ab", true),
            ("*a*", "banana", true),
            ("*a*", "bnn", false),
            ("a*b*a", "aba", true),
            ("a*b*a", "ab", false),
            ("é*é", "éxé", true),
            ("*ab", "aab", true),
            ("ab*ab", "ab", false),
            ("*.*", "a.b/c", true),
        ] {
            assert_eq!(glob_of_services(pattern, service), expected, "{pattern} {service}");
        }
    }
}
