//! Reads a `.test` file into commands.

use std::collections::HashMap;

use quiver_types::histogram::CUSTOM_SCHEMA;
use quiver_types::{Histogram, LabelSet, Span};

use super::series::{Slot, duration_ms, items, labels, quoted, start_items};
use super::{LoadedSeries, Value};

/// A command.
#[derive(Debug, Clone)]
pub enum Command {
    /// `clear`
    Clear,
    /// `load`
    Load(Vec<LoadedSeries>),
    /// `eval`
    Eval(Box<Eval>),
}

/// When a query is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum When {
    /// At one time.
    Instant(i64),
    /// From, to, step.
    Range(i64, i64, i64),
}

/// An `eval` with what is expected.
#[derive(Debug, Clone)]
pub struct Eval {
    /// Line in the file, from 1.
    pub line: usize,
    /// When.
    pub when: When,
    /// Times as written, for the case's name.
    pub times: String,
    /// The query.
    pub query: String,
    /// `expect fail`, with its text test.
    pub fail: Option<TextTest>,
    /// `expect warn`
    pub warn: Vec<TextTest>,
    /// `expect info`
    pub info: Vec<TextTest>,
    /// `expect no_warn`
    pub no_warn: bool,
    /// `expect no_info`
    pub no_info: bool,
    /// `expect ordered`
    pub ordered: bool,
    /// `expect string`
    pub string: Option<String>,
    /// `expect range vector`: from, to, step.
    pub range_vector: Option<(i64, i64, i64)>,
    /// A scalar result.
    pub scalar: Option<f64>,
    /// Expected series.
    pub series: Vec<(LabelSet, Vec<Slot>)>,
}

/// A test of a text.
#[derive(Debug, Clone)]
pub enum TextTest {
    /// Anything.
    Any,
    /// Just this.
    Message(String),
    /// A match, not anchored.
    Regex(String),
}

impl TextTest {
    /// Says whether a text passes.
    pub fn matches(&self, text: &str) -> bool {
        match self {
            Self::Any => true,
            Self::Message(m) => m == text,
            Self::Regex(r) => regex::Regex::new(r).is_ok_and(|r| r.is_match(text)),
        }
    }
}

/// Reads a file.
///
/// # Errors
/// The line that is no command, and why.
pub fn parse(text: &str) -> Result<Vec<Command>, String> {
    let lines: Vec<&str> = text.lines().map(|l| if l.trim().starts_with('#') { "" } else { l.trim() }).collect();
    let mut commands = Vec::new();
    let mut at = 0;
    while at < lines.len() {
        let line = lines[at];
        let begin = at;
        at += 1;
        let word = line.split_whitespace().next().unwrap_or("").to_lowercase();
        if word.is_empty() {
            continue;
        }
        let mut block = Vec::new();
        if word != "clear" {
            while at < lines.len() && !lines[at].is_empty() {
                block.push(lines[at]);
                at += 1;
            }
        }
        let located = |e: String| format!("line {}: {e}", begin + 1);
        match word.as_str() {
            "clear" => commands.push(Command::Clear),
            "load" | "load_with_nhcb" => {
                let step = line.split_whitespace().nth(1).ok_or("load without a step")?;
                let step = duration_ms(step).map_err(located)?;
                commands.push(Command::Load(load(step, &block, word == "load_with_nhcb").map_err(located)?));
            }
            w if w.starts_with("eval") => {
                let (eval, used) = eval(begin + 1, line, &block).map_err(located)?;
                commands.push(Command::Eval(Box::new(eval)));
                at = begin + 1 + used;
            }
            other => return Err(format!("line {}: unknown command {other}", begin + 1)),
        }
    }
    Ok(commands)
}

fn load(step: i64, block: &[&str], nhcb: bool) -> Result<Vec<LoadedSeries>, String> {
    let mut order: Vec<LabelSet> = Vec::new();
    let mut loaded: HashMap<LabelSet, LoadedSeries> = HashMap::new();
    let mut starts: Option<Vec<Option<i64>>> = None;
    for line in block {
        let (set, is_start, rest) = labels(line)?;
        if is_start {
            starts = Some(start_items(rest)?);
            continue;
        }
        let starts = starts.take();
        let mut samples = Vec::new();
        for (i, slot) in items(rest)?.into_iter().enumerate() {
            if let Some(value) = slot.value {
                let ts = i as i64 * step;
                let start = starts.as_ref().and_then(|s| s.get(i).copied().flatten()).map_or(0, |d| ts + d);
                samples.push((ts, start, value));
            }
        }
        if !loaded.contains_key(&set) {
            order.push(set.clone());
        }
        loaded.insert(set.clone(), LoadedSeries { labels: set, samples });
    }
    let mut out: Vec<LoadedSeries> = order.iter().filter_map(|s| loaded.remove(s)).collect();
    if nhcb {
        let converted = convert(&out);
        out.extend(converted);
    }
    Ok(out)
}

/// Makes series with custom-bucket histograms of the classic ones.
fn convert(series: &[LoadedSeries]) -> Vec<LoadedSeries> {
    #[derive(Default)]
    struct At {
        buckets: Vec<(f64, f64)>,
        count: Option<f64>,
        sum: Option<f64>,
    }
    let mut out: Vec<(LabelSet, std::collections::BTreeMap<i64, At>)> = Vec::new();
    for one in series {
        let name = one.labels.metric();
        let Some((base, suffix)) = name.rsplit_once('_').filter(|(_, s)| ["bucket", "count", "sum"].contains(s)) else {
            continue;
        };
        let le = one.labels.get("le");
        let bound = if suffix == "bucket" {
            match le.parse::<f64>() {
                Ok(bound) => bound,
                Err(_) => continue,
            }
        } else {
            0.0
        };
        let kept = one.labels.iter().filter(|(n, _)| *n != "le" || suffix != "bucket");
        let set = LabelSet::from_pairs(kept.map(|(n, v)| if n == "__name__" { (n, base) } else { (n, v) }));
        let place = out.iter().position(|(s, _)| *s == set).unwrap_or_else(|| {
            out.push((set, std::collections::BTreeMap::new()));
            out.len() - 1
        });
        for (ts, _, value) in &one.samples {
            let Value::Float(v) = value else { continue };
            let at = out[place].1.entry(*ts).or_default();
            match suffix {
                "bucket" => at.buckets.push((bound, *v)),
                "count" => at.count = Some(*v),
                _ => at.sum = Some(*v),
            }
        }
    }
    out.retain(|(_, times)| times.values().any(|at| !at.buckets.is_empty()));
    let histogram = |at: At| {
        let mut buckets = at.buckets;
        buckets.sort_by(|a, b| a.0.total_cmp(&b.0));
        let count = at.count.unwrap_or_else(|| buckets.last().map_or(0.0, |b| b.1));
        if buckets.last().is_none_or(|b| b.0 != f64::INFINITY) {
            buckets.push((f64::INFINITY, count));
        }
        let mut below = 0.0;
        let counts: Vec<f64> = buckets.iter().map(|b| b.1 - std::mem::replace(&mut below, b.1)).collect();
        Histogram {
            schema: CUSTOM_SCHEMA,
            count,
            sum: at.sum.unwrap_or(0.0),
            positive_spans: vec![Span { offset: 0, length: counts.len() as u32 }],
            positive: counts,
            custom_bounds: buckets.iter().map(|b| b.0).filter(|b| b.is_finite()).collect(),
            float: true,
            ..Histogram::default()
        }
    };
    out.into_iter()
        .map(|(labels, times)| LoadedSeries {
            labels,
            samples: times.into_iter().map(|(ts, at)| (ts, 0, Value::Histogram(Box::new(histogram(at))))).collect(),
        })
        .collect()
}

/// Reads an `eval` and the lines that belong to it; gives how many those are.
fn eval(line_number: usize, line: &str, block: &[&str]) -> Result<(Eval, usize), String> {
    let word = line.split_whitespace().next().unwrap_or("");
    let rest = line[word.len()..].trim_start();
    let kind = rest.split_whitespace().next().unwrap_or("").to_lowercase();
    let rest = rest[kind.len()..].trim_start();
    let (when, times, query) = match kind.as_str() {
        "instant" => instant(rest)?,
        "range" => range(rest)?,
        _ => return Err(format!("unknown eval: {line}")),
    };
    let mut out = Eval {
        line: line_number,
        when,
        times,
        query,
        fail: (word.eq_ignore_ascii_case("eval_fail")).then_some(TextTest::Any),
        warn: vec![],
        info: vec![],
        no_warn: false,
        no_info: false,
        ordered: false,
        string: None,
        range_vector: None,
        scalar: None,
        series: vec![],
    };
    for (i, line) in block.iter().enumerate() {
        if let Some(expectation) = line.strip_prefix("expect ") {
            expect(&mut out, expectation.trim())?;
        } else if let Ok([Slot { value: Some(Value::Float(v)), .. }]) = items(line).as_deref() {
            out.scalar = Some(*v);
            return Ok((out, i + 1));
        } else {
            let (set, _, rest) = labels(line)?;
            let slots = items(rest)?;
            match out.series.iter_mut().find(|(s, _)| *s == set) {
                Some(same) => same.1 = slots,
                None => out.series.push((set, slots)),
            }
        }
    }
    Ok((out, block.len()))
}

fn instant(rest: &str) -> Result<(When, String, String), String> {
    let rest = rest.strip_prefix("at").map(str::trim_start).ok_or("an instant eval without a time")?;
    let (time, query) = rest.split_once(char::is_whitespace).ok_or("an eval without a query")?;
    Ok((When::Instant(duration_ms(time)?), format!("at {time}"), query.trim().to_owned()))
}

fn range(rest: &str) -> Result<(When, String, String), String> {
    let fault = || format!("bad range: {rest}");
    let body = rest.strip_prefix("from ").ok_or_else(fault)?;
    // Greedy: the last ` step ` and the last ` to ` before it that leave valid times.
    for (step_at, _) in body.match_indices(" step ").collect::<Vec<_>>().into_iter().rev() {
        let (before, after) = (&body[..step_at], body[step_at + 6..].trim_start());
        let Some((step_text, query)) = after.split_once(char::is_whitespace) else { continue };
        let Ok(step) = duration_ms(step_text) else { continue };
        let Some((start_text, end_text)) = before.rsplit_once(" to ") else { continue };
        if let (Ok(start), Ok(end)) = (duration_ms(start_text.trim()), duration_ms(end_text.trim())) {
            let times = format!("from {} to {} step {step_text}", start_text.trim(), end_text.trim());
            return Ok((When::Range(start, end, step), times, query.trim().to_owned()));
        }
    }
    Err(fault())
}

fn expect(out: &mut Eval, text: &str) -> Result<(), String> {
    let (word, rest) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
    let rest = rest.trim();
    let test = || {
        if let Some(m) = rest.strip_prefix("msg:") {
            TextTest::Message(m.trim().to_owned())
        } else if let Some(r) = rest.strip_prefix("regex:") {
            TextTest::Regex(r.trim().to_owned())
        } else {
            TextTest::Any
        }
    };
    match word {
        "fail" => out.fail = Some(test()),
        "warn" => out.warn.push(test()),
        "info" => out.info.push(test()),
        "no_warn" => out.no_warn = true,
        "no_info" => out.no_info = true,
        "ordered" => out.ordered = true,
        "string" => out.string = Some(quoted(rest)?.0),
        "range" => {
            let (when, ..) = range(&format!("{} x", rest.strip_prefix("vector").unwrap_or(rest).trim()))?;
            if let When::Range(start, end, step) = when {
                out.range_vector = Some((start, end, step));
            }
        }
        _ => return Err(format!("unknown expectation: {text}")),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script() {
        let text = "load 5m\n  m{a=\"1\"} 0+1x2\n\n# c\neval instant at 10m m\n  expect no_warn\n  m{a=\"1\"} 2\n\n\
            eval range from 0 to 10m step 5m sum(m)\n {} 0 1 2\n\neval instant at 50m 1\n 1\neval_fail instant at 0 m\n";
        let commands = parse(text).unwrap();
        assert_eq!(commands.len(), 5);
        let Command::Eval(eval) = &commands[2] else { panic!() };
        assert_eq!((eval.when, eval.query.as_str()), (When::Range(0, 600_000, 300_000), "sum(m)"));
        let Command::Eval(eval) = &commands[3] else { panic!() };
        assert_eq!(eval.scalar, Some(1.0));
        let Command::Eval(eval) = &commands[4] else { panic!() };
        assert!(eval.fail.is_some());
    }
}
