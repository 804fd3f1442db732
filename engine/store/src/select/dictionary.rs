//! Label columns of one source of series, and their union over several sources.
//!
//! The values of a [`CodedColumn`] are sorted, so comparing codes compares texts. A union maps each distinct value of
//! each source to the united values once; then rows are remapped by code, without handling text per row.

use std::cmp::Ordering;
use std::sync::Arc;

/// Values of a label: sorted, distinct, the first one empty (label absent).
pub(crate) type Values = Arc<Vec<Arc<str>>>;

/// One label of some series: `codes[i]` is the index in `values` of the i-th series' value.
#[derive(Debug, Clone)]
pub(crate) struct CodedColumn {
    pub(crate) name: Arc<str>,
    pub(crate) values: Values,
    pub(crate) codes: Vec<u32>,
}

impl CodedColumn {
    /// Makes a column from distinct values in any order, of which the first is the empty text.
    pub(crate) fn sorted(name: Arc<str>, values: &[Arc<str>], mut codes: Vec<u32>) -> Self {
        let mut order: Vec<u32> = (0..values.len() as u32).collect();
        order.sort_unstable_by(|&a, &b| values[a as usize].cmp(&values[b as usize]));
        let mut map = vec![0u32; order.len()];
        for (new, &old) in order.iter().enumerate() {
            map[old as usize] = new as u32;
        }
        for code in &mut codes {
            *code = map[*code as usize];
        }
        let values = order.iter().map(|&code| Arc::clone(&values[code as usize])).collect();
        Self { name, values: Arc::new(values), codes }
    }

    /// Drops values that no series has; the others keep their order.
    pub(crate) fn compact(mut self) -> Self {
        let used = used_codes(&self.codes, self.values.len());
        if used.len() == self.values.len() {
            return self;
        }
        let values = used.iter().map(|&code| Arc::clone(&self.values[code as usize])).collect();
        if self.values.len() <= self.codes.len() * 4 {
            let mut map = vec![0u32; self.values.len()];
            for (new, &old) in used.iter().enumerate() {
                map[old as usize] = new as u32;
            }
            self.codes.iter_mut().for_each(|code| *code = map[*code as usize]);
        } else {
            let place = |code: u32| used.partition_point(|&u| u < code) as u32;
            self.codes.iter_mut().for_each(|code| *code = place(*code));
        }
        Self { values: Arc::new(values), ..self }
    }

    /// Tells whether no series has this label.
    pub(crate) fn is_absent(&self) -> bool {
        self.codes.iter().all(|&code| code == 0)
    }
}

/// The codes in use, ascending, always including 0. The cost is proportional to the smaller of the numbers of series
/// and values.
fn used_codes(codes: &[u32], values: usize) -> Vec<u32> {
    if values <= codes.len() * 4 {
        let mut used = vec![false; values];
        used[0] = true;
        for &code in codes {
            used[code as usize] = true;
        }
        (0..values as u32).filter(|&code| used[code as usize]).collect()
    } else {
        let mut used = codes.to_vec();
        used.push(0);
        used.sort_unstable();
        used.dedup();
        used
    }
}

/// Merges two sorted lists of values.
fn merge_values(a: &[Arc<str>], b: &[Arc<str>]) -> Vec<Arc<str>> {
    let mut out = Vec::with_capacity(a.len().max(b.len()) + a.len().min(b.len()) / 4);
    let (mut i, mut j) = (0, 0);
    while i < a.len() && j < b.len() {
        let order = compare_values(&a[i], &b[j]);
        out.push(Arc::clone(if order.is_le() { &a[i] } else { &b[j] }));
        i += usize::from(order.is_le());
        j += usize::from(order.is_ge());
    }
    out.extend_from_slice(&a[i..]);
    out.extend_from_slice(&b[j..]);
    out
}

fn compare_values(a: &Arc<str>, b: &Arc<str>) -> Ordering {
    if Arc::ptr_eq(a, b) { Ordering::Equal } else { a.cmp(b) }
}

/// For each value, its index in `all`, which must contain all of them.
fn positions(values: &[Arc<str>], all: &[Arc<str>]) -> Vec<u32> {
    let mut at = 0;
    let mut out = Vec::with_capacity(values.len());
    for value in values {
        if all.get(at).is_none_or(|other| compare_values(other, value).is_ne()) {
            at += all[at..].partition_point(|other| other < value);
        }
        out.push(at as u32);
        at += 1;
    }
    out
}

/// Unites columns of the same label. Each comes with the position of its first series among `rows` series; series that
/// no column covers lack the label.
pub(crate) fn unite_columns(name: Arc<str>, rows: usize, mut columns: Vec<(usize, CodedColumn)>) -> CodedColumn {
    if columns.len() == 1 && columns[0].1.codes.len() == rows {
        return columns.swap_remove(0).1;
    }
    let mut values = Arc::clone(&columns[0].1.values);
    for (_, column) in &columns[1..] {
        if !Arc::ptr_eq(&values, &column.values) && values != column.values {
            values = Arc::new(merge_values(&values, &column.values));
        }
    }
    let mut codes = vec![0u32; rows];
    for (first, column) in columns {
        let out = &mut codes[first..first + column.codes.len()];
        if values.len() == column.values.len() {
            out.copy_from_slice(&column.codes);
        } else {
            let map = positions(&column.values, &values);
            out.iter_mut().zip(&column.codes).for_each(|(out, &code)| *out = map[code as usize]);
        }
    }
    CodedColumn { name, values, codes }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn column(values: &[&str], codes: &[u32]) -> CodedColumn {
        let values = values.iter().map(|v| Arc::from(*v)).collect();
        CodedColumn { name: Arc::from("a"), values: Arc::new(values), codes: codes.to_vec() }
    }

    fn texts(column: &CodedColumn) -> Vec<&str> {
        assert!(column.values.is_sorted() && column.values[0].is_empty());
        column.codes.iter().map(|&code| &*column.values[code as usize]).collect()
    }

    #[test]
    fn compact_keeps_texts() {
        let check = |values: &[&str], codes: &[u32], left: usize| {
            let before = column(values, codes);
            let after = before.clone().compact();
            assert_eq!((texts(&before), left), (texts(&after), after.values.len()));
        };
        check(&["", "x", "y", "z"], &[3, 1, 3], 3);
        check(&["", "x", "y", "z"], &[1, 2, 3], 4);
        check(&["", "b", "c", "d", "e", "f", "g", "h", "i"], &[7], 2);
        check(&["", "x"], &[], 1);
    }

    #[test]
    fn union_of_columns() {
        let (a, b) = (column(&["", "b", "d"], &[1, 0, 2]), column(&["", "a", "d", "e"], &[1, 2, 3]));
        let all = unite_columns(Arc::from("a"), 7, vec![(0, a.clone()), (3, b)]);
        assert_eq!(texts(&all), ["b", "", "d", "a", "d", "e", ""]);
        let all = unite_columns(Arc::from("a"), 6, vec![(3, a.clone()), (0, a)]);
        assert_eq!(texts(&all), ["b", "", "d", "b", "", "d"]);
    }

    #[test]
    fn values_are_sorted() {
        let values = ["", "b", "a", "c"].map(Arc::from);
        let column = CodedColumn::sorted(Arc::from("a"), &values, vec![1, 0, 2, 3, 1]);
        assert_eq!(texts(&column), ["b", "", "a", "c", "b"]);
    }
}
