//! What answers of TraceQL take in memory, about: more than their texts and numbers, since each map has a node of eleven
//! entries as soon as it has one.

use quiver_query::QueryReservation;

use super::series::{MetricExemplar, MetricSeries};
use super::value::FieldValue;
use crate::engine::TraceError;

/// Entries of a node of a map.
pub(super) const NODE: usize = 11;
/// What a label of a group takes beside its text.
pub(super) const TEXT_BYTES: usize = 64;
/// What a label of an answer takes beside its texts.
pub(super) const LABEL_BYTES: usize = TEXT_BYTES + size_of::<(String, FieldValue)>();
/// How often numbers are held: in the series, and twice while the greatest are picked.
const POINT_COPIES: usize = 3;

/// Makes room for a series before it is made: for so many bytes of labels, points and exemplars.
pub(super) fn reserve(
    memory: &QueryReservation,
    labels: usize,
    points: usize,
    exemplars: usize,
) -> Result<(), TraceError> {
    let points = points * POINT_COPIES * size_of::<(i64, f64)>();
    Ok(memory.add(size_of::<MetricSeries>() + labels + points + exemplars * size_of::<MetricExemplar>())?)
}
