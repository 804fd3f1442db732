//! What serialized plans share: a checksum, and forms of Arrow columns for `#[serde(with = …)]`.
//!
//! Columns are written as an Arrow IPC stream. Its reader panics on some malformed input, so damage must be detected by
//! the checksum before.

use std::fmt;

use arrow::buffer::Buffer;
use arrow::datatypes::{Schema, SchemaRef};
use arrow::error::ArrowError;
use arrow::ipc::reader::StreamDecoder;
use arrow::ipc::writer::StreamWriter;
use arrow::record_batch::RecordBatch;
use serde::de::{self, Deserializer, Visitor};
use serde::ser::{self, Serializer};
use xxhash_rust::xxh3::xxh3_64;

/// Adds a checksum to a body.
pub fn sealed(mut body: Vec<u8>) -> Vec<u8> {
    let checksum = xxh3_64(&body);
    body.extend_from_slice(&checksum.to_le_bytes());
    body
}

/// Gives the body that was sealed; `None`: it was damaged.
pub fn unsealed(bytes: &[u8]) -> Option<&[u8]> {
    let (body, checksum) = bytes.split_last_chunk()?;
    (u64::from_le_bytes(*checksum) == xxh3_64(body)).then_some(body)
}

/// Form of a [`SchemaRef`], for `#[serde(with = …)]`.
pub mod schema {
    use arrow::datatypes::{Schema, SchemaRef};
    use serde::{Deserializer, Serializer};

    /// Writes it.
    ///
    /// # Errors
    /// What the writer refuses.
    pub fn serialize<S: Serializer>(schema: &Schema, serializer: S) -> Result<S::Ok, S::Error> {
        super::write(schema, &[], serializer)
    }

    /// Reads it.
    ///
    /// # Errors
    /// What the reader refuses, or bytes that are no stream of Arrow.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<SchemaRef, D::Error> {
        Ok(super::read(deserializer)?.0)
    }
}

/// A `Vec<RecordBatch>`; all have one schema.
pub mod batches {
    use arrow::datatypes::Schema;
    use arrow::record_batch::RecordBatch;
    use serde::{Deserializer, Serializer};

    /// Writes them.
    ///
    /// # Errors
    /// What the writer refuses.
    pub fn serialize<S: Serializer>(batches: &[RecordBatch], serializer: S) -> Result<S::Ok, S::Error> {
        match batches.first() {
            Some(first) => super::write(first.schema_ref(), batches, serializer),
            None => super::write(&Schema::empty(), batches, serializer),
        }
    }

    /// Reads them.
    ///
    /// # Errors
    /// What the reader refuses, or bytes that are no stream of Arrow.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<RecordBatch>, D::Error> {
        Ok(super::read(deserializer)?.1)
    }
}

/// Form of an [`ArrayRef`](arrow::array::ArrayRef), for `#[serde(with = …)]`.
pub mod array {
    use std::sync::Arc;

    use arrow::array::ArrayRef;
    use arrow::datatypes::{Field, Schema};
    use arrow::record_batch::RecordBatch;
    use serde::de::Error as _;
    use serde::ser::Error as _;
    use serde::{Deserializer, Serializer};

    /// Writes it.
    ///
    /// # Errors
    /// What the writer refuses.
    pub fn serialize<S: Serializer>(array: &ArrayRef, serializer: S) -> Result<S::Ok, S::Error> {
        let schema = Arc::new(Schema::new(vec![Field::new("item", array.data_type().clone(), true)]));
        let batch = RecordBatch::try_new(schema, vec![Arc::clone(array)]).map_err(S::Error::custom)?;
        super::write(batch.schema_ref(), std::slice::from_ref(&batch), serializer)
    }

    /// Reads it.
    ///
    /// # Errors
    /// What the reader refuses, or bytes that are no stream of Arrow.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<ArrayRef, D::Error> {
        let (_, batches) = super::read(deserializer)?;
        match batches.as_slice() {
            [batch] if batch.num_columns() == 1 => Ok(Arc::clone(batch.column(0))),
            _ => Err(D::Error::custom("no array of Arrow")),
        }
    }
}

fn write<S: Serializer>(schema: &Schema, batches: &[RecordBatch], serializer: S) -> Result<S::Ok, S::Error> {
    let bytes = to_bytes(schema, batches).map_err(ser::Error::custom)?;
    serializer.serialize_bytes(&bytes)
}

fn to_bytes(schema: &Schema, batches: &[RecordBatch]) -> Result<Vec<u8>, ArrowError> {
    let mut writer = StreamWriter::try_new(Vec::<u8>::new(), schema)?;
    for batch in batches {
        if **batch.schema_ref() != *schema {
            return Err(ArrowError::SchemaError("batches of several schemas are not written as one list".to_owned()));
        }
        writer.write(batch)?;
    }
    writer.into_inner().map(sealed)
}

fn read<'de, D: Deserializer<'de>>(deserializer: D) -> Result<(SchemaRef, Vec<RecordBatch>), D::Error> {
    struct Columns;

    impl Visitor<'_> for Columns {
        type Value = (SchemaRef, Vec<RecordBatch>);

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("columns of Arrow")
        }

        fn visit_bytes<E: de::Error>(self, bytes: &[u8]) -> Result<Self::Value, E> {
            of_bytes(bytes).map_err(E::custom)
        }
    }

    deserializer.deserialize_bytes(Columns)
}

fn of_bytes(bytes: &[u8]) -> Result<(SchemaRef, Vec<RecordBatch>), ArrowError> {
    let damaged = || ArrowError::IpcError("columns of Arrow are damaged".to_owned());
    // A copy of its own is aligned, as columns must be.
    let mut stream = Buffer::from(unsealed(bytes).ok_or_else(damaged)?);
    let (mut decoder, mut batches) = (StreamDecoder::new(), Vec::new());
    while let Some(batch) = decoder.decode(&mut stream)? {
        batches.push(batch);
    }
    decoder.finish()?;
    Ok((decoder.schema().ok_or_else(damaged)?, batches))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{Array, ArrayRef, DictionaryArray, Float64Array, ListArray, StringArray};
    use arrow::datatypes::{DataType, Field, Float64Type, Int32Type};
    use arrow::record_batch::RecordBatchOptions;
    use serde::{Deserialize, Serialize};

    use super::*;

    #[derive(Debug, Serialize, Deserialize)]
    struct Held {
        #[serde(with = "super::schema")]
        schema: SchemaRef,
        #[serde(with = "super::batches")]
        batches: Vec<RecordBatch>,
        #[serde(with = "super::array")]
        array: ArrayRef,
    }

    fn held(schema: SchemaRef, batches: Vec<RecordBatch>, array: ArrayRef) -> Held {
        let bytes = postcard::to_allocvec(&Held { schema, batches, array }).expect("written");
        postcard::from_bytes(&bytes).expect("read")
    }

    fn two_columns() -> SchemaRef {
        let codes = DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8));
        let noted = |name: &str| [(name.to_owned(), "noted".to_owned())].into();
        let value = Field::new("v", DataType::Float64, true).with_metadata(noted("unit"));
        Arc::new(Schema::new(vec![value, Field::new("d", codes, false)]).with_metadata(noted("of")))
    }

    fn batch(values: &[Option<f64>], texts: &[&str]) -> RecordBatch {
        let codes: DictionaryArray<Int32Type> = texts.iter().copied().collect();
        let columns: Vec<ArrayRef> = vec![Arc::new(Float64Array::from(values.to_vec())), Arc::new(codes)];
        RecordBatch::try_new(two_columns(), columns).expect("a batch")
    }

    #[test]
    fn columns_come_back() {
        let stale = f64::from_bits(crate::STALE_NAN_BITS);
        let lists = ListArray::from_iter_primitive::<Float64Type, _, _>([Some(vec![Some(-0.0)]), None, Some(vec![])]);
        // Each batch has a dictionary of its own, and one is a piece of a larger one.
        let batches = vec![
            batch(&[Some(stale), None], &["a", "b"]),
            batch(&[Some(1.0), Some(-0.0), Some(3.0)], &["c", "a", "c"]).slice(1, 2),
        ];
        let array: ArrayRef = Arc::new(lists);
        let back = held(two_columns(), batches.clone(), Arc::clone(&array));
        assert_eq!((back.schema, &back.batches), (two_columns(), &batches));
        assert_eq!(back.array.to_data(), array.to_data());
        let first = back.batches[0].column(0).to_data();
        assert_eq!(first.buffers()[0].typed_data::<f64>()[0].to_bits(), crate::STALE_NAN_BITS);
    }

    #[test]
    fn nothing_comes_back_as_nothing() {
        let empty: SchemaRef = Arc::new(Schema::empty());
        let rows = RecordBatchOptions::new().with_row_count(Some(3));
        let no_columns = RecordBatch::try_new_with_options(Arc::clone(&empty), vec![], &rows).expect("a batch");
        let back = held(Arc::clone(&empty), vec![], Arc::new(StringArray::from(Vec::<&str>::new())));
        assert_eq!((&back.schema, back.batches.len(), back.array.len()), (&empty, 0, 0));
        let back = held(empty, vec![no_columns], back.array);
        assert_eq!(back.batches[0].num_rows(), 3);
    }

    #[test]
    fn what_is_damaged_is_an_error() {
        let bytes = to_bytes(&two_columns(), &[batch(&[Some(1.0)], &["a"])]).expect("written");
        assert!(of_bytes(&bytes).is_ok());
        for length in 0..bytes.len() {
            assert!(of_bytes(&bytes[..length]).is_err(), "{length} bytes");
        }
        for at in 0..bytes.len() {
            let mut bytes = bytes.clone();
            bytes[at] ^= 0x40;
            assert!(of_bytes(&bytes).is_err(), "byte {at}");
        }
    }

    #[test]
    fn schemas_are_not_mixed() {
        let other = RecordBatch::new_empty(Arc::new(Schema::empty()));
        assert!(to_bytes(&two_columns(), &[batch(&[], &[]), other]).is_err());
    }
}
