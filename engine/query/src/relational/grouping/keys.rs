//! Grouping keys: the values of each column are numbered, and groups are combinations of these numbers.

use std::hash::BuildHasher as _;
use std::mem::size_of;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, FixedSizeBinaryArray, Int32DictionaryArray, Int64Array, StringViewArray, make_view,
};
use arrow::buffer::{Buffer, NullBuffer, ScalarBuffer};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Int64Type};
use datafusion::common::internal_err;
use datafusion::error::Result;
use hashbrown::{DefaultHashBuilder, HashMap, HashTable};

use super::columns::EvaluatedColumn;
use crate::interner::{Texts, make_room, spread};
use crate::tables::cells::hex_ids;

/// Numbers the distinct values of a column in order of first occurrence.
#[derive(Debug)]
pub(super) struct Values {
    kind: DataType,
    /// The number of NULL, if it has occurred; the stored value at that number is a placeholder.
    null: Option<u32>,
    of: KeyStorage,
}

#[derive(Debug)]
enum KeyStorage {
    Texts(Texts),
    Ids(FixedSizeKeys<u128>, i32),
    Numbers(FixedSizeKeys<i64>),
}

/// Storage of values by number.
trait Store {
    fn len(&self) -> u32;
    /// Adds a placeholder, so that a number is skipped.
    fn skip(&mut self);
}

/// Values of fixed size, which are copied.
#[derive(Debug, Default)]
struct FixedSizeKeys<T> {
    values: Vec<T>,
    /// Numbers, each with the hash of its value: a table of the values themselves would be four times as large for
    /// ids, and would hash each again when it grows.
    table: HashTable<(u32, u32)>,
    hasher: DefaultHashBuilder,
}

impl<T: Copy + Default + Eq + std::hash::Hash> FixedSizeKeys<T> {
    fn number(&mut self, value: T) -> u32 {
        let Self { values, table, hasher } = self;
        let half = hasher.hash_one(value) as u32;
        let same = |(known, at): &(u32, u32)| *known == half && values[*at as usize] == value;
        if let Some((_, found)) = table.find(spread(half), same) {
            return *found;
        }
        let at = values.len() as u32;
        let hash = |(half, _): &(u32, u32)| spread(*half);
        make_room(table, hash);
        table.insert_unique(spread(half), (half, at), hash);
        values.push(value);
        at
    }

    fn size(&self) -> usize {
        self.values.capacity() * size_of::<T>() + self.table.capacity() * 9
    }
}

impl<T: Default> Store for FixedSizeKeys<T> {
    fn len(&self) -> u32 {
        self.values.len() as u32
    }

    fn skip(&mut self) {
        self.values.push(T::default());
    }
}

impl Store for Texts {
    fn len(&self) -> u32 {
        Self::len(self)
    }

    fn skip(&mut self) {
        Self::skip(self);
    }
}

/// The number of NULL, which is assigned at its first occurrence.
fn null_of(null: &mut Option<u32>, store: &mut impl Store) -> u32 {
    *null.get_or_insert_with(|| {
        store.skip();
        store.len() - 1
    })
}

/// Whether values of a type can be keys.
pub(super) fn is_key(kind: &DataType) -> bool {
    use DataType::{Boolean, Date32, Int8, Int16, Int32, Int64, Timestamp, UInt8, UInt16, UInt32, Utf8, Utf8View};
    matches!(
        kind,
        Utf8View | Utf8 | Boolean | Int8 | Int16 | Int32 | Int64 | UInt8 | UInt16 | UInt32 | Date32 | Timestamp(..)
    )
}

impl Values {
    /// An empty numbering for a type; `held` is the type in which values arrive.
    pub(super) fn new(kind: &DataType, held: &DataType) -> Self {
        let of = match (held, kind) {
            (DataType::FixedSizeBinary(width), DataType::Utf8View) => KeyStorage::Ids(FixedSizeKeys::default(), *width),
            (_, DataType::Utf8 | DataType::Utf8View) => KeyStorage::Texts(Texts::default()),
            _ => KeyStorage::Numbers(FixedSizeKeys::default()),
        };
        Self { kind: kind.clone(), null: None, of }
    }

    /// How many distinct values there are, NULL included.
    pub(super) fn len(&self) -> u32 {
        match &self.of {
            KeyStorage::Texts(texts) => texts.len(),
            KeyStorage::Ids(ids, _) => ids.len(),
            KeyStorage::Numbers(numbers) => numbers.len(),
        }
    }

    /// Appends the number of each row's value to `out`.
    pub(super) fn add(&mut self, found: EvaluatedColumn, out: &mut Vec<u32>) -> Result<()> {
        let Self { kind, null, of } = self;
        match (of, found) {
            (KeyStorage::Texts(texts), EvaluatedColumn::Coded(coded)) => coded_texts(texts, null, &coded, out)?,
            (KeyStorage::Texts(texts), EvaluatedColumn::Plain(array)) => {
                let array = cast(&array, &DataType::Utf8View)?;
                out.extend(array.as_string_view().iter().map(|text| match text {
                    None => null_of(null, texts),
                    Some(text) => texts.number(text.as_bytes()).0,
                }));
            }
            (KeyStorage::Ids(ids, _), EvaluatedColumn::Ids(array)) => {
                let (data, nulls) = (array.value_data(), array.nulls());
                match array.value_size() {
                    16 => {
                        let found = data.as_chunks::<16>().0.iter().map(|id| u128::from_be_bytes(*id));
                        ids_of(ids, null, found, nulls, out);
                    }
                    8 => {
                        let found = data.as_chunks::<8>().0.iter().map(|id| u128::from(u64::from_be_bytes(*id)));
                        ids_of(ids, null, found, nulls, out);
                    }
                    _ => ids_of(ids, null, (0..array.len()).map(|row| id_of(&array, row)), nulls, out),
                }
            }
            (KeyStorage::Numbers(numbers), EvaluatedColumn::Plain(array)) => {
                debug_assert_eq!(array.data_type(), kind);
                neighbours(numbers, null, numbers_of(&array)?.iter(), out);
            }
            (_, found) => return internal_err!("values of {kind} came as {:?}", found.held().data_type()),
        }
        Ok(())
    }

    /// The values with the given numbers, in the column's type.
    pub(super) fn values(&self, numbers: &[u32]) -> Result<ArrayRef> {
        let there = |number: &u32| Some(*number) != self.null;
        let nulls = self.null.map(|_| numbers.iter().map(there).collect::<NullBuffer>()).filter(|n| n.null_count() > 0);
        Ok(match &self.of {
            KeyStorage::Texts(texts) => {
                let mut bytes: Vec<u8> = Vec::new();
                let mut views = Vec::with_capacity(numbers.len());
                for number in numbers {
                    let text = if there(number) { texts.value(*number) } else { &[] };
                    views.push(make_view(text, 0, bytes.len() as u32));
                    if text.len() > 12 {
                        bytes.extend_from_slice(text);
                    }
                }
                if u32::try_from(bytes.len()).is_err() {
                    return datafusion::common::exec_err!("keys of groups are longer than 4 GiB");
                }
                let made = StringViewArray::try_new(ScalarBuffer::from(views), [Buffer::from_vec(bytes)], nulls)?;
                if self.kind == DataType::Utf8View { Arc::new(made) } else { cast(&made, &self.kind)? }
            }
            KeyStorage::Ids(ids, width) => {
                let mut bytes = Vec::with_capacity(numbers.len() * *width as usize);
                for number in numbers {
                    bytes.extend_from_slice(&ids.values[*number as usize].to_be_bytes()[16 - *width as usize..]);
                }
                let picked = FixedSizeBinaryArray::try_new(*width, Buffer::from_vec(bytes), nulls)?;
                Arc::new(hex_ids(&picked))
            }
            KeyStorage::Numbers(known) => {
                let picked: Vec<i64> = numbers.iter().map(|number| known.values[*number as usize]).collect();
                let picked: ArrayRef = Arc::new(Int64Array::new(picked.into(), nulls));
                match self.kind {
                    DataType::Date32 => cast(&cast(&picked, &DataType::Int32)?, &self.kind)?,
                    _ => cast(&picked, &self.kind)?,
                }
            }
        })
    }

    /// Bytes of memory in use.
    pub(super) fn size(&self) -> usize {
        match &self.of {
            KeyStorage::Texts(texts) => texts.size(),
            KeyStorage::Ids(ids, _) => ids.size(),
            KeyStorage::Numbers(numbers) => numbers.size(),
        }
    }
}

/// Numbers values of which neighbours are often equal.
fn neighbours<T: Copy + Default + Eq + std::hash::Hash>(
    store: &mut FixedSizeKeys<T>,
    null: &mut Option<u32>,
    values: impl Iterator<Item = Option<T>>,
    out: &mut Vec<u32>,
) {
    let mut last: Option<(T, u32)> = None;
    out.extend(values.map(|value| match (value, last) {
        (None, _) => null_of(null, store),
        (Some(value), Some((known, number))) if known == value => number,
        (Some(value), _) => {
            let number = store.number(value);
            last = Some((value, number));
            number
        }
    }));
}

/// Numbers ids, of which some may be NULL.
fn ids_of(
    store: &mut FixedSizeKeys<u128>,
    null: &mut Option<u32>,
    found: impl Iterator<Item = u128>,
    nulls: Option<&NullBuffer>,
    out: &mut Vec<u32>,
) {
    match nulls {
        None => neighbours(store, null, found.map(Some), out),
        Some(nulls) => neighbours(store, null, found.zip(nulls).map(|(id, there)| there.then_some(id)), out),
    }
}

/// Numbers texts by codes: each text of the dictionary is looked up once.
fn coded_texts(
    texts: &mut Texts,
    null: &mut Option<u32>,
    coded: &Int32DictionaryArray,
    out: &mut Vec<u32>,
) -> Result<()> {
    const OPEN: u32 = u32::MAX;
    let values = cast(coded.values(), &DataType::Utf8View)?;
    let values = values.as_string_view();
    let mut of_code = vec![OPEN; values.len()];
    let mut of_row = |code: Option<i32>| {
        let Some(code) = code.map(|code| code as usize) else { return null_of(null, texts) };
        if of_code[code] == OPEN {
            let is_text = values.is_valid(code);
            of_code[code] = if is_text { texts.number(values.value(code).as_bytes()).0 } else { null_of(null, texts) };
        }
        of_code[code]
    };
    if coded.keys().null_count() == 0 {
        out.extend(coded.keys().values().iter().map(|code| of_row(Some(*code))));
    } else {
        out.extend(coded.keys().iter().map(of_row));
    }
    Ok(())
}

fn id_of(ids: &FixedSizeBinaryArray, row: usize) -> u128 {
    let bytes = ids.value(row);
    let mut wide = [0; 16];
    wide[16 - bytes.len().min(16)..].copy_from_slice(&bytes[..bytes.len().min(16)]);
    u128::from_be_bytes(wide)
}

fn numbers_of(array: &ArrayRef) -> Result<Int64Array> {
    let numbers = match array.data_type() {
        DataType::Date32 => cast(&cast(array, &DataType::Int32)?, &DataType::Int64)?,
        _ => cast(array, &DataType::Int64)?,
    };
    Ok(numbers.as_primitive::<Int64Type>().clone())
}

/// Combines group numbers (below `before`) with value numbers (below `width`) in place; `number` returns the number
/// of a pair.
fn join(groups: &mut [u32], before: usize, values: &[u32], width: usize, mut number: impl FnMut(u32, u32) -> u32) {
    const OPEN: u32 = u32::MAX;
    let cells = before.saturating_mul(width);
    let rows = groups.iter_mut().zip(values);
    if cells <= values.len() {
        // There are fewer pairs than rows, so each is looked up once.
        let mut known = vec![OPEN; cells];
        for (group, value) in rows {
            let cell = &mut known[*group as usize * width + *value as usize];
            if *cell == OPEN {
                *cell = number(*group, *value);
            }
            *group = *cell;
        }
        return;
    }
    let mut last: Option<((u32, u32), u32)> = None;
    for (group, value) in rows {
        let pair = (*group, *value);
        *group = match last {
            Some((known, found)) if known == pair => found,
            _ => number(pair.0, pair.1),
        };
        last = Some((pair, *group));
    }
}

/// Numbers the groups of several columns.
#[derive(Debug)]
pub(super) struct Groups {
    columns: Vec<Values>,
    /// For each column after the first: from a group of the earlier columns and a value, to the group of both.
    joined: Vec<HashMap<u64, u32>>,
    /// For each column after the first and each of its groups: the group of the earlier columns, and the value.
    pairs: Vec<Vec<(u32, u32)>>,
}

impl Groups {
    pub(super) fn new(columns: Vec<Values>) -> Self {
        let levels = columns.len().saturating_sub(1);
        Self { columns, joined: vec![HashMap::new(); levels], pairs: vec![Vec::new(); levels] }
    }

    /// The number of groups; 1 without columns.
    pub(super) fn len(&self) -> usize {
        match (self.pairs.last(), self.columns.first()) {
            (Some(pairs), _) => pairs.len(),
            (None, Some(column)) => column.len() as usize,
            (None, None) => 1,
        }
    }

    /// Returns the group of each row.
    pub(super) fn of(&mut self, found: Vec<EvaluatedColumn>, rows: usize) -> Result<Vec<usize>> {
        let mut found = self.columns.iter_mut().zip(found);
        let Some((column, values)) = found.next() else { return Ok(vec![0; rows]) };
        let mut groups = Vec::with_capacity(rows);
        column.add(values, &mut groups)?;
        let mut before = column.len() as usize;
        let mut next = Vec::with_capacity(rows);
        for ((column, values), (joined, pairs)) in found.zip(self.joined.iter_mut().zip(&mut self.pairs)) {
            next.clear();
            column.add(values, &mut next)?;
            join(&mut groups, before, &next, column.len() as usize, |group, value| {
                let key = u64::from(group) << 32 | u64::from(value);
                *joined.entry(key).or_insert_with(|| {
                    pairs.push((group, value));
                    pairs.len() as u32 - 1
                })
            });
            before = pairs.len();
        }
        Ok(groups.into_iter().map(|group| group as usize).collect())
    }

    /// The key columns of all groups, in order of group number.
    pub(super) fn values(&self) -> Result<Vec<ArrayRef>> {
        let mut numbers: Vec<u32> = (0..self.len() as u32).collect();
        let mut out = Vec::with_capacity(self.columns.len());
        for (at, column) in self.columns.iter().enumerate().rev() {
            if at == 0 {
                out.push(column.values(&numbers)?);
                break;
            }
            let pairs = &self.pairs[at - 1];
            let values: Vec<u32> = numbers.iter().map(|number| pairs[*number as usize].1).collect();
            out.push(column.values(&values)?);
            for number in &mut numbers {
                *number = pairs[*number as usize].0;
            }
        }
        out.reverse();
        Ok(out)
    }

    /// Bytes of memory in use.
    pub(super) fn size(&self) -> usize {
        let joined: usize = self.joined.iter().map(|map| map.capacity() * 13).sum();
        let pairs: usize = self.pairs.iter().map(|pairs| pairs.capacity() * 8).sum();
        self.columns.iter().map(Values::size).sum::<usize>() + joined + pairs
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_are_numbered_as_they_come_by_table_and_by_map() {
        let (groups, values) = ([2, 0, 2, 1, 1, 0, 2, 2], [1, 0, 1, 1, 1, 0, 0, 1]);
        for width in [2, 1000] {
            let (mut joined, mut pairs) = (groups, Vec::new());
            join(&mut joined, 3, &values, width, |group, value| {
                let at = pairs.iter().position(|known| *known == (group, value)).unwrap_or_else(|| {
                    pairs.push((group, value));
                    pairs.len() - 1
                });
                at as u32
            });
            assert_eq!(joined, [0, 1, 0, 2, 2, 1, 3, 0]);
            assert_eq!(pairs, [(2, 1), (0, 0), (1, 1), (2, 0)]);
        }
    }

    #[test]
    fn ids_of_any_width_come_back_as_their_digits() {
        for width in [3, 8, 16] {
            let id = |n: u8| Some((0..width).map(|at| at as u8 * 15 + n).collect::<Vec<_>>());
            for rows in [vec![id(1), id(2), id(1)], vec![id(1), None, id(2), None, id(1)]] {
                let array = FixedSizeBinaryArray::try_from_sparse_iter_with_size(rows.iter().cloned(), width).unwrap();
                // A slice with an offset, as batches have it.
                let array = array.slice(1, rows.len() - 1);
                let mut values = Values::new(&DataType::Utf8View, &DataType::FixedSizeBinary(width));
                let mut numbers = Vec::new();
                values.add(EvaluatedColumn::Ids(array.clone()), &mut numbers).unwrap();
                let given = values.values(&numbers).unwrap();
                let digits = |id: &Vec<u8>| quiver_types::hex(id);
                let expected: StringViewArray = rows[1..].iter().map(|id| id.as_ref().map(digits)).collect();
                assert_eq!(given.as_string_view(), &expected, "{width}");
                assert_eq!(values.len() as usize, if rows.len() == 3 { 2 } else { 3 });
            }
        }
    }

    #[test]
    fn ids_keep_their_numbers_as_the_table_grows() {
        let mut ids = FixedSizeKeys::<u128>::default();
        // NULL's number belongs to NULL alone, although a real value equals its placeholder.
        let mut null = None;
        assert_eq!(null_of(&mut null, &mut ids), 0);
        for _ in 0..2 {
            for at in 0..5000_u32 {
                assert_eq!(ids.number(u128::from(at) << 77 | u128::from(at)), at + 1);
            }
        }
        assert_eq!((ids.len(), null), (5001, Some(0)));
        assert!(ids.size() >= 5001 * (9 + size_of::<u128>()));
    }
}
