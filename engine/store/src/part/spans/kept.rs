//! Columns of row groups that many rows are wanted of: kept decoded from the second use on, texts as views by codes, so that
//! whoever groups and compares looks at each text once. Lists and maps are read each time.

use std::ops::Range;
use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, UInt32Array};
use arrow::compute::take;
use arrow::datatypes::{Field, Schema, SchemaRef};
use quiver_types::ReadStats;

use super::read::Texts;
use super::rows::SpanRows;
use super::texts::coded;
use crate::error::{Context, Error, Result};
use crate::part::fetch::Purpose;
use crate::part::reader::Part;

/// A group is decoded as a whole when at least this part of its rows is wanted.
const WHOLE_PART: u64 = 64;

/// Rows of one row group, ascending.
#[derive(Debug, Clone)]
pub(crate) struct GroupRows {
    pub(crate) group: usize,
    /// All rows of the group.
    bounds: Range<u64>,
    groups: usize,
    pub(crate) rows: Vec<Range<u64>>,
}

impl GroupRows {
    /// The same group with other rows of it.
    pub(crate) fn with(&self, rows: Vec<Range<u64>>) -> Self {
        Self { rows, ..self.clone() }
    }

    fn count(&self) -> u64 {
        self.rows.iter().map(|r| r.end - r.start).sum()
    }

    /// The wanted values of a column of the whole group; `places` keeps where they stand for the next column.
    fn pick(&self, column: &ArrayRef, places: &mut Option<UInt32Array>) -> Result<ArrayRef> {
        let within = |r: &Range<u64>| (r.start - self.bounds.start)..(r.end - self.bounds.start);
        if let [one] = self.rows.as_slice() {
            let range = within(one);
            return Ok(column.slice(range.start as usize, (range.end - range.start) as usize));
        }
        let places = places.get_or_insert_with(|| {
            let mut places: Vec<u32> = Vec::with_capacity(self.count() as usize);
            for range in self.rows.iter().map(within) {
                // Rows that a filter leaves are often alone.
                if range.end - range.start == 1 {
                    places.push(range.start as u32);
                } else {
                    places.extend(range.start as u32..range.end as u32);
                }
            }
            places.into()
        });
        take(column, &*places, None).internal("cannot pick rows of a column of spans")
    }
}

impl Part {
    /// Divides rows by the row groups that they stand in; `rows` ascending and disjoint.
    pub(crate) async fn span_row_groups(&self, rows: &[Range<u64>], stats: &ReadStats) -> Result<Vec<GroupRows>> {
        let file = self.meta.file("rows").ok_or_else(|| Error::internal("a part of spans lacks its rows"))?;
        let footer = self.footer(file, stats).await?;
        let starts = footer.group_starts();
        let groups = starts.len().saturating_sub(1);
        let within = |(group, bounds): (usize, &[u64])| {
            let cut = |r: &Range<u64>| r.start.max(bounds[0])..r.end.min(bounds[1]);
            let rows: Vec<_> = rows.iter().map(cut).filter(|r| r.start < r.end).collect();
            GroupRows { group, bounds: bounds[0]..bounds[1], groups, rows }
        };
        Ok(starts.windows(2).enumerate().map(within).filter(|group| !group.rows.is_empty()).collect())
    }

    /// Reads columns of rows of a group, texts by codes.
    pub(crate) async fn span_rows_kept(
        &self,
        rows: &GroupRows,
        columns: &[&str],
        schema: &SchemaRef,
        stats: &ReadStats,
    ) -> Result<SpanRows> {
        if columns.is_empty() {
            return SpanRows::counted(rows.count());
        }
        let (cache, part, group) = (self.decoded(), self.meta.id, rows.group);
        let is_flat = |name: &str| schema.field_with_name(name).is_ok_and(|f| !f.data_type().is_nested());
        let much = rows.count() * WHOLE_PART >= rows.bounds.end - rows.bounds.start;
        let mut found: Vec<Option<ArrayRef>> = Vec::with_capacity(columns.len());
        let (mut whole, mut some) = (Vec::new(), Vec::new());
        let mut places = None;
        for name in columns {
            let known = is_flat(name).then(|| cache.array(part, group, name)).flatten();
            match known {
                None if is_flat(name) && much && cache.wants(part, group, name) => whole.push(*name),
                None => some.push(*name),
                Some(_) => {}
            }
            found.push(known.map(|array| rows.pick(&array, &mut places)).transpose()?);
        }
        for (names, ranges, is_whole) in
            [(&whole, std::slice::from_ref(&rows.bounds), true), (&some, rows.rows.as_slice(), false)]
        {
            if names.is_empty() {
                continue;
            }
            let read = SpanRows::concat(
                &self.span_rows_as(ranges, names, Purpose::Query, Texts::AllCoded(true), stats).await?,
            )?;
            for name in names {
                let column = read.0.column_by_name(name);
                let column = column.ok_or_else(|| Error::internal(format!("a part of spans lacks `{name}`")))?;
                let is_text = matches!(column.data_type(), arrow::datatypes::DataType::Dictionary(..));
                let column = if is_text { coded(column)? } else { Arc::clone(column) };
                let at = columns.iter().position(|known| known == name);
                let place = at.and_then(|at| found.get_mut(at));
                let place = place.ok_or_else(|| Error::internal("a column that nobody asked for"))?;
                if is_whole {
                    cache.insert_array(part, group, name, &column, rows.groups);
                }
                *place = Some(if is_whole { rows.pick(&column, &mut places)? } else { column });
            }
        }
        let arrays: Vec<ArrayRef> = found.into_iter().flatten().collect();
        let fields =
            columns.iter().zip(&arrays).map(|(name, array)| Field::new(*name, array.data_type().clone(), true));
        let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
        RecordBatch::try_new(schema, arrays).map(SpanRows).internal("cannot read columns of spans")
    }
}
