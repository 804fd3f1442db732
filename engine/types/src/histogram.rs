//! Native histograms: one in-memory form, and its Arrow form.
//!
//! Semantics of Prometheus 3.14 `model/histogram`: exponential schemas -4 to 8, custom buckets with schema -53. Bucket
//! counts are absolute and held as doubles for integer histograms too (exact below 2^53); `float` tells them apart.

mod hint;

use std::sync::{Arc, LazyLock};

use arrow::array::{
    Array, ArrayRef, AsArray, BooleanBuilder, Float64Builder, Int32Builder, ListBuilder, StructArray, UInt8Builder,
    UInt32Builder,
};
use arrow::datatypes::{DataType, Field, Fields, Float64Type, Int32Type, UInt8Type, UInt32Type};
use serde::{Deserialize, Serialize};

/// The schema number of custom buckets.
pub const CUSTOM_SCHEMA: i32 = -53;

/// What is known about a counter reset before this histogram.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[repr(u8)]
pub enum ResetHint {
    /// Nothing is known: readers compare with the histogram before it.
    #[default]
    Unknown = 0,
    /// There was a reset.
    Reset = 1,
    /// There was no reset since the histogram before it.
    NotReset = 2,
    /// This is a gauge: resets have no meaning.
    Gauge = 3,
}

impl ResetHint {
    /// Reads the number of the wire formats and columns; unknown numbers mean unknown.
    pub fn from_number(n: u8) -> Self {
        match n {
            1 => Self::Reset,
            2 => Self::NotReset,
            3 => Self::Gauge,
            _ => Self::Unknown,
        }
    }
}

/// A run of consecutive buckets: gap to the end of the last span (first span: index of the first bucket), length.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Span {
    /// Gap before the run.
    pub offset: i32,
    /// Number of buckets.
    pub length: u32,
}

/// A native histogram.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Histogram {
    /// -4 to 8, or [`CUSTOM_SCHEMA`].
    pub schema: i32,
    /// Width of the zero bucket.
    pub zero_threshold: f64,
    /// Observations in the zero bucket.
    pub zero_count: f64,
    /// All observations, those of the zero bucket and NaN included; fractions in histograms that were computed.
    pub count: f64,
    /// Sum of observations; the stale marker's bits make the whole histogram a stale marker.
    pub sum: f64,
    /// Runs of positive buckets.
    pub positive_spans: Vec<Span>,
    /// Absolute counts of the buckets in `positive_spans`.
    pub positive: Vec<f64>,
    /// Runs of negative buckets.
    pub negative_spans: Vec<Span>,
    /// Absolute counts of the buckets in `negative_spans`.
    pub negative: Vec<f64>,
    /// Upper bounds of custom buckets, ascending, without +Inf.
    pub custom_bounds: Vec<f64>,
    /// Counter reset hint.
    pub reset_hint: ResetHint,
    /// Whether it came as a float histogram (else integer).
    pub float: bool,
}

impl Histogram {
    /// Says whether this is a stale marker.
    pub fn is_stale(&self) -> bool {
        crate::is_stale(self.sum)
    }

    /// Makes the stale marker.
    pub fn stale() -> Self {
        Self { sum: crate::stale_nan(), ..Self::default() }
    }

    /// Gives the canonical bytes that decide between two histograms at one time (`architecture` 4, equal keys).
    pub fn canonical_bytes(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(64 + 8 * (self.positive.len() + self.negative.len()));
        out.extend(self.schema.to_be_bytes());
        for v in [self.zero_threshold, self.zero_count, self.count, self.sum] {
            out.extend(v.to_bits().to_be_bytes());
        }
        for (spans, counts) in [(&self.positive_spans, &self.positive), (&self.negative_spans, &self.negative)] {
            out.extend((spans.len() as u32).to_be_bytes());
            for s in spans {
                out.extend(s.offset.to_be_bytes());
                out.extend(s.length.to_be_bytes());
            }
            out.extend((counts.len() as u32).to_be_bytes());
            out.extend(counts.iter().flat_map(|c| c.to_bits().to_be_bytes()));
        }
        out.extend((self.custom_bounds.len() as u32).to_be_bytes());
        out.extend(self.custom_bounds.iter().flat_map(|c| c.to_bits().to_be_bytes()));
        out.push(self.reset_hint as u8);
        out.push(u8::from(self.float));
        out
    }

    /// Bytes held on the heap and in the struct, for memory accounting.
    pub fn memory_bytes(&self) -> usize {
        size_of::<Self>()
            + 8 * (self.positive.capacity() + self.negative.capacity() + self.custom_bounds.capacity())
            + 8 * (self.positive_spans.capacity() + self.negative_spans.capacity())
    }
}

/// Arrow fields of a histogram, the same in WAL records, Parquet files and plans.
pub fn histogram_fields() -> Fields {
    // Each plan over histograms asks for them several times, and they are forty allocations.
    static FIELDS: LazyLock<Fields> = LazyLock::new(make_fields);
    FIELDS.clone()
}

fn make_fields() -> Fields {
    let list = |t: DataType| DataType::List(Arc::new(Field::new("item", t, false)));
    let required = |name: &str, t: DataType| Field::new(name, t, false);
    Fields::from(vec![
        required("schema", DataType::Int32),
        required("zero_threshold", DataType::Float64),
        required("zero_count", DataType::Float64),
        required("count", DataType::Float64),
        required("sum", DataType::Float64),
        required("positive_offsets", list(DataType::Int32)),
        required("positive_lengths", list(DataType::UInt32)),
        required("positive_counts", list(DataType::Float64)),
        required("negative_offsets", list(DataType::Int32)),
        required("negative_lengths", list(DataType::UInt32)),
        required("negative_counts", list(DataType::Float64)),
        required("custom_bounds", list(DataType::Float64)),
        required("reset_hint", DataType::UInt8),
        required("float", DataType::Boolean),
    ])
}

fn list_of<B: arrow::array::ArrayBuilder>(values: B, t: DataType) -> ListBuilder<B> {
    ListBuilder::new(values).with_field(Arc::new(Field::new("item", t, false)))
}

/// Builds the struct column of [`histogram_fields`].
#[derive(Debug)]
pub struct HistogramBuilder {
    schema: Int32Builder,
    numbers: [Float64Builder; 4],
    sides: [(ListBuilder<Int32Builder>, ListBuilder<UInt32Builder>, ListBuilder<Float64Builder>); 2],
    custom_bounds: ListBuilder<Float64Builder>,
    reset_hint: UInt8Builder,
    float: BooleanBuilder,
}

impl Default for HistogramBuilder {
    fn default() -> Self {
        let side = || {
            (
                list_of(Int32Builder::new(), DataType::Int32),
                list_of(UInt32Builder::new(), DataType::UInt32),
                list_of(Float64Builder::new(), DataType::Float64),
            )
        };
        Self {
            schema: Int32Builder::new(),
            numbers: std::array::from_fn(|_| Float64Builder::new()),
            sides: [side(), side()],
            custom_bounds: list_of(Float64Builder::new(), DataType::Float64),
            reset_hint: UInt8Builder::new(),
            float: BooleanBuilder::new(),
        }
    }
}

impl HistogramBuilder {
    /// Appends one histogram.
    pub fn push(&mut self, h: &Histogram) {
        self.schema.append_value(h.schema);
        for (b, v) in self.numbers.iter_mut().zip([h.zero_threshold, h.zero_count, h.count, h.sum]) {
            b.append_value(v);
        }
        let sides = [(&h.positive_spans, &h.positive), (&h.negative_spans, &h.negative)];
        for ((offsets, lengths, counts), (spans, values)) in self.sides.iter_mut().zip(sides) {
            offsets.append_value(spans.iter().map(|s| Some(s.offset)));
            lengths.append_value(spans.iter().map(|s| Some(s.length)));
            counts.append_value(values.iter().map(|&v| Some(v)));
        }
        self.custom_bounds.append_value(h.custom_bounds.iter().map(|&v| Some(v)));
        self.reset_hint.append_value(h.reset_hint as u8);
        self.float.append_value(h.float);
    }

    /// Number of histograms so far.
    pub fn len(&self) -> usize {
        arrow::array::ArrayBuilder::len(&self.schema)
    }

    /// Says whether nothing was appended.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Gives the column and starts anew.
    pub fn finish(&mut self) -> StructArray {
        let mut columns: Vec<ArrayRef> = vec![Arc::new(self.schema.finish())];
        columns.extend(self.numbers.iter_mut().map(|b| Arc::new(b.finish()) as ArrayRef));
        for (offsets, lengths, counts) in &mut self.sides {
            columns.extend([
                Arc::new(offsets.finish()) as ArrayRef,
                Arc::new(lengths.finish()),
                Arc::new(counts.finish()),
            ]);
        }
        columns.extend([
            Arc::new(self.custom_bounds.finish()) as ArrayRef,
            Arc::new(self.reset_hint.finish()),
            Arc::new(self.float.finish()),
        ]);
        StructArray::new(histogram_fields(), columns, None)
    }
}

/// Reads one histogram out of a struct column of [`histogram_fields`]; `None` when the column has another shape.
pub fn read_histogram(column: &StructArray, row: usize) -> Option<Histogram> {
    if column.fields().len() != 14 || row >= column.len() {
        return None;
    }
    let number = |i: usize| Some(column.column(i).as_primitive_opt::<Float64Type>()?.value(row));
    let list = |i: usize| Some(column.column(i).as_list_opt::<i32>()?.value(row));
    let floats = |i: usize| Some(list(i)?.as_primitive_opt::<Float64Type>()?.values().to_vec());
    let spans = |i: usize| {
        let (offsets, lengths) = (list(i)?, list(i + 1)?);
        let offsets = offsets.as_primitive_opt::<Int32Type>()?.values().to_vec();
        let lengths = lengths.as_primitive_opt::<UInt32Type>()?.values().to_vec();
        Some(offsets.into_iter().zip(lengths).map(|(offset, length)| Span { offset, length }).collect())
    };
    Some(Histogram {
        schema: column.column(0).as_primitive_opt::<Int32Type>()?.value(row),
        zero_threshold: number(1)?,
        zero_count: number(2)?,
        count: number(3)?,
        sum: number(4)?,
        positive_spans: spans(5)?,
        positive: floats(7)?,
        negative_spans: spans(8)?,
        negative: floats(10)?,
        custom_bounds: floats(11)?,
        reset_hint: ResetHint::from_number(column.column(12).as_primitive_opt::<UInt8Type>()?.value(row)),
        float: column.column(13).as_boolean_opt()?.value(row),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrow_round_trip() {
        let h = Histogram {
            schema: 3,
            zero_threshold: 1e-128,
            zero_count: 2.0,
            count: 9.0,
            sum: -0.0,
            positive_spans: vec![Span { offset: -3, length: 2 }, Span { offset: 4, length: 1 }],
            positive: vec![1.0, 2.0, 3.0],
            negative_spans: vec![Span { offset: 0, length: 1 }],
            negative: vec![1.0],
            custom_bounds: vec![],
            reset_hint: ResetHint::Gauge,
            float: true,
        };
        let mut b = HistogramBuilder::default();
        b.push(&Histogram::stale());
        b.push(&h);
        let column = b.finish();
        assert!(read_histogram(&column, 0).expect("a histogram").is_stale());
        assert_eq!(read_histogram(&column, 1), Some(h));
        assert_eq!(read_histogram(&column, 2), None);
    }

    #[test]
    fn equal_bytes_are_equal_histograms() {
        let one = || Histogram {
            schema: 1,
            count: 3.0,
            positive_spans: vec![Span { offset: 0, length: 2 }],
            positive: vec![1.0, 2.0],
            ..Histogram::default()
        };
        let others = [
            Histogram { schema: -1, ..one() },
            Histogram { zero_threshold: 1.0, ..one() },
            Histogram { zero_count: 1.0, ..one() },
            Histogram { count: 4.0, ..one() },
            Histogram { sum: -0.0, ..one() },
            Histogram { positive: vec![1.0, 3.0], ..one() },
            Histogram { positive_spans: vec![Span { offset: 0, length: 1 }, Span { offset: 0, length: 1 }], ..one() },
            Histogram { positive_spans: Vec::new(), positive: Vec::new(), ..one() },
            // The same buckets on the other side.
            Histogram {
                negative_spans: one().positive_spans,
                negative: one().positive,
                positive_spans: Vec::new(),
                positive: Vec::new(),
                ..one()
            },
            Histogram { custom_bounds: vec![1.0], ..one() },
            Histogram { reset_hint: ResetHint::Reset, ..one() },
            Histogram { float: true, ..one() },
        ];
        assert_eq!(one().canonical_bytes(), one().canonical_bytes());
        let mut all: Vec<Vec<u8>> = others.iter().map(Histogram::canonical_bytes).collect();
        all.push(one().canonical_bytes());
        all.sort();
        all.dedup();
        assert_eq!(all.len(), others.len() + 1);
        assert!(Histogram { positive: vec![0.0; 1000], ..one() }.memory_bytes() >= one().memory_bytes() + 7000);
        assert_eq!([0, 1, 2, 3, 4, 255].map(ResetHint::from_number).map(|hint| hint as u8), [0, 1, 2, 3, 0, 0]);
    }

    #[test]
    fn columns_of_another_shape_are_none() {
        let mut builder = HistogramBuilder::default();
        assert!(builder.is_empty());
        builder.push(&Histogram { schema: CUSTOM_SCHEMA, custom_bounds: vec![0.5, f64::MAX], ..Histogram::default() });
        assert_eq!(builder.len(), 1);
        let column = builder.finish();
        assert!(builder.is_empty() && builder.finish().is_empty(), "it begins anew");
        assert_eq!(read_histogram(&column, 0).map(|h| h.custom_bounds), Some(vec![0.5, f64::MAX]));
        let fields = histogram_fields();
        for at in 0..fields.len() {
            let mut columns = column.columns().to_vec();
            let mut fields = fields.to_vec();
            columns[at] = Arc::new(arrow::array::StringArray::from(vec!["x"]));
            fields[at] = Arc::new(Field::new(fields[at].name(), DataType::Utf8, false));
            let other = StructArray::new(fields.into(), columns, None);
            assert_eq!(read_histogram(&other, 0), None, "{at}");
        }
        let fewer = StructArray::new(fields[..13].to_vec().into(), column.columns()[..13].to_vec(), None);
        assert_eq!(read_histogram(&fewer, 0), None);
    }
}
