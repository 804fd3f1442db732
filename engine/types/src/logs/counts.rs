//! Counts the values of each field, as long as these are few and short. `facets` shows these counts.

use std::hash::BuildHasher;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, RecordBatch, RecordBatchOptions, StringViewArray, UInt64Array, make_view,
};
use arrow::buffer::{Buffer, NullBuffer};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef, UInt64Type};
use foldhash::fast::FixedState;
use hashbrown::HashTable;
use serde::{Deserialize, Serialize};

use crate::{Error, ErrorKind, Result};

/// Column of [`super::LogForm::FieldCounts`]: the name of a field.
pub const FIELD_NAME: &str = "__q_field";
/// Last column of [`super::LogForm::FieldCounts`] and [`super::LogForm::Counted`]: a number of rows.
pub const ROW_COUNT: &str = "__q_rows";
/// Value of a field ([`super::LogForm::ValueCounts`]).
pub const FIELD_VALUE: &str = "__q_value";

/// Fields with more values, or a longer one, are left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ValueLimits {
    /// Different values of a field.
    pub values: u64,
    /// Bytes of a value.
    pub bytes: u64,
}

/// Texts are found by offsets of 32 bits.
const TEXTS_MAX: usize = i32::MAX as usize;
const HASHER: FixedState = FixedState::with_seed(0x51);

/// Counts of values by field.
#[derive(Debug)]
pub struct ValueCounts {
    limits: ValueLimits,
    /// How many rows were looked at.
    pub rows: u64,
    texts: Vec<u8>,
    fields: Vec<FieldTally>,
    by_name: HashTable<u32>,
    values: Vec<Value>,
    by_value: HashTable<u32>,
    /// How many of the values are of fields that are left out.
    gone: u64,
}

/// Values of fields that were left out are dropped once there are so many, and half of all are such.
const GONE_MIN: u64 = 1024;

/// A text in the buffer.
type Place = (u32, u32);

#[derive(Debug)]
struct FieldTally {
    name: Place,
    values: u64,
    out: bool,
}

#[derive(Debug)]
struct Value {
    field: u32,
    text: Place,
    rows: u64,
}

/// A field of [`ValueCounts`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CountedField(u32);

fn value_hash(field: u32, text: &[u8]) -> u64 {
    HASHER.hash_one((field, text))
}

fn text_at(texts: &[u8], place: Place) -> &[u8] {
    &texts[place.0 as usize..][..place.1 as usize]
}

impl ValueCounts {
    /// Begins with nothing.
    pub fn new(limits: ValueLimits) -> Self {
        Self {
            limits,
            rows: 0,
            texts: Vec::new(),
            fields: Vec::new(),
            by_name: HashTable::new(),
            values: Vec::new(),
            by_value: HashTable::new(),
            gone: 0,
        }
    }

    /// Gives the bounds above which a field is left out.
    pub fn limits(&self) -> ValueLimits {
        self.limits
    }

    /// Gives the schema of [`Self::to_batch`]: name and value of a field (`Utf8View`), and the number of rows that have
    /// it (`UInt64`). Without a value: the field is left out. Without a name: rows that were looked at.
    pub fn schema() -> SchemaRef {
        let text = |name| Field::new(name, DataType::Utf8View, true);
        Arc::new(Schema::new(vec![text(FIELD_NAME), text(FIELD_VALUE), Field::new(ROW_COUNT, DataType::UInt64, true)]))
    }

    /// Finds a field by its name, or adds it.
    pub fn field(&mut self, name: &str) -> CountedField {
        let Self { texts, fields, by_name, .. } = self;
        let own = |i: &u32| text_at(texts, fields[*i as usize].name);
        let hash = HASHER.hash_one(name.as_bytes());
        if let Some(&known) = by_name.find(hash, |i| own(i) == name.as_bytes()) {
            return CountedField(known);
        }
        by_name.insert_unique(hash, fields.len() as u32, |i| HASHER.hash_one(own(i)));
        let place = push(texts, name);
        fields.push(FieldTally { name: place, values: 0, out: false });
        CountedField(fields.len() as u32 - 1)
    }

    /// Says whether a field is left out.
    #[inline]
    pub fn is_out(&self, field: CountedField) -> bool {
        self.fields[field.0 as usize].out
    }

    /// Leaves a field out: its values are forgotten, and further ones are not counted.
    pub fn leave_out(&mut self, field: CountedField) {
        let field = &mut self.fields[field.0 as usize];
        self.gone += std::mem::take(&mut field.values);
        field.out = true;
        if self.gone >= GONE_MIN.max(self.values.len() as u64 / 2) {
            self.drop_gone();
        }
    }

    /// Drops the values of fields that are left out, which may be millions.
    fn drop_gone(&mut self) {
        let Self { texts, fields, values, by_value, gone, .. } = self;
        values.retain(|value| !fields[value.field as usize].out);
        values.shrink_to_fit();
        let old = std::mem::take(texts);
        let names = fields.iter_mut().map(|field| &mut field.name);
        for place in names.chain(values.iter_mut().map(|value| &mut value.text)) {
            let text = text_at(&old, *place);
            *place = (texts.len() as u32, text.len() as u32);
            texts.extend_from_slice(text);
        }
        *by_value = HashTable::with_capacity(values.len());
        let hash = |i: &u32| value_hash(values[*i as usize].field, text_at(texts, values[*i as usize].text));
        for i in 0..values.len() as u32 {
            by_value.insert_unique(hash(&i), i, hash);
        }
        *gone = 0;
    }

    /// Gives for each field that is not left out how many values it has.
    pub fn values_of_fields(&self) -> impl Iterator<Item = u64> {
        self.fields.iter().filter(|field| !field.out).map(|field| field.values)
    }

    /// Says that so many more rows have a value. Empty ones do not count.
    pub fn add(&mut self, field: CountedField, value: &str, rows: u64) {
        let own = &self.fields[field.0 as usize];
        if own.out || rows == 0 || value.is_empty() {
            return;
        }
        if value.len() as u64 > self.limits.bytes {
            return self.leave_out(field);
        }
        let Self { texts, values, by_value, .. } = self;
        let of = |i: &u32| &values[*i as usize];
        let found = by_value.find(value_hash(field.0, value.as_bytes()), |i| {
            of(i).field == field.0 && text_at(texts, of(i).text) == value.as_bytes()
        });
        if let Some(&found) = found {
            values[found as usize].rows += rows;
            return;
        }
        if own.values >= self.limits.values {
            return self.leave_out(field);
        }
        by_value.insert_unique(value_hash(field.0, value.as_bytes()), values.len() as u32, |i| {
            value_hash(of(i).field, text_at(texts, of(i).text))
        });
        let text = push(texts, value);
        values.push(Value { field: field.0, text, rows });
        self.fields[field.0 as usize].values += 1;
    }

    /// Gives what is allocated: room for more values counts, too.
    pub fn memory_bytes(&self) -> usize {
        self.texts.capacity()
            + self.fields.capacity() * size_of::<FieldTally>()
            + self.values.capacity() * size_of::<Value>()
            + (self.by_name.capacity() + self.by_value.capacity()) * (size_of::<u32>() + 1)
    }

    /// Gives fields in order of name, each with its values and their rows; nothing of those that are left out.
    pub fn by_name(&self) -> impl Iterator<Item = (&str, Vec<(&str, u64)>)> {
        let text = |place| std::str::from_utf8(text_at(&self.texts, place)).unwrap_or_default();
        let mut values: Vec<&Value> = self.values.iter().filter(|v| !self.fields[v.field as usize].out).collect();
        let name = move |value: &Value| text(self.fields[value.field as usize].name);
        values.sort_unstable_by(|a, b| name(a).cmp(name(b)));
        let mut at = 0;
        std::iter::from_fn(move || {
            let field = values.get(at)?.field;
            let first = at;
            at += values[at..].iter().take_while(|v| v.field == field).count();
            Some((name(values[first]), values[first..at].iter().map(|v| (text(v.text), v.rows)).collect()))
        })
    }

    /// Gives all as a batch of [`Self::schema`].
    ///
    /// # Errors
    /// `LimitExceeded`: more text than a batch holds.
    pub fn to_batch(self) -> Result<RecordBatch> {
        if self.texts.len() > TEXTS_MAX {
            let text = format!("the values of all fields come to more than {} MiB", TEXTS_MAX >> 20);
            return Err(Error::new(ErrorKind::LimitExceeded, text));
        }
        let view = |place: Place| make_view(text_at(&self.texts, place), 0, place.0);
        let counted = self.values.iter().filter(|value| !self.fields[value.field as usize].out);
        let counted = counted.map(|value| (view(self.fields[value.field as usize].name), Some(value.text), value.rows));
        let out = self.fields.iter().filter(|field| field.out).map(|field| (view(field.name), None, 0));
        let rows = std::iter::once((0, None, self.rows));
        // What is known to come needs no room to grow into.
        let most = 1 + self.fields.len() + self.values.len();
        let (mut names, mut values) = (Vec::with_capacity(most), Vec::with_capacity(most));
        let (mut counts, mut there) = (Vec::with_capacity(most), Vec::with_capacity(most));
        for (name, value, rows) in rows.chain(out).chain(counted) {
            names.push(name);
            there.push(value.is_some());
            values.push(value.map_or(0, view));
            counts.push(rows);
        }
        let count = names.len();
        let named = NullBuffer::from((0..count).map(|i| i > 0).collect::<Vec<bool>>());
        let buffers: Vec<Buffer> = vec![Buffer::from_vec(self.texts)];
        let columns: Vec<ArrayRef> = vec![
            Arc::new(StringViewArray::new(names.into(), buffers.clone(), Some(named))),
            Arc::new(StringViewArray::new(values.into(), buffers, Some(there.into()))),
            Arc::new(UInt64Array::from(counts)),
        ];
        let options = RecordBatchOptions::new().with_row_count(Some(count));
        RecordBatch::try_new_with_options(Self::schema(), columns, &options)
            .map_err(|e| Error::internal("cannot build a batch of counted values").with_source(e))
    }

    /// Adds what another has counted, as it gave it.
    ///
    /// # Errors
    /// Internal: the batch is of another schema.
    pub fn add_batch(&mut self, batch: &RecordBatch) -> Result<()> {
        let columns = (batch.num_columns() == 3).then(|| {
            let texts = |i: usize| batch.column(i).as_string_view_opt();
            Some((texts(0)?, texts(1)?, batch.column(2).as_primitive_opt::<UInt64Type>()?))
        });
        let (names, values, counts) =
            columns.flatten().ok_or_else(|| Error::internal("this is no batch of counted values"))?;
        let mut last: Option<(u128, CountedField)> = None;
        for row in 0..batch.num_rows() {
            if names.is_null(row) {
                self.rows += counts.value(row);
                continue;
            }
            let field = match last {
                Some((view, field)) if view == names.views()[row] => field,
                _ => self.field(names.value(row)),
            };
            last = Some((names.views()[row], field));
            if values.is_null(row) {
                self.leave_out(field);
            } else {
                self.add(field, values.value(row), counts.value(row));
            }
        }
        Ok(())
    }
}

fn push(texts: &mut Vec<u8>, text: &str) -> Place {
    let place = (u32::try_from(texts.len()).unwrap_or(u32::MAX), text.len() as u32);
    texts.extend_from_slice(text.as_bytes());
    place
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: ValueLimits = ValueLimits { values: 2, bytes: 20 };

    #[test]
    fn fields_with_many_or_long_values_are_left_out() {
        let mut first = ValueCounts::new(LIMITS);
        let (a, b, c) = (first.field("a"), first.field("b"), first.field("a field with a long name"));
        for (field, value, rows) in [
            (a, "x", 3),
            (a, "y and some more", 1),
            (a, "x", 2),
            (a, "", 9),
            (b, "1", 1),
            (b, "2", 1),
            (b, "1", 1),
            (c, "short", 7),
        ] {
            first.add(field, value, rows);
        }
        first.rows = 10;
        assert_eq!(first.field("b"), b);
        let mut second = ValueCounts::new(LIMITS);
        let (b, c, d) = (second.field("b"), second.field("a field with a long name"), second.field("d"));
        second.add(b, "3", 1);
        second.add(c, "a value that is too long", 1);
        assert!(second.is_out(c));
        second.add(d, "one", 1);
        second.rows = 5;
        let mut all = ValueCounts::new(LIMITS);
        for part in [first, second] {
            all.add_batch(&part.to_batch().unwrap()).unwrap();
        }
        assert_eq!(all.rows, 15);
        let mut found: Vec<_> = all.by_name().collect();
        found[0].1.sort_unstable();
        assert_eq!(found, [("a", vec![("x", 5), ("y and some more", 1)]), ("d", vec![("one", 1)])]);
        assert!(all.add_batch(&RecordBatch::new_empty(Arc::new(Schema::empty()))).is_err());
    }

    /// Counts of random values in several batches are those that a map of maps has, whatever is left out.
    #[test]
    fn counts_are_those_of_a_map() {
        use std::collections::BTreeMap;
        let mut random = 3_u64;
        let mut next = |below: usize| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (random >> 33) as usize % below
        };
        let limits = ValueLimits { values: 5, bytes: 16 };
        let names = ["a", "b", "a name that no view holds", "d", "é"];
        let mut all = ValueCounts::new(limits);
        let mut model: BTreeMap<&str, BTreeMap<String, u64>> = BTreeMap::new();
        for _ in 0..40 {
            let mut part = ValueCounts::new(limits);
            for _ in 0..next(30) {
                let at = next(names.len());
                // One field has more values than the limit, one a longer one.
                let value = match at {
                    1 => format!("value {}", next(9)),
                    3 if next(9) == 0 => "x".repeat(17),
                    _ => "é".repeat(1 + next(5)),
                };
                let (field, rows) = (part.field(names[at]), next(3) as u64);
                part.add(field, &value, rows);
                if rows > 0 {
                    *model.entry(names[at]).or_default().entry(value).or_default() += rows;
                }
            }
            part.rows = 2;
            all.add_batch(&part.to_batch().expect("few texts")).expect("its own");
        }
        assert_eq!(all.rows, 80);
        model.retain(|_, values| {
            values.len() as u64 <= limits.values && values.keys().all(|v| v.len() as u64 <= limits.bytes)
        });
        assert_eq!(model.keys().copied().collect::<Vec<_>>(), ["a", "a name that no view holds", "é"]);
        let found: BTreeMap<&str, BTreeMap<String, u64>> = all
            .by_name()
            .map(|(name, values)| (name, values.into_iter().map(|(value, rows)| (value.to_owned(), rows)).collect()))
            .collect();
        assert_eq!(found, model);
        assert!(all.memory_bytes() > 0);
    }

    #[test]
    fn values_of_fields_that_are_left_out_are_dropped() {
        let mut counts = ValueCounts::new(ValueLimits { values: 5_000, bytes: 50 });
        let (many, few) = (counts.field("many"), counts.field("few"));
        counts.add(few, "before", 1);
        (0..5_000).for_each(|n| counts.add(many, &format!("a value of many {n}"), 1));
        let held = counts.memory_bytes();
        assert_eq!(counts.values_of_fields().collect::<Vec<_>>(), [5_000, 1]);
        counts.add(many, "one more", 1);
        assert!(counts.is_out(many) && counts.memory_bytes() < held / 10, "{} of {held}", counts.memory_bytes());
        for value in ["behind", "before", "behind"] {
            counts.add(few, value, 1);
        }
        counts.add(many, "a value of many 7", 1);
        assert_eq!((counts.field("many"), counts.field("few")), (many, few));
        let found: Vec<_> = counts.by_name().collect();
        assert_eq!(found, [("few", vec![("before", 2), ("behind", 2)])]);
        assert_eq!(counts.values_of_fields().collect::<Vec<_>>(), [2]);
    }

    #[test]
    fn limits_are_what_still_fits() {
        let mut counts = ValueCounts::new(LIMITS);
        let (few, long, none) = (counts.field("few"), counts.field("long"), counts.field("none"));
        counts.add(few, "1", 1);
        counts.add(few, "2", 1);
        counts.add(long, &"x".repeat(20), 1);
        counts.add(none, "", 5);
        counts.add(none, "x", 0);
        assert_eq!([few, long, none].map(|field| counts.is_out(field)), [false; 3]);
        assert_eq!(counts.by_name().map(|(name, _)| name).collect::<Vec<_>>(), ["few", "long"], "no value is none");
        counts.add(few, "3", 1);
        counts.add(long, &"x".repeat(21), 1);
        assert_eq!([few, long, none].map(|field| counts.is_out(field)), [true, true, false]);
        counts.add(few, "1", 1);
        assert_eq!(counts.by_name().count(), 0, "out is out");
        let batch = counts.to_batch().expect("few texts");
        // The rows, and what is left out, each in a row of its own.
        assert_eq!((batch.num_rows(), batch.schema()), (3, ValueCounts::schema()));
    }
}
