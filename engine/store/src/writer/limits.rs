//! Limits for requests: ages of samples, number of days. Checked before anything is logged.

use std::ops::RangeInclusive;

use quiver_types::tables::logs::millis_of;
use quiver_types::time::day_of;
use quiver_types::{Error, LogsBatch, MetricsBatch, Millis, Result, SpansBatch};

use super::Refusal;
use crate::memtable::spans::starts;
use crate::metrics::METRICS;
use crate::settings::WriteSettings;
use crate::wal::replay::note_days;

/// Range of times, in milliseconds, that fit into i64 nanoseconds (years 1677 to 2262).
const TIME_MIN: Millis = i64::MIN / 1_000_000;
const TIME_MAX: Millis = i64::MAX / 1_000_000;

/// The result of the checks.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct AdmissionResult {
    /// UTC days of the rows, ascending.
    pub(crate) days: Vec<i32>,
    /// What was dropped, and how much of it.
    pub(crate) refused: Vec<(Refusal, u64)>,
}

/// Drops rows outside the accepted time range.
///
/// # Errors
/// Invalid: the remaining rows touch too many days.
pub(crate) fn admit(batch: &mut MetricsBatch, now: Millis, settings: &WriteSettings) -> Result<AdmissionResult> {
    let min = settings.accept_past_ms.map_or(TIME_MIN, |past| now.saturating_sub(past).max(TIME_MIN));
    let max = settings.accept_future_ms.map_or(TIME_MAX, |future| now.saturating_add(future).min(TIME_MAX));
    let refused = drop_outside(batch, min, max);
    let mut days = Vec::new();
    if let Some((first, last)) = bounds(batch) {
        if day_of(first) == day_of(last) {
            days.push(day_of(first));
        } else {
            note_days(batch.ts.iter().copied(), &mut days);
            note_days(batch.histograms.iter().map(|h| h.ts), &mut days);
            note_days(batch.exemplars.iter().map(|e| e.ts), &mut days);
        }
    }
    within(days, refused, settings)
}

fn within(days: Vec<i32>, refused: Vec<(Refusal, u64)>, settings: &WriteSettings) -> Result<AdmissionResult> {
    check_days(&days, settings)?;
    Ok(AdmissionResult { days, refused })
}

/// Checks the number of days of a write.
///
/// # Errors
/// Invalid: there are too many.
pub(crate) fn check_days(days: &[i32], settings: &WriteSettings) -> Result<()> {
    if days.len() > settings.days_max {
        return Err(Error::invalid(format!("request touches more than {} days", settings.days_max)));
    }
    Ok(())
}

/// The accepted time range of log rows, in nanoseconds.
pub(crate) fn logs_window(now: Millis, settings: &WriteSettings) -> RangeInclusive<i64> {
    let nanos = |ms: Millis| ms.saturating_mul(1_000_000);
    let min = settings.logs_past_ms.map_or(i64::MIN, |past| nanos(now.saturating_sub(past)));
    let max = settings.logs_future_ms.map_or(i64::MAX, |future| nanos(now.saturating_add(future)));
    min..=max
}

/// Drops log rows outside the accepted time range.
///
/// # Errors
/// Invalid: the remaining rows touch too many days.
pub(crate) fn admit_logs(batch: &mut LogsBatch, now: Millis, settings: &WriteSettings) -> Result<AdmissionResult> {
    let window = logs_window(now, settings);
    let old = batch.time.iter().filter(|t| *t < window.start()).count() as u64;
    let future = batch.time.iter().filter(|t| *t > window.end()).count() as u64;
    if old + future > 0 {
        batch.retain(|t| window.contains(&t));
        METRICS.refused_old_rows.add(old);
        METRICS.refused_future_rows.add(future);
    }
    let all = [(Refusal::TooOld, old), (Refusal::TooFarInFuture, future)];
    let refused = all.into_iter().filter(|(_, n)| *n > 0).collect();
    let mut days = Vec::new();
    note_days(batch.time.iter().map(|&t| millis_of(t)), &mut days);
    within(days, refused, settings)
}

/// The days of spans; their age was checked when they were decoded.
///
/// # Errors
/// Invalid: too many days. Internal: the batch is inconsistent.
pub(crate) fn admit_spans(batch: &SpansBatch, settings: &WriteSettings) -> Result<AdmissionResult> {
    if !batch.is_sound() {
        return Err(Error::internal("a batch of spans contradicts itself"));
    }
    let mut days = Vec::new();
    note_days(starts(batch).iter().map(|&t| millis_of(t)), &mut days);
    within(days, Vec::new(), settings)
}

fn bounds(batch: &MetricsBatch) -> Option<(Millis, Millis)> {
    let (mut min, mut max) = (i64::MAX, i64::MIN);
    let mut see = |t: Millis| (min, max) = (min.min(t), max.max(t));
    batch.ts.iter().copied().for_each(&mut see);
    batch.histograms.iter().for_each(|h| see(h.ts));
    batch.exemplars.iter().for_each(|e| see(e.ts));
    (min <= max).then_some((min, max))
}

fn drop_outside(batch: &mut MetricsBatch, min: Millis, max: Millis) -> Vec<(Refusal, u64)> {
    if bounds(batch).is_none_or(|(first, last)| min <= first && last <= max) {
        return Vec::new();
    }
    let (mut old, mut future) = (0, 0);
    let mut judge = |ts: Millis| {
        old += u64::from(ts < min);
        future += u64::from(ts > max);
        (min..=max).contains(&ts)
    };
    let keep: Vec<bool> = batch.ts.iter().map(|&t| judge(t)).collect();
    batch.histograms.retain(|h| judge(h.ts));
    retain(&mut batch.sample_series, &keep);
    retain(&mut batch.ts, &keep);
    retain(&mut batch.values, &keep);
    retain(&mut batch.start_ts, &keep);
    let exemplars = batch.exemplars.len();
    batch.exemplars.retain(|e| (min..=max).contains(&e.ts));
    METRICS.refused_old.add(old);
    METRICS.refused_future.add(future);
    let exemplars = (exemplars - batch.exemplars.len()) as u64;
    METRICS.refused_exemplars.add(exemplars);
    let all = [(Refusal::TooOld, old), (Refusal::TooFarInFuture, future), (Refusal::ExemplarTime, exemplars)];
    all.into_iter().filter(|(_, n)| *n > 0).collect()
}

/// Keeps the entries of a column (which may be empty) whose flag is set.
pub(crate) fn retain<T>(column: &mut Vec<T>, keep: &[bool]) {
    let mut keep = keep.iter();
    column.retain(|_| keep.next().is_none_or(|&k| k));
}

#[cfg(test)]
mod tests {
    use quiver_types::time::DAY_MS;

    use super::*;
    use crate::settings::StoreSettings;

    fn batch(ts: &[i64]) -> MetricsBatch {
        let mut batch = MetricsBatch::default();
        let series = batch.push_series(&[]);
        for &t in ts {
            batch.push_sample(series, t, t as f64, t);
        }
        batch
    }

    fn settings(past: Option<i64>, future: Option<i64>) -> WriteSettings {
        WriteSettings { accept_past_ms: past, accept_future_ms: future, ..StoreSettings::default().write() }
    }

    #[test]
    fn ages() {
        let check = |ts: &[i64], past, future, kept: &[i64], refused: &[(Refusal, u64)]| {
            let mut batch = batch(ts);
            let admitted = admit(&mut batch, 1_000_000, &settings(past, future)).expect("admitted");
            assert_eq!((&*batch.ts, &*admitted.refused), (kept, refused));
            assert_eq!(batch.start_ts, kept);
            assert_eq!((batch.sample_series.len(), batch.values.len()), (kept.len(), kept.len()));
        };
        check(&[1, 999_000], Some(1000), Some(600_000), &[999_000], &[(Refusal::TooOld, 1)]);
        check(
            &[998_999, 999_000, 1_600_000, 1_600_001],
            Some(1000),
            Some(600_000),
            &[999_000, 1_600_000],
            &[(Refusal::TooOld, 1), (Refusal::TooFarInFuture, 1)],
        );
        check(&[-5, 7_000_000], None, None, &[-5, 7_000_000], &[]);
        let edge = i64::MAX / 1_000_000;
        check(
            &[edge, edge + 1, -edge, i64::MIN],
            None,
            None,
            &[edge, -edge],
            &[(Refusal::TooOld, 1), (Refusal::TooFarInFuture, 1)],
        );
    }

    /// Exemplars fail no request, so they are counted at least.
    #[test]
    fn exemplars_outside_of_the_accepted_time_count() {
        let mut batch = batch(&[999_000]);
        for ts in [1, 999_000, 1_600_001] {
            batch.exemplars.push(quiver_types::metrics::Exemplar { series: 0, ts, value: 1.0, labels: Vec::new() });
        }
        let before = METRICS.refused_exemplars.get();
        let admitted = admit(&mut batch, 1_000_000, &settings(Some(1000), Some(600_000))).expect("admitted");
        assert_eq!((batch.exemplars.len(), &*admitted.refused), (1, &[(Refusal::ExemplarTime, 2)][..]));
        assert!(METRICS.refused_exemplars.get() >= before + 2);
    }

    #[test]
    fn ages_of_logs() {
        let check = |ms: &[i64], past, future, kept: &[i64], refused: &[(Refusal, u64)]| {
            let mut batch = LogsBatch { services: vec!["".into()], names: vec!["a".into()], ..Default::default() };
            let stream = batch.push_stream(&[]);
            for t in ms {
                batch.push_field(0, &t.to_string());
                batch.end_row(t * 1_000_000, stream, 0, quiver_types::logs::RecordMarks::default());
            }
            let settings = WriteSettings { logs_past_ms: past, logs_future_ms: future, ..settings(None, None) };
            let admitted = admit_logs(&mut batch, 1_000_000, &settings).expect("admitted");
            let times: Vec<i64> = batch.time.iter().map(|t| t / 1_000_000).collect();
            assert_eq!((&*times, &*admitted.refused), (kept, refused));
            for (row, t) in kept.iter().enumerate() {
                assert_eq!(batch.row(row).next(), Some(("a", t.to_string().as_str())));
            }
        };
        check(&[1, 999_000, 1_600_001], None, None, &[1, 999_000, 1_600_001], &[]);
        check(
            &[998_999, 1, 999_000, 1_600_001, 1_600_000],
            Some(1000),
            Some(600_000),
            &[999_000, 1_600_000],
            &[(Refusal::TooOld, 2), (Refusal::TooFarInFuture, 1)],
        );
    }

    #[test]
    fn days() {
        let days = |ts: &[i64]| admit(&mut batch(ts), 0, &settings(None, None)).map(|a| a.days);
        assert_eq!(days(&[1, 2]).expect("one"), [0]);
        assert_eq!(days(&[3 * DAY_MS, 1, -1]).expect("three"), [-1, 0, 3]);
        let many: Vec<i64> = (0..400).map(|d| d * DAY_MS).collect();
        assert_eq!(days(&many).expect("as many as may be").len(), 400);
        let many: Vec<i64> = (0..401).map(|d| d * DAY_MS).collect();
        assert_eq!(days(&many).expect_err("too many").message, "request touches more than 400 days");
    }
}
