//! Saved views: the state of a page of the web interface that is too long for its URL (`web-ui` 2).

use quiver_types::{Domain, Right};
use serde_json::{Map, Value};

use super::body::text;
use super::segments::prepare;
use crate::family::{Family, Rows};
use crate::fields::{Field, FieldKind};
use crate::problem::FieldError;

/// Longest state. Views exist since URLs longer than 1500 characters are not supported everywhere.
const QUERY_CHARS_MAX: usize = 65_536;

/// States of pages that users save under a name.
pub const SAVED_VIEWS: Family = Family {
    name: "saved-views",
    path: "/platform-api/saved-views",
    domain: Domain::System,
    write: Right::Edit,
    title: "description",
    has_name: false,
    fields: &[
        Field::required("path", FieldKind::Text { min: 1, max: 500 }),
        Field::required("query", FieldKind::Prose { max: QUERY_CHARS_MAX }),
        Field::read_only("owner", FieldKind::Text { min: 0, max: 300 }, "null"),
    ],
    unique: &[],
    rules,
    rows: Rows::ById,
    entities_max: 10_000,
    prepare: Some(prepare),
    ..Family::BASE
};

/// A view must lead to a page of this interface, so that it cannot send users to other sites.
fn rules(body: &Map<String, Value>, errors: &mut Vec<FieldError>) {
    let path = text(body, "path");
    if !path.is_empty() && (!path.starts_with('/') || path.starts_with("//") || path.contains(['\\', '?', '#'])) {
        let why = "must be the path of a page: begin with one `/`, and hold no `\\`, `?` or `#`";
        errors.push(FieldError::new("/path", "PATTERN", why));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Paths of this interface are accepted, all others refused.
    #[test]
    fn paths_of_pages() {
        for (path, is_good) in [
            ("/", true),
            ("/logs", true),
            ("/traces/7/a", true),
            ("/a//b", true),
            ("", true),
            ("logs", false),
            ("//evil.example", false),
            ("/\\\\evil.example", false),
            ("https://evil.example/", false),
            ("/a?b", false),
            ("/a#b", false),
        ] {
            let mut errors = Vec::new();
            rules(json!({"path": path}).as_object().expect("an object"), &mut errors);
            assert_eq!(errors.is_empty(), is_good, "{path}");
        }
    }
}
