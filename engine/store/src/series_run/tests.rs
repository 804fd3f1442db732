use proptest::prelude::*;

use super::*;

fn run() -> SeriesRun {
    SeriesRun::new(LabelSet::from_pairs([("__name__", "m")]), Arc::from(""))
}

/// Everything in it, with bits instead of floats, so that runs can be compared.
fn bits(run: &SeriesRun) -> impl PartialEq + std::fmt::Debug + use<> {
    let floats: Vec<_> = (0..run.samples.len())
        .map(|i| (run.samples.ts[i], run.samples.values[i].to_bits(), run.samples.start(i)))
        .collect();
    let hists: Vec<_> = (0..run.hists.len())
        .map(|i| (run.hists.ts[i], run.hists.hists[i].canonical_bytes(), run.hists.start(i)))
        .collect();
    let exemplars: Vec<_> =
        run.exemplars.iter().map(|e| (e.ts, e.value.to_bits(), e.labels.canonical().to_vec())).collect();
    (floats, hists, exemplars, run.samples.start_ts.len(), run.hists.start_ts.len())
}

fn values() -> impl Strategy<Value = f64> {
    prop_oneof![
        Just(0.0),
        Just(-0.0),
        Just(1.5),
        Just(f64::INFINITY),
        Just(quiver_types::stale_nan()),
        Just(f64::NAN),
        Just(f64::from_bits(u64::MAX)),
    ]
}

prop_compose! {
    fn runs()(
        floats in prop::collection::vec((0i64..6, values(), prop_oneof![Just(0i64), -2i64..3]), 0..12),
        hists in prop::collection::vec((0i64..6, values(), prop_oneof![Just(0i64), -2i64..3]), 0..4),
        exemplars in prop::collection::vec((0i64..4, values()), 0..4),
    ) -> SeriesRun {
        let mut out = run();
        for (ts, v, start) in floats {
            out.samples.push(ts, v, start);
        }
        for (ts, sum, start) in hists {
            out.hists.push(ts, Histogram { sum, ..Histogram::default() }, start);
        }
        out.exemplars = exemplars.into_iter().map(|(ts, value)| RunExemplar { ts, value, labels: LabelSet::default() }).collect();
        out
    }
}

fn normal(mut run: SeriesRun) -> SeriesRun {
    run.normalize();
    run
}

fn merged(a: &SeriesRun, b: &SeriesRun) -> SeriesRun {
    let mut a = a.clone();
    a.merge(b.clone());
    a
}

proptest! {
    #[test]
    fn merging_has_no_order(a in runs(), b in runs(), c in runs()) {
        let mut all = a.clone();
        all.samples.append(&b.samples);
        all.samples.append(&c.samples);
        for other in [&b, &c] {
            for (i, h) in other.hists.hists.iter().enumerate() {
                all.hists.push(other.hists.ts[i], h.clone(), other.hists.start(i));
            }
            all.exemplars.extend(other.exemplars.iter().cloned());
        }
        let (a, b, c, all) = (normal(a), normal(b), normal(c), normal(all));
        prop_assert_eq!(bits(&normal(a.clone())), bits(&a), "idempotent");
        prop_assert_eq!(bits(&merged(&a, &a)), bits(&a), "idempotent");
        prop_assert_eq!(bits(&merged(&a, &b)), bits(&merged(&b, &a)), "commutative");
        prop_assert_eq!(bits(&merged(&merged(&a, &b), &c)), bits(&merged(&a, &merged(&b, &c))), "associative");
        prop_assert_eq!(bits(&merged(&merged(&a, &b), &c)), bits(&all), "like sorting all at once");
        prop_assert!(all.samples.ts.windows(2).all(|w| w[0] < w[1]));
        prop_assert!(all.samples.ts.iter().all(|t| !all.hists.ts.contains(t)), "a histogram beats a float");
    }

    #[test]
    fn cutting_keeps_what_is_inside(a in runs(), min in 0i64..6, max in 0i64..6) {
        let a = normal(a);
        let range = MillisRange::new(min, max);
        let mut cut = a.clone();
        cut.samples.cut(range);
        cut.hists.cut(range);
        let slice = a.samples.slice(range);
        let inside: Vec<_> = a.samples.ts.iter().copied().filter(|&t| range.contains(t)).collect();
        prop_assert_eq!(&cut.samples.ts, &inside);
        prop_assert_eq!(&slice.ts, &inside);
        prop_assert_eq!(&slice.start_ts, &cut.samples.start_ts);
        prop_assert_eq!(slice.values.len(), inside.len());
        prop_assert_eq!(cut.hists.hists.len(), cut.hists.ts.len());
    }
}

#[test]
fn winners() {
    let check = |a: (f64, i64), b: (f64, i64)| {
        let winner = better_float(a, b);
        assert_eq!((winner.0.to_bits(), winner.1), (a.0.to_bits(), a.1));
        let winner = better_float(b, a);
        assert_eq!((winner.0.to_bits(), winner.1), (a.0.to_bits(), a.1));
    };
    check((2.0, 0), (1.0, 9));
    check((0.0, 0), (-0.0, 0));
    check((f64::NEG_INFINITY, 0), (quiver_types::stale_nan(), 5));
    check((f64::from_bits(u64::MAX), 0), (quiver_types::stale_nan(), 0));
    check((f64::NAN, 0), (f64::INFINITY, 0));
    check((1.0, 5), (1.0, 0));
    check((1.0, -5), (1.0, 0));
}

fn floats(rows: &[(i64, f64, i64)]) -> FloatRun {
    let mut run = FloatRun::default();
    for &(ts, value, start) in rows {
        run.push(ts, value, start);
    }
    run
}

fn rows(run: &FloatRun) -> Vec<(i64, f64, i64)> {
    (0..run.len()).map(|i| (run.ts[i], run.values[i], run.start(i))).collect()
}

#[test]
fn start_times_are_listed_from_the_first_that_is_set() {
    let check = |first: &[(i64, f64, i64)], second: &[(i64, f64, i64)], starts: &[i64]| {
        let mut run = floats(first);
        run.append(&floats(second));
        assert_eq!(run.start_ts, starts, "{first:?} and {second:?}");
        assert_eq!(rows(&run), [first, second].concat());
    };
    check(&[], &[], &[]);
    check(&[(1, 1.0, 0)], &[(2, 2.0, 0)], &[]);
    check(&[(1, 1.0, 0)], &[(2, 2.0, 5), (3, 3.0, 0)], &[0, 5, 0]);
    check(&[(1, 1.0, 5)], &[(2, 2.0, 0)], &[5, 0]);
    check(&[], &[(2, 2.0, -5)], &[-5]);
    check(&[(1, 1.0, 5)], &[], &[5]);
}

#[test]
fn one_sample_per_time_is_left() {
    let check = |samples: &[(i64, f64, i64)], expected: &[(i64, f64, i64)], with_starts: bool| {
        let mut run = floats(samples);
        run.normalize();
        assert_eq!(rows(&run), expected, "{samples:?}");
        assert_eq!(!run.start_ts.is_empty(), with_starts, "{samples:?}");
    };
    check(&[], &[], false);
    check(&[(3, 1.0, 9), (1, 2.0, 0), (2, 3.0, 4)], &[(1, 2.0, 0), (2, 3.0, 4), (3, 1.0, 9)], true);
    check(&[(5, 1.0, 0), (5, 2.0, 0), (5, 1.5, 0)], &[(5, 2.0, 0)], false);
    // The start time goes with the sample that it came with, and the list with the last start time.
    check(&[(5, 1.0, 3), (5, 2.0, 0)], &[(5, 2.0, 0)], false);
    check(&[(4, 0.0, 0), (5, 1.0, 0), (5, 2.0, 3)], &[(4, 0.0, 0), (5, 2.0, 3)], true);
    check(&[(i64::MAX, 1.0, 0), (i64::MIN, 2.0, 0)], &[(i64::MIN, 2.0, 0), (i64::MAX, 1.0, 0)], false);
}

#[test]
fn runs_are_merged_wherever_they_lie() {
    let check = |a: &[(i64, f64, i64)], b: &[(i64, f64, i64)], expected: &[(i64, f64, i64)]| {
        for (first, second) in [(a, b), (b, a)] {
            let merged = floats(first).merged(floats(second));
            assert_eq!(rows(&merged), expected, "{first:?} with {second:?}");
            let any = expected.iter().any(|sample| sample.2 != 0);
            assert_eq!(merged.start_ts.len(), if any { expected.len() } else { 0 });
        }
    };
    check(&[], &[(1, 1.0, 0)], &[(1, 1.0, 0)]);
    check(&[(1, 1.0, 0), (2, 2.0, 0)], &[(3, 3.0, 7)], &[(1, 1.0, 0), (2, 2.0, 0), (3, 3.0, 7)]);
    // They touch at one time.
    check(&[(1, 1.0, 0), (2, 2.0, 0)], &[(2, 5.0, 0), (3, 3.0, 0)], &[(1, 1.0, 0), (2, 5.0, 0), (3, 3.0, 0)]);
    // One lies in a gap of the other.
    check(
        &[(1, 1.0, 0), (9, 9.0, 0)],
        &[(4, 4.0, 2), (5, 5.0, 0)],
        &[(1, 1.0, 0), (4, 4.0, 2), (5, 5.0, 0), (9, 9.0, 0)],
    );
}

#[test]
fn dropped_times_take_their_samples_along() {
    let all = [(10, 1.0, 0), (20, 2.0, 8), (30, 3.0, 0), (40, 4.0, 0)];
    let check = |times: &[i64], expected: &[i64], starts: &[i64]| {
        let mut run = floats(&all);
        run.drop_times(times);
        assert_eq!((&*run.ts, &*run.start_ts), (expected, starts), "{times:?}");
        let values: Vec<f64> = expected.iter().map(|ts| *ts as f64 / 10.0).collect();
        assert_eq!(run.values, values);
    };
    check(&[], &[10, 20, 30, 40], &[0, 8, 0, 0]);
    check(&[1, 9], &[10, 20, 30, 40], &[0, 8, 0, 0]);
    check(&[41], &[10, 20, 30, 40], &[0, 8, 0, 0]);
    check(&[5, 10, 15, 30, 99], &[20, 40], &[8, 0]);
    check(&[20], &[10, 30, 40], &[]);
    check(&[10, 20, 30, 40], &[], &[]);
}

#[test]
fn a_cut_has_both_ends() {
    let all = [(10, 1.0, 0), (20, 2.0, 8), (30, 3.0, 0)];
    let check = |min: i64, max: i64, expected: &[i64]| {
        let (mut cut, mut hists) = (floats(&all), HistRun::default());
        for &(ts, sum, start) in &all {
            hists.push(ts, Histogram { sum, ..Histogram::default() }, start);
        }
        cut.cut(MillisRange::new(min, max));
        hists.cut(MillisRange::new(min, max));
        assert_eq!((&*cut.ts, &*hists.ts), (expected, expected), "{min} to {max}");
        let slice = floats(&all).slice(MillisRange::new(min, max));
        assert_eq!((rows(&slice), slice.start_ts.len()), (rows(&cut), expected.len()));
        let starts: Vec<i64> = (0..hists.len()).map(|i| hists.start(i)).collect();
        assert_eq!(starts, rows(&cut).iter().map(|row| row.2).collect::<Vec<_>>());
        assert_eq!(hists.hists.iter().map(|h| h.sum).collect::<Vec<_>>(), cut.values);
    };
    check(i64::MIN, i64::MAX, &[10, 20, 30]);
    check(10, 30, &[10, 20, 30]);
    check(11, 29, &[20]);
    check(20, 20, &[20]);
    check(21, 29, &[]);
    check(31, i64::MAX, &[]);
    check(i64::MIN, 9, &[]);
}

fn counter(count: f64, reset_hint: ResetHint) -> Histogram {
    Histogram { count, reset_hint, ..Histogram::default() }
}

/// A hint speaks of the histogram before; where another one comes to stand there it is looked at anew.
#[test]
fn hints_are_taken_back_where_the_neighbour_changed() {
    use ResetHint::{NotReset, Unknown};
    let run = |rows: &[(i64, f64, ResetHint)]| {
        let mut run = HistRun::default();
        for &(ts, count, hint) in rows {
            run.push(ts, counter(count, hint), 0);
        }
        run
    };
    let hints = |run: &HistRun| run.hists.iter().map(|h| h.reset_hint).collect::<Vec<_>>();
    // In order: nothing is looked at.
    let mut sorted = run(&[(1, 5.0, Unknown), (2, 1.0, NotReset)]);
    sorted.normalize();
    assert_eq!(hints(&sorted), [Unknown, NotReset]);
    let mut mixed = run(&[(3, 6.0, NotReset), (1, 5.0, Unknown), (2, 9.0, NotReset)]);
    mixed.normalize();
    assert_eq!((&*mixed.ts, hints(&mixed)), (&[1, 2, 3][..], vec![Unknown, NotReset, Unknown]));
    // Side by side only the border is looked at.
    for (count, hint) in [(7.0, NotReset), (2.0, Unknown)] {
        let (first, second) = (run(&[(1, 5.0, Unknown)]), run(&[(2, count, NotReset), (3, 9.0, NotReset)]));
        assert_eq!(hints(&first.clone().merged(second.clone())), [Unknown, hint, NotReset], "{count}");
        assert_eq!(hints(&second.merged(first)), [Unknown, hint, NotReset], "{count}");
    }
    let merged = run(&[(1, 5.0, Unknown), (3, 6.0, NotReset)]).merged(run(&[(2, 8.0, NotReset)]));
    assert_eq!((&*merged.ts, hints(&merged)), (&[1, 2, 3][..], vec![Unknown, NotReset, Unknown]));
}

#[test]
fn a_series_knows_its_extent() {
    let mut series = run();
    assert!(series.is_empty() && series.time_range().is_none() && series.rows() == 0);
    series.exemplars.push(RunExemplar { ts: 7, value: 1.0, labels: LabelSet::default() });
    assert_eq!((series.time_range(), series.rows()), (Some(MillisRange::new(7, 7)), 1));
    series.samples.push(9, 1.0, 0);
    series.hists.push(-3, Histogram::default(), 0);
    assert_eq!((series.time_range(), series.rows()), (Some(MillisRange::new(-3, 9)), 3));
}

#[test]
fn a_histogram_hides_the_float_beside_it_and_services_have_an_order() {
    let of = |service: &str| SeriesRun::new(LabelSet::from_pairs([("__name__", "m")]), Arc::from(service));
    let (mut a, mut b) = (of("a"), of("b"));
    a.samples = floats(&[(1, 1.0, 0), (2, 2.0, 0)]);
    b.hists.push(2, Histogram::default(), 0);
    for (mut first, second) in [(a.clone(), b.clone()), (b.clone(), a.clone())] {
        first.merge(second);
        assert_eq!((&*first.samples.ts, &*first.hists.ts, &*first.service), (&[1][..], &[2][..], "b"));
    }
    a.hists.push(1, Histogram::default(), 0);
    a.normalize();
    assert_eq!((&*a.samples.ts, &*a.hists.ts), (&[2][..], &[1][..]));
}

#[test]
fn equal_exemplars_are_one() {
    let exemplar =
        |ts, value: f64, label: &str| RunExemplar { ts, value, labels: LabelSet::from_pairs([("t", label)]) };
    let mut all = vec![
        exemplar(2, 1.0, "b"),
        exemplar(1, 0.0, "a"),
        exemplar(2, 1.0, "a"),
        exemplar(1, -0.0, "a"),
        exemplar(2, 1.0, "b"),
        exemplar(2, f64::NAN, "a"),
        exemplar(2, f64::NAN, "a"),
    ];
    normalize_exemplars(&mut all);
    let told: Vec<(i64, u64, &str)> = all.iter().map(|e| (e.ts, e.value.to_bits(), e.labels.get("t"))).collect();
    let bits = f64::to_bits;
    let (one, nan) = (bits(1.0), bits(f64::NAN));
    assert_eq!(told, [(1, bits(-0.0), "a"), (1, bits(0.0), "a"), (2, one, "a"), (2, one, "b"), (2, nan, "a")]);
}
