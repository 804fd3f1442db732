//! Bounds a table of counts without losing frequent values for good (frequent items by Misra and Gries). When the table
//! is full, the less frequent half is dropped, and the highest count dropped so far bounds how often a later value may
//! have been missed.

/// What half of some counts do not exceed, and how many that equal it stay with those that do.
pub(crate) fn middle_of(mut counts: Vec<u64>) -> (u64, usize) {
    let half = counts.len() / 2;
    let (_, &mut middle, upper) = counts.select_nth_unstable(half);
    let above = upper.iter().filter(|count| **count > middle).count();
    (middle, half - above)
}

/// Says whether a count stays; `ties` are those that equal the middle and may stay yet.
pub(crate) fn stays(count: u64, middle: u64, ties: &mut usize) -> bool {
    if count == middle && *ties > 0 {
        *ties -= 1;
        return true;
    }
    count > middle
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_of_the_counts_stay() {
        for (counts, expected) in [
            (vec![1, 1, 1, 1], (1, 2)),
            (vec![4, 1, 3, 2], (3, 1)),
            (vec![1, 1, 1, 9], (1, 1)),
            (vec![9, 9, 9, 1], (9, 2)),
            (vec![5], (5, 0)),
        ] {
            assert_eq!(middle_of(counts.clone()), expected, "{counts:?}");
            let mut ties = expected.1;
            let stay = counts.iter().filter(|count| stays(**count, expected.0, &mut ties)).count();
            assert_eq!(stay, counts.len() / 2, "{counts:?}");
        }
    }
}
