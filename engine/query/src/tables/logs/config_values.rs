//! Columns of log records that tell whether a condition holds.

use std::borrow::Cow;
use std::sync::Arc;

use arrow::array::AsArray as _;
use arrow::array::{Array, ArrayRef, Int64Array, MapArray, RecordBatch, StringArray, StringViewArray};
use quiver_types::condition::{Condition, FieldName, Fields};
use quiver_types::logs::REST;
use quiver_types::tables::logs::SERVICE;
use quiver_types::{Error, Result};

use crate::tables::cells::texts;

/// Fields that are read as the severity, in order of preference.
const SEVERITY: [&str; 3] = ["severity", "severity_text", "level"];

/// A condition, and where to find the fields that it names.
#[derive(Debug, Clone)]
pub(super) struct LogWhen {
    condition: Arc<Condition>,
    /// Names of fields with the index of their stored column; `None` if the field is in the map of all fields.
    columns: Vec<(String, Option<usize>)>,
}

/// The field of a record that a name in a condition refers to.
fn key_of(name: &FieldName) -> &str {
    match name {
        FieldName::Intrinsic("service.name") => SERVICE,
        FieldName::Intrinsic(key) => key,
        FieldName::Resource(key) | FieldName::Attribute(key) | FieldName::Bare(key) => key,
    }
}

impl LogWhen {
    /// `place` returns the index of a field's stored column, or `None` if all fields are in a map.
    pub(super) fn new(condition: Arc<Condition>, mut place: impl FnMut(&str) -> Option<usize>) -> Self {
        let mut names: Vec<String> = Vec::new();
        for field in condition.fields() {
            match key_of(field) {
                "severity" => names.extend(SEVERITY.map(str::to_owned)),
                key => names.push(key.to_owned()),
            }
        }
        names.sort_unstable();
        names.dedup();
        let columns = names.into_iter().map(|name| {
            let at = place(&name);
            (name, at)
        });
        let columns = columns.collect();
        Self { condition, columns }
    }

    /// 1 where the condition holds, else 0.
    pub(super) fn column(&self, stored: &RecordBatch) -> Result<ArrayRef> {
        let other = || Error::internal("a column of a scan of logs is of another type");
        let column = |(name, at): &(String, Option<usize>)| -> Result<(String, Option<StringViewArray>)> {
            let column = at.map(|at| texts(stored.column(at)).ok_or_else(other)).transpose()?;
            Ok((name.clone(), column))
        };
        let columns = self.columns.iter().map(column).collect::<Result<Vec<_>>>()?;
        let map = stored.column_by_name(REST).and_then(|column| column.as_map_opt());
        let map =
            map.and_then(|map| Some((map, map.keys().as_string_opt::<i32>()?, map.values().as_string_opt::<i32>()?)));
        let holds = |row: usize| Some(i64::from(self.condition.matches(&LogRow { columns: &columns, map, row })));
        Ok(Arc::new((0..stored.num_rows()).map(holds).collect::<Int64Array>()))
    }
}

type Texts<'b> = (&'b MapArray, &'b StringArray, &'b StringArray);

struct LogRow<'b> {
    columns: &'b [(String, Option<StringViewArray>)],
    map: Option<Texts<'b>>,
    row: usize,
}

impl LogRow<'_> {
    fn find(&self, key: &str) -> Option<Cow<'_, str>> {
        let (_, column) = self.columns.iter().find(|(name, _)| name == key)?;
        let text = if let Some(texts) = column {
            texts.is_valid(self.row).then(|| texts.value(self.row))?
        } else {
            let (map, keys, values) = self.map?;
            let ends = map.value_offsets();
            let mut entries = ends[self.row] as usize..ends[self.row + 1] as usize;
            entries.find(|&at| keys.value(at) == key).map(|at| values.value(at))?
        };
        (!text.is_empty()).then_some(Cow::Borrowed(text))
    }
}

impl Fields for LogRow<'_> {
    fn get(&self, name: &FieldName) -> Option<Cow<'_, str>> {
        match key_of(name) {
            "severity" => SEVERITY.iter().find_map(|key| self.find(key)),
            key => self.find(key),
        }
    }
}
