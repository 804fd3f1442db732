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
