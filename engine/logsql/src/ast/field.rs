//! Names of fields, and patterns `prefix*` that stand for groups of them.

use serde::{Deserialize, Serialize};

/// A field name or a group of names with a common beginning.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum FieldPattern {
    /// This field; the empty name was already made `_msg`.
    Name(String),
    /// All fields whose names begin so; empty is all fields (`*`).
    Prefix(String),
}

impl FieldPattern {
    /// All fields: `*`.
    pub fn all() -> Self {
        Self::Prefix(String::new())
    }

    /// Whether it stands for every field.
    pub fn is_all(&self) -> bool {
        matches!(self, Self::Prefix(prefix) if prefix.is_empty())
    }

    /// Whether the field is meant.
    pub fn matches(&self, name: &str) -> bool {
        match self {
            Self::Name(own) => own == name,
            Self::Prefix(prefix) => name.starts_with(prefix.as_str()),
        }
    }

    /// The name, unless it is a group.
    pub fn name(&self) -> Option<&str> {
        match self {
            Self::Name(name) => Some(name),
            Self::Prefix(_) => None,
        }
    }
}

/// What becomes of the fields that `copy` and `rename` give other names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Originals {
    /// They stay beside their copies (`copy`).
    Keep,
    /// Only the new names are left (`rename`).
    Drop,
}

/// `from as to` of `copy` and `rename`: two names, two prefixes, or a prefix and the one name that all of the group get.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct PatternPair {
    /// The field or group as it is.
    pub source: FieldPattern,
    /// Its new name; a prefix only when `source` is one.
    pub target: FieldPattern,
}
