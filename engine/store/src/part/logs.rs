//! A part of logs: what its columns are ([`LogColumns`]), writing ([`LogPartWriter`]) and reading ([`PartLogs`]).

mod columns;
mod reader;
mod writer;

pub(crate) use columns::{ColumnKind, ColumnPlan, LogColumns, NamePolicy, merged_columns, worth_codes};
pub(crate) use reader::{ColumnIndex, PartLogs, PartStream, page_numbers, page_times, read_schema};
pub(crate) use writer::{GROUP_ROWS, GroupColumns, LogPartWriter, Optional, array_type};
