use datafusion::catalog::view::ViewTable;
use datafusion::physical_plan::displayable;

use super::*;
use crate::name_resolution::Names;
use crate::testing::{ENGINE, answered_by};

/// All rows, of which the caller may see those of service `a`; the others have no numbers in their texts, and zeros.
const ALL: &str = "(values ('a', '1', 1), ('b', 'secret', 0), ('a', '2', 2)) as v(service, text, n)";
const VISIBLE: &str = "select service, text, n, cast(text as int) as number from";

/// The rows that the caller may see as table `t`, guarded or not, of a plan that joins them or not.
fn names(is_guarded: bool, is_joined: bool) -> Names<'static> {
    let mut names = Names::new(ENGINE.relational());
    let joined = if is_joined { " join (values (0), (1), (2)) as w(m) on v.n = w.m" } else { "" };
    let rows = names.plan(&format!("{VISIBLE} {ALL}{joined} where service = 'a'")).unwrap();
    let rows = if is_guarded { visible_rows(rows) } else { rows };
    names.add(None, "t", Arc::new(ViewTable::new(rows, None)));
    names
}

#[tokio::test]
async fn what_a_statement_computes_never_meets_hidden_rows() {
    for (statement, expected) in [
        ("select count(*) from t where cast(text as int) > 0", vec!["2"]),
        ("select text from t where cast(text as int) > 1 and service is not null", vec!["2"]),
        ("select n from t where 10 / n > 5", vec!["1"]),
        ("select service, cast(text as int) from t order by 2", vec!["a|1", "a|2"]),
        ("select service, 10 / n from t order by 2", vec!["a|5", "a|10"]),
        ("select cast(text as int) % 2, count(*) from t group by 1 order by 1", vec!["0|1", "1|1"]),
        ("select sum(cast(text as int)) from t", vec!["3"]),
        ("select text from t order by 10 / n limit 1", vec!["2"]),
        ("select text from t where number = 2", vec!["2"]),
        ("select o.x from (values (1), (2)) as o(x) join t on o.x = cast(t.text as int) order by 1", vec!["1", "2"]),
        ("select o.x from (values (1), (3)) as o(x) where o.x in (select cast(text as int) from t)", vec!["1"]),
        (
            "select o.x from (values (2), (3)) as o(x) where exists (select 1 from t where cast(text as int) = o.x)",
            vec!["2"],
        ),
        ("select s from (select cast(text as int) as s, n from t) as q where s > 1", vec!["2"]),
        ("select count(*) from (select text from t limit 1) as q where cast(text as int) > 0", vec!["1"]),
        ("select a.text from t a join t b on a.n = b.n where cast(a.text as int) + cast(b.text as int) = 4", vec!["2"]),
    ] {
        for is_joined in [false, true] {
            let plan = names(true, is_joined).plan(statement).unwrap();
            let rows = answered_by(move || Ok(plan)).await.unwrap_or_else(|e| panic!("{statement}: {e}"));
            assert_eq!(rows, expected, "{statement}");
        }
    }
    // Without the node it is evaluated over all rows: should DataFusion stop that, the node can go.
    let plan = names(false, false).plan("select text from t where cast(text as int) > 0").unwrap();
    assert!(answered_by(move || Ok(plan)).await.is_err());
}

#[tokio::test]
async fn conditions_that_cannot_fail_go_on_to_the_rows() {
    for (condition, passes) in [
        ("n = 2", true),
        ("n <> 1 and text is not null", true),
        ("n in (2, 3)", true),
        ("n between 2 and 3", true),
        ("text like '%2%'", true),
        ("not (n = 1 or text is null)", true),
        ("n is distinct from 1", true),
        ("text > service or n = 2", true),
        ("cast(text as int) = 2", false),
        ("10 / n = 5", false),
        ("text like service", false),
        // The column itself is a cast that can fail.
        ("number = 2", false),
    ] {
        let plan = names(true, false).plan(&format!("select text from t where {condition}")).unwrap();
        let (logical, physical) = ENGINE.plan_relational(&plan).await.unwrap();
        let shown = logical.display_indent().to_string();
        let (above, _) = shown.split_once("VisibleRows").unwrap_or_else(|| panic!("{shown}"));
        assert_eq!(!above.contains("Filter"), passes, "{condition}\n{shown}");
        let shown = displayable(physical.as_ref()).indent(false).to_string();
        assert!(!shown.contains("VisibleRows"), "it runs as it would without the node: {shown}");
    }
    // Conditions that may fail stay above the node, others move below it.
    let plan = names(true, false).plan("select text from t where n = 2 and 10 / n = 5").unwrap();
    let shown = ENGINE.plan_relational(&plan).await.unwrap().0.display_indent().to_string();
    let (above, below) = shown.split_once("VisibleRows").unwrap();
    assert_eq!((above.matches("Filter").count(), below.contains("Int64(2)")), (1, true), "{shown}");
}

#[test]
fn types_that_hold_all_values_of_others() {
    use arrow::datatypes::TimeUnit::{Millisecond, Nanosecond};
    let utc = || Some(Arc::from("UTC"));
    for (from, to, expected) in [
        (DataType::Utf8, DataType::Utf8View, true),
        (DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8)), DataType::Utf8View, true),
        (DataType::Int32, DataType::Utf8, true),
        (DataType::Int32, DataType::Int64, true),
        (DataType::UInt64, DataType::Int64, false),
        (DataType::Int64, DataType::Int32, false),
        (DataType::Int64, DataType::Float64, true),
        (DataType::Utf8, DataType::Int64, false),
        (DataType::Timestamp(Nanosecond, utc()), DataType::Timestamp(Millisecond, utc()), true),
        (DataType::Timestamp(Millisecond, utc()), DataType::Timestamp(Nanosecond, utc()), false),
        (DataType::Timestamp(Nanosecond, None), DataType::Timestamp(Nanosecond, utc()), false),
        (DataType::Timestamp(Nanosecond, utc()), DataType::Utf8, false),
    ] {
        assert_eq!(is_lossless(&from, &to), expected, "{from} as {to}");
    }
}
