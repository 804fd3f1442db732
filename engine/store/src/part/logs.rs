//! Parts of logs: their columns ([`LogColumns`]), writing ([`LogPartWriter`]) and reading ([`PartLogs`]) them, their
//! streams ([`StreamBlocks`]), and which streams have a label ([`Part::each_label_value`](super::Part)).

mod columns;
mod labels_file;
mod merged_schema;
mod metadata;
mod reader;
mod stream_pieces;
mod stream_set;
mod streams;
mod streams_file;
#[cfg(test)]
mod tests;
mod writer;

pub(crate) use columns::{ColumnKind, ColumnPlan, LogColumns, NamePolicy, Optional, worth_codes};
pub(crate) use labels_file::{KIND_LABEL, KIND_SERVICE};
pub(crate) use merged_schema::merged_columns;
pub(crate) use metadata::{ColumnIndex, PartLogs, PartStream};
pub(crate) use reader::{GroupRows, page_numbers, page_times};
pub(crate) use stream_pieces::{KeptPiece, StreamBlocks, StreamColumns, StreamPiece};
pub(crate) use stream_set::{StreamSet, StreamSetBuilder};
pub(crate) use streams::LabelRuns;
pub(crate) use writer::{GROUP_ROWS, GroupColumns, LogPartWriter, array_type};
