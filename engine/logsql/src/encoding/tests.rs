//! Each node and each function of the language is written and read, and says the same; `pipes::testing` runs the plans of
//! its cases so, too.

use std::collections::BTreeSet;

use arrow::datatypes::{Schema, SchemaRef};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::aggregate::AggregateFunctionExpr;
use datafusion::physical_plan::aggregates::AggregateExec;
use datafusion::physical_plan::empty::EmptyExec;
use datafusion::physical_plan::{ChildrenPropertiesMode, ExecutionPlanProperties, ReplaceChildrenOptions, displayable};

use super::*;
use crate::ast::Query;
use crate::counting::{by_stream_labels, hits};
use crate::parse;
use crate::pipes::testing::physical;

/// Steps hold nothing that needs them.
struct NoForms;

impl Forms for NoForms {
    fn write_expr(&self, _: &Arc<dyn PhysicalExpr>) -> Result<Vec<u8>> {
        internal_err!("no step has an expression")
    }

    fn read_expr(&self, _: &[u8], _: &Schema) -> Result<Arc<dyn PhysicalExpr>> {
        internal_err!("no step has an expression")
    }

    fn write_aggregate(&self, _: &AggregateFunctionExpr) -> Result<Vec<u8>> {
        internal_err!("no step has an aggregate")
    }

    fn read_aggregate(&self, _: &[u8], _: &Schema) -> Result<Arc<AggregateFunctionExpr>> {
        internal_err!("no step has an aggregate")
    }

    fn write_schema(&self, _: &Schema) -> Result<Vec<u8>> {
        internal_err!("no step has a schema")
    }

    fn read_schema(&self, _: &[u8]) -> Result<SchemaRef> {
        internal_err!("no step has a schema")
    }

    fn write_plan(&self, _: &Arc<dyn ExecutionPlan>) -> Result<Vec<u8>> {
        internal_err!("no step has a plan")
    }

    fn read_plan(&self, _: &[u8]) -> Result<Arc<dyn ExecutionPlan>> {
        internal_err!("no step has a plan")
    }
}

/// What was written of a plan.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    kinds: BTreeSet<&'static str>,
    functions: BTreeSet<String>,
    /// Each step with the plan below it.
    steps: Vec<(Vec<u8>, Arc<dyn ExecutionPlan>)>,
}

/// Makes a plan anew of what is written of its steps and functions, each of which must be the same.
pub(crate) fn again(plan: &Arc<dyn ExecutionPlan>, seen: &mut Seen) -> Arc<dyn ExecutionPlan> {
    let children: Vec<_> = plan.children().into_iter().map(|child| again(child, seen)).collect();
    if let Some(aggregate) = plan.downcast_ref::<AggregateExec>() {
        aggregate.aggr_expr().iter().for_each(|function| function_again(function.fun(), seen));
    }
    let Some(bytes) = PlanForms.write(&**plan, &NoForms).expect("it has a form") else {
        assert!(plan.downcast_ref::<StepExec>().is_none(), "a step is written");
        let leaf = children.is_empty();
        return if leaf {
            Arc::clone(plan)
        } else {
            Arc::clone(plan)
                .replace_children(children, ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute))
                .expect("a node")
        };
    };
    let step = plan.downcast_ref::<StepExec>().expect("a step").step();
    let anew = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute);
    assert!(Arc::clone(plan).replace_children(Vec::new(), anew).is_err(), "a step has one input");
    let read = PlanForms.read(&bytes, children.clone(), &NoForms).unwrap_or_else(|e| panic!("{}: {e}", step.kind()));
    let read_step = read.downcast_ref::<StepExec>().expect("a step").step();
    assert_eq!(format!("{read_step:?}"), format!("{step:?}"));
    let line = |plan: &Arc<dyn ExecutionPlan>| displayable(&**plan).one_line().to_string();
    assert_eq!(line(&read), line(plan));
    assert_eq!(read.schema(), plan.schema());
    assert_eq!(read.output_partitioning().partition_count(), plan.output_partitioning().partition_count());
    assert_eq!(PlanForms.write(&*read, &NoForms).expect("it has a form"), Some(bytes.clone()));
    assert!(Arc::ptr_eq(read.children()[0], &children[0]), "nothing comes between a step and its input");
    seen.kinds.insert(step.kind());
    seen.steps.push((bytes, Arc::clone(&children[0])));
    read
}

fn function_again(function: &AggregateUDF, seen: &mut Seen) {
    let Some(bytes) = PlanForms.write_aggregate_function(function).expect("it has a form") else { return };
    let read = PlanForms.read_aggregate_function(function.name(), &bytes).expect("it is read");
    assert_eq!(format!("{read:?}"), format!("{function:?}"));
    assert_eq!(*read, *function);
    assert!(PlanForms.read_aggregate_function("sum", &bytes).is_err(), "a function has its name");
    seen.functions.insert(function.name().to_owned());
}

/// Queries whose plans have each step, and each function of `stats`.
const QUERIES: &[&str] = &[
    "options(time_offset=1h) * | fields a, b*",
    "_time:5m foo | stream_context before 2 after 3 time_window 5m",
    "* | block_stats",
    "* | blocks_count as n",
    "* | coalesce(a, b*) default 'no value' as c",
    "* | collapse_nums if (a:in(b, c) or !_time:5m) at d prettify",
    "* | copy a* as b*, c as d | rename x as y, z* as w | pack_json as all",
    "* | decolorize if (_time:day_range[08:00, 18:00] or _time:week_range[Mon, Fri]) x",
    "* | deduplicate by (a, \"b c\")",
    "* | deduplicate",
    "* | delete a, b*",
    "* | drop_empty_fields",
    "* | extract if (a:~\"(?i)x.+y\" and b:>5) '<ip> - <q>' from c keep_original_fields",
    "* | extract_regexp '(?P<n>\\\\d+)' from x skip_empty_results",
    "* | facets 3 max_values_per_field 5 keep_const_fields",
    "* | fields a | facets",
    "* | limit 5 | field_names as n filter x",
    "* | limit 5 | facets",
    "* | filter a:ipv4_range(10.0.0.0/8) or b:eq_field(c) or d:range(1.5, 0x10] or e:len_range(1, inf) | fields a",
    "* | limit 5 | filter {a=~\"b.+\",c!=\"d\" or e=\"\"}",
    "* | limit 5 | filter a*:foo or _stream_id:0000000000000000e934a84adb05276890d7f7bfcadabe92",
    "* | format if (a:b) '<uc:a>:<b>' as c keep_original_fields",
    "* | generate_sequence 12",
    "* | hash(a) as h",
    "* | join by (a) (x | fields a, b) inner prefix p.",
    "* | join by (a) rows({a:1, b:'x y'}, {})",
    "* | json_array_concat ',' from a as b",
    "* | json_array_len(a) as n",
    "* | len(a) as n",
    "* | math round(a / 0.1, 5) + -b * max(c, 1KB) default 5m as r, (now() ^ rand()) & 7 xor 3 or 1 as s",
    "* | offset 3",
    "* | pack_logfmt fields (a, b*) as c",
    "* | query_stats",
    "* | replace if (a:b) (\"x y\", '') at c limit 2",
    "* | replace_regexp if (a:b) ('(x)', '$1') at c",
    "* | running_stats by (a) count() n, last(b) offset 2 l, sum(c*) s",
    "* | total_stats min(a) x, max(a) y, first(b) z",
    "* | sample 3",
    "* | set_stream_fields if (a:b) c, d*",
    "* | sort by (a desc, _time) offset 5 limit 3 partition by (b) rank as r",
    "* | sort",
    "* | split '-' from a as b",
    "* | stats by (_time:5m offset 1h, a:0.1, b:/24, c) count() n, count(x, y) m, rate() if (d:e) r | limit 7",
    "* | stats any(a) a1, avg(a) a2, count_empty(a) a3, count_uniq(a, b) limit 3 a4, count_uniq_hash(a) a5",
    "* | stats count_uniq_hll(a, b) a6",
    "* | stats field_max(a, b) b1, field_min(a, b) b2, histogram(a) b3, max(a) b4, median(a) b5, min(a*) b6",
    "* | stats json_values(a, b*) sort by (c desc, d) limit 3 c1, quantile(0.99, a) c2, rate_sum(a) c3, row_any(a) c4",
    "* | stats row_max(a, b) d1, row_min(a) d2, stddev(a) d3, sum(a) d4, sum_len(a) d5, uniq_values(a) limit 2 d6, values(*) d7",
    "* | time_add -5m at t",
    "* | top 5 by (a, b) hits n rank",
    "* | union (x | fields a)",
    "* | uniq by (a) with hits limit 5",
    "* | unpack_json if (a:b) from c fields (x, y*) result_prefix p_ keep_original_fields",
    "* | unpack_logfmt from c",
    "* | unpack_syslog from a offset 2h result_prefix s_",
    "* | unpack_words if (a:b) from c as d drop_duplicates",
    "* | unroll if (c:d) by (a, b)",
];

fn all() -> Seen {
    let mut seen = Seen::default();
    let mut queries: Vec<Query> =
        QUERIES.iter().map(|text| parse(text).unwrap_or_else(|e| panic!("{text}: {e}"))).collect();
    // What has no text in the language.
    let every = || parse("*").expect("a query");
    queries.push(Query { pipes: by_stream_labels(Some("a"), "v", "n"), ..every() });
    let many: Vec<String> = (0..100).map(|n| format!("f{n}")).collect();
    queries.push(parse(&format!("* | stats by ({}) count() n", many.join(", "))).expect("a query of many keys"));
    queries.push(hits(every(), (3_600_000_000_000, "1h"), None, &["a".to_owned()], 7));
    for query in queries {
        let plan = physical(&query).unwrap_or_else(|e| panic!("{query}: {e}"));
        let read = again(&plan, &mut seen);
        let shown = |plan: &Arc<dyn ExecutionPlan>| displayable(&**plan).indent(false).to_string();
        assert_eq!(shown(&read), shown(&plan), "{query}");
    }
    seen
}

#[test]
fn each_step_and_function_comes_back() {
    let seen = all();
    let kinds: BTreeSet<&str> = readers().map(|reader| reader.kind).collect();
    assert_eq!(seen.kinds, kinds, "a query of this test has each kind of steps");
    let functions: BTreeSet<String> = pipes::function_documents()
        .into_iter()
        // The median is a quantile, and the other is another name of `count_uniq_hash`.
        .filter(|(name, _)| !["median", "count_uniq_hll"].contains(name))
        .map(|(name, _)| format!("logsql_{name}"))
        .collect();
    assert_eq!(seen.functions, functions, "a query of this test calls each function");
}

/// Texts of the sources of the product.
fn sources(folder: &std::path::Path, out: &mut Vec<String>) {
    for entry in std::fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            sources(&path, out);
        } else {
            let text = std::fs::read_to_string(&path).expect("sources");
            out.push(text.split("#[cfg(test)]").next().unwrap_or_default().to_owned());
        }
    }
}

#[test]
fn each_kind_has_its_reader() {
    let mut texts = Vec::new();
    sources(&std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut texts);
    let marked = "const KIND: &'static str = \"";
    let mut written: Vec<&str> =
        texts.iter().flat_map(|text| text.split(marked).skip(1)).filter_map(|rest| rest.split('"').next()).collect();
    let mut read: Vec<&str> = readers().map(|reader| reader.kind).collect();
    written.sort_unstable();
    read.sort_unstable();
    assert_eq!(written, read, "each kind stands in one list of readers");
    assert!(read.windows(2).all(|pair| pair[0] != pair[1]), "two steps are of one kind: {read:?}");
}

/// The one step of a query over rows of its own, as it is written.
fn written(text: &str, kind: &str) -> Vec<u8> {
    let plan = physical(&parse(text).expect("a query")).unwrap_or_else(|e| panic!("{text}: {e}"));
    let mut seen = Seen::default();
    again(&plan, &mut seen);
    let of_kind = |bytes: &Vec<u8>| from_bytes::<(&str, &[u8])>(bytes).expect("a step").0 == kind;
    seen.steps.into_iter().map(|(bytes, _)| bytes).find(of_kind).expect("a step of this kind")
}

fn nothing(partitions: usize) -> Arc<dyn ExecutionPlan> {
    Arc::new(EmptyExec::new(Arc::new(Schema::empty())).with_partitions(partitions))
}

#[test]
fn steps_that_nobody_knows_are_errors() {
    let fault = |bytes: &[u8], input: Arc<dyn ExecutionPlan>| {
        PlanForms
            .read(bytes, vec![input], &NoForms)
            .map(|plan| plan.name().to_owned())
            .expect_err("no step")
            .to_string()
    };
    let unknown = to_bytes(&("no_such_step", [1_u8, 2].as_slice())).expect("bytes");
    assert!(fault(&unknown, nothing(1)).contains("there is no step of kind `no_such_step`"));
    let mut longer = written("* | limit 5 | blocks_count", "blocks_count");
    longer.extend([0, 0]);
    assert!(fault(&longer, nothing(1)).contains("2 bytes are left of a written form"));
    // Nodes of others are theirs to write.
    assert_eq!(PlanForms.write(&*nothing(1), &NoForms).expect("no fault"), None);
}

/// Breaks if a step that counts all rows counts those of each partition.
#[test]
fn a_step_over_all_rows_has_one_partition() {
    let bytes = written("* | limit 5 | blocks_count", "blocks_count");
    let read = |partitions| PlanForms.read(&bytes, vec![nothing(partitions)], &NoForms);
    assert_eq!(read(1).expect("a step").output_partitioning().partition_count(), 1);
    let fault = read(3).map(|plan| plan.name().to_owned()).expect_err("too many").to_string();
    assert!(fault.contains("`LogsBlocksCount` is over 3 partitions"), "{fault}");
    // One that looks at each row by itself has as many as there are.
    let bytes = written("* | limit 5 | filter a:b", "filter");
    let read = PlanForms.read(&bytes, vec![nothing(3)], &NoForms).expect("a step");
    assert_eq!(read.output_partitioning().partition_count(), 3);
}

#[test]
fn what_is_damaged_is_an_error() {
    for (bytes, input) in all().steps {
        let read = |bytes: &[u8]| PlanForms.read(bytes, vec![Arc::clone(&input)], &NoForms);
        assert!(read(&bytes).is_ok());
        for length in 0..bytes.len() {
            assert!(read(&bytes[..length]).is_err(), "{length} bytes of {bytes:?}");
        }
        for at in 0..bytes.len() {
            // Maybe another step, but nothing worse.
            for bits in [0x01, 0x80] {
                let mut other = bytes.clone();
                other[at] ^= bits;
                drop(read(&other));
            }
        }
        assert!(PlanForms.read(&bytes, Vec::new(), &NoForms).is_err(), "a step has an input");
        assert!(PlanForms.read(&bytes, vec![Arc::clone(&input), Arc::clone(&input)], &NoForms).is_err());
    }
}
