//! Reads declarations of rollups.

use quiver_yaml::Node;
use quiver_yaml::problem::{Code, Problems};

use super::Reader;
use super::mapping::member;
use crate::model::PreAggregation;

pub(super) fn rollup(node: &Node, own: &str, problems: &mut Problems) -> Option<PreAggregation> {
    const KINDS: [(&str, &str); 4] = [
        ("rollup", "rollup"),
        ("original_sql", "original_sql"),
        ("rollup_join", "rollup_join"),
        ("rollup_lambda", "rollup_lambda"),
    ];
    let mut r = Reader::new(node, "", problems)?;
    let name = r.text("name");
    let kind = r.word("type", &KINDS).unwrap_or("rollup");
    let (time, granularity) = (r.text("time_dimension"), r.text("granularity"));
    if name.is_none() {
        r.fields.problem("name", Code::Required, "a rollup needs a `name`", r.problems);
    }
    if kind == "rollup" && time.is_some() && granularity.is_none() {
        r.fields.problem(
            "granularity",
            Code::Required,
            "a rollup with `time_dimension` needs `granularity`",
            r.problems,
        );
    }
    let made = PreAggregation {
        name: name?,
        kind: kind.to_owned(),
        measures: r.members("measures", own),
        dimensions: r.members("dimensions", own),
        segments: r.members("segments", own),
        time: time.map(|t| member(&t, own)).zip(granularity),
    };
    // The store decides when and how rollups are built. These keys are accepted, so that models are portable.
    for key in [
        "external",
        "refresh_key",
        "partition_granularity",
        "build_range_start",
        "build_range_end",
        "indexes",
        "union_with_source_data",
        "rollups",
        "scheduled_refresh",
        "allow_non_strict_date_range_match",
    ] {
        let _ = r.fields.take(key);
    }
    r.finish();
    Some(made)
}
