//! Frames that leave rows out, against rows that are looked at one by one.

use std::ops::Range;

use datafusion::functions_aggregate::sum::sum_udaf;
use datafusion::functions_window::rank::rank_udwf;
use datafusion::logical_expr::col;

use super::*;
use crate::functions::window_functions;
use crate::testing::answered;

const MARKS: [(&str, Exclusion); 3] = [
    ("exclude_current_row", Exclusion::CurrentRow),
    ("exclude_group", Exclusion::Group),
    ("exclude_ties", Exclusion::Ties),
];

/// Rows of the table of the first test; three each are equal.
const ROWS: i64 = 200;

/// Whether a row counts that has a key, for one at hand with its own.
fn counts(exclusion: Exclusion, row: (i64, i64), own: (i64, i64)) -> bool {
    match exclusion {
        Exclusion::CurrentRow => row.0 != own.0,
        Exclusion::Group => row.1 != own.1,
        Exclusion::Ties => row.1 != own.1 || row.0 == own.0,
    }
}

/// The number of rows that are left of each frame, and the sum, the least and the greatest of their keys.
fn expected(exclusion: Exclusion, by_rows: bool, frame: &Range<i64>) -> Vec<String> {
    let rows = || (0..ROWS).map(|row| (row, row / 3));
    let place = |row: (i64, i64)| if by_rows { row.0 } else { row.1 };
    let mut lines = Vec::new();
    for own in rows() {
        let within = (place(own) + frame.start)..(place(own) + frame.end);
        let left = rows().filter(|row| within.contains(&place(*row)) && counts(exclusion, *row, own));
        let left: Vec<i64> = left.map(|row| row.1).collect();
        let shown = |value: Option<i64>| value.map_or("NULL".to_owned(), |value| value.to_string());
        let sum = (!left.is_empty()).then(|| left.iter().sum());
        let (least, greatest) = (left.iter().min().copied(), left.iter().max().copied());
        lines.push(format!("{}|{}|{}|{}|{}", own.1, left.len(), shown(sum), shown(least), shown(greatest)));
    }
    lines.sort();
    lines
}

#[tokio::test]
async fn all_units_leave_rows_out() {
    for (mark, exclusion) in MARKS {
        for (units, by_rows) in [("rows", true), ("range", false), ("groups", false)] {
            for (from, to, frame) in [
                ("40 preceding", "40 following", -40..41),
                ("unbounded preceding", "unbounded following", -ROWS..ROWS),
                ("unbounded preceding", "current row", -ROWS..1),
                ("2 preceding", "1 following", -2..2),
                ("100 preceding", "1 preceding", -100..0),
                ("1 following", "unbounded following", 1..ROWS),
                ("current row", "current row", 0..1),
            ] {
                let over = format!("over (partition by {mark}() order by k {units} between {from} and {to})");
                let statement = format!(
                    "select k, count(*) {over}, sum(k) {over}, min(k) {over}, max(k) {over} \
                     from (select value / 3 as k from generate_series(0, {})) v",
                    ROWS - 1
                );
                let mut found = answered(&statement).await.unwrap_or_else(|e| panic!("{statement}: {e}"));
                found.sort();
                assert_eq!(found, expected(exclusion, by_rows, &frame), "{mark} {units} {from} {to}");
            }
        }
    }
}

#[tokio::test]
async fn functions_see_what_is_left() {
    let whole = "rows between unbounded preceding and unbounded following";
    let over = format!("over (partition by exclude_current_row() order by i {whole})");
    for (call, rows) in [
        ("first_value(x)", ["NULL", "1", "1", "1"]),
        ("first_value(x) ignore nulls", ["3", "1", "1", "1"]),
        ("last_value(x)", ["4", "4", "4", "3"]),
        ("nth_value(x, 2)", ["3", "3", "NULL", "NULL"]),
        ("nth_value(x, 2) ignore nulls", ["4", "3", "4", "3"]),
        ("nth_value(x, -2)", ["3", "3", "NULL", "NULL"]),
        ("string_agg(x::text, ',')", ["3,4", "1,3,4", "1,4", "1,3"]),
        ("string_agg(x::text, ',') filter (where i <> 3)", ["4", "1,4", "1,4", "1"]),
        ("count(*) filter (where x > 1)", ["2", "2", "1", "1"]),
        ("bool_and(x > 1)", ["true", "false", "false", "false"]),
        ("rank()", ["1", "2", "3", "4"]),
    ] {
        let statement =
            format!("select {call} {over} from (values (1, 1), (2, null), (3, 3), (4, 4)) v (i, x) order by i");
        assert_eq!(answered(&statement).await.unwrap_or_else(|e| panic!("{statement}: {e}")), rows, "{call}");
    }
}

/// Sums of fractions lose nothing to what was in a frame before.
#[tokio::test]
async fn nothing_is_taken_out_again() {
    let statement = "select sum(x) over (partition by exclude_current_row() order by i rows between 1 preceding and current \
                     row) from (values (1, 1e100), (2, 1.5), (3, 2.5), (4, 0.25)) v (i, x) order by i";
    assert_eq!(answered(statement).await.unwrap(), ["NULL", "1e100", "1.5", "2.5"]);
}

#[tokio::test]
async fn marks_and_places_that_are_none_are_refused() {
    for (statement, part) in [
        ("select exclude_ties()", "partitions of a window alone"),
        (
            "select nth_value(x, 0) over (partition by exclude_ties() order by x) from (values (1)) v (x)",
            "counts values from 1",
        ),
    ] {
        let error = answered(statement).await.unwrap_err();
        assert!(format!("{error:?}").contains(part), "{statement}: {error:?}");
    }
}

#[test]
fn functions_come_apart_and_together() {
    let mark = |exclusion: Exclusion| {
        let signature = Signature::nullary(Volatility::Volatile);
        ScalarUDF::from(Mark { exclusion, signature }).call(vec![])
    };
    for (name, exclusion) in MARKS {
        assert_eq!(mark(exclusion).schema_name().to_string(), format!("{name}()"));
        let mut call = WindowFunction::new(sum_udaf(), vec![col("a")]);
        call.params.partition_by = vec![col("b"), mark(exclusion)];
        call.params.filter = Some(Box::new(col("c")));
        let marked = Expr::from(call.clone());
        assert!(window_functions::collects(&marked), "all rows have to be there");
        let made = applied(marked).unwrap();
        assert!(made.transformed);
        let Expr::WindowFunction(made) = made.data else { panic!("no window") };
        assert_eq!(made.params.partition_by, [col("b")]);
        assert!(made.params.filter.is_none() && made.params.args.len() == 2, "the condition is an argument");
        let WindowFunctionDefinition::WindowUDF(found) = &made.fun else { panic!("no function of rows") };
        let (parts, inner) = parts(found).unwrap();
        assert_eq!(*inner, *sum_udaf());
        let bytes = postcard::to_allocvec(&parts).unwrap();
        assert_eq!(function(postcard::from_bytes(&bytes).unwrap(), inner), *found);
        assert!(!applied(Expr::WindowFunction(made)).unwrap().transformed);
        // Window functions over whole partitions have no frame.
        let mut rank = WindowFunction::new(rank_udwf(), vec![]);
        rank.params.partition_by = vec![mark(exclusion)];
        let Expr::WindowFunction(rank) = applied(Expr::from(rank)).unwrap().data else { panic!("no window") };
        assert!(rank.params.partition_by.is_empty());
        assert_eq!(rank.fun, WindowFunctionDefinition::WindowUDF(rank_udwf()));
    }
    assert!(!applied(col("a")).unwrap().transformed);
    assert!(parts(&rank_udwf()).is_none());
}
