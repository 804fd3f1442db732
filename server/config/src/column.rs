//! The index column by which a list is ordered.

use quiver_database::Argument;
use serde_json::Value;

use crate::json::{time_of, time_text};
use crate::sort_encoding::encoded;
use crate::sort_text::joined;

/// What an index orders the entities of a family by.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Column {
    Id,
    Created,
    Updated,
    Text,
    /// What a field holds, by the index of values.
    Field(String),
}

impl Column {
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Id => "id",
            Self::Created => "created_ms",
            Self::Updated => "updated_ms",
            Self::Text => "sort_text",
            Self::Field(_) => "value",
        }
    }

    /// The field whose values it has.
    pub(crate) fn field(&self) -> Option<&str> {
        match self {
            Self::Field(field) => Some(field.as_str()),
            Self::Id | Self::Created | Self::Updated | Self::Text => None,
        }
    }

    /// The table that has it, and what picks its rows there by the field.
    pub(crate) fn table(&self) -> (&'static str, &'static str) {
        if self.field().is_some() { ("entity_value", " AND field = ?") } else { ("entity", "") }
    }

    /// The value of the column by the keys of a cursor; none: no entity of ours has such keys.
    pub(crate) fn value(&self, keys: &[Value]) -> Option<Argument> {
        match self {
            Self::Id => Some(Argument::Text(keys.first()?.as_str()?.to_owned())),
            Self::Created | Self::Updated => {
                let text = keys.first()?.as_str()?;
                let ms = time_of(text).filter(|ms| time_text(*ms) == text)?;
                Some(Argument::Number(ms))
            }
            Self::Text => joined(keys.iter()).map(Argument::Text),
            Self::Field(_) => Some(Argument::Text(encoded(keys.first()?))),
        }
    }
}
