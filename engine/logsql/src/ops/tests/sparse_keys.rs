//! Rows by a hundred keys, most of which no row has: the same as by those that they have, and in one column.

use datafusion::physical_plan::displayable;

use crate::pipes::testing::{gives, physical};
use crate::query_text::parse;

/// `f0, f1, ..`, each with something behind it.
fn names(behind: &str) -> String {
    (0..100).map(|n| format!("f{n}{behind}")).collect::<Vec<_>>().join(", ")
}

#[test]
fn rows_are_sorted_by_those_that_they_have() {
    let rows = ["f40=b f7=x", "f40=a", "f7=x", "f99=z f40=a", "m=1", "f40=10 m=2", "f40=9"];
    let mut expected = ["m=1", "f40=9", "f40=10 m=2", "f40=a", "f99=z f40=a", "f7=x", "f40=b f7=x"];
    gives(&format!("sort by ({})", names("")), &rows, &expected);
    gives(&format!("sort by ({}) | fields f7, m", names("")), &rows, &["m=1", "", "m=2", "", "", "f7=x", "f7=x"]);
    gives(&format!("sort by ({}) offset 1 limit 2", names("")), &rows, &expected[1..3]);
    gives(
        &format!("sort by ({}) limit 1 partition by (m) rank as r", names("")),
        &rows,
        &["m=1 r=1", "f40=9 r=1", "f40=10 m=2 r=1"],
    );
    expected.reverse();
    gives(&format!("sort by ({})", names(" desc")), &rows, &expected);
    gives(&format!("sort by ({}) desc", names("")), &rows, &expected);
    gives(&format!("sort by ({}, m desc)", names("")), &["m=1", "m=2"], &["m=2", "m=1"]);
}

#[test]
fn rows_are_grouped_by_those_that_they_have() {
    let rows = ["f40=b f7=x", "f7=x", "f7=x f40=b", "m=1", "f3=17 m=2", "f3=12 m=3"];
    let grouped = ["n=1", "f7=x n=1", "f40=b f7=x n=2", "f3=12 n=1", "f3=17 n=1"];
    let by = names("");
    gives(&format!("stats by ({by}) count() n | sort by ({by})"), &rows, &grouped);
    gives(&format!("uniq by ({by}) with hits | rename hits as n | sort by ({by})"), &rows, &grouped);
    let bucketed = by.replacen("f3,", "f3:10,", 1);
    let merged = ["n=1 s=1", "f7=x n=1 s=NaN", "f40=b f7=x n=2 s=NaN", "f3=10 n=2 s=5"];
    gives(&format!("stats by ({bucketed}) count() n, sum(m) s | sort by ({by})"), &rows, &merged);
    gives(&format!("top 1 by ({by})"), &rows, &["f40=b f7=x hits=2"]);
}

#[test]
fn keys_are_one_column() {
    let plan = |pipes: &str| {
        let query = parse(&format!("* | {pipes}")).expect("a query");
        displayable(physical(&query).expect("a plan").as_ref()).indent(false).to_string()
    };
    let grouped = plan(&format!("stats by ({}, _time:1h) count() n", names("")));
    assert!(grouped.contains("LogsPackKeys: 100 keys") && grouped.contains("LogsUnpackKeys: 100 keys"), "{grouped}");
    assert!(grouped.contains("__q_by1") && !grouped.contains("__q_by2"), "{grouped}");
    let sorted = plan(&format!("sort by ({})", names("")));
    assert!(sorted.contains("__q_key0@") && !sorted.contains("__q_key1@"), "{sorted}");
    assert!(!plan("stats by (f0, f1) count() n").contains("LogsPackKeys"));
}
