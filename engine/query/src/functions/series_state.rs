//! Aggregates over series: what each series of each group gave, and states of that: lists with an entry for each series, or for
//! each sample of one.
//!
//! All groups stand in one place: a state, an accumulator or a map of each group's own would take kilobytes where a group
//! has one sample.

use std::fmt::Debug;
use std::sync::Arc;

use arrow::array::{Array as _, ArrayRef, AsArray as _, BooleanArray, LargeStringArray, LargeStringBuilder, ListArray};
use arrow::buffer::OffsetBuffer;
use arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::{ScalarValue, exec_err};
use datafusion::error::Result;
use datafusion::logical_expr::{Accumulator, EmitTo, GroupsAccumulator};
use hashbrown::HashMap;

/// Fields of the lists, by the name of the aggregate and that of each list.
pub(super) fn fields<const N: usize>(aggregate: &str, lists: [(&str, DataType); N]) -> Vec<FieldRef> {
    let field = |(name, kind): (&str, DataType)| {
        let list = DataType::List(Arc::new(Field::new_list_field(kind, true)));
        Arc::new(Field::new(format!("{aggregate}[{name}]"), list, true))
    };
    lists.map(field).into()
}

/// Type of names of series in states. Views would share the texts of all series: each piece of a state that is sorted, sent
/// or spilled would hold all of them.
pub(super) const NAMES: DataType = DataType::LargeUtf8;

/// The names in lists of a state.
///
/// # Errors
/// The lists are of another type.
pub(super) fn names_of(lists: &ListArray) -> Result<&LargeStringArray> {
    let Some(names) = lists.values().as_string_opt::<i64>() else {
        return exec_err!("a state names series by another type");
    };
    Ok(names)
}

/// Lists of these lengths, one of each kind of values.
///
/// # Errors
/// There are more values than lists hold.
pub(super) fn lists(lengths: &[usize], values: impl IntoIterator<Item = ArrayRef>) -> Result<Vec<ArrayRef>> {
    if i32::try_from(lengths.iter().sum::<usize>()).is_err() {
        return exec_err!("groups have more than {} values of series", i32::MAX);
    }
    let offsets = OffsetBuffer::<i32>::from_lengths(lengths.iter().copied());
    let list = |values: ArrayRef| -> Result<ArrayRef> {
        let field = Arc::new(Field::new_list_field(values.data_type().clone(), true));
        Ok(Arc::new(ListArray::try_new(field, offsets.clone(), values, None)?))
    };
    values.into_iter().map(list).collect()
}

/// Whether a row counts by the filter of an aggregate.
pub(super) fn counts(filter: Option<&BooleanArray>, row: usize) -> bool {
    filter.is_none_or(|filter| filter.is_valid(row) && filter.value(row))
}

/// What a series of a group gave.
#[derive(Debug)]
pub(super) struct Entry<T> {
    pub(super) group: usize,
    series: u32,
    pub(super) of: T,
}

/// What each series of each group gave.
#[derive(Debug)]
pub(super) struct BySeries<T> {
    /// How many groups there are.
    pub(super) groups: usize,
    /// Bytes that entries hold elsewhere.
    pub(super) held: usize,
    names: Vec<Arc<str>>,
    numbers: HashMap<Arc<str>, u32>,
    name_bytes: usize,
    entries: Vec<Entry<T>>,
    places: HashMap<(usize, u32), u32>,
}

impl<T> Default for BySeries<T> {
    fn default() -> Self {
        let (names, numbers, entries, places) = Default::default();
        Self { groups: 0, held: 0, names, numbers, name_bytes: 0, entries, places }
    }
}

impl<T: Default> BySeries<T> {
    /// Makes room for so many groups.
    pub(super) fn room(&mut self, groups: usize) {
        self.groups = groups.max(self.groups);
    }

    /// What a series of a group gave so far.
    pub(super) fn of(&mut self, group: usize, series: &str) -> &mut T {
        let series = self.number(series);
        // Samples of a series come one after the other.
        let last = self.entries.last().is_some_and(|last| last.group == group && last.series == series);
        let at = if last { self.entries.len() - 1 } else { self.place(group, series) };
        &mut self.entries[at].of
    }

    fn number(&mut self, series: &str) -> u32 {
        if let Some(last) = self.entries.last()
            && *self.names[last.series as usize] == *series
        {
            return last.series;
        }
        if let Some(number) = self.numbers.get(series) {
            return *number;
        }
        self.named(series.into())
    }

    /// Gives a series that has none a number.
    fn named(&mut self, name: Arc<str>) -> u32 {
        let number = self.names.len() as u32;
        self.name_bytes += name.len() + 2 * size_of::<usize>();
        self.names.push(Arc::clone(&name));
        self.numbers.insert(name, number);
        number
    }

    fn place(&mut self, group: usize, series: u32) -> usize {
        let next = self.entries.len() as u32;
        let at = *self.places.entry((group, series)).or_insert(next);
        if at == next {
            self.entries.push(Entry { group, series, of: T::default() });
        }
        at as usize
    }

    /// Takes groups out; those that stay are counted from 0.
    pub(super) fn split(&mut self, emit: EmitTo, held: impl Fn(&T) -> usize) -> Self {
        let all = std::mem::take(self);
        let EmitTo::First(count) = emit else { return all };
        self.groups = all.groups.saturating_sub(count);
        let mut out = Self { groups: count, ..Self::default() };
        // Where groups come in order they leave batch by batch: names of series that are in none any more go along.
        let mut numbers = vec![None; all.names.len()];
        for mut entry in all.entries {
            if entry.group < count {
                out.entries.push(entry);
                continue;
            }
            let name = &all.names[entry.series as usize];
            entry.series = *numbers[entry.series as usize].get_or_insert_with(|| self.named(Arc::clone(name)));
            entry.group -= count;
            self.held += held(&entry.of);
            self.places.insert((entry.group, entry.series), self.entries.len() as u32);
            self.entries.push(entry);
        }
        out.names = all.names;
        out
    }

    /// All entries, those of a group in the order of the names of their series: so a sum is the same however rows came.
    pub(super) fn sorted(&self) -> Vec<&Entry<T>> {
        let mut by_name: Vec<u32> = (0..self.names.len() as u32).collect();
        by_name.sort_unstable_by_key(|number| &*self.names[*number as usize]);
        let mut ranks = vec![0_u32; by_name.len()];
        for (rank, number) in (0..).zip(by_name) {
            ranks[number as usize] = rank;
        }
        let mut all: Vec<&Entry<T>> = self.entries.iter().collect();
        all.sort_unstable_by_key(|entry| (entry.group, ranks[entry.series as usize]));
        all
    }

    /// Of each group so many values, one of each of these entries at `each` of them.
    pub(super) fn lengths(&self, sorted: &[&Entry<T>], each: impl Fn(&T) -> usize) -> Vec<usize> {
        let mut lengths = vec![0; self.groups];
        for entry in sorted {
            lengths[entry.group] += each(&entry.of);
        }
        lengths
    }

    /// The names of the series of entries, each so many times.
    pub(super) fn ids(&self, sorted: &[&Entry<T>], each: impl Fn(&T) -> usize) -> ArrayRef {
        let each = &each;
        let named = || sorted.iter().map(move |entry| (&*self.names[entry.series as usize], each(&entry.of)));
        let (count, bytes) =
            named().fold((0_usize, 0_usize), |(count, bytes), (name, n)| (count + n, bytes + n * name.len()));
        let mut ids = LargeStringBuilder::with_capacity(count, bytes);
        for (name, n) in named() {
            for _ in 0..n {
                ids.append_value(name);
            }
        }
        Arc::new(ids.finish())
    }

    /// Bytes that all of it takes.
    pub(super) fn bytes(&self) -> usize {
        let table = |places: usize, of: usize| places * (of + 1) * 8 / 7;
        self.held
            + self.name_bytes
            + self.names.capacity() * size_of::<Arc<str>>()
            + table(self.numbers.capacity(), size_of::<(Arc<str>, u32)>())
            + self.entries.capacity() * size_of::<Entry<T>>()
            + table(self.places.capacity(), size_of::<((usize, u32), u32)>())
    }
}

/// An aggregate over series whose groups stand in one place.
pub(super) trait SeriesGroups: GroupsAccumulator + Debug + Sync + 'static {
    /// Makes room for so many groups.
    fn room(&mut self, groups: usize);

    /// The value of each group, which stays.
    fn values(&self) -> ArrayRef;
}

/// The same for all rows at once.
#[derive(Debug)]
pub(super) struct Whole<G>(pub(super) G);

impl<G: SeriesGroups> Accumulator for Whole<G> {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.0.update_batch(values, &vec![0; values[0].len()], None, 1)
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        self.0.merge_batch(states, &vec![0; states[0].len()], 1)
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        // There is one group, also where there are no rows.
        self.0.room(1);
        ScalarValue::try_from_array(&self.0.values(), 0)
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        self.0.room(1);
        self.0.state(EmitTo::All)?.iter().map(|list| ScalarValue::try_from_array(list, 0)).collect()
    }

    fn size(&self) -> usize {
        size_of_val(self) + self.0.size()
    }
}
