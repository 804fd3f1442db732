//! Functions of `stats`, and the groups that they are over.

use datafusion::physical_plan::displayable;

use crate::parse;
use crate::pipes::testing::{gives, physical};

/// What merges groups is given the fewer of them at once the more functions there are.
#[test]
fn few_groups_are_merged_into_many_functions() {
    let plan = |functions: usize| {
        let calls: Vec<String> = (0..functions).map(|n| format!("count_uniq(a) n{n}")).collect();
        let query = parse(&format!("* | stats by (b) {}", calls.join(", "))).expect("a query");
        displayable(physical(&query).expect("a plan").as_ref()).indent(false).to_string()
    };
    assert!(plan(200).contains("SliceExec: rows=163"), "{}", plan(200));
    assert!(!plan(4).contains("SliceExec"), "{}", plan(4));
}

#[test]
fn functions_over_all_rows() {
    gives("stats count() n", &["a=1", "a=2", "b=x"], &["n=3"]);
    gives(
        "stats count(a) n, count(b) m, count(a, b) both, count(c) none",
        &["a=1", "a=2 b=x", "c="],
        &["n=2 m=1 both=2 none=0"],
    );
    gives("stats count_empty(a) n, count_empty(a, b) both", &["a=1", "b=x", "c=1"], &["n=2 both=1"]);
    gives("stats count_uniq(a) n, count_uniq(a, b) m", &["a=1 b=x", "a=1 b=y", "a=2", "c=1"], &["n=2 m=3"]);
    gives("stats count_uniq(a) limit 2 n", &["a=1", "a=2", "a=3"], &["n=2"]);
    gives("stats count_uniq_hash(a) n", &["a=1", "a=2", "a=1"], &["n=2"]);
    gives("stats count_uniq_hll(a) n", &["a=1", "a=2", "a=1", "b=1"], &["n=2"]);
    gives("stats sum(a) s, avg(a) m", &["a=1", "a=2.5", "a=x", "b=1"], &["s=3.5 m=1.75"]);
    gives("stats sum(a, b) s, avg(a, b) m", &["a=1 b=2", "a=3"], &["s=6 m=2"]);
    gives("stats sum(a*) s", &["a1=1 a2=2 b=4", "a1=8"], &["s=11"]);
    gives("stats sum(x) s, avg(x) m, min(x) l, max(x) g", &["a=1"], &["s=NaN m=NaN"]);
    gives("stats min(a) l, max(a) g", &["a=10", "a=9", "a=2"], &["l=2 g=10"]);
    gives("stats min(a) l, max(a) g", &["a=b", "a=10", "a=a"], &["l=10 g=b"]);
    gives(
        "stats median(a) m, quantile(0, a) l, quantile(1, a) g, quantile(0.5, a) h",
        &["a=1", "a=2", "a=3"],
        &["m=2 l=1 g=3 h=2"],
    );
    gives("stats stddev(a) s", &["a=2", "a=4"], &["s=1"]);
    gives("stats sum_len(a) s, sum_len(a, b) t", &["a=abc b=x", "a=größe"], &["s=10 t=11"]);
    gives("stats any(a) x", &["a=v", "a=v"], &["x=v"]);
    gives("stats uniq_values(a) v", &["a=2", "a=1", "a=2", "a=10", "b=1"], &[r#"v="[\"1\",\"2\",\"10\"]""#]);
    gives("stats values(a) v", &["a=2", "a=1", "a=2"], &[r#"v="[\"2\",\"1\",\"2\"]""#]);
    gives("stats values(a) limit 2 v", &["a=2", "a=1", "a=3"], &[r#"v="[\"2\",\"1\"]""#]);
    gives(
        "stats json_values(a, b) sort by (a desc) limit 2 v",
        &["a=1 b=x", "a=3", "a=2 b=y"],
        &[r#"v="[{\"a\":\"3\"},{\"a\":\"2\",\"b\":\"y\"}]""#],
    );
    gives(
        "stats row_min(a) v, row_max(a, b) w",
        &["a=2 b=x", "a=1 b=y", "a=3 b=z"],
        &[r#"v="{\"a\":\"1\",\"b\":\"y\"}" w="{\"b\":\"z\"}""#],
    );
    gives("stats field_min(a, b) l, field_max(a, b) g", &["a=2 b=x", "a=10 b=y", "a=1 b=z"], &["l=z g=y"]);
    gives("stats count() if (a:1) n, sum(b) if (a:2) s", &["a=1 b=5", "a=2 b=7", "a=1"], &["n=2 s=7"]);
    gives("stats count() if (a:9) n, sum(b) if (a:9) s", &["a=1 b=5"], &["n=0 s=NaN"]);
    gives(
        "stats count() switch(case (a:1) one, case (a:2) two, default rest)",
        &["a=1", "a=2", "a=3", "a=3"],
        &["one=1 two=1 rest=2"],
    );
    gives("stats count() n, count(a)", &["a=1"], &["n=1 count(a)=1"]);
}

#[test]
fn rows_are_grouped() {
    gives("stats by (a) count() n | sort by (a)", &["a=x", "a=y", "a=x", "b=1"], &["n=1", "a=x n=2", "a=y n=1"]);
    gives(
        "stats by (a, b) sum(c) s | sort by (a, b)",
        &["a=1 b=1 c=1", "a=1 b=2 c=2", "a=1 b=1 c=4"],
        &["a=1 b=1 s=5", "a=1 b=2 s=2"],
    );
    gives(
        "stats by (a:10) count() n | sort by (a)",
        &["a=1", "a=9", "a=10", "a=25"],
        &["a=0 n=2", "a=10 n=1", "a=20 n=1"],
    );
    gives(
        "stats by (a:10 offset 5) count() n | sort by (a)",
        &["a=1", "a=9", "a=14", "a=15"],
        &["a=-5 n=1", "a=5 n=2", "a=15 n=1"],
    );
    gives("stats by (a:0.5) count() n | sort by (a)", &["a=0.1", "a=0.6", "a=0.9"], &["a=0 n=1", "a=0.5 n=2"]);
    gives(
        "stats by (a:/24) count() n | sort by (a)",
        &["a=10.0.0.1", "a=10.0.0.200", "a=10.0.1.1"],
        &["a=10.0.0.0 n=2", "a=10.0.1.0 n=1"],
    );
    gives("stats by (a:1h) count() n | sort by (a)", &["a=30m", "a=61m", "a=1h59m"], &["a=0 n=1", "a=1h n=2"]);
    gives(
        "stats by (_time:1h) count() n | sort by (_time)",
        &["_time=2024-01-01T00:30:00Z", "_time=2024-01-01T01:10:00Z", "_time=2024-01-01T01:50:00Z"],
        &["_time=2024-01-01T00:00:00Z n=1", "_time=2024-01-01T01:00:00Z n=2"],
    );
    gives(
        "stats by (_time:1d offset 2h) count() n | sort by (_time)",
        &["_time=2024-01-01T01:00:00Z", "_time=2024-01-01T03:00:00Z"],
        &["_time=2023-12-31T22:00:00Z n=2"],
    );
    gives(
        "stats by (_time:month) count() n | sort by (_time)",
        &["_time=2024-01-31T23:00:00Z", "_time=2024-02-01T00:00:00Z"],
        &["_time=2024-01-01T00:00:00Z n=1", "_time=2024-02-01T00:00:00Z n=1"],
    );
    gives(
        "stats by (_time:year) count() n",
        &["_time=2024-01-31T23:00:00Z", "_time=2024-12-01T00:00:00Z"],
        &["_time=2024-01-01T00:00:00Z n=2"],
    );
    gives(
        "stats by (_time:week) count() n",
        &["_time=2024-03-03T23:00:00Z", "_time=2024-02-26T00:00:00Z"],
        &["_time=2024-02-26T00:00:00Z n=2"],
    );
    gives(
        "stats by (_time:day) count() n",
        &["_time=2024-03-03T23:00:00Z", "_time=2024-03-03T00:00:00Z"],
        &["_time=2024-03-03T00:00:00Z n=2"],
    );
    gives(
        "stats by (a) count() n, max(b) g | sort by (n desc) limit 1",
        &["a=x b=1", "a=x b=3", "a=y b=9"],
        &["a=x n=2 g=3"],
    );
}
