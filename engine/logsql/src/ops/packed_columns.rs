//! Packs many string columns into one. A query may name hundreds of fields, of which a row has only a few; a packed row
//! takes the memory of its values, instead of a view for each field.

use std::fmt::Write as _;
use std::sync::Arc;

use arrow::array::{ArrayBuilder, ArrayRef, StringViewBuilder};
use arrow::datatypes::Field;
use arrow::record_batch::RecordBatch;
use datafusion::common::internal_datafusion_err;
use datafusion::error::Result;

use crate::rows::{Column, ColumnStorage, Shape, Texts, batch, missing, push_text, texts};

/// Most columns that are held as they are.
pub(crate) const PLAIN_MAX: usize = 32;

/// The column of what was packed.
pub(crate) const PACKED: &str = "__q_packed";

/// Packs columns, which are given with their places: of each row its values that are not empty, each behind its place and
/// its length.
pub(crate) fn pack(columns: &[(usize, Texts)], rows: usize) -> ArrayRef {
    let (mut line, mut scratch) = (String::new(), String::new());
    let mut out = StringViewBuilder::with_capacity(rows);
    for row in 0..rows {
        line.clear();
        for (place, texts) in columns {
            push_packed(&mut line, *place, texts.get(row, &mut scratch));
        }
        push_text(&mut out, &line);
    }
    Arc::new(out.finish())
}

/// Appends a value to a packed row.
pub(crate) fn push_packed(line: &mut String, place: usize, value: &str) {
    if !value.is_empty() {
        // Writing to a text cannot fail.
        let _ = write!(line, "{place}:{}:", value.len());
        line.push_str(value);
    }
}

/// The place and the value of the first entry, and the entries behind it.
fn first_entry(line: &str) -> Option<(usize, &str, &str)> {
    let (place, line) = line.split_once(':')?;
    let (length, line) = line.split_once(':')?;
    let (value, rest) = line.split_at_checked(length.parse().ok()?)?;
    Some((place.parse().ok()?, value, rest))
}

/// Makes so many columns of what was packed; those that no row has are one array.
///
/// # Errors
/// Internal: the texts were not packed, or from more columns.
pub(crate) fn unpack(packed: &Texts, count: usize, rows: usize) -> Result<Vec<ArrayRef>> {
    let mut builders: Vec<Option<StringViewBuilder>> = Vec::new();
    builders.resize_with(count, || None);
    let mut scratch = String::new();
    for row in 0..rows {
        let mut line = packed.get(row, &mut scratch);
        while !line.is_empty() {
            let entry = first_entry(line).filter(|(place, ..)| *place < count);
            let (place, value, rest) = entry.ok_or_else(|| internal_datafusion_err!("a packed row is damaged"))?;
            let builder = builders[place].get_or_insert_with(|| StringViewBuilder::with_capacity(rows));
            (builder.len()..row).for_each(|_| builder.append_null());
            builder.append_value(value);
            line = rest;
        }
    }
    let nothing = missing(rows);
    let finished = |builder: Option<StringViewBuilder>| -> ArrayRef {
        let Some(mut builder) = builder else { return Arc::clone(&nothing) };
        (builder.len()..rows).for_each(|_| builder.append_null());
        Arc::new(builder.finish())
    };
    Ok(builders.into_iter().map(finished).collect())
}

/// How the rows of a shape are packed: columns of texts together, others as they are.
#[derive(Debug)]
pub(crate) struct PackingLayout {
    shape: Shape,
    /// Places of columns that are no texts.
    plain: Vec<usize>,
    /// Places of columns that are packed. Columns of texts that are not needed are in neither list, and come back empty.
    packed: Vec<usize>,
}

impl PackingLayout {
    pub(crate) fn of(shape: &Shape, unneeded: &[String]) -> Self {
        let places = 0..shape.columns.len();
        let is_text = |place: &usize| shape.columns[*place].kind == ColumnStorage::Text;
        let (texts, plain): (Vec<usize>, Vec<usize>) = places.partition(is_text);
        let is_needed = |place: &usize| unneeded.binary_search(&shape.columns[*place].name).is_err();
        Self { shape: shape.clone(), plain, packed: texts.into_iter().filter(is_needed).collect() }
    }

    /// The columns of packed rows: those that are no texts, what is packed, the map.
    pub(crate) fn fields(&self) -> Vec<Arc<Field>> {
        let packed = Column { name: PACKED.to_owned(), kind: ColumnStorage::Text };
        let columns = self.plain.iter().map(|place| self.shape.columns[*place].clone()).chain([packed]).collect();
        Shape { columns, rest: self.shape.rest }.schema().fields().iter().cloned().collect()
    }

    /// The same of a batch.
    pub(crate) fn pack(&self, rows: &RecordBatch) -> Result<Vec<ArrayRef>> {
        let mut found = Vec::new();
        for place in &self.packed {
            let column = texts(rows.column(*place))?;
            if !column.is_absent() {
                found.push((*place, column));
            }
        }
        let plain = self.plain.iter().map(|place| Arc::clone(rows.column(*place)));
        let rest = self.shape.rest.then(|| Arc::clone(rows.column(self.shape.columns.len())));
        Ok(plain.chain([pack(&found, rows.num_rows())]).chain(rest).collect())
    }

    /// The rows as they were, except for texts that are not needed.
    ///
    /// # Errors
    /// Internal: the rows were not packed so.
    pub(crate) fn unpack(&self, packed: &RecordBatch) -> Result<RecordBatch> {
        let rows = packed.num_rows();
        let at = self.plain.len();
        let mut columns = unpack(&texts(packed.column(at))?, self.shape.columns.len(), rows)?;
        for (own, place) in self.plain.iter().enumerate() {
            columns[*place] = Arc::clone(packed.column(own));
        }
        if self.shape.rest {
            columns.push(Arc::clone(packed.column(at + 1)));
        }
        batch(&self.shape, columns, rows)
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{Array, AsArray, StringViewArray, TimestampNanosecondArray};

    use super::*;
    use crate::rows::{RestBuilder, texts_of};

    fn column(values: &[&str]) -> ArrayRef {
        Arc::new(values.iter().map(|value| (!value.is_empty()).then_some(*value)).collect::<StringViewArray>())
    }

    #[test]
    fn what_was_packed_comes_back() {
        let all: [&[&str]; 4] = [
            &["x", "", "3:2:1", "größe"],
            &["", "", "", ""],
            &["a text that is longer than a view", "", "", ":"],
            &["", "", "", "z"],
        ];
        let found: Vec<(usize, Texts)> =
            all.iter().enumerate().map(|(i, values)| (i, texts(&column(values)).expect("texts"))).collect();
        let packed = pack(&found, 4);
        assert_eq!(packed.as_string_view().value(0), "0:1:x2:33:a text that is longer than a view");
        assert!(packed.is_null(1), "nothing is no text");
        let packed = texts(&packed).expect("texts");
        let columns = unpack(&packed, 5, 4).expect("columns");
        for (values, array) in all.iter().zip(&columns) {
            assert_eq!(array, &column(values));
        }
        assert!(Arc::ptr_eq(&columns[1], &columns[4]), "nothing is held once");
        assert!(unpack(&packed, 2, 4).is_err(), "from more columns");
        for wrong in ["x", "1:2", "1:9:x", "1:x:y", "1:1:ä"] {
            assert!(unpack(&texts(&column(&[wrong])).expect("texts"), 5, 1).is_err(), "{wrong}");
        }
    }

    #[test]
    fn rows_come_back_as_they_were() {
        let text = |name: &str| Column { name: name.to_owned(), kind: ColumnStorage::Text };
        let columns = vec![text("a"), Column { name: "t".to_owned(), kind: ColumnStorage::Time }, text("b"), text("c")];
        let shape = Shape { columns, rest: true };
        let mut map = RestBuilder::new(2);
        map.push("d", "4");
        map.end_row();
        map.end_row();
        let times: ArrayRef = Arc::new(TimestampNanosecondArray::from(vec![Some(5), None]).with_timezone("UTC"));
        let arrays =
            vec![column(&["1", ""]), times, column(&["", "2"]), column(&["3", "3"]), map.finish().expect("a map")];
        let rows = batch(&shape, arrays, 2).expect("rows");
        let again = |unneeded: &[String]| {
            let packing = PackingLayout::of(&shape, unneeded);
            let schema = Arc::new(arrow::datatypes::Schema::new(packing.fields()));
            let packed = RecordBatch::try_new(schema, packing.pack(&rows).expect("packed")).expect("a batch");
            assert_eq!(packed.num_columns(), 3);
            packing.unpack(&packed).expect("rows")
        };
        assert_eq!(again(&[]), rows);
        let without = again(&["b".to_owned(), "t".to_owned()]);
        assert!(texts_of(&without, &shape, "b").expect("texts").is_absent());
        assert_eq!(
            (without.column(0), without.column(1), without.column(3)),
            (rows.column(0), rows.column(1), rows.column(3))
        );
    }
}
