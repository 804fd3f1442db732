//! `extract_regexp "re"`: named groups become fields.

use quiver_types::matcher::{Places, WatchedRegex, few_groups};

use super::fields::Fields;
use crate::kernels::golang_regex;

/// An expression with named groups.
#[derive(Debug, Clone)]
pub struct ExtractRegexp {
    regex: WatchedRegex,
    /// Number and name of each named group.
    groups: Vec<(usize, String)>,
    places: Places,
}

impl ExtractRegexp {
    /// Compiles an expression.
    ///
    /// # Errors
    /// The reason: no expression, or none with a named group.
    pub fn new(pattern: &str) -> Result<Self, String> {
        let regex = golang_regex::compile(pattern)?;
        let groups: Vec<_> =
            regex.capture_names().enumerate().filter_map(|(i, name)| Some((i, name?.to_owned()))).collect();
        if groups.is_empty() {
            return Err(format!("the expression `{pattern}` needs at least one named group, as in `(?P<name>.+)`"));
        }
        few_groups(&regex).map_err(|e| e.message)?;
        let regex = WatchedRegex::new(regex);
        let places = regex.group_places();
        Ok(Self { regex, groups, places })
    }

    /// The names of the fields.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.groups.iter().map(|(_, name)| name.as_str())
    }

    /// Appends the fields of a value; all are empty where it does not match.
    pub fn apply(&mut self, value: &str, out: &mut Fields) {
        let matched = self.regex.may_match(value) && self.regex.find(value, 0, &mut self.places);
        for (group, name) in &self.groups {
            let place = if matched { self.places.get(*group) } else { None };
            out.push(name, place.map_or("", |(start, end)| &value[start..end]));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values() {
        let check = |pattern: &str, value: &str, want: &[(&str, &str)]| {
            let mut fields = Fields::default();
            ExtractRegexp::new(pattern).unwrap().apply(value, &mut fields);
            assert_eq!(fields.iter().collect::<Vec<_>>(), want, "{pattern} on {value}");
        };
        check("ip=(?P<ip>([0-9]+[.]){3}[0-9]+) ", "request from ip=1.2.3.4 xxx", &[("ip", "1.2.3.4")]);
        check("foo=(?P<bar>.*) baz=(?P<xx>.*)", "a foo=cc baz=aa b", &[("bar", "cc"), ("xx", "aa b")]);
        check("foo=(?P<bar>.*)", "", &[("bar", "")]);
        check("foo=(?P<bar>.*)", "foo=a\nb", &[("bar", "a\nb")]);
        check("foo=(?P<bar>[^\n]*)", "foo=a\nb", &[("bar", "a")]);
        check("(?P<a>x)|(?P<b>y)", "y", &[("a", ""), ("b", "y")]);
        assert!(ExtractRegexp::new("foo").is_err() && ExtractRegexp::new("(").is_err());
    }

    #[test]
    fn groups_that_take_no_part() {
        let check = |pattern: &str, value: &str, want: &[(&str, &str)]| {
            let mut fields = Fields::default();
            let mut extract = ExtractRegexp::new(pattern).unwrap();
            // Buffers are those of the value before.
            extract.apply("a1 b2 yz é", &mut fields);
            fields.clear();
            extract.apply(value, &mut fields);
            assert_eq!(fields.iter().collect::<Vec<_>>(), want, "{pattern} on {value}");
        };
        check(r"(?P<d>\d+)", "a1b22", &[("d", "1")]);
        check("(?P<a>x)?y", "y", &[("a", "")]);
        check("(?P<a>x*)", "yx", &[("a", "")]);
        check("(?P<a>a)(1)(?P<b> )", "x", &[("a", ""), ("b", "")]);
        check("(?P<e>é.)", "aéü", &[("e", "éü")]);
        check("(?i)(?P<a>ERR)", "an error", &[("a", "err")]);
        let names = ExtractRegexp::new("(?P<b>x)(y)(?P<a>z)").unwrap();
        assert_eq!(names.names().collect::<Vec<_>>(), ["b", "a"]);
        let refused = ExtractRegexp::new("(x)").expect_err("no name");
        assert_eq!(refused, "the expression `(x)` needs at least one named group, as in `(?P<name>.+)`");
        assert!(ExtractRegexp::new(&"(?P<a>.*)".repeat(2)).is_err(), "two of a name");
    }
}
