//! A sort that can be cancelled: sorts runs, checks in between, and merges them.

use std::cmp::Ordering;

/// Numbers that are sorted at a stretch, and about how many comparisons each of them costs.
const RUN: usize = 4096;
const COMPARISONS: usize = 16;

/// What [`sort_numbers`] takes per number.
pub(crate) const BYTES: usize = 2 * size_of::<u32>();

/// Sorts numbers in place; equal ones stay in their order. `did` hears of the work ahead and may end it.
///
/// # Errors
/// Those of `did`.
pub(crate) fn sort_numbers<E>(
    numbers: &mut Vec<u32>,
    did: impl Fn(usize) -> Result<(), E>,
    compare: impl Fn(u32, u32) -> Ordering,
) -> Result<(), E> {
    for run in numbers.chunks_mut(RUN) {
        did(run.len() * COMPARISONS)?;
        run.sort_by(|&a, &b| compare(a, b));
    }
    if numbers.len() <= RUN {
        return Ok(());
    }
    let (mut width, mut merged) = (RUN, Vec::with_capacity(numbers.len()));
    while width < numbers.len() {
        merged.clear();
        for pair in numbers.chunks(2 * width) {
            let (mut left, mut right) = pair.split_at(width.min(pair.len()));
            // Runs that follow each other, as those of a table in order do, are no work.
            let follow = !matches!((left.last(), right.first()), (Some(&a), Some(&b)) if compare(a, b).is_gt());
            while let ([a, ..], [b, ..]) = (left, right)
                && !follow
            {
                if merged.len().is_multiple_of(RUN) {
                    did(RUN)?;
                }
                let next = if compare(*a, *b).is_gt() { &mut right } else { &mut left };
                merged.push(next[0]);
                *next = &next[1..];
            }
            merged.extend_from_slice(left);
            merged.extend_from_slice(right);
        }
        std::mem::swap(numbers, &mut merged);
        width *= 2;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sorts_as_the_library_does() {
        for count in [0, 1, 4096, 4097, 20_000] {
            for modulus in [1, 7, 5000, usize::MAX] {
                let key = |i: u32| (i as usize).wrapping_mul(0x9e37_79b9) % modulus;
                let mut expected: Vec<u32> = (0..count).collect();
                let mut got = expected.clone();
                expected.sort_by_key(|&i| key(i));
                sort_numbers(&mut got, |_| Ok::<_, ()>(()), |a, b| key(a).cmp(&key(b))).expect("nothing ends it");
                assert_eq!(got, expected, "{count} numbers, keys below {modulus}");
            }
        }
        assert!(sort_numbers(&mut vec![1], |_| Err(()), |a, b| a.cmp(&b)).is_err(), "it was told to end");
    }

    /// Breaks if work is not announced before it is done, or a sort that is broken off loses a number.
    #[test]
    fn whoever_hears_of_the_work_may_end_it() {
        use std::cell::Cell;

        for most in [0, 1, 2, 3, 4] {
            let heard = Cell::new(0_usize);
            let mut numbers: Vec<u32> = (0..10_000).rev().collect();
            let did = |_| {
                heard.set(heard.get() + 1);
                if heard.get() > most { Err(heard.get()) } else { Ok(()) }
            };
            let ended = sort_numbers(&mut numbers, did, |a, b| a.cmp(&b));
            assert_eq!(ended, Err(most + 1));
            numbers.sort_unstable();
            assert!(numbers.iter().zip(0..).all(|(number, expected)| *number == expected) && numbers.len() == 10_000);
        }
        // Runs that are in order already are merged without a look.
        let heard = Cell::new(0_usize);
        let mut numbers: Vec<u32> = (0..10_000).collect();
        let did = |_| -> Result<(), ()> {
            heard.set(heard.get() + 1);
            Ok(())
        };
        assert_eq!(sort_numbers(&mut numbers, did, |a, b| a.cmp(&b)), Ok(()));
        assert_eq!(heard.get(), 3, "once for each run");
    }
}
