//! LogsQL without plans: each class of filter per value, functions of `stats` per row, readers and orders of values.

use std::sync::Arc;

use arrow::array::{ArrayRef, DictionaryArray, StringViewArray};
use arrow::datatypes::UInt32Type;
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use datafusion::logical_expr::{EmitTo, GroupsAccumulator};
use quiver_logsql::kernels::columns::NumberRule;
use quiver_logsql::kernels::filters::{
    AnyCasePhrase, ContainsAll, ContainsAny, Exact, ExactPrefix, InList, Ipv4Range, LenRange, PatternMatch,
    PatternPlace, Phrase, Prefix, Range, Regexp, Sequence, StringRange, Substring,
};
use quiver_logsql::kernels::values::{compare, numeric, push_sort_key};
use quiver_logsql::row_functions;
use quiver_logsql::stats_functions::{Arg, Function, StatsAccumulator};
use quiver_types::logs::ValueMatcher;

const ROWS: usize = 8192;
const GROUPS: usize = 100;

/// The next number of a sequence that is the same in each run.
fn next(state: &mut u64) -> usize {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    (*state >> 33) as usize
}

/// Lines of a service: few words often, many seldom, numbers, addresses, identifiers.
fn messages() -> Vec<String> {
    let words = ["request", "done", "cache", "miss", "user", "timeout", "error", "retry", "upstream", "shard"];
    let mut state = 1;
    (0..ROWS)
        .map(|row| {
            let mut word = || words[next(&mut state) % words.len() * (next(&mut state) % words.len()) / words.len()];
            let (a, b, c) = (word(), word(), word());
            let id = (row as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            format!(
                "10.0.{}.{} {a} {b} {c} id={id:016x} took {}ms status {}",
                row % 7,
                row % 251,
                row % 997,
                200 + row % 4
            )
        })
        .collect()
}

fn filters(c: &mut Criterion) {
    let values = messages();
    let text = |s: &str| s.to_owned();
    let list = |all: &[&str]| all.iter().map(|s| (*s).to_owned()).collect::<Vec<_>>();
    let regexp = |pattern: &str| Box::new(Regexp::new(pattern).expect("an expression"));
    let all: Vec<(&str, Box<dyn ValueMatcher>)> = vec![
        ("word_often", Box::new(Phrase::new("request"))),
        ("word_never", Box::new(Phrase::new("absent"))),
        ("phrase", Box::new(Phrase::new("cache miss"))),
        ("prefix", Box::new(Prefix::new("time"))),
        ("substring", Box::new(Substring::new("pstre"))),
        ("any_case", Box::new(AnyCasePhrase::new("TIMEOUT"))),
        ("exact", Box::new(Exact::new(text("request")))),
        ("exact_prefix", Box::new(ExactPrefix::new("10.0.3."))),
        ("in_1000", Box::new(InList::new((0..1000).map(|i| i.to_string()).collect()))),
        ("contains_all", Box::new(ContainsAll::new(list(&["cache", "error"])))),
        ("contains_any_100", Box::new(ContainsAny::new((0..100).map(|i| format!("w{i}")).collect()))),
        ("sequence", Box::new(Sequence::new(list(&["cache", "took"])))),
        ("regexp_text", regexp("upstream")),
        ("regexp_literals", regexp("(timeout|error) retry")),
        ("regexp_class", regexp("took 9[0-9]{2}ms")),
        ("regexp_any_case", regexp("(?i)timeout")),
        ("range", Box::new(Range::new(10.0, 20.0))),
        ("ipv4_range", Box::new(Ipv4Range::new(0, 1 << 24))),
        ("string_range", Box::new(StringRange::new("10.0.2", "10.0.4"))),
        ("len_range", Box::new(LenRange::new(10, 70))),
        ("pattern", Box::new(PatternMatch::new(PatternPlace::Any, "took <N>ms"))),
    ];
    let mut group = c.benchmark_group("logsql/filter");
    group.throughput(Throughput::Elements(ROWS as u64));
    for (name, filter) in all {
        group.bench_function(name, |b| b.iter(|| values.iter().filter(|v| filter.matches(v)).count()));
    }
    group.finish();
}

fn stats(c: &mut Criterion) {
    let numbers: Vec<String> = (0..ROWS).map(|row| (row * 7919 % 100_003).to_string()).collect();
    let view: ArrayRef = Arc::new(numbers.iter().map(Some).collect::<StringViewArray>());
    let few: ArrayRef =
        Arc::new((0..ROWS).map(|row| ["ok", "failed", "15ms"][row % 3]).collect::<DictionaryArray<UInt32Type>>());
    let groups: Vec<usize> = (0..ROWS).map(|row| row * 31 % GROUPS).collect();
    let functions = [
        ("count", Function::CountRows),
        ("count_field", Function::Count),
        ("sum", Function::Sum(NumberRule::Units)),
        ("min", Function::Min),
        ("max", Function::Max),
        ("quantile", Function::quantile(0.9)),
        ("count_uniq", Function::CountUniq { limit: None }),
        ("uniq_values", Function::UniqValues { limit: None }),
        ("histogram", Function::Histogram),
    ];
    let mut group = c.benchmark_group("logsql/stats");
    group.throughput(Throughput::Elements(ROWS as u64));
    for (kind, column) in [("view", &view), ("dictionary", &few)] {
        for (name, function) in &functions {
            group.bench_function(format!("{name}/{kind}"), |b| {
                b.iter(|| {
                    let mut state = StatsAccumulator::new(function.clone(), [Arg::Field("f".to_owned())].into());
                    let columns = [Arc::clone(column)];
                    GroupsAccumulator::update_batch(&mut state, &columns, &groups, None, GROUPS).expect("texts");
                    GroupsAccumulator::evaluate(&mut state, EmitTo::All).expect("results")
                });
            });
        }
    }
    group.finish();
}

fn values(c: &mut Criterion) {
    let messages = messages();
    let mut group = c.benchmark_group("logsql/values");
    group.throughput(Throughput::Elements(ROWS as u64));
    for (name, make) in [
        ("integer", (|i| i.to_string()) as fn(usize) -> String),
        ("decimal", |i| format!("{}.{}", i, i % 100)),
        ("duration", |i| format!("{i}ms")),
        ("time", |i| format!("2025-03-10T09:46:{:02}.{:03}Z", i % 60, i % 1000)),
        ("text", |i| format!("word-{i}")),
    ] {
        let all: Vec<String> = (0..ROWS).map(make).collect();
        group.bench_function(format!("numeric/{name}"), |b| {
            b.iter(|| all.iter().filter_map(|v| numeric(v)).sum::<f64>());
        });
        group.bench_function(format!("compare/{name}"), |b| {
            b.iter(|| all.windows(2).filter(|w| compare(&w[0], &w[1]).is_lt()).count());
        });
        group.bench_function(format!("key/{name}"), |b| {
            let mut out = Vec::new();
            b.iter(|| {
                out.clear();
                for v in &all {
                    push_sort_key(&mut out, v);
                }
                out.len()
            });
        });
    }
    group.bench_function("collapse_nums", |b| {
        let mut out = String::new();
        b.iter(|| {
            out.clear();
            for v in &messages {
                row_functions::collapse_nums(v, true, &mut out);
            }
            out.len()
        });
    });
    group.finish();
}

criterion_group!(benches, filters, stats, values);
criterion_main!(benches);
