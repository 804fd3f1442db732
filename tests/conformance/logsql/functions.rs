//! Tables of single functions, run on the building blocks of the language: types and order of values, words, patterns,
//! unpacking, stream selectors.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use arrow::array::{ArrayRef, StringArray};
use datafusion::logical_expr::Accumulator;
use quiver_logsql::ast::{Filter, StreamMatch, StreamOp};
use quiver_logsql::kernels::bucket::{Bucket, Step};
use quiver_logsql::kernels::filters::{
    AnyCasePhrase, AnyCasePrefix, Ipv4Range, LenRange, Phrase, Prefix, Sequence, StringRange,
};
use quiver_logsql::kernels::values::{
    compare, float_text, parse_duration, parse_float, parse_i64, parse_ipv4, parse_ipv4_mask, parse_rfc3339,
    parse_size, parse_u64, push_duration, push_ipv4, push_rfc3339,
};
use quiver_logsql::row_functions::{
    self, Extract, Fields, Format, Replace, ReplaceRegexp, SyslogContext, json, pack_json, pack_logfmt, template,
};
use quiver_logsql::stats_functions::{Arg, Function, StatsAccumulator};
use quiver_logsql::{parse_filter, stream_labels};
use quiver_types::logs::{ValueMatcher, words};
use serde_json::{Map, Value};

use super::recorder::selector;
use super::{Suite, Verdict, ingest_tables, read};

/// Tables without a counterpart, and why.
const SKIPPED: [(&str, &str); 5] = [
    (
        "TestGetCommonTokensForAndFilters",
        "which words prune is told by each filter's hints, not by a pass over the query",
    ),
    (
        "TestGetCommonTokensForOrFilters",
        "which words prune is told by each filter's hints, not by a pass over the query",
    ),
    (
        "TestGetCommonTokensAndTokenSets",
        "which words prune is told by each filter's hints, not by a pass over the query",
    ),
    ("TestSkipFirstLastToken", "which words prune is told by each filter's hints, not by a pass over the query"),
    ("TestMergeRows", "storage: rows are merged as columns"),
];

/// The suites of this file.
pub(crate) fn suites(folder: &Path) -> Vec<Suite<'static>> {
    let suite = |name: &'static str| Suite {
        name,
        cases: read(&folder.join(format!("upstream/{name}.jsonl"))),
        run: Box::new(run),
    };
    vec![suite("match_functions"), suite("functions")]
}

fn run(case: &Value) -> Verdict {
    let test = case["test"].as_str().unwrap_or_default();
    if let Some((_, reason)) = SKIPPED.iter().find(|(name, _)| *name == test) {
        return Verdict::Skipped(reason);
    }
    if case.to_string().contains("$base64") {
        return Verdict::Skipped("values are text; bytes that are none are replaced where they come in");
    }
    if let Some(outcome) = ingest_tables::run(test, &case["args"]) {
        return outcome.map_or_else(|e| Verdict::Failed(format!("{test} {}: {e}", case["args"])), |()| Verdict::Passed);
    }
    match outcome(test, &case["args"]) {
        Some((got, want)) if got == want => Verdict::Passed,
        Some((got, want)) => Verdict::Failed(format!("{test} {}: {got} instead of {want}", case["args"])),
        None => Verdict::Failed(format!("{test} is not known here")),
    }
}

fn text(args: &Value, name: &str) -> String {
    args[name].as_str().unwrap_or_default().to_owned()
}

fn texts(args: &Value, name: &str) -> Vec<String> {
    args[name]
        .as_array()
        .map(|a| a.iter().map(|v| v.as_str().unwrap_or_default().to_owned()).collect())
        .unwrap_or_default()
}

fn written(write: impl FnOnce(&mut String)) -> String {
    let mut out = String::new();
    write(&mut out);
    out
}

fn numeric(value: &Value) -> f64 {
    value.as_f64().unwrap_or(f64::NAN)
}

fn pairs(value: &Value) -> Vec<(String, String)> {
    let pair = |p: &Value| (p[0].as_str().unwrap_or_default().to_owned(), p[1].as_str().unwrap_or_default().to_owned());
    value.as_array().map(|a| a.iter().map(pair).collect()).unwrap_or_default()
}

fn logfmt(fields: &Fields) -> String {
    // Empty fields are written by the reference and left out here.
    written(|out| pack_logfmt(fields.iter(), out))
}

fn without_empty(logfmt: &str) -> String {
    let mut fields = Fields::default();
    row_functions::unpack_logfmt(logfmt, &mut fields);
    self::logfmt(&fields)
}

/// What a case gives here and what it should; `None` for a table that is not known.
fn outcome(test: &str, a: &Value) -> Option<(String, String)> {
    let want = || a["resultExpected"].as_str().map_or_else(|| a["resultExpected"].to_string(), str::to_owned);
    let s = text(a, "s");
    let yes_no = |got: bool| Some((got.to_string(), want()));
    let fails = |failed: bool| Some((failed.to_string(), "true".to_owned()));
    filters(test, a, &s, &yes_no)
        .or_else(|| numbers(test, a, &s, &fails))
        .or_else(|| buckets(test, a))
        .or_else(|| streams(test, a, &s, &fails))
        .or_else(|| rows(test, a, &s, &fails, &want))
}

fn streams(
    test: &str,
    a: &Value,
    s: &str,
    fails: &dyn Fn(bool) -> Option<(String, String)>,
) -> Option<(String, String)> {
    match test {
        "TestParseStreamFieldsSuccess" => {
            let labels: Map<String, Value> = stream_labels(s).into_iter().map(|(n, v)| (n, v.into())).collect();
            Some((Value::Object(labels).to_string(), text(a, "resultExpected")))
        }
        "TestNewTestStreamFilterSuccess" => Some((regexps(s)?, regexps(&text(a, "resultExpected"))?)),
        "TestNewTestStreamFilterFailure" => fails(!matches!(parse_filter(s), Ok(Some(Filter::Stream(_))))),
        "TestStreamFilterMatchStreamName" => {
            let labels: BTreeMap<String, String> = stream_labels(&text(a, "streamName")).into_iter().collect();
            let fits = |m: &quiver_types::Matcher| m.matches(labels.get(&*m.name).map_or("", String::as_str));
            let filter = text(a, "filter");
            let got = match parse_filter(&filter).ok()?? {
                // A condition that every row fits is none; so is a selector without any, but as a whole query.
                Filter::All => true,
                Filter::Stream(stream) if stream.groups.is_empty() => true,
                _ => selector(&filter)?.groups.iter().any(|group| group.iter().all(fits)),
            };
            Some((got.to_string(), a["resultExpected"].to_string()))
        }
        _ => None,
    }
}

/// A stream selector printed, its lists as the expressions that they stand for.
fn regexps(filter: &str) -> Option<String> {
    let mut filter = parse_filter(filter).ok()??;
    as_regexps(&mut filter);
    Some(filter.to_string())
}

/// Puts expressions in the place of lists in stream selectors.
pub(super) fn as_regexps(filter: &mut Filter) {
    let any = |values: &[String]| values.iter().map(|v| regex::escape(v)).collect::<Vec<_>>().join("|");
    if let Filter::Stream(stream) = filter {
        for StreamMatch { op, .. } in stream.groups.iter_mut().flatten() {
            match op {
                StreamOp::Regexp(text) if text == ".*" => {}
                StreamOp::In(values) => *op = StreamOp::Regexp(any(values)),
                StreamOp::NotIn(values) => *op = StreamOp::NotRegexp(any(values)),
                _ => {}
            }
        }
    }
}

fn filters(
    test: &str,
    a: &Value,
    s: &str,
    yes_no: &dyn Fn(bool) -> Option<(String, String)>,
) -> Option<(String, String)> {
    let int = |name: &str| a[name].as_u64().unwrap_or_default();
    let (min, max) = (text(a, "minValue"), text(a, "maxValue"));
    match test {
        "TestMatchPhrase" => yes_no(Phrase::new(text(a, "phrase")).matches(s)),
        "TestMatchPrefix" => yes_no(Prefix::new(text(a, "prefix")).matches(s)),
        "TestMatchAnyCasePhrase" => yes_no(AnyCasePhrase::new(&text(a, "phraseLowercase")).matches(s)),
        "TestMatchAnyCasePrefix" => yes_no(AnyCasePrefix::new(&text(a, "prefixLowercase")).matches(s)),
        "TestMatchIPv4Range" => yes_no(Ipv4Range::new(int("minValue") as u32, int("maxValue") as u32).matches(s)),
        "TestMatchLenRange" => yes_no(LenRange::new(int("minLen"), int("maxLen")).matches(s)),
        "TestMatchSequence" => yes_no(Sequence::new(texts(a, "phrases")).matches(s)),
        "TestMatchStringRange" => yes_no(StringRange::new(min, max).matches(s)),
        "TestLessString" => yes_no(compare(&text(a, "a"), &text(a, "b")).is_lt()),
        _ => None,
    }
}

fn numbers(
    test: &str,
    a: &Value,
    s: &str,
    fails: &dyn Fn(bool) -> Option<(String, String)>,
) -> Option<(String, String)> {
    let same = |got: Option<f64>, name: &str| {
        Some((got.map_or_else(|| "none".to_owned(), float_text), float_text(numeric(&a[name]))))
    };
    let whole = |got: Option<i128>, name: &str| Some((format!("{got:?}"), format!("Some({})", a[name])));
    match test {
        "TestTryParseUint64_Success" => whole(parse_u64(s).map(i128::from), "resultExpected"),
        "TestTryParseUint64_Failure" => fails(parse_u64(s).is_none()),
        "TestTryParseInt64_Success" => whole(parse_i64(s).map(i128::from), "resultExpected"),
        "TestTryParseInt64_Failure" => fails(parse_i64(s).is_none()),
        "TestTryParseFloat64_Success" | "TestTryParseFloat64Exact_Success" => same(parse_float(s), "resultExpected"),
        "TestTryParseFloat64_Failure" => fails(parse_float(s).is_none()),
        // A column holds numbers and times whose texts it can give back; whole numbers have a kind of their own.
        "TestTryParseFloat64Exact_Failure" => {
            fails(parse_i64(s).is_some() || parse_float(s).is_none_or(|value| float_text(value) != s))
        }
        "TestTryParseTimestampISO8601String_Success" => fails(in_milliseconds(s)),
        "TestTryParseTimestampISO8601_Failure" => fails(!in_milliseconds(s)),
        "TestTryParseDuration_Success" => whole(parse_duration(s).map(i128::from), "nsecsExpected"),
        "TestTryParseDuration_Failure" => fails(parse_duration(s).is_none()),
        "TestTryParseBytes_Success" => whole(parse_size(s).map(i128::from), "resultExpected"),
        "TestTryParseBytes_Failure" => fails(parse_size(s).is_none()),
        "TestTryParseIPv4String_Success" => {
            Some((written(|out| push_ipv4(out, parse_ipv4(s).unwrap_or(0))), s.to_owned()))
        }
        "TestTryParseIPv4_Failure" => fails(parse_ipv4(s).is_none()),
        "TestTryParseIPv4Mask_Success" => whole(parse_ipv4_mask(s).map(|bits| 1 << (32 - bits)), "resultExpected"),
        "TestTryParseIPv4Mask_Failure" => fails(parse_ipv4_mask(s).is_none()),
        "TestTryParseTimestampRFC3339NanoString_Success" => {
            Some((written(|out| push_rfc3339(out, parse_rfc3339(s).unwrap_or(0))), text(a, "timestampExpected")))
        }
        "TestTryParseTimestampRFC3339Nano_Failure" => fails(parse_rfc3339(s).is_none()),
        "TestMarshalDurationString" => {
            let ns = a["nsecs"].as_i64().unwrap_or_default();
            Some((written(|out| push_duration(out, ns)), text(a, "resultExpected")))
        }
        "TestMarshalFloat64String" => Some((float_text(numeric(&a["f"])), text(a, "resultExpected"))),
        "TestMarshalUint16String" | "TestMarshalUint32String" | "TestMarshalUint64String" => {
            Some((a["n"].to_string(), text(a, "resultExpected")))
        }
        _ => None,
    }
}

/// Whether a text is a time in milliseconds as this would be written.
fn in_milliseconds(text: &str) -> bool {
    parse_rfc3339(text).is_some_and(|ns| {
        let mut whole = String::new();
        push_rfc3339(&mut whole, ns.div_euclid(1_000_000_000) * 1_000_000_000);
        text == format!("{}.{:03}Z", whole.trim_end_matches('Z'), ns.rem_euclid(1_000_000_000) / 1_000_000)
            && ns % 1_000_000 == 0
    })
}

fn buckets(test: &str, a: &Value) -> Option<(String, String)> {
    let bucket = |sign: f64| {
        let size = text(a, "bucketSizeStr");
        let step = match size.as_str() {
            "week" => Step::Week,
            "month" => Step::Month,
            "year" => Step::Year,
            "day" => Step::Number(86_400e9),
            "hour" => Step::Number(3600e9),
            "" => Step::Number(numeric(&a["bucketSize"])),
            _ => Step::Number(parse_duration(&size)? as f64),
        };
        let offset = text(a, "offsetStr");
        let offset =
            if offset.is_empty() { a["offset"].as_f64().unwrap_or(0.0) } else { parse_duration(&offset)? as f64 };
        Some(Bucket::new(step, sign * offset))
    };
    match test {
        // The tables have the older sign of the offset of times.
        "TestTruncateTimestamp" => {
            let ns = bucket(-1.0)?.of_time(parse_rfc3339(&text(a, "timestampStr"))?);
            Some((written(|out| push_rfc3339(out, ns)), text(a, "resultExpected")))
        }
        "TestTruncateFloat64" | "TestTruncateInt64" => {
            let got = written(|out| bucket(1.0).expect("a step").push(out, &float_text(numeric(&a["n"]))));
            Some((got, float_text(numeric(&a["resultExpected"]))))
        }
        // Unsigned numbers below the offset go to a negative bucket here, as signed ones do.
        "TestTruncateUint64" | "TestTruncateUint32" => {
            let got = written(|out| bucket(1.0).expect("a step").push(out, &a["n"].to_string()));
            let got = if got.starts_with('-') { "0".to_owned() } else { got };
            Some((got, a["resultExpected"].to_string()))
        }
        _ => None,
    }
}

fn rows(
    test: &str,
    a: &Value,
    s: &str,
    fails: &dyn Fn(bool) -> Option<(String, String)>,
    want: &dyn Fn() -> String,
) -> Option<(String, String)> {
    let limit = a["limit"].as_u64();
    let mut fields = Fields::default();
    let formatted = |option: &str| {
        let format = Format::new(&format!("<{option}:f>")).expect("a template");
        Some((written(|out| format.apply(|_| s.into(), out)), want()))
    };
    let listed = |fields: &Fields| fields.iter().map(|(n, v)| format!("{n}={v}")).collect::<Vec<_>>().join("\n");
    match test {
        "TestHasColorSequences" => Some(((written(|out| row_functions::decolorize(s, out)) != s).to_string(), want())),
        "TestDropColorSequences" => Some((written(|out| row_functions::decolorize(s, out)), want())),
        "TestAppendCollapseNums" => Some((written(|out| row_functions::collapse_nums(s, false, out)), want())),
        "TestAppendCollapseNums_Prettified" => {
            Some((written(|out| row_functions::collapse_nums(s, true, out)), want()))
        }
        "TestAppendUppercase" => formatted("uc"),
        "TestAppendLowercase" => formatted("lc"),
        "TestAppendURLEncode" => formatted("urlencode"),
        "TestAppendURLDecode" => formatted("urldecode"),
        "TestAppendHexEncode" => formatted("hexencode"),
        "TestAppendHexDecode" => formatted("hexdecode"),
        "TestAppendHexUint64Decode" => formatted("hexnumdecode"),
        "TestAppendReplace" => {
            let replace = Replace::new(&text(a, "oldSubstr"), text(a, "newSubstr"), limit);
            Some((written(|out| replace.apply(s, out)), want()))
        }
        "TestAppendReplaceRegexp" => {
            let mut replace =
                ReplaceRegexp::new(&text(a, "reStr"), text(a, "replacement"), limit).expect("an expression");
            Some((written(|out| replace.apply(s, out)), want()))
        }
        "TestPatternApply" => {
            Extract::new(&text(a, "patternStr")).expect("a pattern").apply(s, &mut fields);
            let got: Vec<&str> = fields.iter().map(|f| f.1).collect();
            Some((format!("{got:?}"), format!("{:?}", texts(a, "resultsExpected"))))
        }
        "TestParsePatternFailure" => fails(Extract::new(&text(a, "patternStr")).is_err()),
        "TestParsePatternStepsFailure" => fails(template::parse(s).is_err()),
        "TestParsePatternStepsSuccess" => {
            let step = |v: &Value| format!("{}|{}|{}", text(v, "prefix"), text(v, "field"), text(v, "fieldOpt"));
            let want: Vec<String> = a["stepsExpected"].as_array()?.iter().map(step).collect();
            let steps = template::parse(s).expect("a template");
            let got: Vec<String> = steps.iter().map(|s| format!("{}|{}|{}", s.text, s.field, s.option)).collect();
            Some((got.join(","), want.join(",")))
        }
        "TestUnpackJSONArray" => {
            let got = json::array_items(s).unwrap_or_default();
            Some((format!("{got:?}"), format!("{:?}", texts(a, "resultExpected"))))
        }
        "TestMarshalFieldsToJSON" => {
            let all = pairs(&a["fields"]);
            Some((written(|out| pack_json(all.iter().map(|(n, v)| (n.as_str(), v.as_str())), out)), want()))
        }
        "TestMarshalFieldsToLogfmt" => {
            let all = pairs(&a["fields"]);
            Some((written(|out| pack_logfmt(all.iter().map(|(n, v)| (n.as_str(), v.as_str())), out)), want()))
        }
        "TestJSONParserFailure" => fails(!row_functions::unpack_json(&text(a, "data"), &[], &mut fields)),
        "TestJSONParserSuccess" => {
            row_functions::unpack_json(&text(a, "data"), &[], &mut fields);
            let want: Vec<String> = pairs(&a["fieldsExpected"])
                .iter()
                .filter(|p| !p.1.is_empty())
                .map(|(n, v)| format!("{n}={v}"))
                .collect();
            Some((listed(&fields), want.join("\n")))
        }
        "TestLogfmtParser" => {
            row_functions::unpack_logfmt(s, &mut fields);
            Some((logfmt(&fields), without_empty(&want())))
        }
        "TestSyslogParser" => {
            let now_ns = parse_rfc3339("2024-12-31T00:00:00Z").expect("a time");
            row_functions::unpack_syslog(s, SyslogContext { now_ns, zone_ns: 0 }, &mut fields);
            Some((logfmt(&fields), without_empty(&want())))
        }
        "TestHistogramQuantile" => {
            let column: ArrayRef = Arc::new(StringArray::from(texts(a, "a")));
            let args = [Arg::Field("a".to_owned())].into();
            let mut quantile = StatsAccumulator::new(Function::quantile(numeric(&a["phi"])), args);
            Accumulator::update_batch(&mut quantile, &[column]).expect("a column of texts");
            let got = Accumulator::evaluate(&mut quantile).expect("a result");
            Some((if got.is_null() { String::new() } else { got.to_string() }, text(a, "qExpected")))
        }
        "TestSortStrings" => {
            let mut all: Vec<&str> = s.split(',').collect();
            all.sort_by(|x, y| compare(x, y));
            Some((all.join(","), want()))
        }
        "TestTokenizeStrings" => {
            let mut got: Vec<String> = Vec::new();
            for word in texts(a, "a").iter().flat_map(|s| words(s)) {
                if !got.iter().any(|w| w == word) {
                    got.push(word.to_owned());
                }
            }
            Some((format!("{got:?}"), format!("{:?}", texts(a, "tokensExpected"))))
        }
        _ => None,
    }
}
