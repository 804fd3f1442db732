//! The arguments of a function: columns of named fields, and the map of all other fields.

use arrow::array::{Array, ArrayRef, AsArray, MapArray, StringArray};
use datafusion::common::{Result, exec_err};
use serde::{Deserialize, Serialize};

use crate::kernels::columns::TextColumn;

/// Names of fields that are meant.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum NamePattern {
    /// The field of this name alone.
    Name(String),
    /// Those that begin so; the empty text means all.
    Prefix(String),
}

impl NamePattern {
    /// Says whether a name is meant.
    pub fn matches(&self, name: &str) -> bool {
        match self {
            Self::Name(own) => own == name,
            Self::Prefix(prefix) => name.starts_with(prefix.as_str()),
        }
    }
}

/// What an input column of a function is.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Arg {
    /// The field of this name: `Utf8View`, `Utf8`, a dictionary of `UInt32` and `Utf8`, values as
    /// they are stored, or a time in nanoseconds.
    Field(String),
    /// The same, for a field that stands there because its name fits a pattern: rows that lack it do not have it.
    Matched(String),
    /// The map of the fields that have no column (`Map<Utf8, Utf8>`), and which of them are meant.
    Rest(Vec<NamePattern>),
}

/// The columns of a batch that a function looks at.
pub(super) struct Args<'a> {
    pub(super) columns: Vec<Column<'a>>,
    pub(super) rows: usize,
}

/// A column of one field (`named`: asked for by its whole name, so that empty values count), or the map.
pub(super) enum Column<'a> {
    Field { name: &'a str, text: Box<TextColumn>, named: bool },
    Rest(Rest<'a>),
}

/// The map column of the fields without a column, and which of them are meant.
pub(super) struct Rest<'a> {
    map: &'a MapArray,
    names: &'a StringArray,
    values: &'a StringArray,
    wanted: &'a [NamePattern],
}

impl<'a> Args<'a> {
    /// Looks at the columns of a batch. There may be more columns than arguments: a function without any gets one to
    /// tell the number of rows.
    pub(super) fn new(args: &'a [Arg], arrays: &'a [ArrayRef]) -> Result<Self> {
        let mut columns = Vec::with_capacity(args.len());
        for (arg, array) in args.iter().zip(arrays) {
            columns.push(match arg {
                Arg::Field(name) | Arg::Matched(name) => match TextColumn::new(array) {
                    Some(text) => Column::Field { name, text: Box::new(text), named: matches!(arg, Arg::Field(_)) },
                    None => return exec_err!("column `{name}` of type {} holds no texts", array.data_type()),
                },
                Arg::Rest(wanted) => match Rest::new(array, wanted) {
                    Some(rest) => Column::Rest(rest),
                    None => return exec_err!("column of type {} holds no map of texts", array.data_type()),
                },
            });
        }
        Ok(Self { columns, rows: arrays.first().map_or(0, Array::len) })
    }

    /// Calls a function for each field of a row, empty ones too if they were asked for by name.
    pub(super) fn each(&self, row: usize, buffer: &mut String, mut call: impl FnMut(&str, &str)) {
        for column in &self.columns {
            match column {
                Column::Field { name, text, named } => {
                    if *named || !text.is_empty(row) {
                        call(name, text.text(row, buffer));
                    }
                }
                Column::Rest(rest) => rest.each(row, &mut call),
            }
        }
    }

    /// Says whether any field of a row is not empty.
    pub(super) fn any(&self, row: usize) -> bool {
        self.columns.iter().any(|column| match column {
            Column::Field { text, .. } => !text.is_empty(row),
            Column::Rest(rest) => {
                let mut any = false;
                rest.each(row, &mut |_: &str, value: &str| any |= !value.is_empty());
                any
            }
        })
    }
}

impl<'a> Rest<'a> {
    fn new(array: &'a ArrayRef, wanted: &'a [NamePattern]) -> Option<Self> {
        let map = array.as_map_opt()?;
        let names = map.keys().as_string_opt()?;
        let values = map.values().as_string_opt()?;
        Some(Self { map, names, values, wanted })
    }

    /// Calls a function for each field that is meant.
    pub(super) fn each(&self, row: usize, call: &mut impl FnMut(&str, &str)) {
        if self.map.is_null(row) {
            return;
        }
        let offsets = self.map.value_offsets();
        for i in offsets[row] as usize..offsets[row + 1] as usize {
            let name = self.names.value(i);
            if !self.values.is_null(i) && self.wanted.iter().any(|w| w.matches(name)) {
                call(name, self.values.value(i));
            }
        }
    }
}
