//! Functions that return the members of an object as rows: `json_each` and its like.

/// Their names, and the function that gives the values of all members as a list.
pub(crate) const MEMBERS: [(&str, &str); 4] = [
    ("json_each", "json_values"),
    ("jsonb_each", "json_values"),
    ("json_each_text", "json_values_text"),
    ("jsonb_each_text", "json_values_text"),
];

/// The columns of a member.
pub(crate) const MEMBER: [&str; 2] = ["key", "value"];

/// Whether a function returns members.
pub(crate) fn gives_members(name: &str) -> bool {
    MEMBERS.iter().any(|(known, _)| *known == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_of_members_are_known_by_name() {
        for (name, expected) in [
            ("json_each", true),
            ("jsonb_each", true),
            ("json_each_text", true),
            ("jsonb_each_text", true),
            ("JSON_EACH", false),
            ("json_array_elements", false),
            ("json_object_keys", false),
            ("", false),
        ] {
            assert_eq!(gives_members(name), expected, "{name}");
        }
    }
}
