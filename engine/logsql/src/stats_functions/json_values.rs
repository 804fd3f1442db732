//! `json_values(a, b) [sort by ..] [limit N]`: a JSON array of objects, their fields by name.

use std::cmp::Ordering;

use datafusion::common::Result;

use super::args::{Args, Column};
use super::grouped::{Bytes, GroupState};
use super::row_any::push_object;
use super::state_bytes::{Reader, put_text};
use crate::kernels::values::compare;

/// What is sorted by, and how much is kept.
#[derive(Debug, Clone)]
pub(super) struct JsonValuesConfig {
    /// For each of the last arguments: whether descending. The arguments before are fields of the objects.
    pub(super) sort: Vec<bool>,
    pub(super) limit: u64,
}

/// Objects of a group, each with the values it is sorted by.
#[derive(Debug, Default)]
pub(super) struct JsonValues {
    rows: Vec<(Vec<String>, String)>,
    bytes: Bytes,
}

/// What an object takes.
fn bytes_of((keys, object): &(Vec<String>, String)) -> usize {
    object.len() + keys.iter().map(|k| k.len() + size_of::<String>()).sum::<usize>() + 48
}

impl JsonValues {
    fn insert(&mut self, config: &JsonValuesConfig, keys: Vec<String>, object: String) -> usize {
        if config.sort.is_empty() && self.rows.len() as u64 >= config.limit {
            return 0;
        }
        let row = (keys, object);
        let grown = self.bytes.set(self.bytes.now() + bytes_of(&row));
        self.rows.push(row);
        // Sorted and cut now and then: memory follows the limit, not the rows.
        if self.rows.len() as u64 > config.limit.saturating_mul(2).max(1024) {
            self.cut(config);
            // No more than before.
            self.bytes.set(self.rows.iter().map(bytes_of).sum());
        }
        grown
    }

    fn cut(&mut self, config: &JsonValuesConfig) {
        if !config.sort.is_empty() {
            self.rows.sort_by(|a, b| order(&config.sort, &a.0, &b.0));
        }
        self.rows.truncate(usize::try_from(config.limit).unwrap_or(usize::MAX));
    }
}

fn order(descending: &[bool], a: &[String], b: &[String]) -> Ordering {
    for (descending, (x, y)) in descending.iter().zip(a.iter().zip(b)) {
        let order = compare(x, y);
        if order != Ordering::Equal {
            return if *descending { order.reverse() } else { order };
        }
    }
    Ordering::Equal
}

impl GroupState for JsonValues {
    type Config = JsonValuesConfig;

    fn add(&mut self, config: &JsonValuesConfig, args: &Args<'_>, row: usize, buffer: &mut String) -> usize {
        let fields = args.columns.len().saturating_sub(config.sort.len());
        let mut object = String::new();
        push_object(&args.columns[..fields], row, buffer, true, &mut object);
        let keys = args.columns[fields..]
            .iter()
            .map(|column| match column {
                Column::Field { text, .. } => text.text(row, buffer).to_owned(),
                Column::Rest(rest) => {
                    let mut found = String::new();
                    rest.each(row, &mut |_: &str, value: &str| value.clone_into(&mut found));
                    found
                }
            })
            .collect();
        self.insert(config, keys, object)
    }

    fn encode(&self, out: &mut Vec<u8>) {
        for (keys, object) in &self.rows {
            for key in keys {
                put_text(out, key);
            }
            put_text(out, object);
        }
    }

    fn merge(&mut self, config: &JsonValuesConfig, from: &mut Reader<'_>) -> Result<usize> {
        let mut grown = 0;
        while !from.is_empty() {
            let keys = config.sort.iter().map(|_| from.text().map(str::to_owned)).collect::<Result<_>>()?;
            let object = from.text()?.to_owned();
            grown += self.insert(config, keys, object);
        }
        Ok(grown)
    }

    fn finish(mut self, config: &JsonValuesConfig, out: &mut String) {
        self.cut(config);
        out.push('[');
        for (i, (_, object)) in self.rows.iter().enumerate() {
            if i > 0 {
                out.push(',');
            }
            out.push_str(object);
        }
        out.push(']');
    }
}
