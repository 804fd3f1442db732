//! The part of the table `spans`: how batches of spans become columns and come back.

mod read;
mod rollup;
mod write;

pub(crate) use read::{SpanIndex, SpanRows, needed};
pub(crate) use write::{OwnColumn, SpanPartWriter, own_columns, sorted};

use quiver_types::spans::{Place, Value};
use quiver_types::tables::spans::{ATTRIBUTE_PREFIX, RESOURCE_PREFIX};

/// Footer key: first row of each minute, as JSON `[[minute, row], …]`.
pub(super) const MINUTES: &str = "quiver.minutes";

/// The types that a column of an attribute may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum OwnType {
    /// Text.
    Text,
    /// Integer.
    Int,
    /// Double.
    Double,
    /// Boolean.
    Bool,
}

impl OwnType {
    /// Gives the type of the column that a value fits.
    pub(crate) fn of(value: Value<'_>) -> Option<Self> {
        match value {
            Value::Text(_) => Some(Self::Text),
            Value::Int(_) => Some(Self::Int),
            Value::Double(_) => Some(Self::Double),
            Value::Bool(_) => Some(Self::Bool),
            Value::Bytes(_) | Value::Json(_) => None,
        }
    }
}

/// Gives the name of the column of an attribute.
fn column_name(place: Place, key: &str) -> String {
    let prefix = if place == Place::Resource { RESOURCE_PREFIX } else { ATTRIBUTE_PREFIX };
    format!("{prefix}{key}")
}
