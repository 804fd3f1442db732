//! Paths that a Rust file names, found in its tokens: in `use` declarations and in code. Code for tests does not
//! count.

use std::collections::BTreeSet;

/// A path by segments: `crate::logs::Filter`.
pub(crate) type Path = Vec<String>;

/// A name imported by `use`.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Use {
    pub(crate) path: Path,
    /// Its name in the file; `None` for a glob import, or for an import into an inline module.
    pub(crate) name: Option<String>,
    /// Whether it is re-exported.
    pub(crate) is_handed_on: bool,
}

/// The names in a file.
#[derive(Debug, Default)]
pub(crate) struct Named {
    pub(crate) uses: Vec<Use>,
    /// Paths in its code.
    pub(crate) paths: BTreeSet<Path>,
    /// Its submodules in files of their own.
    pub(crate) modules: BTreeSet<String>,
}

impl Named {
    /// Finds the names in the text of a file.
    pub(crate) fn of(text: &str) -> Self {
        let words = without_tests(&words(text));
        let (mut named, mut at) = (Self::default(), 0);
        // The depth of braces, and where inline modules began.
        let (mut depth, mut inner) = (0_usize, Vec::new());
        while let Some(word) = words.get(at) {
            let second = words.get(at + 2).copied().unwrap_or_default();
            at += match *word {
                "{" => {
                    depth += 1;
                    1
                }
                "}" => {
                    depth = depth.saturating_sub(1);
                    if inner.last() == Some(&depth) {
                        inner.pop();
                    }
                    1
                }
                // Its brace is the next token.
                "mod" if second == "{" => {
                    inner.push(depth);
                    2
                }
                "mod" if second == ";" => {
                    named.modules.insert(words[at + 1].to_owned());
                    3
                }
                // `use<'a>` lists the lifetimes that a type captures.
                "use" if words.get(at + 1) != Some(&"<") => {
                    let is_handed_on = at > 0 && matches!(words[at - 1], "pub" | ")");
                    let length = tree(&words[at + 1..], &[], &mut |path, name| {
                        let (path, name) = (seen(path, !inner.is_empty()), name.filter(|_| inner.is_empty()));
                        named.uses.push(Use { path, name, is_handed_on });
                    });
                    1 + length
                }
                word if is_name(word) => {
                    let path = path_at(&words[at..]);
                    let length = 2 * path.len() - 1;
                    if path.len() > 1 {
                        named.paths.insert(seen(path, !inner.is_empty()));
                    }
                    length
                }
                _ => 1,
            };
        }
        named
    }
}

/// A path relative to the file: `super` in an inline module is the file itself.
fn seen(mut path: Path, is_inner: bool) -> Path {
    if is_inner && path[0] == "super" {
        "self".clone_into(&mut path[0]);
    }
    path
}

/// Parses a tree of `use` after a prefix: `take` gets each path and the imported name. Returns the number of tokens.
fn tree(words: &[&str], prefix: &[String], take: &mut dyn FnMut(Path, Option<String>)) -> usize {
    let (mut path, mut name, mut at) = (prefix.to_vec(), None, 0);
    loop {
        match words[at] {
            "{" => {
                at += 1;
                while words[at] != "}" {
                    at += tree(&words[at..], &path, take);
                    at += usize::from(words[at] == ",");
                }
                return at + 1;
            }
            "*" => {
                take(path, None);
                return at + 1;
            }
            "as" => {
                name = Some(words[at + 1].to_owned());
                at += 2;
                break;
            }
            ";" | "," | "}" => break,
            "::" => at += 1,
            part => {
                path.push(part.to_owned());
                at += 1;
            }
        }
    }
    if path.len() > 1 && path.last().is_some_and(|part| part == "self") {
        path.pop();
    }
    let name = name.or_else(|| path.last().cloned());
    take(path, name);
    at
}

/// The path at the beginning of the tokens; a single name counts, too.
fn path_at(words: &[&str]) -> Path {
    let more = words[1..].chunks_exact(2).take_while(|pair| pair[0] == "::" && is_name(pair[1]));
    std::iter::once(words[0]).chain(more.map(|pair| pair[1])).map(str::to_owned).collect()
}

fn is_name(word: &str) -> bool {
    word.starts_with(|c: char| c.is_alphabetic() || c == '_')
}

/// The tokens before an item that is only for tests.
const OF_TESTS: [&str; 7] = ["#", "[", "cfg", "(", "test", ")", "]"];

/// Removes items that are only for tests.
fn without_tests<'a>(words: &[&'a str]) -> Vec<&'a str> {
    let (mut kept, mut rest) = (Vec::with_capacity(words.len()), words);
    while let Some(word) = rest.first() {
        let length = if rest.starts_with(&OF_TESTS) {
            OF_TESTS.len() + item(&rest[OF_TESTS.len()..])
        } else {
            kept.push(*word);
            1
        };
        rest = &rest[length..];
    }
    kept
}

/// The number of tokens of an item, which ends with its body or a semicolon.
fn item(words: &[&str]) -> usize {
    let mut depth = 0_usize;
    for (at, word) in words.iter().enumerate() {
        match *word {
            "{" | "(" | "[" => depth += 1,
            "}" | ")" | "]" => {
                depth = depth.saturating_sub(1);
                if depth == 0 && *word == "}" {
                    return at + 1;
                }
            }
            ";" if depth == 0 => return at + 1,
            _ => {}
        }
    }
    words.len()
}

/// The tokens of a text, without comments and literals.
fn words(text: &str) -> Vec<&str> {
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    let (mut words, mut rest) = (Vec::new(), text);
    while let Some(first) = rest.chars().next() {
        let length = if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if rest.starts_with("/*") {
            rest.find("*/").map_or(rest.len(), |end| end + 2)
        } else if let Some(length) = literal(rest) {
            length
        } else {
            let length = match first {
                ':' if rest.starts_with("::") => 2,
                _ if is_part(first) => rest.find(|c: char| !is_part(c)).unwrap_or(rest.len()),
                _ => first.len_utf8(),
            };
            if !first.is_whitespace() {
                words.push(&rest[..length]);
            }
            length
        };
        rest = &rest[length..];
    }
    words
}

/// The length of the string or character literal at the beginning of code.
fn literal(code: &str) -> Option<usize> {
    let body = code.strip_prefix('b').unwrap_or(code);
    if let Some(raw) = body.strip_prefix('r') {
        let marks = raw.len() - raw.trim_start_matches('#').len();
        if let Some(text) = raw[marks..].strip_prefix('"') {
            let end = format!("\"{}", "#".repeat(marks));
            return Some(code.len() - text.find(&end).map_or(0, |at| text.len() - at - end.len()));
        }
    }
    if let Some(text) = body.strip_prefix('"') {
        let mut is_escaped = false;
        let end = text.find(|c: char| {
            let ends = c == '"' && !is_escaped;
            is_escaped = c == '\\' && !is_escaped;
            ends
        });
        return Some(code.len() - end.map_or(0, |end| text.len() - end - 1));
    }
    let letter = body.strip_prefix('\'')?;
    let length = match letter.strip_prefix('\\') {
        Some(escaped) => {
            let first = escaped.chars().next()?.len_utf8();
            1 + first + escaped[first..].find('\'')?
        }
        None => letter.chars().next()?.len_utf8(),
    };
    // Otherwise it is a lifetime.
    letter[length..].starts_with('\'').then(|| code.len() - letter.len() + length + 1)
}

#[test]
fn words_of_code() {
    let check = |text: &str, expected: &str| assert_eq!(words(text).join(" "), expected, "{text}");
    check("a::b(c) // d::e", "a :: b ( c )");
    check("/* a */ b /// c\nd", "b d");
    check(r#"a("b::c \" d", 'e', '\'', b'f', b"g")h"#, "a ( , , , , ) h");
    check("r#\"a\"b\"# c r\"d\\\" e br\"f\" 'g'", "c e");
    check("fn a<'b>(c: &'b str) -> B<'_>", "fn a < ' b > ( c : & ' b str ) - > B < ' _ >");
    check("'\\u{1F600}' '\\\\' 'é' x", "x");
    check("\"open", "");
}

#[test]
fn what_files_name() {
    let check = |text: &str, uses: &str, paths: &str| {
        let named = Named::of(text);
        let shown = |of: &Use| {
            let (mark, name) = (if of.is_handed_on { "+" } else { "" }, of.name.as_deref().unwrap_or("*"));
            format!("{mark}{}={name}", of.path.join("::"))
        };
        assert_eq!(named.uses.iter().map(shown).collect::<Vec<_>>().join(" "), uses, "{text}");
        assert_eq!(named.paths.iter().map(|path| path.join("::")).collect::<Vec<_>>().join(" "), paths, "{text}");
    };
    check("use a::B;", "a::B=B", "");
    check("use a::{self, b::{C, D as E}, f::*,};", "a=a a::b::C=C a::b::D=E a::f=*", "");
    check("pub(crate) use a::B; use super::{self as c};", "+a::B=B super=c", "");
    check("fn f() -> impl T + use<'_> { a::b::<C>(d::E { g }) }", "", "a::b d::E");
    check(
        "mod x { use super::A; fn f() { super::super::b() } } use super::C;",
        "self::A=* super::C=C",
        "self::super::b",
    );
    check("#[cfg(test)]\nmod tests { use a::B; }\n#[cfg(test)]\nuse c::D; e::f!();", "", "e::f");
    check("#[cfg(test)]\n#[path = \"x.rs\"]\npub(crate) mod x; use y::Z;", "y::Z=Z", "");
    let modules = Named::of("mod a; pub mod b; mod c { } #[cfg(test)] mod d;").modules;
    assert_eq!(modules.into_iter().collect::<Vec<_>>(), ["a", "b"]);
}
