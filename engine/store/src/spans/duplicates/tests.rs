#![allow(clippy::single_range_in_vec_init, reason = "lists of ranges, some of which hold one")]

use super::*;

/// All sets of rows below a number, ascending.
fn sets(rows: u32) -> impl Iterator<Item = Vec<u64>> {
    (0..1_u32 << rows).map(move |set| (0..rows).filter(|row| (set >> row) & 1 == 1).map(u64::from).collect())
}

#[test]
fn ranges_hold_the_rows_that_they_are_made_of() {
    for rows in sets(9) {
        let joined = ranges(rows.iter().copied());
        assert_eq!(joined.iter().cloned().flatten().collect::<Vec<u64>>(), rows);
        // What touches is one.
        assert!(joined.windows(2).all(|pair| pair[0].end < pair[1].start), "{joined:?}");
    }
    assert_eq!(ranges([u64::MAX - 2, u64::MAX - 1].into_iter()), [u64::MAX - 2..u64::MAX]);
}

#[test]
fn rows_are_found_in_ranges_as_in_sets() {
    for rows in sets(7) {
        let joined = ranges(rows.iter().copied());
        for row in 0..9 {
            assert_eq!(contains(&joined, row), rows.contains(&row), "{row} in {rows:?}");
            for end in row + 1..10 {
                let shares = (row..end).any(|row| rows.contains(&row));
                assert_eq!(overlaps(&joined, &(row..end)), shares, "{row}..{end} and {rows:?}");
            }
        }
    }
}

#[test]
fn windows_share_what_lies_in_both() {
    for (a, b, shared) in [
        ((0, 9), (10, 20), None),
        ((0, 10), (10, 20), Some((10, 10))),
        ((0, 30), (10, 20), Some((10, 20))),
        ((5, 15), (10, 20), Some((10, 15))),
        ((i64::MIN, i64::MAX), (-1, 1), Some((-1, 1))),
    ] {
        assert_eq!((overlap(a, b), overlap(b, a)), (shared, shared), "{a:?} and {b:?}");
    }
}

/// Breaks if rows of one trace are looked at in two steps: what is told apart would not meet.
#[test]
fn steps_keep_a_trace_together() {
    let full = STEP_ROWS;
    let check = |entries: &[(u32, Range<u64>)], lengths: &[usize]| {
        let found = steps(entries);
        assert_eq!(found.iter().map(|step| step.len()).collect::<Vec<_>>(), lengths, "{entries:?}");
        assert_eq!(found.concat(), entries);
        assert!(found.windows(2).all(|pair| pair[0].last().map(|e| e.0) != pair[1].first().map(|e| e.0)));
    };
    check(&[], &[]);
    check(&[(1, 0..1)], &[1]);
    // Small ones go together, however many.
    check(&[(1, 0..1), (2, 1..2), (3, 2..3)], &[3]);
    check(&[(1, 0..full), (2, full..full + 1)], &[1, 1]);
    check(&[(1, 0..full - 1), (2, full..full + 1), (3, full + 1..full + 2)], &[2, 1]);
    // One hash fills a step, and has more.
    check(&[(1, 0..full), (1, full..2 * full), (2, 2 * full..2 * full + 1)], &[2, 1]);
    check(&[(1, 0..full), (1, full..2 * full)], &[2]);
}

#[test]
fn candidates_are_reports_of_the_start_and_some_of_all() {
    let reports = [(10, 7), (20, 1), (20, 3), (30, 2)];
    let check = |start: i64, same: &[(i64, u64)]| {
        assert_eq!(candidates(&reports, start), [same, &reports[..]], "{start}");
    };
    check(5, &[]);
    check(10, &[(10, 7)]);
    check(20, &[(20, 1), (20, 3)]);
    check(25, &[]);
    check(31, &[]);
    // Of many only the first are looked at, of both lists for itself.
    let many: Vec<(i64, u64)> = (0..40).map(|row| (if row < 20 { 1 } else { 2 }, row)).collect();
    let [same, any] = candidates(&many, 2);
    assert_eq!((same.len(), any.len()), (SAME_KEY_MAX, SAME_KEY_MAX));
    assert_eq!((same[0], any[0]), ((2, 20), (1, 0)));
    assert_eq!(rows_of([[same, any]].into_iter()).len(), 2 * SAME_KEY_MAX);
}

#[test]
fn a_row_that_repeats_is_not_reported_as_well() {
    let mut marked = DuplicateRows::<u64>::default();
    marked.add(&PartRepeats { rows: vec![2..4], reported: vec![0..1, 6..8] });
    marked.add(&PartRepeats { rows: vec![7..8], reported: vec![3..6] });
    let found = PartRepeats::of(marked);
    assert_eq!((found.rows, found.reported), (vec![2..4, 7..8], vec![0..1, 4..7]));
    let none = PartRepeats::of(DuplicateRows::default());
    assert_eq!((none.rows, none.reported), (vec![], vec![]));
}

/// Breaks if what was found beside some parts is taken for what was found beside others.
#[test]
fn what_was_found_has_its_own_hash() {
    let lists: [&[Range<u64>]; 4] = [&[], &[0..1], &[0..2], &[0..1, 2..3]];
    let mut all = Vec::new();
    for rows in lists {
        for reported in lists {
            all.push(PartRepeats { rows: rows.to_vec(), reported: reported.to_vec() });
        }
    }
    for (i, a) in all.iter().enumerate() {
        for (j, b) in all.iter().enumerate() {
            assert_eq!(a.signature() == b.signature(), i == j, "{a:?} and {b:?}");
        }
    }
}
