use super::*;

#[test]
fn quantiles_of_powers_of_two() {
    let mut cell = Cell::default();
    for value in [1.0, 400.0, 1e6, 23e6, 29e6, 40e6, 75e6, 88_999_001.0, 330e6, 349e6, 480_123_456.0] {
        cell.count_value(value);
    }
    let counts: Vec<(u64, u64)> = cell.buckets.iter().map(|(bound, n)| (*bound, *n)).collect();
    let expected = [(512, 1), (1 << 20, 1), (1 << 25, 2), (1 << 26, 1), (1 << 27, 2), (1 << 29, 3)];
    assert_eq!(counts, expected);
    assert_eq!([0.5, 0.99, 0.0].map(|q| quantile(&cell.buckets, q) as u64), [1 << 26, 1 << 29, 512]);
    // The third of ten: half of the way from one power to the other that has a count.
    assert!((quantile(&cell.buckets, 0.3).log2() - 22.5).abs() < 1e-9);
    assert!(quantile(&BTreeMap::new(), 0.5).abs() < 1e-9);
}

#[test]
fn numbers_that_are_left_out_are_told_from_steps_without_spans() {
    let all = || vec![MetricSeries { points: vec![(0, 1.0), (60, 9.0)], ..MetricSeries::default() }];
    let kept = |compare, number, gaps| {
        let mut series = all();
        keep(&mut series, (compare, number), 1.0, gaps);
        series.iter().map(|s| s.points.iter().map(|p| p.1.to_string()).collect()).collect::<Vec<Vec<String>>>()
    };
    assert_eq!(kept(Compare::Greater, 1.0, true), [["9"]]);
    assert_eq!(kept(Compare::Less, 9.0, false), [["1", "NaN"]]);
    assert!(kept(Compare::Greater, 9.0, true).is_empty());
    let mut rates = all();
    keep(&mut rates, (Compare::LessEqual, 0.1), 60.0, true);
    assert_eq!(rates[0].points, [(0, 1.0)]);
}

#[test]
fn picks_are_of_each_step() {
    let one = |points: &[(i64, f64)]| MetricSeries { points: points.to_vec(), ..MetricSeries::default() };
    let all = [one(&[(0, 1.0), (60, 9.0)]), one(&[(0, 2.0), (60, 3.0)]), one(&[(0, 0.5)])];
    let picked = |greatest| {
        let mut series = all.to_vec();
        pick(&mut series, greatest, 1);
        series.iter().map(|s| s.points.iter().map(|p| p.0).collect()).collect::<Vec<Vec<i64>>>()
    };
    assert_eq!(picked(true), [vec![60], vec![0]]);
    assert_eq!(picked(false), [vec![60], vec![0]]);
}
