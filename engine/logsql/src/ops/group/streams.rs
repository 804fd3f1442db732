//! Rows whose group takes in all rows of their stream: they are grouped by labels of it, or by fields that they lack.

use arrow::array::Array;
use arrow::buffer::BooleanBuffer;
use arrow::record_batch::RecordBatch;
use datafusion::error::Result;
use quiver_types::logs::STREAM;

use crate::kernels::columns::Texts;
use crate::rows::{Shape, texts_of};
use crate::stream_text;

/// Fields are told apart by bits of a number, the highest of which says that there is no stream.
const FIELDS_MAX: usize = 63;
const NO_STREAM: u64 = 1 << FIELDS_MAX;

/// For each row of a batch that is grouped by these fields, whether it is such a row.
pub(super) fn whole(batch: &RecordBatch, shape: &Shape, fields: &[String]) -> Result<Option<BooleanBuffer>> {
    if fields.is_empty() || fields.len() > FIELDS_MAX {
        return Ok(None);
    }
    let streams = texts_of(batch, shape, STREAM)?;
    let values = fields.iter().map(|name| texts_of(batch, shape, name)).collect::<Result<Vec<_>>>()?;
    let whole = |lacking: u64, row: usize| {
        let lacks = |field: usize| (lacking >> field) & 1 == 0 || values[field].is_empty(row);
        lacking == 0 || lacking != NO_STREAM && (0..fields.len()).all(lacks)
    };
    let rows = batch.num_rows();
    Ok(Some(match &streams {
        Texts::Dictionary(codes, texts) if texts.len() <= rows => {
            let of_code: Vec<u64> = texts.iter().map(|text| lacking(text.unwrap_or(""), fields)).collect();
            let of_row = |row: usize| if codes.is_valid(row) { of_code[codes.value(row) as usize] } else { NO_STREAM };
            BooleanBuffer::collect_bool(rows, |row| whole(of_row(row), row))
        }
        streams => {
            let (mut buffer, mut last, mut known) = (String::new(), String::new(), NO_STREAM);
            BooleanBuffer::collect_bool(rows, |row| {
                let text = streams.get(row, &mut buffer);
                // Rows of a stream mostly follow each other.
                if text != last {
                    text.clone_into(&mut last);
                    known = lacking(text, fields);
                }
                whole(known, row)
            })
        }
    }))
}

/// Which of the fields are no labels of a stream, as bits.
fn lacking(stream: &str, fields: &[String]) -> u64 {
    if stream.is_empty() {
        return NO_STREAM;
    }
    let labels = stream_text::parse(stream);
    let none = |field: &String| !labels.iter().any(|(name, _)| name == field);
    fields.iter().enumerate().filter(|(_, field)| none(field)).fold(0, |bits, (i, _)| bits | (1 << i))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{ArrayRef, StringViewArray};

    use super::*;
    use crate::rows::batch;

    #[test]
    fn labels_and_fields_that_rows_lack() {
        let shape = Shape::of_texts(["a", "b", STREAM]);
        let rows = [
            ["1", "", "{a=\"1\"}"],
            ["1", "2", "{a=\"1\"}"],
            ["1", "2", "{a=\"1\",b=\"2\"}"],
            ["", "", "{}"],
            ["", "", ""],
            ["1", "2", ""],
            ["1", "2", "{a=\"1\",b=\"2\"}"],
        ];
        let column = |i: usize| Arc::new(StringViewArray::from_iter_values(rows.iter().map(|row| row[i]))) as ArrayRef;
        let rows = batch(&shape, (0..3).map(column).collect(), rows.len()).unwrap();
        let check = |fields: &[&str], expected: &[usize]| {
            let fields: Vec<String> = fields.iter().map(|&field| field.to_owned()).collect();
            let found = whole(&rows, &shape, &fields).unwrap().unwrap();
            assert_eq!(found.set_indices().collect::<Vec<_>>(), expected, "{fields:?}");
        };
        check(&["a"], &[0, 1, 2, 3, 6]);
        check(&["a", "b"], &[0, 2, 3, 6]);
        check(&["b", "x"], &[0, 2, 3, 6]);
        assert!(whole(&rows, &shape, &[]).unwrap().is_none());
    }
}
