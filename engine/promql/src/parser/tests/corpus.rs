//! Every expression of the conformance data reads, and reads the same after being written back.

use std::path::{Path, PathBuf};

use quiver_types::ErrorKind;

use crate::ast::{DurationExpr, DurationKind, Expr, ExprKind, PosRange, VectorSelector};
use crate::parser::parse;
use crate::print::{pretty, print};

/// Gives the expressions of all evals, or nothing (and says so) where the data is not at hand.
pub(super) fn expressions() -> Vec<String> {
    let root = std::env::var_os("CONFORMANCE_DIR")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/conformance"), PathBuf::from);
    let folder = root.join("promql/prometheus-tests");
    let Ok(files) = std::fs::read_dir(&folder) else {
        use std::io::Write;
        let message = format!("SKIPPED: no conformance data in {}; set CONFORMANCE_DIR\n", folder.display());
        std::io::stderr().write_all(message.as_bytes()).expect("standard error is open");
        return Vec::new();
    };
    let mut all = Vec::new();
    for file in files {
        let path = file.expect("a readable folder").path();
        if path.extension().is_some_and(|e| e == "test") {
            let text = std::fs::read_to_string(&path).expect("a readable file");
            all.extend(text.lines().filter_map(|line| expression(line.trim())).map(str::to_owned));
        }
    }
    assert!(all.len() > 1000, "{}", all.len());
    all
}

fn expression(line: &str) -> Option<&str> {
    let rest = line.strip_prefix("eval").map(|r| r.trim_start_matches("_fail"))?.trim_start();
    if let Some(rest) = rest.strip_prefix("instant at ").or_else(|| rest.strip_prefix("instant ")) {
        let rest = rest.trim_start_matches("at ");
        return rest.split_once(char::is_whitespace).map(|(_, expr)| expr);
    }
    let (_, rest) = rest.strip_prefix("range from ")?.split_once(" step ")?;
    rest.split_once(char::is_whitespace).map(|(_, expr)| expr)
}

/// Removes what writing back does not keep: places, and the order of matchers.
pub(super) fn normal(mut expr: Expr) -> Expr {
    normalise(&mut expr);
    expr
}

fn normalise(expr: &mut Expr) {
    expr.pos = PosRange::default();
    match &mut expr.kind {
        ExprKind::Number { .. } | ExprKind::String(_) => {}
        ExprKind::Paren(inner) | ExprKind::Unary { expr: inner, .. } => normalise(inner),
        ExprKind::Binary(b) => {
            normalise(&mut b.lhs);
            normalise(&mut b.rhs);
        }
        ExprKind::Aggregate(a) => {
            a.param.iter_mut().for_each(normalise);
            normalise(&mut a.expr);
        }
        ExprKind::Call { args, .. } => args.iter_mut().for_each(normalise),
        ExprKind::VectorSelector(s) => normalise_selector(s),
        ExprKind::MatrixSelector { selector, range } => {
            normalise_selector(selector);
            normalise_duration(range);
        }
        ExprKind::Subquery(s) => {
            normalise(&mut s.expr);
            normalise_duration(&mut s.range);
            s.step.iter_mut().chain(&mut s.offset).for_each(normalise_duration);
        }
    }
}

fn normalise_selector(selector: &mut VectorSelector) {
    selector.pos = PosRange::default();
    selector.matchers.sort_by_key(|m| format!("{m:?}"));
    selector.offset.iter_mut().for_each(normalise_duration);
}

fn normalise_duration(duration: &mut DurationExpr) {
    duration.pos = PosRange::default();
    match &mut duration.kind {
        DurationKind::Unary { expr, .. } | DurationKind::Paren(expr) => normalise_duration(expr),
        DurationKind::Binary { lhs, rhs, .. } => {
            normalise_duration(lhs);
            normalise_duration(rhs);
        }
        DurationKind::Literal { .. } | DurationKind::Step | DurationKind::Range => {}
    }
}

/// Says that an expression reads the same from what is written of it (NaN, which is not itself, aside).
pub(super) fn check_written_back(query: &str, expr: Expr) {
    let (line, lines) = (print(&expr), pretty(&expr));
    let expr = normal(expr);
    for shown in [&line, &lines] {
        let again = parse(shown).unwrap_or_else(|e| panic!("{query}\n{shown}\n{e}"));
        assert_eq!(print(&again), line, "{query}");
        assert!(normal(again) == expr || line.contains("NaN"), "{query}\n{shown}");
    }
}

#[test]
fn every_expression() {
    for query in expressions() {
        match parse(&query) {
            Ok(expr) => check_written_back(&query, expr),
            Err(error) => assert_eq!(error.kind(), ErrorKind::Execution, "{query}\n{error}"),
        }
    }
}
