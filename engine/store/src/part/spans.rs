//! Parts of the table `spans`: converts batches of spans to columns and back.

mod chunks;
mod column_cache;
mod columns;
mod dedicated_columns;
mod filters;
mod index;
mod keys;
mod longest_durations;
mod order;
mod pages;
mod reader;
mod rollup;
mod row_groups;
mod rows;
mod text_columns;
mod trace_filter;
mod traces;
mod writer;

pub(crate) use dedicated_columns::{OwnColumn, own_columns};
pub(crate) use filters::without;
pub(crate) use index::SpanIndex;
pub(crate) use order::SpanOrder;
pub(crate) use reader::needed;
pub(crate) use row_groups::{SpanGroup, can_hold};
pub(crate) use rows::{AttributeColumn, PartRows, SpanRows};
pub(crate) use trace_filter::TraceFilter;
pub(crate) use writer::{GROUP_ROWS, SpanPartWriter, equal_but_received, roll_up, sorted};

use quiver_types::spans::Place;
use quiver_types::tables::spans::{ATTRIBUTE_PREFIX, RESOURCE_PREFIX};

/// Footer key: each minute with its first row, as JSON `[[minute, row], …]`.
pub(super) const MINUTES: &str = "quiver.minutes";

/// The possible types of an attribute's own column.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum OwnType {
    Text,
    Int,
    Double,
    Bool,
}

impl OwnType {
    /// All types, in order.
    pub(crate) const ALL: [Self; 4] = [Self::Text, Self::Int, Self::Double, Self::Bool];

    /// The type of the column for values with this type letter; `None` for values that fit no column, such as lists.
    pub(crate) fn of_letter(letter: u8) -> Option<Self> {
        match letter {
            b's' => Some(Self::Text),
            b'i' => Some(Self::Int),
            b'd' => Some(Self::Double),
            b'b' => Some(Self::Bool),
            _ => None,
        }
    }
}

/// Column name of an attribute.
pub(crate) fn column_name(place: Place, key: &str) -> String {
    let prefix = if place == Place::Resource { RESOURCE_PREFIX } else { ATTRIBUTE_PREFIX };
    format!("{prefix}{key}")
}
