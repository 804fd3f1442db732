//! The counters of a scan that `explain` shows.

use std::borrow::Cow;

use quiver_types::ReadStats;

/// Numbers that are known before a scan runs: of all parts, of those that it reads, and of those that each reason left out.
pub(crate) fn known(
    (total, read): (usize, usize),
    pruned_by: Vec<(&'static str, usize)>,
) -> Vec<(Cow<'static, str>, usize)> {
    let all = [("parts_total".into(), total), ("parts_read".into(), read)];
    let pruned = pruned_by.into_iter().map(|(by, n)| (format!("pruned_by_{by}").into(), n));
    all.into_iter().chain(pruned).collect()
}

/// Names of the counters of a run that are the scan's own, and not those of its query.
pub(crate) fn counters(of_the_query: &[&str]) -> Vec<&'static str> {
    let names = ReadStats::default().list().into_iter().map(|(name, _)| name);
    names.filter(|name| !of_the_query.contains(name)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_names() {
        let numbers = known((3, 1), vec![("time", 2)]);
        let numbers: Vec<(&str, usize)> = numbers.iter().map(|(name, n)| (&**name, *n)).collect();
        assert_eq!(numbers, [("parts_total", 3), ("parts_read", 1), ("pruned_by_time", 2)]);
        let all = counters(&[]);
        assert!(all.contains(&"parts_read") && counters(&["parts_read"]).len() == all.len() - 1);
    }
}
