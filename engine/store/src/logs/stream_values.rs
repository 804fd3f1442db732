//! Values that depend only on the stream of a row, and such values of several streams.

use std::borrow::Cow;
use std::sync::Arc;

use arrow::array::{Array, DictionaryArray, FixedSizeBinaryArray};
use arrow::datatypes::UInt32Type;
use quiver_types::logs::{OBSERVED_TIME, SEVERITY_NUMBER, STREAM, STREAM_ID, TIME, stream_text};
use quiver_types::tables::logs::SERVICE;

use super::column::{Values, coded, dictionary};
use super::typed_text::write_hex;
use crate::memtable::log_streams::LiveStream;

/// If streams have at least this many rows on average, their identifiers are dictionary-encoded.
const ID_ROWS: usize = 4;

/// A value that is the same in all rows of a stream.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum StreamValue {
    /// All labels, as the text of `_stream`.
    Text,
    /// The identifier, as the text of `_stream_id`.
    Id,
    /// The service; empty if there is none.
    Service,
    /// The label with this name.
    Label(String),
    /// The same in all streams; if empty, none has a value.
    Same(Arc<str>),
}

impl StreamValue {
    /// The value in rows of a stream.
    pub(crate) fn of<'a>(&'a self, stream: &'a LiveStream) -> Cow<'a, str> {
        match self {
            Self::Text => stream_text(&stream.labels).into(),
            Self::Id => format!("{:?}", stream.id).into(),
            Self::Service => (&*stream.service).into(),
            Self::Label(name) => stream.labels.get(name).into(),
            Self::Same(value) => (&**value).into(),
        }
    }
}

/// How the column with this name depends on a row's stream, including names that are not fields; `of_field` handles
/// fields.
pub(super) fn with_computed(name: &str, of_field: impl Fn(&str) -> Option<StreamValue>) -> Option<StreamValue> {
    match name {
        TIME | SEVERITY_NUMBER | OBSERVED_TIME => None,
        STREAM => Some(StreamValue::Text),
        STREAM_ID => Some(StreamValue::Id),
        SERVICE => Some(StreamValue::Service),
        _ => of_field(name),
    }
}

/// Values of some streams, in order.
#[derive(Debug)]
pub(crate) enum StreamValues {
    Ids(FixedSizeBinaryArray),
    /// Codes and their texts.
    Coded(Vec<u32>, Vec<String>),
}

impl StreamValues {
    /// The values of streams that are in memory.
    pub(super) fn of<'s>(value: &StreamValue, streams: impl ExactSizeIterator<Item = &'s LiveStream>) -> Self {
        if *value == StreamValue::Id {
            let bytes: Vec<u8> = streams.flat_map(|stream| stream.id.to_bytes()).collect();
            return Self::Ids(FixedSizeBinaryArray::new(16, bytes.into(), None));
        }
        let keys = (0..streams.len() as u32).collect();
        Self::Coded(keys, streams.map(|stream| value.of(stream).into_owned()).collect())
    }

    /// One value per stream.
    pub(super) fn into_values(self) -> Values {
        match self {
            Self::Ids(ids) => Values::Hex(ids),
            Self::Coded(keys, texts) => without_empty(Values::Coded(coded(keys, texts))),
        }
    }

    /// One value per row, given the index of each row's stream.
    pub(super) fn of_rows(self, places: impl ExactSizeIterator<Item = u32>) -> Values {
        match self {
            Self::Ids(ids) if ids.len() * ID_ROWS > places.len() => {
                let mut bytes = Vec::with_capacity(places.len() * 16);
                places.for_each(|at| bytes.extend_from_slice(ids.value(at as usize)));
                Values::Hex(FixedSizeBinaryArray::new(16, bytes.into(), None))
            }
            Self::Ids(ids) => {
                let text = |id: &[u8]| {
                    let mut text = String::with_capacity(32);
                    write_hex(id, &mut text);
                    text
                };
                let texts = (0..ids.len()).map(|i| text(ids.value(i))).collect();
                Values::Coded(coded(places.collect(), texts))
            }
            Self::Coded(keys, texts) => {
                without_empty(Values::Coded(coded(places.map(|at| keys[at as usize]).collect(), texts)))
            }
        }
    }
}

/// Empty services and labels mean that there is none; in results they are missing values.
fn without_empty(values: Values) -> Values {
    let Values::Coded(array) = values else { return values };
    let empty: Vec<bool> = dictionary(&array).into_iter().flatten().map(|v| v == Some("")).collect();
    if !empty.contains(&true) {
        return Values::Coded(array);
    }
    let keys = array.keys().iter().map(|k| k.filter(|&k| !empty[k as usize])).collect();
    Values::Coded(DictionaryArray::<UInt32Type>::new(keys, Arc::clone(array.values())))
}
