//! Who meets whom, and what labels the results have: `resultMetric` of Prometheus by cases.

use quiver_types::series::SeriesTableBuilder;

use super::*;
use crate::ast::ExprKind;
use crate::parser::parse;
use crate::plan::labels::show;

/// Rows of "many" and of "one".
type Both = (Vec<u32>, Vec<u32>);

/// A table of series that are written as selectors.
fn table(rows: &[&str]) -> SeriesTable {
    let mut builder = SeriesTableBuilder::default();
    for row in rows {
        let ExprKind::VectorSelector(selector) = parse(row).expect(row).kind else { panic!("{row}") };
        builder.push(selector.matchers.iter().map(|m| (m.name.as_str(), m.value.as_str())));
    }
    builder.finish()
}

/// The labels of each pair that may meet, in order.
fn results(query: &str, left: &[&str], right: &[&str]) -> Vec<String> {
    flagged(query, left, right, &[]).into_iter().map(|(labels, _)| labels).collect()
}

/// The labels of each pair that may meet, in order, and whether their name goes. It goes with rows of metrics `dropped`.
fn flagged(query: &str, left: &[&str], right: &[&str], dropped: &[&str]) -> Vec<(String, bool)> {
    let room = Room::unbounded();
    let expr = parse(query).expect(query);
    let ExprKind::Binary(binary) = &expr.kind else { panic!("{query}") };
    let matching = binary.matching.as_ref().expect("two vectors");
    let (left, right) = (table(left), table(right));
    let both = concat(&room, [&left, &right]).expect("a table");
    let names = MatchLabels::by(matching);
    let signatures = group(&room, &both, |n| names.has(n)).expect("groups");
    let (lefts, rights) = (0..left.len() as u32, left.len() as u32..both.len() as u32);
    let (many, one) = if matching.card == MatchCardinality::OneToMany { (rights, lefts) } else { (lefts, rights) };
    let starts = (many.start, one.start);
    let filled = (matching.fill_left.is_some(), matching.fill_right.is_some());
    let mut groups = matched(&signatures, many, one, filled);
    let mut results = Results { both: &both, matching, op: binary.op, pairs: vec![] };
    add_pairs(&room, &mut results, &mut groups, starts).expect("pairs");
    let table = results.table(&room, &names).expect("labels");
    let dropped: Vec<bool> = (0..both.len()).map(|row| dropped.contains(&both.metric(row))).collect();
    let flags = results.drop_name(&room, &names, &table, Some(&dropped)).expect("flags");
    assert!(results.drop_name(&room, &names, &table, None).expect("flags").into_iter().all(|goes| goes), "{query}");
    (0..table.len()).map(|row| (show(table.labels(row)), flags[row])).collect()
}

fn check(query: &str, left: &[&str], right: &[&str], expected: &[&str]) {
    assert_eq!(results(query, left, right), expected, "{query}: {left:?} with {right:?}");
}

#[test]
fn one_to_one() {
    let x1 = r#"{x="1"}"#;
    check("a + b", &["m{x='1'}"], &["n{x='1'}"], &[x1]);
    check("a + b", &["m{x='1'}"], &["n{x='2'}"], &[]);
    check("a + b", &["m"], &["n"], &["{}"]);
    check("a + b", &["m{x='1'}", "m{x='2'}"], &["n{x='2'}", "n{x='1'}"], &[x1, r#"{x="2"}"#]);
    // A label more on either side is another signature.
    check("a + b", &["m{x='1', y='1'}"], &["n{x='1'}"], &[]);
    check("a + ignoring(y) b", &["m{x='1', y='1'}"], &["n{x='1'}"], &[x1]);
    check("a + on(x) b", &["m{x='1', y='2'}"], &["n{x='1', z='3'}"], &[x1]);
    check("a + on() b", &["m{x='1'}"], &["n{y='2'}"], &["{}"]);
    // What is missing is empty, and empty is equal to empty.
    check("a + on(x) b", &["m{y='1'}"], &["n{z='2'}"], &["{}"]);
    check("a + on(nowhere, x) b", &["m{x='ä'}"], &["n{x='ä'}"], &[r#"{x="ä"}"#]);
    check("a + ignoring(x, y) b", &["m{x='1', z='9'}"], &["n{y='2', z='9'}"], &[r#"{z="9"}"#]);
}

#[test]
fn names_stay_with_comparisons() {
    check("a > b", &["m{x='1'}"], &["n{x='1'}"], &[r#"{__name__="m", x="1"}"#]);
    check("a > ignoring(y) b", &["m{x='1', y='2'}"], &["n{x='1'}"], &[r#"{__name__="m", x="1"}"#]);
    check("a > on(x) b", &["m{x='1'}"], &["n{x='1'}"], &[r#"{x="1"}"#]);
    check("a == on(x, __name__) b", &["m{x='1'}"], &["m{x='1'}"], &[r#"{__name__="m", x="1"}"#]);
    check("a == on(__name__) b", &["m{x='1'}"], &["n{x='1'}"], &[]);
    check("a * on(x, __name__) b", &["m{x='1'}"], &["m{x='1'}"], &[r#"{x="1"}"#]);
    check("a </ b", &["m{x='1'}"], &["n{x='1'}"], &[r#"{__name__="m", x="1"}"#]);
    for op in BinaryOp::ALL {
        let is_arithmetic = matches!(op.as_str(), "+" | "-" | "*" | "/" | "%" | "^" | "atan2");
        assert_eq!(changes_schema(op), is_arithmetic, "{op:?}");
    }
}

/// Breaks if a comparison between vectors brings back a name that a function or an operator dropped.
#[test]
fn dropped_names_stay_away() {
    let goes = |query: &str, left: &[&str], right: &[&str]| {
        flagged(query, left, right, &["gone"]).into_iter().map(|(_, goes)| goes).collect::<Vec<_>>()
    };
    let (gone, kept) = (["gone{x='1'}"], ["n{x='1'}"]);
    assert_eq!(goes("a > b", &gone, &kept), [true]);
    assert_eq!(goes("a > b", &kept, &gone), [false], "the name is that of the left one");
    assert_eq!(goes("a > b", &kept, &kept), [false]);
    assert_eq!(goes("a > on(x) b", &gone, &kept), [false], "there is none left");
    assert_eq!(goes("a + b", &gone, &kept), [false]);
    assert_eq!(goes("a > ignoring(y) b", &gone, &kept), [true]);
    let many = ["gone{x='1', y='1'}", "m{x='1', y='2'}"];
    assert_eq!(goes("a > on(x) group_left b", &many, &kept), [true, false]);
    assert_eq!(goes("b > on(x) group_right a", &kept, &many), [true, false]);
    // A name that is taken over from "one" goes as it would there.
    assert_eq!(goes("a > on(x) group_left(__name__) b", &kept, &gone), [true]);
    assert_eq!(goes("a * on(x) group_left(__name__) b", &kept, &gone), [true]);
    assert_eq!(goes("a > on(x) group_left(__name__) b", &gone, &kept), [false]);
    // The same holds for type and unit: arithmetic drops those of the "many" side, a comparison keeps them.
    let (typed_gone, typed) = (["gone{x='1', __type__='gauge'}"], ["n{x='1', __type__='gauge'}"]);
    assert_eq!(goes("a * on(x) group_left(__type__) b", &gone, &typed), [false]);
    assert_eq!(goes("a * on(x) group_left(__type__) b", &kept, &typed_gone), [true]);
    assert_eq!(goes("a > on(x) group_left(__type__) b", &gone, &typed), [true]);
    // A side that is filled has the name of the other one only where names are matched.
    assert_eq!(goes("a > on(x) fill_left(0) b", &[], &gone), [false]);
    assert_eq!(goes("a > on(x, __name__) fill_left(0) b", &[], &gone), [true]);
    assert_eq!(goes("a > fill_right(0) b", &gone, &[]), [true]);
}

#[test]
fn many_keep_their_labels_and_take_those_that_are_named() {
    let many = ["m{x='1', y='1'}", "m{x='1', y='2'}"];
    let plain = [r#"{x="1", y="1"}"#, r#"{x="1", y="2"}"#];
    check("a * on(x) group_left b", &many, &["n{x='1', z='9'}"], &plain);
    check("a * on(x) group_left(w) b", &many, &["n{x='1', z='9'}"], &plain);
    let with = [r#"{x="1", y="1", z="9"}"#, r#"{x="1", y="2", z="9"}"#];
    check("a * on(x) group_left(z) b", &many, &["n{x='1', z='9'}"], &with);
    check("b * on(x) group_right(z) a", &["n{x='1', z='9'}"], &many, &with);
    check("a * ignoring(y, z) group_left(z) b", &many, &["n{x='1', z='9'}"], &with);
    // What "one" has not got is taken away.
    check("a * on(x) group_left(y) b", &["m{x='1', y='1'}"], &["n{x='1'}"], &[r#"{x="1"}"#]);
    check("a * on(x) group_left(y) b", &["m{x='1', y='1'}"], &["n{x='1', y='5'}"], &[r#"{x="1", y="5"}"#]);
    // Names go with arithmetic only, whichever side asks for them.
    check("a > on(x) group_left b", &["m{x='1', y='1'}"], &["n{x='1'}"], &[r#"{__name__="m", x="1", y="1"}"#]);
    check("a > on(x) group_left(__name__) b", &["m{x='1'}"], &["n{x='1'}"], &[r#"{__name__="n", x="1"}"#]);
    check("a * on(x) group_left b", &many, &[], &[]);
    check("a * on(x) group_left b", &[], &["n{x='1'}"], &[]);
}

#[test]
fn filled_rows_have_the_labels_that_match() {
    let (left, right) = (["m{x='1'}", "m{x='2'}"], ["n{x='1'}", "n{x='3'}"]);
    let (x1, x2, x3) = (r#"{x="1"}"#, r#"{x="2"}"#, r#"{x="3"}"#);
    check("a + on(x) b", &left, &right, &[x1]);
    check("a + on(x) fill_right(0) b", &left, &right, &[x1, x1, x2]);
    check("a + on(x) fill_left(0) b", &left, &right, &[x1, x1, x3]);
    check("a + on(x) fill(0) b", &left, &right, &[x1, x1, x1, x2, x3]);
    check("a + fill(0) b", &["m{x='1', y='2'}"], &[], &[r#"{x="1", y="2"}"#]);
    check("a + fill(0) b", &[], &["n{x='1', y='2'}"], &[r#"{x="1", y="2"}"#]);
    check("a + on(x) fill(0) b", &[], &["n{x='1', y='2'}"], &[x1]);
    check("a + on(x) group_left fill_right(0) b", &["m{x='1', y='1'}"], &[], &[r#"{x="1", y="1"}"#]);
    // Of a row that is filled nobody knows more than what it was looked for by.
    check("a + on(x) group_left(z) fill_right(0) b", &["m{x='1', z='1'}"], &[], &[x1]);
}

#[test]
fn groups_without_a_result_are_left_out() {
    let room = Room::unbounded();
    let all = table(&["m{x='1'}", "m{x='2'}", "m{x='2'}", "n{x='1'}", "n{x='3'}", "n{x='4'}", "n{x='4'}"]);
    let signatures = group(&room, &all, |n| n == "x").expect("groups");
    let shown = |filled| {
        let groups = matched(&signatures, 0..3, 3..7, filled);
        groups.iter().map(|g| (g.many.to_vec(), g.one.to_vec())).collect::<Vec<_>>()
    };
    // Two rows of "one" stay: they are a fault as soon as "many" has any row.
    let (pair, twice): (Both, Both) = ((vec![0], vec![0]), (vec![], vec![2, 3]));
    assert_eq!(shown((false, false)), [pair.clone(), twice.clone()]);
    assert_eq!(shown((false, true)), [pair.clone(), (vec![1, 2], vec![]), twice.clone()]);
    assert_eq!(shown((true, false)), [pair.clone(), (vec![], vec![1]), twice.clone()]);
    assert_eq!(shown((true, true)), [pair, (vec![1, 2], vec![]), (vec![], vec![1]), twice]);
}
