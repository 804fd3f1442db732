//! The part of the table `spans`: how batches of spans become columns and come back.

mod chunks;
mod columns;
mod filters;
mod groups;
mod index;
mod kept;
mod keys;
mod own;
mod pages;
mod read;
mod rollup;
mod rows;
mod slowest;
mod texts;
mod trace_filter;
mod traces;
mod write;

pub(crate) use filters::without;
pub(crate) use groups::{SpanGroup, can_hold};
pub(crate) use index::SpanIndex;
pub(crate) use own::{OwnColumn, own_columns};
pub(crate) use read::needed;
pub(crate) use rows::{AttributeColumn, PartRows, SpanRows};
pub(crate) use trace_filter::TraceFilter;
pub(crate) use write::{GROUP_ROWS, SpanPartWriter, equal_but_received, roll_up, sorted};

use quiver_types::spans::Place;
use quiver_types::tables::spans::{ATTRIBUTE_PREFIX, RESOURCE_PREFIX};

/// Footer key: first row of each minute, as JSON `[[minute, row], …]`.
pub(super) const MINUTES: &str = "quiver.minutes";

/// The types that a column of an attribute may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum OwnType {
    Text,
    Int,
    Double,
    Bool,
}

impl OwnType {
    /// All of them, in order.
    pub(crate) const ALL: [Self; 4] = [Self::Text, Self::Int, Self::Double, Self::Bool];

    /// Gives the type of the column that a value fits, by the letter of its type.
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

/// Gives the name of the column of an attribute.
pub(crate) fn column_name(place: Place, key: &str) -> String {
    let prefix = if place == Place::Resource { RESOURCE_PREFIX } else { ATTRIBUTE_PREFIX };
    format!("{prefix}{key}")
}
