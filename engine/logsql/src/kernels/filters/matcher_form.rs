//! How matchers are written, and how plans show them.

use quiver_types::logs::MatcherForm;

/// The owner that written forms of matchers of this crate name.
pub(super) const OF: &str = "logsql";

/// The beginning of what a matcher was made of.
pub(super) fn form(kind: &str) -> MatcherForm {
    MatcherForm::new(OF, kind)
}

/// Writes `name("a","b")`, as plans show a filter of a list.
pub(super) fn describe_list(name: &str, values: &[impl AsRef<str>]) -> String {
    let list: Vec<String> = values.iter().map(|v| format!("{:?}", v.as_ref())).collect();
    format!("{name}({})", list.join(","))
}
