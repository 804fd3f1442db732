//! What aggregates over series share: a value for each series of each group, and their serialized state, which consists
//! of lists with an entry for each series, or for each sample.
//!
//! All groups share one structure: an accumulator or a map per group would take kilobytes where a group has one sample.

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

/// The value of one series in one group.
#[derive(Debug)]
pub(super) struct Entry<T> {
    pub(super) group: usize,
    series: u32,
    pub(super) of: T,
}

/// The values of all series of all groups.
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
        // Sorted groups are returned batch by batch, and names of series that no remaining group has are dropped with them.
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

/// An aggregate over series that keeps all its groups in one structure.
pub(super) trait SeriesGroups: GroupsAccumulator + Debug + Sync + 'static {
    /// Makes room for so many groups.
    fn room(&mut self, groups: usize);

    /// The value of each group, which stays.
    fn values(&self) -> ArrayRef;
}

/// The same aggregate without `GROUP BY`: all rows are one group.
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use arrow::datatypes::Int64Type;

    use super::super::testing::draws;
    use super::*;

    type Listed = Vec<(usize, String, i64)>;

    fn listed(of: &BySeries<i64>) -> Listed {
        let sorted = of.sorted();
        let ids = of.ids(&sorted, |_| 1);
        let names = ids.as_string::<i64>();
        sorted.iter().enumerate().map(|(at, entry)| (entry.group, names.value(at).to_owned(), entry.of)).collect()
    }

    fn entries(of: &BTreeMap<(usize, String), i64>) -> Listed {
        of.iter().map(|((group, name), count)| (*group, name.clone(), *count)).collect()
    }

    /// Series come and come again while groups leave: what is there is what a plain map has.
    #[test]
    fn entries_are_those_of_a_map() {
        let mut draw = draws(161);
        for _ in 0..50 {
            let (mut all, mut model, mut groups) = (BySeries::<i64>::default(), BTreeMap::new(), 0);
            for _ in 0..6 {
                for _ in 0..draw(40) {
                    let (group, name) = (draw(6), format!("s{}", draw(5)));
                    all.room(group + 1);
                    groups = groups.max(group + 1);
                    *all.of(group, &name) += 1;
                    *model.entry((group, name)).or_insert(0) += 1;
                }
                assert_eq!(listed(&all), entries(&model));
                let mut lengths = vec![0; groups];
                for (group, _) in model.keys() {
                    lengths[*group] += 1;
                }
                assert_eq!(all.lengths(&all.sorted(), |_| 1), lengths);
                let count = draw(groups + 1);
                let out = all.split(EmitTo::First(count), |_| 7);
                let rest = model.split_off(&(count, String::new()));
                assert_eq!(listed(&out), entries(&model));
                model = rest.into_iter().map(|((group, name), of)| ((group - count, name), of)).collect();
                groups -= count;
                assert_eq!((out.groups, all.groups, all.held), (count, groups, 7 * model.len()));
                assert_eq!(listed(&all), entries(&model));
            }
            let out = all.split(EmitTo::All, |_| 0);
            assert_eq!((listed(&out), out.groups), (entries(&model), groups));
            assert_eq!((all.groups, all.bytes()), (0, BySeries::<i64>::default().bytes()));
        }
    }

    #[test]
    fn names_are_given_as_often_as_there_are_values() {
        let mut all = BySeries::<i64>::default();
        for (group, name, count) in [(1, "b", 2), (0, "c", 0), (1, "a", 3)] {
            all.room(2);
            *all.of(group, name) = count;
        }
        let sorted = all.sorted();
        let each = |count: &i64| *count as usize;
        let ids = all.ids(&sorted, each);
        assert_eq!(ids.as_string::<i64>().iter().flatten().collect::<Vec<_>>(), ["a", "a", "a", "b", "b"]);
        let lengths = all.lengths(&sorted, each);
        assert_eq!(lengths, [0, 5]);
        let made = lists(&lengths, [ids]).unwrap();
        let made = made[0].as_list::<i32>();
        assert_eq!((made.value_length(0), made.value_length(1)), (0, 5));
        assert_eq!(names_of(made).unwrap().len(), 5);
        let others = ListArray::from_iter_primitive::<Int64Type, _, _>([Some(vec![Some(1)])]);
        assert!(names_of(&others).unwrap_err().to_string().contains("names series by another type"));
        let refused = lists(&[1 << 30, 1 << 30], Vec::<ArrayRef>::new()).unwrap_err().to_string();
        assert!(refused.contains("more than 2147483647 values of series"), "{refused}");
    }

    #[test]
    fn rows_count_by_their_filter() {
        let filter = BooleanArray::from(vec![Some(true), Some(false), None]);
        assert_eq!([0, 1, 2].map(|row| counts(Some(&filter), row)), [true, false, false]);
        assert!(counts(None, 9));
    }
}
