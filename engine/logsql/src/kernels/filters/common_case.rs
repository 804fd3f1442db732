//! `equals_common_case(...)` and `contains_common_case(...)`: texts in the cases they are commonly written in.

use quiver_types::logs::{MatchHints, MatcherForm, ValueMatcher};

use super::contains_any::ContainsAny;
use super::in_list::InList;
use super::matcher_form::{describe_list, form};
use crate::row_functions::codec::{lower, upper};

/// Texts with more capital letters than this have too many forms.
const CAPITALS_MAX: usize = 10;
/// Most bytes of all forms of a filter's texts besides the texts themselves.
const FORMS_BYTES_MAX: usize = 4 << 20;

/// Says why texts have too many forms to be looked for.
pub(crate) fn check_common_cases(values: &[String]) -> Result<(), String> {
    let mut more = 0;
    for value in values {
        let capitals = value.chars().filter(|c| c.is_uppercase()).count();
        if capitals > CAPITALS_MAX {
            return Err(format!("a text in common cases has more than {CAPITALS_MAX} capital letters"));
        }
        let bytes = value.len() + size_of::<String>();
        more += (bytes << capitals) - bytes;
        if more > FORMS_BYTES_MAX {
            return Err(format!("texts in common cases have forms of more than {FORMS_BYTES_MAX} bytes"));
        }
    }
    Ok(())
}

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

/// The text, each choice of its capital letters made small, and all letters capital. Letters change one for one.
fn forms(value: &str) -> Vec<String> {
    let mut all = vec![String::new()];
    for c in value.chars() {
        let small: Vec<String> = if c.is_uppercase() {
            all.iter().map(|s| s.chars().chain([lower(c)]).collect()).collect()
        } else {
            Vec::new()
        };
        for s in &mut all {
            s.push(c);
        }
        all.extend(small);
    }
    all.push(value.chars().map(upper).collect());
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
        check("Straße", &["STRAßE", "Straße", "straße"]);
    }

    #[test]
    fn each_capital_letter_may_be_small() {
        let many = EqualsCommonCase::new(vec!["OpenSSLError".to_owned()]);
        for value in ["OpenSSLError", "openSSLerror", "opensslerror", "OpensslError", "OPENSSLERROR"] {
            assert!(many.matches(value), "{value}");
        }
        assert!(!many.matches("OPENSSLError"));
        assert_eq!(forms_of_all(&["ABCDEFGHIJ".to_owned()]).len(), 1 << 10);
    }

    #[test]
    fn too_many_forms_are_refused() {
        let check = |values: &[String]| check_common_cases(values).is_ok();
        assert!(check(&["ABCDEFGHIJ".to_owned()]));
        assert!(!check(&["ABCDEFGHIJK".to_owned()]));
        assert!(check(&vec!["ABCDEFGHIJ".to_owned(); 64]));
        assert!(!check(&vec!["ABCDEFGHIJ".to_owned(); 200]));
        assert!(!check(&[format!("ABCDEFGHIJ{}", "x".repeat(5000))]));
        // Texts without capital letters have few forms, so their number does not matter.
        assert!(check(&vec!["abc".to_owned(); 100_000]));
    }
}
