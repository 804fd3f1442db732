//! Values of nested types as bytes: each list, map or struct of a column becomes one binary value, which views can
//! refer to.
//!
//! Within a value, the columns follow each other in Arrow's form: the null flags, then the lengths of lists and
//! strings, then the contents. So packing and unpacking copy a few long pieces.

use std::ops::Range;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayData, ArrayRef, AsArray as _, BinaryViewBuilder, BooleanArray, BooleanBufferBuilder, GenericByteArray,
    GenericListArray, MapArray, NullBufferBuilder, OffsetSizeTrait, StructArray, make_array,
};
use arrow::buffer::{BooleanBuffer, Buffer, MutableBuffer, NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow::compute::cast;
use arrow::datatypes::{
    BinaryType, ByteArrayType, DataType, FieldRef, Fields, LargeBinaryType, LargeUtf8Type, Utf8Type,
};
use arrow::error::ArrowError;

type Result<T> = std::result::Result<T, ArrowError>;

/// Whether a type is nested, and its values can be packed.
pub(super) fn is_packable(kind: &DataType) -> bool {
    match kind {
        DataType::List(item) | DataType::LargeList(item) | DataType::Map(item, _) => is_part(item.data_type()),
        DataType::Struct(fields) => !fields.is_empty() && fields.iter().all(|field| is_part(field.data_type())),
        _ => false,
    }
}

/// Whether packed values may hold values of a type.
fn is_part(kind: &DataType) -> bool {
    width(kind).is_some() || is_texts(kind) || matches!(kind, DataType::Boolean) || is_packable(kind)
}

fn is_texts(kind: &DataType) -> bool {
    use DataType::{Binary, BinaryView, LargeBinary, LargeUtf8, Utf8, Utf8View};
    matches!(kind, Utf8 | LargeUtf8 | Utf8View | Binary | LargeBinary | BinaryView)
}

/// Bytes of each value of a type, if all have as many.
fn width(kind: &DataType) -> Option<usize> {
    match kind {
        DataType::FixedSizeBinary(bytes) => usize::try_from(*bytes).ok().filter(|bytes| *bytes > 0),
        kind => kind.primitive_width(),
    }
}

/// The rows of a column as views of bytes; NULL stays NULL.
///
/// # Errors
/// `OffsetOverflowError`: a row takes two gigabytes or more.
pub(super) fn packed(array: &ArrayRef) -> Result<ArrayRef> {
    let source = Source::of(array)?;
    let (mut views, mut bytes) = (BinaryViewBuilder::with_capacity(array.len()), Vec::new());
    for row in 0..array.len() {
        if array.is_null(row) {
            views.append_null();
            continue;
        }
        bytes.clear();
        source.write(row..row + 1, &mut bytes)?;
        if i32::try_from(bytes.len()).is_err() {
            return Err(ArrowError::OffsetOverflowError(bytes.len()));
        }
        views.try_append_value(&bytes)?;
    }
    Ok(Arc::new(views.finish()))
}

/// The column of a type whose rows were packed.
///
/// # Errors
/// `InvalidArgumentError`: they were not packed from this type. `OffsetOverflowError`: they take two gigabytes or more.
pub(super) fn unpacked(array: &ArrayRef, kind: &DataType) -> Result<ArrayRef> {
    let mut target = Target::of(kind)?;
    for row in array.as_binary_view() {
        let Some(mut bytes) = row else {
            target.push_null();
            continue;
        };
        target.read(1, &mut bytes)?;
        if !bytes.is_empty() {
            return Err(damaged());
        }
    }
    target.finish(kind)
}

fn damaged() -> ArrowError {
    ArrowError::InvalidArgumentError("bytes are not those of packed values".to_owned())
}

fn unknown(kind: &DataType) -> ArrowError {
    ArrowError::InvalidArgumentError(format!("values of {kind} are not packed"))
}

/// A column that is written, without what lies before and behind its rows.
struct Source {
    nulls: Option<NullBuffer>,
    values: SourceValues,
}

enum SourceValues {
    Fixed { width: usize, bytes: Buffer },
    Bits(BooleanBuffer),
    Texts { ends: Vec<usize>, bytes: Buffer },
    Lists { ends: Vec<usize>, items: Box<Source> },
    Fields(Vec<Source>),
}

impl Source {
    fn of(array: &ArrayRef) -> Result<Self> {
        let values = match array.data_type() {
            DataType::Utf8View => return Self::of(&cast(array, &DataType::LargeUtf8)?),
            DataType::BinaryView => return Self::of(&cast(array, &DataType::LargeBinary)?),
            DataType::Utf8 => texts(array.as_bytes::<Utf8Type>()),
            DataType::LargeUtf8 => texts(array.as_bytes::<LargeUtf8Type>()),
            DataType::Binary => texts(array.as_bytes::<BinaryType>()),
            DataType::LargeBinary => texts(array.as_bytes::<LargeBinaryType>()),
            DataType::Boolean => SourceValues::Bits(array.as_boolean().values().clone()),
            DataType::List(_) => lists(array.as_list::<i32>().offsets(), array.as_list::<i32>().values())?,
            DataType::LargeList(_) => lists(array.as_list::<i64>().offsets(), array.as_list::<i64>().values())?,
            DataType::Map(..) => {
                let entries: ArrayRef = Arc::new(array.as_map().entries().clone());
                lists(array.as_map().offsets(), &entries)?
            }
            DataType::Struct(_) => {
                SourceValues::Fields(array.as_struct().columns().iter().map(Self::of).collect::<Result<_>>()?)
            }
            kind => {
                let (Some(width), data) = (width(kind), array.to_data()) else { return Err(unknown(kind)) };
                let bytes = data.buffers()[0].slice_with_length(data.offset() * width, data.len() * width);
                SourceValues::Fixed { width, bytes }
            }
        };
        Ok(Self { nulls: array.nulls().filter(|nulls| nulls.null_count() > 0).cloned(), values })
    }

    fn write(&self, rows: Range<usize>, out: &mut Vec<u8>) -> Result<()> {
        let nulls = self.nulls.as_ref().filter(|nulls| rows.clone().any(|row| nulls.is_null(row)));
        out.push(u8::from(nulls.is_some()));
        if let Some(nulls) = nulls {
            write_bits(nulls.inner(), rows.clone(), out);
        }
        match &self.values {
            SourceValues::Fixed { width, bytes } => {
                out.extend_from_slice(&bytes[rows.start * width..rows.end * width]);
            }
            SourceValues::Bits(bits) => write_bits(bits, rows, out),
            SourceValues::Texts { ends, bytes } => {
                let held = write_lengths(ends, rows, out)?;
                out.extend_from_slice(&bytes[held]);
            }
            SourceValues::Lists { ends, items } => {
                let held = write_lengths(ends, rows, out)?;
                items.write(held, out)?;
            }
            SourceValues::Fields(fields) => {
                for field in fields {
                    field.write(rows.clone(), out)?;
                }
            }
        }
        Ok(())
    }
}

fn texts<T: ByteArrayType>(array: &GenericByteArray<T>) -> SourceValues {
    let (ends, held) = ends(array.offsets());
    SourceValues::Texts { ends, bytes: array.values().slice_with_length(held.start, held.len()) }
}

fn lists<O: OffsetSizeTrait>(offsets: &OffsetBuffer<O>, items: &ArrayRef) -> Result<SourceValues> {
    let (ends, held) = ends(offsets);
    let items = Box::new(Source::of(&items.slice(held.start, held.len()))?);
    Ok(SourceValues::Lists { ends, items })
}

/// Where rows end, behind a zero; and where all of them are.
fn ends<O: OffsetSizeTrait>(offsets: &OffsetBuffer<O>) -> (Vec<usize>, Range<usize>) {
    let first = offsets[0].as_usize();
    let ends: Vec<usize> = offsets.iter().map(|at| at.as_usize() - first).collect();
    let last = first + ends.last().copied().unwrap_or(0);
    (ends, first..last)
}

/// Writes how much rows hold; gives where that is.
fn write_lengths(ends: &[usize], rows: Range<usize>, out: &mut Vec<u8>) -> Result<Range<usize>> {
    let held = ends[rows.start]..ends[rows.end];
    for row in rows {
        let length = ends[row + 1] - ends[row];
        let length = u32::try_from(length).map_err(|_| ArrowError::OffsetOverflowError(length))?;
        out.extend_from_slice(&length.to_le_bytes());
    }
    Ok(held)
}

fn write_bits(bits: &BooleanBuffer, rows: Range<usize>, out: &mut Vec<u8>) {
    let begun = out.len();
    out.resize(begun + rows.len().div_ceil(8), 0);
    for (at, row) in rows.enumerate() {
        out[begun + at / 8] |= u8::from(bits.value(row)) << (at % 8);
    }
}

/// A column that is read.
struct Target {
    nulls: NullBufferBuilder,
    values: TargetValues,
}

enum TargetValues {
    Fixed { width: usize, bytes: MutableBuffer },
    Bits(BooleanBufferBuilder),
    Texts { ends: Vec<usize>, bytes: MutableBuffer },
    Lists { ends: Vec<usize>, items: Box<Target> },
    Fields(Vec<Target>),
}

impl Target {
    fn of(kind: &DataType) -> Result<Self> {
        let values = match kind {
            DataType::Boolean => TargetValues::Bits(BooleanBufferBuilder::new(0)),
            DataType::List(item) | DataType::LargeList(item) | DataType::Map(item, _) => {
                TargetValues::Lists { ends: vec![0], items: Box::new(Self::of(item.data_type())?) }
            }
            DataType::Struct(fields) => {
                TargetValues::Fields(fields.iter().map(|field| Self::of(field.data_type())).collect::<Result<_>>()?)
            }
            kind if is_texts(kind) => TargetValues::Texts { ends: vec![0], bytes: MutableBuffer::new(0) },
            kind => {
                let Some(width) = width(kind) else { return Err(unknown(kind)) };
                TargetValues::Fixed { width, bytes: MutableBuffer::new(0) }
            }
        };
        Ok(Self { nulls: NullBufferBuilder::new(0), values })
    }

    /// Adds so many rows out of bytes, of which it leaves those behind.
    fn read(&mut self, rows: usize, from: &mut &[u8]) -> Result<()> {
        if next(from, 1)? == [0] {
            self.nulls.append_n_non_nulls(rows);
        } else {
            read_bits(rows, from, |bit| self.nulls.append(bit))?;
        }
        match &mut self.values {
            TargetValues::Fixed { width, bytes } => bytes.extend_from_slice(next(from, rows.saturating_mul(*width))?),
            TargetValues::Bits(bits) => read_bits(rows, from, |bit| bits.append(bit))?,
            TargetValues::Texts { ends, bytes } => {
                let held = read_lengths(rows, from, ends)?;
                bytes.extend_from_slice(next(from, held)?);
            }
            TargetValues::Lists { ends, items } => {
                let held = read_lengths(rows, from, ends)?;
                items.read(held, from)?;
            }
            TargetValues::Fields(fields) => {
                for field in fields {
                    field.read(rows, from)?;
                }
            }
        }
        Ok(())
    }

    fn push_null(&mut self) {
        self.nulls.append_null();
        match &mut self.values {
            TargetValues::Fixed { width, bytes } => bytes.extend_zeros(*width),
            TargetValues::Bits(bits) => bits.append(false),
            TargetValues::Texts { ends, .. } | TargetValues::Lists { ends, .. } => {
                ends.push(ends.last().copied().unwrap_or(0));
            }
            TargetValues::Fields(fields) => fields.iter_mut().for_each(Self::push_null),
        }
    }

    fn finish(mut self, kind: &DataType) -> Result<ArrayRef> {
        let nulls = self.nulls.finish();
        Ok(match (self.values, kind) {
            (TargetValues::Fixed { width, bytes }, kind) => {
                let rows = bytes.len().checked_div(width).unwrap_or(0);
                let data = ArrayData::builder(kind.clone()).len(rows).add_buffer(bytes.into()).nulls(nulls);
                make_array(data.build()?)
            }
            (TargetValues::Bits(mut bits), _) => Arc::new(BooleanArray::new(bits.finish(), nulls)),
            (TargetValues::Texts { ends, bytes }, kind) => text_array(kind, &ends, bytes.into(), nulls)?,
            (TargetValues::Lists { ends, items }, DataType::List(field)) => {
                list_array::<i32>(field, &ends, items.finish(field.data_type())?, nulls)?
            }
            (TargetValues::Lists { ends, items }, DataType::LargeList(field)) => {
                list_array::<i64>(field, &ends, items.finish(field.data_type())?, nulls)?
            }
            (TargetValues::Lists { ends, items }, DataType::Map(field, is_ordered)) => {
                let entries = items.finish(field.data_type())?.as_struct().clone();
                Arc::new(MapArray::try_new(Arc::clone(field), offsets(&ends)?, entries, nulls, *is_ordered)?)
            }
            (TargetValues::Fields(columns), DataType::Struct(fields)) => struct_array(fields, columns, nulls)?,
            (_, kind) => return Err(unknown(kind)),
        })
    }
}

/// The next of some bytes.
fn next<'b>(from: &mut &'b [u8], bytes: usize) -> Result<&'b [u8]> {
    let (taken, rest) = from.split_at_checked(bytes).ok_or_else(damaged)?;
    *from = rest;
    Ok(taken)
}

fn read_bits(rows: usize, from: &mut &[u8], mut add: impl FnMut(bool)) -> Result<()> {
    let bits = next(from, rows.div_ceil(8))?;
    (0..rows).for_each(|at| add(bits[at / 8] >> (at % 8) & 1 == 1));
    Ok(())
}

/// Adds where rows end; gives how much they hold.
fn read_lengths(rows: usize, from: &mut &[u8], ends: &mut Vec<usize>) -> Result<usize> {
    let lengths = next(from, rows.saturating_mul(size_of::<u32>()))?;
    let first = ends.last().copied().unwrap_or(0);
    let mut last = first;
    let (lengths, _) = lengths.as_chunks();
    for length in lengths {
        last += u32::from_le_bytes(*length) as usize;
        ends.push(last);
    }
    Ok(last - first)
}

fn offsets<O: OffsetSizeTrait>(ends: &[usize]) -> Result<OffsetBuffer<O>> {
    let offset = |end: &usize| O::from_usize(*end).ok_or(ArrowError::OffsetOverflowError(*end));
    let offsets = ends.iter().map(offset).collect::<Result<Vec<O>>>()?;
    Ok(OffsetBuffer::new(ScalarBuffer::from(offsets)))
}

fn text_array(kind: &DataType, ends: &[usize], bytes: Buffer, nulls: Option<NullBuffer>) -> Result<ArrayRef> {
    Ok(match kind {
        DataType::Utf8 => Arc::new(GenericByteArray::<Utf8Type>::try_new(offsets(ends)?, bytes, nulls)?),
        DataType::Binary => Arc::new(GenericByteArray::<BinaryType>::try_new(offsets(ends)?, bytes, nulls)?),
        DataType::LargeUtf8 | DataType::Utf8View => {
            let texts = GenericByteArray::<LargeUtf8Type>::try_new(offsets(ends)?, bytes, nulls)?;
            cast(&texts, kind)?
        }
        _ => cast(&GenericByteArray::<LargeBinaryType>::try_new(offsets(ends)?, bytes, nulls)?, kind)?,
    })
}

fn list_array<O: OffsetSizeTrait>(
    field: &FieldRef,
    ends: &[usize],
    items: ArrayRef,
    nulls: Option<NullBuffer>,
) -> Result<ArrayRef> {
    Ok(Arc::new(GenericListArray::<O>::try_new(Arc::clone(field), offsets(ends)?, items, nulls)?))
}

fn struct_array(fields: &Fields, columns: Vec<Target>, nulls: Option<NullBuffer>) -> Result<ArrayRef> {
    let columns = columns.into_iter().zip(fields).map(|(column, field)| column.finish(field.data_type()));
    Ok(Arc::new(StructArray::try_new(fields.clone(), columns.collect::<Result<_>>()?, nulls)?))
}

#[cfg(test)]
mod tests {
    use arrow::array::{
        BinaryViewArray, BooleanBuilder, Decimal128Array, FixedSizeBinaryArray, Int64Array, ListArray, MapBuilder,
        MapFieldNames, StringArray, StringBuilder, StringViewArray,
    };
    use arrow::datatypes::{Field, Int64Type};

    use super::*;

    /// Packs and unpacks a column and pieces of it; gives it back.
    fn there_and_back(array: &ArrayRef) -> ArrayRef {
        assert!(is_packable(array.data_type()), "{}", array.data_type());
        for (from, rows) in [(0, array.len()), (1, array.len() - 2), (array.len(), 0)] {
            let piece = array.slice(from, rows);
            let there = packed(&piece).unwrap();
            assert_eq!(there.logical_null_count(), piece.logical_null_count());
            let back = unpacked(&there, piece.data_type()).unwrap();
            assert_eq!(&back, &piece);
        }
        unpacked(&packed(array).unwrap(), array.data_type()).unwrap()
    }

    fn lists(field: Field, items: ArrayRef) -> ArrayRef {
        // The first two items and the last lie in no list; that of the third row is hidden by a NULL.
        let offsets = OffsetBuffer::new(ScalarBuffer::from(vec![2, 4, 4, 5, 7]));
        let nulls = NullBuffer::from(vec![true, true, false, true]);
        Arc::new(ListArray::try_new(Arc::new(field), offsets, items, Some(nulls)).unwrap())
    }

    fn items() -> Vec<ArrayRef> {
        let long = "ü".repeat(300);
        let words = [Some("a"), None, Some(""), Some("a longer one"), None, Some("b"), Some(long.as_str()), None];
        let bytes = words.map(|word| word.map(str::as_bytes));
        let mut bits = BooleanBuilder::new();
        for bit in [Some(true), None, Some(false), Some(true), None, Some(true), None, Some(false)] {
            bits.append_option(bit);
        }
        let numbers: Int64Array = (0..8).map(|n| (n % 3 != 0).then_some(i64::MAX / 7 * n)).collect();
        let texts: ArrayRef = Arc::new(StringArray::from(words.to_vec()));
        let decimals = Decimal128Array::from_iter_values(0..8);
        let ids = FixedSizeBinaryArray::try_from_sparse_iter_with_size(
            bytes.map(|b| b.map(|b| vec![b.len() as u8; 16])).into_iter(),
            16,
        );
        vec![
            Arc::new(numbers),
            Arc::new(bits.finish()),
            Arc::new(decimals.with_precision_and_scale(20, 3).unwrap()),
            Arc::new(ids.unwrap()),
            cast(&texts, &DataType::LargeUtf8).unwrap(),
            cast(&texts, &DataType::Binary).unwrap(),
            cast(&texts, &DataType::LargeBinary).unwrap(),
            Arc::new(StringViewArray::from(words.to_vec())),
            Arc::new(BinaryViewArray::from(bytes.to_vec())),
            texts,
        ]
    }

    #[test]
    fn lists_and_structs_are_the_same_there_and_back() {
        let (mut fields, mut columns) = (Vec::new(), Vec::new());
        for (n, items) in items().into_iter().enumerate() {
            let list = lists(Field::new("element", items.data_type().clone(), true), Arc::clone(&items));
            assert_eq!(there_and_back(&list).data_type(), list.data_type());
            there_and_back(
                &cast(&list, &DataType::LargeList(Arc::new(Field::new("element", items.data_type().clone(), true))))
                    .unwrap(),
            );
            fields.push(Field::new(format!("f{n}"), items.data_type().clone(), true));
            columns.push(items);
        }
        let nulls = NullBuffer::from(vec![true, false, true, true, false, true, true, true]);
        let rows: ArrayRef = Arc::new(StructArray::new(fields.into(), columns, Some(nulls)));
        assert_eq!(there_and_back(&rows).data_type(), rows.data_type());
        let deep = lists(Field::new("row", rows.data_type().clone(), true), rows);
        there_and_back(&deep);
    }

    #[test]
    fn maps_are_the_same_there_and_back() {
        let names = MapFieldNames { entry: "entries".into(), key: "k".into(), value: "v".into() };
        let mut maps = MapBuilder::new(Some(names), StringBuilder::new(), StringBuilder::new());
        for row in 0..5 {
            for n in 0..row {
                maps.keys().append_value(format!("key {n}"));
                maps.values().append_option((n % 2 == 0).then(|| "value".repeat(n)));
            }
            maps.append(row != 3).unwrap();
        }
        let maps: ArrayRef = Arc::new(maps.finish());
        assert_eq!(there_and_back(&maps).data_type(), maps.data_type());
    }

    #[test]
    fn a_value_takes_about_what_it_took() {
        let texts = StringArray::from_iter_values(vec!["x".repeat(30); 1000]);
        let field = Arc::new(Field::new_list_field(DataType::Utf8, true));
        let list = ListArray::new(field, OffsetBuffer::from_lengths([1000]), Arc::new(texts), None);
        let there = packed(&(Arc::new(list) as ArrayRef)).unwrap();
        assert!((34_000..34_100).contains(&there.as_binary_view().value(0).len()));
    }

    #[test]
    fn other_types_and_bytes_are_refused() {
        let item = |kind| DataType::List(Arc::new(Field::new_list_field(kind, true)));
        let dictionary = DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8));
        for kind in
            [DataType::Int64, DataType::Utf8, item(DataType::Null), item(dictionary), DataType::Struct(Fields::empty())]
        {
            assert!(!is_packable(&kind), "{kind}");
        }
        let numbers = ListArray::from_iter_primitive::<Int64Type, _, _>([Some([Some(7), None])]);
        let there = packed(&(Arc::new(numbers) as ArrayRef)).unwrap();
        assert!(unpacked(&there, &item(DataType::Int32)).is_err(), "bytes are left");
        assert!(unpacked(&there, &item(item(DataType::Int64))).is_err(), "bytes are missing");
    }
}
