//! `equals_common_case(...)` and `contains_common_case(...)`: texts in the cases they are commonly written in.

use quiver_types::logs::{MatchHints, MatcherForm, ValueMatcher};

use super::contains_any::ContainsAny;
use super::in_list::InList;
use super::matcher_form::{describe_list, form};

/// With more capitals than this only the text itself and its small and capital forms are tried.
const CAPITALS_MAX: usize = 6;

/// As `in` over the common forms of each text.
#[derive(Debug, Clone)]
pub struct EqualsCommonCase {
    values: Vec<String>,
    forms: InList,
}

impl EqualsCommonCase {
    /// Makes the filter.
    pub fn new(values: Vec<String>) -> Self {
        let forms = InList::new(forms_of_all(&values));
        Self { values, forms }
    }
}

impl ValueMatcher for EqualsCommonCase {
    fn matches(&self, value: &str) -> bool {
        self.forms.matches(value)
    }

    fn hints(&self) -> MatchHints {
        self.forms.hints()
    }

    fn describe(&self) -> String {
        describe_list("equals_common_case", &self.values)
    }

    fn written(&self) -> Option<MatcherForm> {
        Some(form("equals_common_case").texts(&self.values))
    }
}

/// As `contains_any` over the common forms of each text.
#[derive(Debug, Clone)]
pub struct ContainsCommonCase {
    values: Vec<String>,
    forms: ContainsAny,
}

impl ContainsCommonCase {
    /// Makes the filter.
    pub fn new(values: Vec<String>) -> Self {
        let forms = ContainsAny::new(forms_of_all(&values));
        Self { values, forms }
    }
}

impl ValueMatcher for ContainsCommonCase {
    fn matches(&self, value: &str) -> bool {
        self.forms.matches(value)
    }

    fn hints(&self) -> MatchHints {
        self.forms.hints()
    }

    fn describe(&self) -> String {
        describe_list("contains_common_case", &self.values)
    }

    fn written(&self) -> Option<MatcherForm> {
        Some(form("contains_common_case").texts(&self.values))
    }
}

fn forms_of_all(values: &[String]) -> Vec<String> {
    let mut all: Vec<String> = values.iter().flat_map(|v| forms(v)).collect();
    all.sort_unstable();
    all.dedup();
    all
}

/// The text, each choice of its capital letters made small, and all letters capital.
fn forms(value: &str) -> Vec<String> {
    let capitals = value.chars().filter(|c| c.is_uppercase()).count();
    let mut all = if capitals > CAPITALS_MAX {
        vec![value.to_owned(), value.to_lowercase()]
    } else {
        let mut some = vec![String::new()];
        for c in value.chars() {
            let small: Vec<String> = if c.is_uppercase() {
                some.iter().map(|s| s.chars().chain(c.to_lowercase()).collect()).collect()
            } else {
                Vec::new()
            };
            for s in &mut some {
                s.push(c);
            }
            some.extend(small);
        }
        some
    };
    all.push(value.to_uppercase());
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms_of_texts() {
        let check = |value: &str, want: &[&str]| {
            let got = forms_of_all(&[value.to_owned()]);
            assert_eq!(got, want, "{value}");
        };
        check("error", &["ERROR", "error"]);
        check("Error", &["ERROR", "Error", "error"]);
        check("FooBar", &["FOOBAR", "FooBar", "Foobar", "fooBar", "foobar"]);
        check("12", &["12"]);
        check("", &[""]);
    }
}
