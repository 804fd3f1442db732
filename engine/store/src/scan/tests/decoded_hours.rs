//! Single hours of a part that spans a day: the result is the same whether they are read, decoded for the cache, or
//! cached.

use super::*;

const MINUTE: Millis = 60_000;
const HOUR: Millis = 60 * MINUTE;
const DAY: Millis = 24 * HOUR;

/// Samples of a series: every half a minute, some times shared by all and some not; one has an hour off, one begins late.
fn day(series: usize) -> BTreeMap<Millis, f64> {
    let lag = if series.is_multiple_of(3) { 0 } else { series as Millis * 7 };
    let times = (0..DAY / 30_000).map(|n| n * 30_000 + lag);
    let is_there = |ts: &Millis| match series {
        4 => !(9 * HOUR..10 * HOUR).contains(ts),
        5 => *ts > 20 * HOUR,
        _ => true,
    };
    times.filter(is_there).map(|ts| (ts, (ts / 1000) as f64 + series as f64 / 100.0)).collect()
}

#[test]
fn hours_of_a_day_are_the_same_however_they_are_read() {
    let series: Vec<LabelSet> = (0..40).map(|i| labels(&[("__name__", "m"), ("i", &format!("{i:02}"))])).collect();
    let days: Vec<BTreeMap<Millis, f64>> = (0..40).map(day).collect();
    let mut world = World::new();
    // One part holds the day but for its tenth minutes, another one these, and a generation the last sample of one series.
    for tenth in [false, true] {
        let runs = series.iter().zip(&days).map(|(labels, day)| {
            let mut run = SeriesRun::new(labels.clone(), Arc::from(""));
            let own = day.iter().filter(|(ts, _)| ((*ts / MINUTE) % 10 == 0) == tenth);
            own.for_each(|(&ts, &value)| run.samples.push(ts, value, 0));
            run
        });
        world.add_runs(runs.collect());
    }
    let generation = world.add_generation();
    world.insert(generation, &[(series[7].clone(), DAY - 1, Item::Float(7.0, 0))]);
    let mut ranges: Vec<(Millis, Millis)> = (0..24).map(|hour| (hour * HOUR, (hour + 1) * HOUR)).collect();
    // As a dashboard moves on; an instant; what reaches over the ends of the day; nothing; all.
    ranges.extend((0..10).map(|n| (10 * HOUR + n * 5 * MINUTE, 11 * HOUR + n * 5 * MINUTE)));
    ranges.extend([(7 * MINUTE, 7 * MINUTE), (-HOUR, HOUR), (23 * HOUR, 26 * HOUR), (DAY + 1, DAY + HOUR), (0, DAY)]);
    wait(async {
        for (min, max) in ranges {
            let range = MillisRange::new(min, max);
            let mut wanted = BTreeMap::new();
            for (at, day) in days.iter().enumerate() {
                let mut floats: Vec<_> = day.range(min..=max).map(|(&ts, v)| (ts, v.to_bits(), 0)).collect();
                floats.extend((at == 7 && range.contains(DAY - 1)).then_some((DAY - 1, 7f64.to_bits(), 0)));
                floats.sort_unstable();
                if !floats.is_empty() {
                    wanted.insert(series[at].canonical().to_vec(), Content { floats, hists: Vec::new() });
                }
            }
            for time in 0..3 {
                let stats = Arc::new(ReadStats::default());
                let matchers = vec![Matcher::equal("__name__", "m")];
                let selected = select(&*world.snapshot(), matchers, range, &stats).await;
                let request = SampleRequest { range, ..SampleRequest::default() };
                let (_, batches) = scan(&selected, request, 2, &stats).await;
                assert_eq!(contents(&selected, &batches), wanted, "{range:?}, time {time}");
                if time == 2 {
                    assert_eq!(get(&stats.pages_read), 0, "{range:?}: what is asked again is kept");
                }
            }
        }
    });
}

/// One series of twenty that stand in one block: read by itself, until that cost as much as all of the block.
#[test]
fn one_series_of_many_is_read_alone_at_first() {
    const SERIES: usize = 20;
    let series: Vec<LabelSet> = (0..SERIES).map(|i| labels(&[("__name__", "m"), ("i", &format!("{i:02}"))])).collect();
    let mut world = World::new();
    let runs = series.iter().enumerate().map(|(at, labels)| {
        let mut run = SeriesRun::new(labels.clone(), Arc::from(""));
        for (ts, value) in day(6 * at) {
            run.samples.push(ts, value, 0);
        }
        run
    });
    world.add_runs(runs.collect());
    let range = MillisRange::new(5 * HOUR, 6 * HOUR);
    let floats = day(42).range(range.min..=range.max).map(|(&ts, value)| (ts, value.to_bits(), 0)).collect();
    let wanted = BTreeMap::from([(series[7].canonical().to_vec(), Content { floats, hists: Vec::new() })]);
    wait(async {
        for time in 1..=SERIES + 1 {
            let stats = Arc::new(ReadStats::default());
            let selected = select(&*world.snapshot(), vec![Matcher::equal("i", "07")], range, &stats).await;
            let request = SampleRequest { range, ..SampleRequest::default() };
            let (_, batches) = scan(&selected, request, 1, &stats).await;
            assert_eq!(contents(&selected, &batches), wanted, "time {time}");
            let selection = world.selection(vec![Matcher::equal("i", "07")], range).await;
            let held = selection.parts[0].part.cache().samples.stats().entries;
            assert_eq!(held, u64::from(time >= SERIES), "time {time}");
        }
    });
}
