//! The replacement templates of `label_replace`, with the syntax of Go's `regexp.Expand`.

use quiver_types::matcher::Places;
use regex::Regex;

/// A template, resolved for the groups of a pattern.
#[derive(Debug)]
pub(crate) struct Template<'a>(Vec<Piece<'a>>);

#[derive(Debug, Clone, Copy)]
enum Piece<'a> {
    Text(&'a str),
    Group(usize),
}

impl<'a> Template<'a> {
    /// Parses a template. `$1x` refers to the group named `1x`; unknown groups expand to the empty string, and a `$`
    /// that starts no reference is literal.
    pub(crate) fn new(text: &'a str, regex: &Regex) -> Self {
        let (mut pieces, mut rest) = (Vec::new(), text);
        while let Some(at) = rest.find('$') {
            pieces.push(Piece::Text(&rest[..at]));
            let dollar = &rest[at..=at];
            rest = &rest[at + 1..];
            if let Some(after) = rest.strip_prefix('$') {
                pieces.push(Piece::Text(dollar));
                rest = after;
            } else if let Some((name, after)) = reference(rest) {
                pieces.extend(group(name, regex).map(Piece::Group));
                rest = after;
            } else {
                pieces.push(Piece::Text(dollar));
            }
        }
        pieces.push(Piece::Text(rest));
        pieces.retain(|piece| !matches!(piece, Piece::Text("")));
        Self(pieces)
    }

    /// The pieces of the expansion for a match in a value.
    fn parts<'t>(&'t self, value: &'t str, places: &'t Places) -> impl Iterator<Item = &'t str> {
        self.0.iter().map(move |piece| match piece {
            Piece::Text(text) => text,
            Piece::Group(group) => places.get(*group).map_or("", |(from, to)| &value[from..to]),
        })
    }

    /// Number of literals and groups.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Length of the expansion for a match.
    pub(crate) fn size(&self, value: &str, places: &Places) -> usize {
        self.parts(value, places).map(str::len).fold(0, usize::saturating_add)
    }

    /// Appends the expansion for a match.
    pub(crate) fn expand(&self, value: &str, places: &Places, out: &mut String) {
        self.parts(value, places).for_each(|part| out.push_str(part));
    }
}

/// Splits the name of a group from the text after a `$`: `name` or `{name}`.
fn reference(text: &str) -> Option<(&str, &str)> {
    let word = |s: &str| s.find(|c: char| !(c == '_' || c.is_alphanumeric())).unwrap_or(s.len());
    let (name, after) = match text.strip_prefix('{') {
        Some(inner) => {
            let (name, after) = inner.split_at(word(inner));
            (name, after.strip_prefix('}')?)
        }
        None => text.split_at(word(text)),
    };
    (!name.is_empty()).then_some((name, after))
}

/// The index of a group, by number or name.
fn group(name: &str, regex: &Regex) -> Option<usize> {
    if name == "0" || (name.bytes().all(|b| b.is_ascii_digit()) && !name.starts_with('0')) {
        return name.parse().ok().filter(|&group: &usize| group < regex.captures_len());
    }
    regex.capture_names().position(|known| known == Some(name))
}

#[cfg(test)]
mod tests {
    use quiver_types::matcher::WatchedRegex;

    use super::*;

    #[test]
    fn templates() {
        let check = |text: &str, expected: &str| {
            let regex = WatchedRegex::new(Regex::new("^(?s:(a)(?P<name>b)(c)?)$").unwrap());
            let mut places = regex.group_places();
            assert!(regex.find("ab", 0, &mut places));
            let (template, mut out) = (Template::new(text, regex.regex()), String::new());
            template.expand("ab", &places, &mut out);
            assert_eq!((out.as_str(), template.size("ab", &places)), (expected, expected.len()), "{text}");
        };
        check("$1-$name", "a-b");
        check("${1}x$$", "ax$");
        check("$1x", "");
        check("x", "x");
        check("$0$3$4$01$9999999999999999999999", "ab");
        check("${", "${");
        check("${}$-$", "${}$-$");
        check("$é${name}ü", "bü");
    }
}
