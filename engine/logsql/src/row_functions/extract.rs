//! `extract "<name> text <_> .."`.

use memchr::memmem::Finder;

use super::fields::Fields;
use super::quoting::unquote_prefix;
use super::template::{Step, parse};

/// A pattern that cuts fields out of a text.
#[derive(Debug, Clone)]
pub struct Extract {
    steps: Vec<Step>,
    /// Finds the text of each step.
    finders: Vec<Finder<'static>>,
}

impl Extract {
    /// Reads a pattern.
    ///
    /// # Errors
    /// The reason: no named field, or two fields without a text between them.
    pub fn new(pattern: &str) -> Result<Self, String> {
        let steps = parse(pattern)?;
        for pair in steps.windows(2) {
            if pair[1].text.is_empty() {
                return Err(format!("missing text between <{}> and <{}>", pair[0].field, pair[1].field));
            }
        }
        if steps.iter().all(|s| s.field.is_empty()) {
            return Err(format!("the pattern `{pattern}` needs at least one named field, as in `<name>`"));
        }
        let finders = steps.iter().map(|step| Finder::new(step.text.as_bytes()).into_owned()).collect();
        Ok(Self { steps, finders })
    }

    /// The names of the fields, in the order of the pattern.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.steps.iter().map(|s| s.field.as_str()).filter(|f| !f.is_empty())
    }

    /// Appends the fields of a value; those behind the first text that is missing are empty.
    pub fn apply(&self, value: &str, out: &mut Fields) {
        let first = self.finders[0].find(value.as_bytes());
        let mut rest = first.map(|at| &value[at + self.steps[0].text.len()..]);
        for (i, step) in self.steps.iter().enumerate() {
            let next = self.steps.get(i + 1).map_or("", |s| s.text.as_str());
            let found = rest.and_then(|rest| {
                if let Some((text, length)) = unquote_prefix(rest).filter(|_| step.option != "plain") {
                    push(out, step, &text);
                    return Some(rest[length..].strip_prefix(next));
                }
                if next.is_empty() {
                    push(out, step, rest);
                    return Some(None);
                }
                let at = self.finders[i + 1].find(rest.as_bytes())?;
                push(out, step, &rest[..at]);
                Some(Some(&rest[at + next.len()..]))
            });
            if found.is_none() {
                push(out, step, "");
            }
            rest = found.flatten();
        }
    }
}

fn push(out: &mut Fields, step: &Step, value: &str) {
    if !step.field.is_empty() {
        out.push(&step.field, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values() {
        let check = |pattern: &str, value: &str, want: &[&str]| {
            let mut fields = Fields::default();
            Extract::new(pattern).unwrap().apply(value, &mut fields);
            assert_eq!(fields.iter().map(|f| f.1).collect::<Vec<_>>(), want, "{pattern} on {value}");
        };
        check("<foo>", "abc", &["abc"]);
        check("<foo>bar", "", &[""]);
        check("<foo>bar", "a bazbar xdsf", &["a baz"]);
        check("<foo>bar<>x", "a bazbar xdsf", &["a baz"]);
        check("foo<bar>", "a foo foobar", &[" foobar"]);
        check("ip=&lt;<ip>&gt;", "foo ip=<1.2.3.4> bar", &["1.2.3.4"]);
        check("\"msg\":<msg>,", r#"{"foo":"bar","msg":"foo,b\"ar\n\t","baz":"x"}"#, &["foo,b\"ar\n\t"]);
        check("foo=<bar>", "foo=`bar baz,abc` def", &["bar baz,abc"]);
        check("[<plain:foo>]", "[\"foo\",\"bar\"]", &["\"foo\",\"bar\""]);
        check("foo=<bar> baz=<xx>", "a foo=\"a\\\"b\\\\c\" cde baz=aa", &["a\"b\\c", ""]);
        check("baz=<abc> a=<aa>", "foo=bar baz=\"x y=z\" ", &["x y=z", ""]);
        check("<a> <b> <c>", "1 2", &["1", "", ""]);
    }

    #[test]
    fn refuses() {
        for bad in ["foobar", "<>foo<>bar", "<foo><bar>", "abc<foo><_>", "<foo", "", "<a*>"] {
            assert!(Extract::new(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn quotes_and_what_follows_them() {
        let check = |pattern: &str, value: &str, want: &[(&str, &str)]| {
            let mut fields = Fields::default();
            Extract::new(pattern).unwrap().apply(value, &mut fields);
            assert_eq!(fields.iter().collect::<Vec<_>>(), want, "{pattern} on {value}");
        };
        check("<a>-<b>", "1-2-3", &[("a", "1"), ("b", "2-3")]);
        check("x=<x> y=<_> z=<z>", "x=1 y=2 z=3", &[("x", "1"), ("z", "3")]);
        check("a=<a> b=<b>", r#"a="x y" b=z"#, &[("a", "x y"), ("b", "z")]);
        check("a=<a> b=<b>", r#"a="x"y b=z"#, &[("a", "x"), ("b", "")]);
        check("a=<a> b=<b>", r#"a="x b=z"#, &[("a", "\"x"), ("b", "z")]);
        check("<plain:a> y", r#""x" y"#, &[("a", "\"x\"")]);
        check("ä<x>ö", "1ä2ö3", &[("x", "2")]);
        check("<x>, <x>", "1, 2", &[("x", "1"), ("x", "2")]);
        check("a<>b<c>", "a1b2", &[("c", "2")]);
        let names = |pattern: &str| Extract::new(pattern).unwrap().names().map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(names("x<b>y<_>z<q:a>"), ["b", "a"]);
        let refused = |pattern: &str| Extract::new(pattern).expect_err("refused");
        assert_eq!(refused("<a><b>x"), "missing text between <a> and <b>");
        assert_eq!(refused("x<_>y"), "the pattern `x<_>y` needs at least one named field, as in `<name>`");
        assert_eq!(refused("x<a"), "missing `>` after `<a`");
        assert_eq!(refused("<a*>"), "the field `a*` of a template cannot be a group of fields");
    }
}
