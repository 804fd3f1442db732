//! Runs a script on a subject; every eval becomes a case.

use std::collections::{BTreeMap, HashMap};

use quiver_promql::ast::{At, Expr, ExprKind};
use quiver_types::LabelSet;

use super::compare::{judge, judge_values};
use super::script::{Command, Eval, When, parse};
use super::{Answer, Outcome, Subject, Value};

/// A case and how it went.
#[derive(Debug, Clone)]
pub struct Case {
    /// `file|kind|times|expression|occurrence`
    pub key: String,
    /// Line in this file.
    pub line: usize,
    /// What is wrong; `None`: passed.
    pub fault: Option<String>,
}

/// Runs a script.
///
/// # Errors
/// The script cannot be read.
pub fn run(file: &str, text: &str, subject: &mut dyn Subject) -> Result<Vec<Case>, String> {
    let mut cases = Vec::new();
    let mut occurrences: HashMap<String, usize> = HashMap::new();
    let mut broken = subject.clear().err();
    for command in parse(text)? {
        match command {
            Command::Clear => broken = subject.clear().err(),
            Command::Load(series) => broken = broken.or(subject.load(&series).err()),
            Command::Eval(eval) => {
                let kind = if matches!(eval.when, When::Instant(_)) { "instant" } else { "range" };
                let key = format!("{file}|{kind}|{}|{}", eval.times, eval.query);
                let occurrence = occurrences.entry(key.clone()).or_default();
                *occurrence += 1;
                let fault = match &broken {
                    Some(error) => Some(format!("clear or load failed: {error}")),
                    None => check(&eval, subject).err(),
                };
                cases.push(Case { key: format!("{key}|{occurrence}"), line: eval.line, fault });
            }
        }
    }
    Ok(cases)
}

fn check(eval: &Eval, subject: &mut dyn Subject) -> Result<(), String> {
    match eval.when {
        When::Range(start, end, step) => judge(eval, &subject.range(&eval.query, start, end, step)),
        When::Instant(at) => {
            judge(eval, &subject.instant(&eval.query, at))?;
            if eval.fail.is_none() {
                range_mode(eval, at, subject).map_err(|e| format!("in range mode: {e}"))?;
                fixed_time(eval, at, subject).map_err(|e| format!("with fixed time: {e}"))?;
            }
            Ok(())
        }
    }
}

/// The middle step of a range query around the time must be the instant result.
fn range_mode(eval: &Eval, at: i64, subject: &mut dyn Subject) -> Result<(), String> {
    let calls = calls(&eval.query)?;
    let excluded = eval.ordered || eval.range_vector.is_some() || eval.string.is_some();
    if excluded || ["start", "end", "step", "range"].iter().any(|f| calls.iter().any(|c| c == f)) {
        return Ok(());
    }
    let outcome = subject.range(&eval.query, at - 60_000, at + 60_000, 60_000)?;
    let Answer::Matrix(series) = outcome.answer else { return Err("no matrix".into()) };
    let middle: Vec<(LabelSet, Value)> = series
        .into_iter()
        .filter_map(|(l, points)| points.into_iter().find(|(t, _)| *t == at).map(|(_, v)| (l, v)))
        .collect();
    let answer = match (eval.scalar, middle.first()) {
        (Some(_), Some((_, Value::Float(v)))) => Answer::Scalar(*v),
        _ => Answer::Vector(middle),
    };
    judge_values(eval, &Ok(Outcome { answer, warnings: vec![], infos: vec![] }))
}

/// With every selector fixed at the time, the time of evaluation must not matter.
fn fixed_time(eval: &Eval, at: i64, subject: &mut dyn Subject) -> Result<(), String> {
    const UNSAFE: [&str; 16] = [
        "time",
        "timestamp",
        "predict_linear",
        "hour",
        "minute",
        "month",
        "year",
        "day_of_month",
        "day_of_week",
        "day_of_year",
        "days_in_month",
        "start",
        "end",
        "step",
        "range",
        "start_timestamp",
    ];
    if calls(&eval.query)?.iter().any(|c| UNSAFE.contains(&c.as_str()) && c != "start_timestamp") {
        return Ok(());
    }
    let mut expr = quiver_promql::parser::parse(&eval.query).map_err(|e| e.to_string())?;
    fix(&mut expr, at);
    let query = quiver_promql::print::print(&expr);
    let times = if at == 0 { vec![-1000, 0, 1000] } else { vec![-10 * at, 0, at / 5, at, 10 * at] };
    for time in times {
        let outcome = subject.instant(&query, time);
        judge_values(eval, &outcome).map_err(|e| format!("{query} at {time} ms: {e}"))?;
    }
    Ok(())
}

fn fix(expr: &mut Expr, at: i64) {
    match &mut expr.kind {
        ExprKind::Number { .. } | ExprKind::String(_) => {}
        ExprKind::Paren(inner) => fix(inner, at),
        ExprKind::Unary { expr, .. } => fix(expr, at),
        ExprKind::Binary(b) => {
            fix(&mut b.lhs, at);
            fix(&mut b.rhs, at);
        }
        ExprKind::Aggregate(a) => {
            fix(&mut a.expr, at);
            if let Some(param) = &mut a.param {
                fix(param, at);
            }
        }
        ExprKind::Call { args, function } => {
            // The second argument of `info` is no selector of samples.
            let count = if function == "info" { 1 } else { args.len() };
            args.iter_mut().take(count).for_each(|a| fix(a, at));
        }
        ExprKind::VectorSelector(s) | ExprKind::MatrixSelector { selector: s, .. } => {
            s.at.get_or_insert(At::Time(at));
        }
        ExprKind::Subquery(s) => {
            // The selectors inside belong to the steps of the subquery.
            s.at.get_or_insert(At::Time(at));
        }
    }
}

fn calls(query: &str) -> Result<Vec<String>, String> {
    fn walk(expr: &Expr, out: &mut Vec<String>) {
        match &expr.kind {
            ExprKind::Call { function, args } => {
                out.push(function.clone());
                for a in args {
                    walk(a, out);
                }
            }
            ExprKind::Paren(inner) => walk(inner, out),
            ExprKind::Unary { expr, .. } => walk(expr, out),
            ExprKind::Binary(b) => {
                walk(&b.lhs, out);
                walk(&b.rhs, out);
            }
            ExprKind::Aggregate(a) => {
                walk(&a.expr, out);
                a.param.iter().for_each(|p| walk(p, out));
            }
            ExprKind::Subquery(s) => walk(&s.expr, out),
            ExprKind::Number { .. }
            | ExprKind::String(_)
            | ExprKind::VectorSelector(_)
            | ExprKind::MatrixSelector { .. } => {}
        }
    }
    let expr = quiver_promql::parser::parse(query).map_err(|e| e.to_string())?;
    let mut out = Vec::new();
    walk(&expr, &mut out);
    // Duration expressions call `step()` and `range()` too.
    for name in ["step", "range"] {
        if query.contains(&format!("{name}()")) {
            out.push(name.into());
        }
    }
    Ok(out)
}

/// Known failures: `feature<TAB>key` per line, `#` starts a comment.
pub fn known_failures(text: &str) -> BTreeMap<String, String> {
    let lines = text.lines().filter(|l| !l.trim().is_empty() && !l.starts_with('#'));
    lines.filter_map(|l| l.split_once('\t')).map(|(feature, key)| (key.to_owned(), feature.to_owned())).collect()
}

/// Writes the report: `[{"suite","case","outcome","reason"}]`; outcome `pass`, `fail` or `known`.
pub fn report(cases: &[Case], known: &BTreeMap<String, String>) -> serde_json::Value {
    let entry = |case: &Case| {
        let (outcome, reason) = match (&case.fault, known.get(&case.key)) {
            (None, None) => ("pass", String::new()),
            (None, Some(feature)) => ("fail", format!("passes, but stands in the list of known failures: {feature}")),
            (Some(_), Some(feature)) => ("known", feature.clone()),
            (Some(fault), None) => ("fail", fault.clone()),
        };
        serde_json::json!({"suite": "promql", "case": case.key, "outcome": outcome, "reason": reason})
    };
    cases.iter().map(entry).collect()
}
