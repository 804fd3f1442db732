//! Logs: writing, the flush, the compaction, bytes of a row, and each class of scan over compacted parts, with the decoded
//! cache (warm) and without it.

use std::sync::Arc;

use criterion::{Criterion, SamplingMode, Throughput, criterion_group, criterion_main};
use quiver_benches::cpu;
use quiver_benches::log_rows::{BATCH, ROWS, batch, trace_id};
use quiver_benches::world::{Caches, World};
use quiver_types::logs::{
    FieldPattern, LogColumn, LogFilter, LogForm, LogOrder, LogRequest, MSG, MatchHints, NumberRange, STREAM, TIME,
    ValueMatcher, words,
};

/// One word of a text, or a whole text.
#[derive(Debug)]
struct Word(String, bool);

impl ValueMatcher for Word {
    fn matches(&self, value: &str) -> bool {
        if self.1 { value == self.0 } else { value.contains(&self.0) && words(value).any(|w| w == self.0) }
    }

    fn hints(&self) -> MatchHints {
        let exact = self.1.then(|| vec![self.0.clone()]);
        MatchHints { words: vec![words(&self.0).map(str::to_owned).collect()], exact, ..MatchHints::default() }
    }

    fn describe(&self) -> String {
        self.0.clone()
    }
}

/// A text anywhere.
#[derive(Debug)]
struct Contains(&'static str);

impl ValueMatcher for Contains {
    fn matches(&self, value: &str) -> bool {
        value.contains(self.0)
    }

    fn describe(&self) -> String {
        self.0.to_owned()
    }
}

/// Numbers above a bound.
#[derive(Debug)]
struct Above(f64);

impl ValueMatcher for Above {
    fn matches(&self, value: &str) -> bool {
        value.parse::<f64>().is_ok_and(|v| v >= self.0)
    }

    fn hints(&self) -> MatchHints {
        let number = Some(NumberRange { min: self.0, max: f64::INFINITY });
        MatchHints { number, number_decides: true, ..MatchHints::default() }
    }

    fn describe(&self) -> String {
        format!(">={}", self.0)
    }
}

fn value(name: &str, matcher: impl ValueMatcher + 'static) -> LogFilter {
    LogFilter::Value { field: FieldPattern::Name(name.into()), matcher: Arc::new(matcher) }
}

fn any(filter: LogFilter, columns: &[&str], rest: bool) -> LogRequest {
    let columns = columns.iter().map(|n| LogColumn { name: (*n).into(), stored: *n != TIME && *n != MSG });
    LogRequest { filter, columns: columns.collect(), rest, order: LogOrder::Any, form: LogForm::Rows }
}

fn bench(c: &mut Criterion) {
    let world = World::empty(Caches::default());
    let batches: Vec<_> = (0..ROWS).step_by(BATCH).map(|first| batch(first, BATCH)).collect();
    cpu::report_samples("write of rows", ROWS, || batches.iter().for_each(|b| world.write_logs(b.clone())));
    cpu::report_samples("flush of rows", ROWS, || world.flush());
    cpu::say(&format!("{:.1} bytes a row after the flush", world.stored_bytes() as f64 / ROWS as f64));
    cpu::report_samples("compaction of rows", ROWS, || world.compact());
    cpu::say(&format!("{:.1} bytes a row after compaction", world.stored_bytes() as f64 / ROWS as f64));
    let mut group = c.benchmark_group("logs");
    group.sample_size(10).sampling_mode(SamplingMode::Flat).throughput(Throughput::Elements(ROWS as u64));
    let newest = LogRequest { order: LogOrder::NewestFirst, ..any(LogFilter::All, &[TIME, STREAM], true) };
    for (name, request, limit) in [
        ("count", any(LogFilter::All, &[], false), None),
        ("count_by_app", any(LogFilter::All, &["app"], false), None),
        ("times", any(LogFilter::All, &[TIME], false), None),
        ("word_in_messages", any(value(MSG, Word("w7".into(), false)), &[], false), None),
        ("absent_word", any(value(MSG, Word("nowhere".into(), false)), &[], false), None),
        ("substring", any(value(MSG, Contains("zqzqz")), &[], false), None),
        ("needle", any(value("trace_id", Word(trace_id(ROWS / 3 / 4 * 4), true)), &[TIME, STREAM], true), None),
        ("slow_by_app", any(value("duration_ms", Above(1000.0)), &["app"], false), None),
        ("errors_by_app", any(value("level", Word("error".into(), true)), &["app", "level"], false), None),
        ("everything", any(LogFilter::All, &[TIME, STREAM], true), None),
        ("newest_100", newest, Some(100)),
    ] {
        group.bench_function(name, |b| b.iter(|| world.scan_logs(&request, limit)));
        cpu::report(&format!("scan {name}, {} rows", world.scan_logs(&request, limit)), 10, || {
            world.scan_logs(&request, limit);
        });
    }
    group.finish();
    let cold = World::empty(Caches { decoded: false, ..Caches::default() });
    for b in batches {
        cold.write_logs(b);
    }
    cold.flush();
    cold.compact();
    for name in ["app", "level", "duration_ms", MSG] {
        let request = any(LogFilter::All, &[name], false);
        for (state, world) in [("with", &world), ("without", &cold)] {
            // The second use admits it.
            for _ in 0..2 {
                world.scan_logs(&request, None);
            }
            cpu::report(&format!("column {name}, {state} the decoded cache"), 10, || {
                world.scan_logs(&request, None);
            });
        }
    }
}

criterion_group!(benches, bench);
criterion_main!(benches);
