//! Properties of a query, observed through its execution: the fields and times it reads, how request parameters apply,
//! whether it can be tailed, whether it returns the newest rows, and which columns are labels.

use std::collections::BTreeSet;
use std::path::Path;

use quiver_logsql::ast::{Filter, Pipe, Query};
use quiver_logsql::pipes::collapse_nums::CollapseNums;
use quiver_logsql::pipes::decolorize::Decolorize;
use quiver_logsql::pipes::drop_empty_fields::DropEmptyFields;
use quiver_logsql::pipes::extract::Extract;
use quiver_logsql::pipes::extract_regexp::ExtractRegexp;
use quiver_logsql::pipes::field_names::FieldNames;
use quiver_logsql::pipes::format::Format;
use quiver_logsql::pipes::replace::Replace;
use quiver_logsql::pipes::replace_regexp::ReplaceRegexp;
use quiver_logsql::pipes::sort::Sort;
use quiver_logsql::pipes::unpack::Unpack;
use quiver_logsql::pipes::unpack_named::UnpackNamed;
use quiver_logsql::pipes::unpack_syslog::UnpackSyslog;
use quiver_logsql::pipes::unpack_words::UnpackWords;
use quiver_logsql::pipes::unroll::Unroll;
use quiver_logsql::request_params::{
    TimeOrder, extra_filter, extra_stream_filter, followed, with_limit, without_pipes,
};
use quiver_logsql::row_functions::template;
use quiver_logsql::{QueryScope, Regexps, StatsColumns, by_step, parse, stats_columns};
use quiver_types::Result;
use quiver_types::logs::TIME;
use serde_json::Value;

use super::functions::as_regexps;
use super::recorder::Recorder;
use super::{Suite, Verdict, read, text};

/// 2025-01-20: "now" of the cases, later than all their times.
const NOW_NS: i64 = 1_737_331_200_000_000_000;
/// The time range that cases lay upon queries, as they write it and in nanoseconds.
const RANGE: (&str, i64, i64) =
    ("[2024-12-25T14:56:43Z,2025-01-13T12:45:34Z]", 1_735_138_603_000_000_000, 1_736_772_334_999_999_999);

/// The suite of this file.
pub(crate) fn suite(folder: &Path) -> Suite<'static> {
    let recorder = Recorder::new();
    Suite {
        name: "query_properties",
        cases: read(&folder.join("upstream/query_properties.jsonl")),
        run: Box::new(move |case: &Value| run(case, &recorder)),
    }
}

fn run(case: &Value, recorder: &Recorder) -> Verdict {
    let (test, args) = (text(case, "test"), &case["args"]);
    let outcome = match test {
        "TestToFieldsFilters" => {
            return Verdict::Skipped("the scan is asked for its fields; they are not written as pipes for other nodes");
        }
        "TestParseExtraFilters_Success" => extra(args, extra_filter),
        "TestParseExtraStreamFilters_Success" => extra(args, extra_stream_filter),
        "TestParseExtraFilters_Failure" => refused(extra_filter(text(args, "s"), &mut Regexps::default()).is_err()),
        "TestParseExtraStreamFilters_Failure" => {
            refused(extra_stream_filter(text(args, "s"), &mut Regexps::default()).is_err())
        }
        "TestQueryGetNeededColumns" => needed(args, recorder),
        _ => match parse(text(args, "qStr")) {
            Ok(query) => match of_query(test, query, args, recorder) {
                Some(outcome) => outcome,
                None => Err("not known here".to_owned()),
            },
            Err(e) => Err(e.to_string()),
        },
    };
    match outcome {
        Ok(()) => Verdict::Passed,
        Err(e) => Verdict::Failed(format!("{test} {args}: {e}")),
    }
}

type Outcome = std::result::Result<(), String>;

fn of_query(test: &str, query: Query, args: &Value, recorder: &Recorder) -> Option<Outcome> {
    let whether = |found: bool| same(&found, &args["resultExpected"].as_bool().unwrap_or_default());
    Some(match test {
        "TestQuery_AddTimeFilter" => {
            let scope = QueryScope { start_ns: Some(RANGE.1), end_ns: Some(RANGE.2), ..QueryScope::default() };
            bound(&scope, query, args)
        }
        "TestQuery_AddExtraFilters" => match extra_filter(text(args, "extraFilters"), &mut Regexps::default()) {
            Ok(extra) => {
                bound(&QueryScope { extra: extra.into_iter().collect(), ..QueryScope::default() }, query, args)
            }
            Err(e) => Err(e.to_string()),
        },
        "TestQueryGetFilterTimeRange" => times(&query, recorder).and_then(|found| {
            let int = |name: &str| args[name].as_i64().unwrap_or_default();
            same(&found, &(int("startExpected"), int("endExpected")))
        }),
        "TestQueryHasGlobalTimeFilter" => {
            // Alternatives that all are bound bind their query, which the reference does not see.
            let alternatives = match &query.filter {
                Filter::Or(any) => any.iter().map(|one| Query { filter: one.clone(), ..query.clone() }).collect(),
                _ => Vec::new(),
            };
            let bound = |query: &Query| Ok::<_, String>(times(query, recorder)? != (i64::MIN, i64::MAX));
            let all: std::result::Result<Vec<bool>, String> = alternatives.iter().map(bound).collect();
            match (bound(&query), all) {
                (Ok(true), Ok(all)) if !all.is_empty() && all.iter().all(|bound| *bound) => Ok(()),
                (found, _) => found.and_then(whether),
            }
        }
        "TestQueryCanReturnLastNResults" => {
            let limited = with_limit(query, TimeOrder::NewestFirst, 0, 7);
            let sort = limited.pipes.last().and_then(Pipe::downcast_ref::<Sort>);
            whether(sort.is_some_and(|sort| sort.limit == Some(7) && sort.by == [(TIME.to_owned(), true)]))
        }
        "TestQueryCanLiveTail" => whether(followed(query).is_ok()),
        "TestQueryDropAllPipes" => same(&without_pipes(query).to_string(), &printed(text(args, "resultExpected"))),
        "TestQueryGetStatsByFields_Success" => labels(stats_columns(&query), args),
        "TestQueryGetStatsByFields_Failure" => refused(stats_columns(&query).is_err()),
        "TestQueryGetStatsByFieldsAddGroupingByTime_Success" => {
            let step = args["step"].as_i64().unwrap_or_default();
            match by_step(query, (step, &step.to_string()), None) {
                Ok((query, columns)) => {
                    same(&query.to_string(), &printed(text(args, "qExpected"))).and_then(|()| labels(Ok(columns), args))
                }
                Err(e) => Err(e.to_string()),
            }
        }
        "TestQueryGetStatsByFieldsAddGroupingByTime_Failure" => {
            refused(by_step(query, (1_000_000_000, "1s"), None).is_err())
        }
        _ => return None,
    })
}

fn same<T: PartialEq + std::fmt::Debug>(found: &T, wanted: &T) -> Outcome {
    if found == wanted { Ok(()) } else { Err(format!("{found:?} instead of {wanted:?}")) }
}

fn refused(refused: bool) -> Outcome {
    if refused { Ok(()) } else { Err("accepted".to_owned()) }
}

/// A query in the product's own spelling.
fn printed(query: &str) -> String {
    parse(query).map_or_else(|e| format!("{query}: {e}"), |query| query.to_string())
}

fn extra(args: &Value, of: impl Fn(&str, &mut Regexps) -> Result<Option<Filter>>) -> Outcome {
    let spelled = |text: &str| match of(text, &mut Regexps::default()) {
        Ok(filter) => filter.map_or_else(String::new, |mut filter| {
            as_regexps(&mut filter);
            filter.to_string()
        }),
        Err(e) => e.to_string(),
    };
    same(&spelled(text(args, "s")), &spelled(text(args, "resultExpected")))
}

/// The query bound by what a request lays upon it.
fn bound(scope: &QueryScope, mut query: Query, args: &Value) -> Outcome {
    scope.bind(&mut query).map_err(|e| e.to_string())?;
    let own = query.to_string().replace(&format!("[{},{}]", RANGE.1, RANGE.2), RANGE.0);
    same(&printed(&own), &printed(text(args, "resultExpected")))
}

/// The bounds of the times that are read.
fn times(query: &Query, recorder: &Recorder) -> std::result::Result<(i64, i64), String> {
    let requests = recorder.requests(query, NOW_NS)?;
    requests.first().map(|request| request.filter.time_bounds()).ok_or_else(|| "nothing is read".to_owned())
}

fn labels(columns: Result<StatsColumns>, args: &Value) -> Outcome {
    let wanted: BTreeSet<&str> =
        args["fieldsExpected"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let columns = columns.map_err(|e| e.to_string())?;
    same(&columns.labels.iter().map(String::as_str).collect(), &wanted)
}

/// The fields that are read are those that the reference needs, or fewer; more only where a rule of ours says which.
fn needed(args: &Value, recorder: &Recorder) -> Outcome {
    let query = parse(text(args, "s")).map_err(|e| e.to_string())?;
    let Some(request) = recorder.requests(&query, NOW_NS)?.into_iter().next() else { return Ok(()) };
    let wanted: BTreeSet<String> = text(args, "neededColumnsExpected")
        .split(',')
        .filter(|name| !name.is_empty())
        .map(str::to_owned)
        .chain(query.pipes.iter().flat_map(kept))
        .collect();
    // Names are counted over rows, not over blocks; and a row goes when none of its fields is left.
    let all = query.pipes.iter().any(|pipe| pipe.is::<FieldNames>() || pipe.is::<DropEmptyFields>());
    let open = all || wanted.iter().any(|name| name.ends_with('*'));
    let found: BTreeSet<String> = request.columns.iter().map(|column| column.name.clone()).collect();
    let good = open || (!request.rest && found.is_subset(&wanted));
    if good { Ok(()) } else { Err(format!("{found:?}, others: {}", request.rest)) }
}

/// What a pipe may need that the reference does not read: rows that its condition leaves out keep their values.
fn kept(pipe: &Pipe) -> Vec<String> {
    let unpacked = |unpack: &Unpack| -> Vec<String> {
        let names = unpack.fields.iter().filter_map(|field| field.name());
        names.map(|name| format!("{}{name}", unpack.result_prefix)).collect()
    };
    let all = [
        conditional::<Extract>(pipe, |of| of.condition.is_some(), |of| template::fields(&of.pattern)),
        conditional::<ExtractRegexp>(
            pipe,
            |of| of.condition.is_some(),
            |of| {
                let names = regex::Regex::new(&of.pattern);
                names.iter().flat_map(|names| names.capture_names().flatten()).map(str::to_owned).collect()
            },
        ),
        conditional::<Format>(pipe, |of| of.condition.is_some(), |of| vec![of.to.clone()]),
        conditional::<Replace>(pipe, |of| of.condition.is_some(), |of| vec![of.at.clone()]),
        conditional::<ReplaceRegexp>(pipe, |of| of.condition.is_some(), |of| vec![of.at.clone()]),
        conditional::<CollapseNums>(pipe, |of| of.condition.is_some(), |of| vec![of.at.clone()]),
        conditional::<Decolorize>(pipe, |of| of.condition.is_some(), |of| vec![of.at.clone()]),
        conditional::<UnpackWords>(pipe, |of| of.condition.is_some(), |of| vec![of.to.clone()]),
        conditional::<Unroll>(pipe, |of| of.condition.is_some(), |of| of.fields.clone()),
        conditional::<UnpackNamed>(pipe, |of| of.unpack.condition.is_some(), |of| unpacked(&of.unpack)),
        conditional::<UnpackSyslog>(pipe, |of| of.unpack.condition.is_some(), |of| unpacked(&of.unpack)),
    ];
    all.into_iter().flatten().flatten().collect()
}

/// What a pipe of this type makes, if it has a condition.
fn conditional<P: 'static>(
    pipe: &Pipe,
    has_condition: fn(&P) -> bool,
    made: impl FnOnce(&P) -> Vec<String>,
) -> Option<Vec<String>> {
    pipe.downcast_ref::<P>().filter(|of| has_condition(of)).map(made)
}
