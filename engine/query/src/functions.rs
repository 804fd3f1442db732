//! Functions of SQL and analytics besides DataFusion's own (contract P9): our functions, one file each, and
//! DataFusion's under additional names that users expect.

mod addresses;
mod age;
mod approximate;
mod array_containment;
mod array_position;
mod attr;
mod averages;
mod bits;
mod bounded;
mod bucket_quantile;
mod bytes;
mod checked_numbers;
mod collecting_aggregates;
mod concat_operator;
mod database_statements;
mod date_bin;
mod date_trunc;
pub(crate) mod decimals;
mod degrees;
mod delegated_head;
mod digest_sizes;
mod digests;
mod distinct;
mod divisor;
mod empty_list;
mod epoch_seconds;
mod exact_doubles;
mod expression_results;
mod format;
mod fractional_sums;
mod frame_exclusion;
mod gauges;
pub(crate) mod intervals;
mod json;
mod json_build;
mod json_edit;
mod json_elements;
mod json_lists;
mod json_paths;
mod json_values;
mod justify;
mod keywords;
mod level_slices;
mod list_slices;
mod list_texts;
mod make_date;
mod map_entries;
mod maps;
mod mode;
mod moments;
mod named_items;
mod named_types;
mod nullable;
mod number_format;
mod number_orders;
mod numbers;
mod operator_names;
mod overlaps;
pub(crate) mod plain_digits;
mod process_runs;
mod quantile;
mod quoting;
mod rate;
mod recursive_value;
mod regex_functions;
mod regex_matches;
mod regex_replace_from;
mod result_memory;
mod result_size;
mod rounding_casts;
mod row_bound;
mod row_builder;
mod row_format;
mod scales;
mod series_state;
mod single_value;
mod sizes;
mod sketches;
mod spans;
mod stack_traces;
mod substring;
mod sums;
mod text_functions;
pub(crate) mod text_output;
mod text_views;
mod time_format;
mod time_of_day;
mod time_parts;
mod trace_trees;
mod typeof_value;
pub(crate) mod untyped_literal;
mod window_functions;
pub(crate) mod wrappers;
mod zones;

use std::sync::Arc;

use datafusion::error::Result;
use datafusion::execution::session_state::SessionState;
use datafusion::functions::math::signum;
use datafusion::functions::regex::regexp_like;
use datafusion::functions::string::uuid;
use datafusion::functions_aggregate::bool_and_or::bool_and_udaf;
use datafusion::functions_aggregate::variance::var_samp_udaf;
use datafusion::logical_expr::registry::FunctionRegistry as _;
use datafusion::logical_expr::{AggregateUDF, ScalarUDF};

pub(crate) use bounded::{PlanOptions, planning};
pub use decimals::{is_open_numeric, needed_digits};
pub(crate) use distinct::{COUNT_DISTINCT, counts, function as count_distinct};
pub use exact_doubles::exact_doubles;
pub(crate) use expression_results::{counted, is_long};
pub(crate) use frame_exclusion::{Exclusion, exclusion, is_mark};
pub use json::{field as json_field, is_document, is_json, tree_bytes as json_tree_bytes};
pub(crate) use json::{get as json_get, is_json_list};
pub use keywords::KEYWORDS;
pub(crate) use list_texts::function as text_list;
pub use list_texts::items as list_items;
pub(crate) use maps::are_texts as are_map_texts;
pub(crate) use operator_names::{operation, sign, typed_as};
pub use plain_digits::without_exponent;
pub use quantile::quantile;
pub(crate) use quantile::quantile_list::quantiles;
pub use recursive_value::RECURSIVE_VALUE;
pub(crate) use result_memory::COUNTED as CONSTANT_CALL_MAX;
pub(crate) use result_memory::Room;
pub(crate) use result_size::{bytes_of, widths_of as widths};
pub(crate) use sums::{function as sum, is_summed};
use text_functions::Gives;
pub use text_output::interval_texts;
#[cfg(test)]
pub(crate) use trace_trees::functions as span_aggregates;
pub(crate) use trace_trees::{UNPACKED_ROWS, is_unpacking, packed_spans, unpacking};

/// The functions for the documentation: how each is called, and what it gives.
pub const FUNCTIONS: &[(&str, &str)] = &[
    ("attr(map, key)", "the value of a key of a map as text; NULL where there is none"),
    ("time_bucket(interval, time)", "the beginning of the interval since 1970 that a time lies in"),
    ("age(to, from)", "years, months, days and time between two times; `age(from)`: till today"),
    ("re_match(text, pattern)", "whether a regular expression is found in a text"),
    ("quantile(x, q)", "the q-quantile of all values, interpolated between two of them"),
    ("quantile_approx(x, q)", "the same by a t-digest, in bounded memory"),
    ("count_distinct_approx(x)", "the number of different values by HyperLogLog"),
    ("count_distinct(x)", "the number of different values; `count(DISTINCT x)` becomes it"),
    ("gauge_avg(series_id, time, value)", "the mean over series of the mean of their samples"),
    ("gauge_sum(series_id, time, value)", "the sum over series of the mean of their samples"),
    ("gauge_first(series_id, time, value)", "the sum over series of their first sample"),
    ("gauge_last(series_id, time, value)", "the sum over series of their last sample"),
    ("rate(value, time)", "how much counters rise a second, each series for itself, resets told; the sum over series"),
    ("mode(x)", "the value that is there most often; `mode() WITHIN GROUP (ORDER BY x)` is the same"),
    ("query_hash(t)", "hash of a statement with literals, lists and placeholders folded"),
    ("summarise(t)", "operation and tables of a statement"),
    ("path_of(u)", "the path of an address"),
    ("host_of(u)", "the host of an address"),
    ("registered_domain(h)", "the domain of a host that was registered, by the public suffix list"),
    ("fold_ids(p)", "a path whose numbers, UUIDs and long tokens are `{}`"),
    ("fold_text(t)", "a message whose numbers, identifiers and quoted texts are `?`"),
    ("app_frames(s)", "frames of a stack trace outside of runtimes and libraries, the innermost first"),
    ("top_app_frame(s)", "the innermost of them"),
    ("first_frame_file(s)", "the file of the innermost frame"),
    ("fingerprint(type, frames)", "hash of an error"),
    ("first_event(events, key)", "attribute of a span's first event that is named `exception`"),
    ("sample_weight(trace_state)", "how many spans one stands for, by the sampling threshold of its trace state"),
    ("gen_random_uuid()", "a random UUID; `uuid()` is the same"),
    ("quote_ident(text)", "a text as the name of a table or column in a statement, in quotes where it needs them"),
    ("quote_literal(text)", "a text as a literal of a statement"),
    ("md5(text)", "the MD5 hash of a text, or of bytes, in hexadecimal digits"),
    ("sha256(bytes)", "the SHA-256 hash of bytes, or of a text; `sha224`, `sha384`, `sha512`"),
    (
        "get_byte(bytes, at)",
        "a byte as a number, from 0; `get_bit` a bit; `set_byte(bytes, at, n)` and `set_bit` change one",
    ),
    ("bit_count(bytes)", "how many bits of bytes are set"),
    ("convert_to(text, encoding)", "a text as bytes of `UTF8` or `LATIN1`; `convert_from(bytes, encoding)` reads them"),
    ("pg_size_pretty(bytes)", "a number of bytes in kB, MB, GB, TB or PB"),
    ("pg_size_bytes(text)", "the number of bytes that a text such as `1.5 GB` says"),
    (
        "json_get(text, key)",
        "a member of an object, or an item of an array from 0, as JSON; `text::json -> key` is the same",
    ),
    ("json_get_text(text, key)", "the same as text, without quotes: `text::json ->> key`"),
    ("json_get_path(text, path)", "what a path such as `{a,0}` leads to, as JSON: `text::json #> path`"),
    ("json_get_path_text(text, path)", "the same as text: `text::json #>> path`"),
    ("json_extract(text, path)", "what a key, an index or a path such as `$.a[0]` leads to, as JSON"),
    ("json_extract_string(text, path)", "the same as text"),
    ("json_array_length(text)", "how many items a JSON array has"),
    ("json_typeof(text)", "`object`, `array`, `string`, `number`, `boolean` or `null`; NULL where a text is no JSON"),
    ("json_items(text)", "the items of a JSON array as a list; `json_array_elements` gives them as rows"),
    ("json_items_text(text)", "the same as texts, without quotes: `json_array_elements_text`"),
    ("json_keys(text)", "the names of the members of a JSON object as a list: `json_object_keys`"),
    ("to_json(x)", "a value as JSON; `to_jsonb` with members in order, as all with `jsonb` in their names"),
    ("row_to_json(t)", "the columns of a table or subquery as a JSON object, as `to_json(t)`"),
    ("json_build_object(key, value, …)", "a JSON object of names and values; `jsonb_build_object`"),
    (
        "json_object(list)",
        "a JSON object of texts, names and values by turns or in two lists: `json_object(names, values)`; `jsonb_object`",
    ),
    ("json_build_array(value, …)", "a JSON array of values; `jsonb_build_array`"),
    ("json_agg(x)", "a JSON array of the values of all rows, or of the rows: `json_agg(t)`; `jsonb_agg`"),
    ("json_object_agg(key, value)", "a JSON object of all rows; `jsonb_object_agg`"),
    (
        "jsonb_set(text, path, value, create)",
        "JSON with a value at a path; `jsonb_insert(text, path, value, after)` puts it beside what is there",
    ),
    (
        "jsonb_concat(text, other)",
        "members of two objects, or items of two arrays: `text::jsonb || other`; `text::jsonb - key` and `#- path` leave some out",
    ),
    ("jsonb_strip_nulls(text)", "JSON without members that are null; `json_strip_nulls` keeps it as written otherwise"),
    ("jsonb_pretty(text)", "JSON in lines, four blanks before each for every level"),
    ("json_has(text, key)", "whether a JSON object has a member, an array a text: `text::jsonb ? key`"),
    ("json_contains(text, other)", "whether a JSON document has all of another one: `text::jsonb @> other`"),
    (
        "jsonb_path_exists(text, path)",
        "whether a path such as `$.a[*] ? (@.b > 1)` leads to something: `text::jsonb @? path`",
    ),
    ("jsonb_path_match(text, path)", "whether what a path such as `$.a == 1` says is so: `text::jsonb @@ path`"),
    ("jsonb_path_query_first(text, path)", "the first item that a path leads to; `jsonb_path_query` gives all as rows"),
    ("jsonb_path_query_array(text, path)", "all of them as a JSON array; `jsonb_path_items` as a list"),
    (
        "regexp_split_to_array(text, pattern, flags)",
        "the pieces between what is found; `regexp_split_to_table`: as rows",
    ),
    ("regexp_groups(text, pattern, flags)", "a list of the groups of each place; `regexp_matches`: as rows"),
    (
        "regexp_substr(text, pattern, from, which, flags, group)",
        "what is found; `from` counts letters from 1, `which` places",
    ),
    ("format(pattern, values, …)", "a text with values in it: `%s`, `%I` as a name, `%L` as a literal, `%2$-10s`"),
    ("justify_hours(interval)", "24 hours become a day"),
    ("justify_days(interval)", "30 days become a month"),
    ("justify_interval(interval)", "both, and all parts have one sign"),
    (
        "scale(x)",
        "digits behind the point; `min_scale` without zeros at the end, `trim_scale` the number without these",
    ),
    ("div(x, y)", "the quotient without its fraction"),
    ("sind(x)", "the sine of degrees; `cosd`, `tand`, `cotd`, and back `asind`, `acosd`, `atand`, `atan2d(y, x)`"),
    (
        "width_bucket(x, low, high, n)",
        "which of n buckets between two ends a number falls into; 0 before, n + 1 behind",
    ),
    (
        "to_number(text, pattern)",
        "the number that a text holds, such as `1,234.5` by `9G999D9`; `to_char` writes numbers so",
    ),
    ("pg_typeof(x)", "the type of a value as PostgreSQL calls it"),
    ("sign(x)", "-1, 0 or 1, as a number is below, at or above zero; `signum` is the same"),
    ("every(x)", "whether a condition holds for all values; `bool_and` is the same"),
    ("variance(x)", "the variance of a sample; `var_samp` is the same"),
    ("severity_bucket(n, text)", "`trace`, `debug`, `info`, `warn`, `error` or `fatal` of a log record"),
    (
        "span_tree(id, parent, kind, service, name, start, end, is_error, mark)",
        "of each span of a trace its caller, entry and self time",
    ),
    ("process_runs(definition, now, events)", "instances of a business process that one value went through"),
    ("trace_shape(id, parent, kind, service, name, start, end, is_error, mark)", "a trace as a whole"),
    (
        "critical_path(id, parent, kind, service, name, start, end, is_error, mark)",
        "the spans for which the end of a trace's root waits, and how long for each",
    ),
    ("max_overlap(from, to)", "how many intervals between two numbers are open at one time, at most"),
    ("bucket_quantile(q, le, increase)", "a quantile of a histogram whose buckets are series, as `histogram_quantile`"),
];

/// Functions on texts; each file holds one idea.
const OF_TEXTS: &[(&str, usize, Gives)] = &[
    ("query_hash", 1, Gives::Text(database_statements::query_hash)),
    ("summarise", 1, Gives::Text(database_statements::summarise)),
    ("path_of", 1, Gives::Text(addresses::path_of)),
    ("host_of", 1, Gives::Text(addresses::host_of)),
    ("registered_domain", 1, Gives::Text(addresses::registered_domain)),
    ("fold_ids", 1, Gives::Text(addresses::fold_ids)),
    ("fold_text", 1, Gives::Text(stack_traces::fold_text)),
    ("app_frames", 1, Gives::Text(stack_traces::app_frames)),
    ("top_app_frame", 1, Gives::Text(stack_traces::top_app_frame)),
    ("first_frame_file", 1, Gives::Text(stack_traces::first_frame_file)),
    ("fingerprint", 2, Gives::Text(stack_traces::fingerprint)),
    ("sample_weight", 1, Gives::Number(spans::sample_weight)),
    ("severity_bucket", 2, Gives::Text(spans::severity_bucket)),
    ("quote_ident", 1, Gives::Text(quoting::quote_ident)),
    ("quote_literal", 1, Gives::Text(quoting::quote_literal)),
];

/// The function of that name that makes, changes or looks into documents.
pub(crate) fn of_documents(name: &str, room: &Room) -> Option<Arc<ScalarUDF>> {
    let mut all = json_build::functions(room).chain(json_edit::functions(room)).chain(json_elements::functions(room));
    all.find(|function| function.name() == name)
}

/// Adds the functions to a session; the memory of their results is taken from `room`.
///
/// # Errors
/// Those of the registry.
pub(crate) fn register(state: &mut SessionState, room: &Room) -> Result<()> {
    let scalar = |function: &ScalarUDF, name: &'static str| Arc::new(function.clone().with_aliases([name]));
    let aggregate = |function: &AggregateUDF, name: &'static str| Arc::new(function.clone().with_aliases([name]));
    bounded::bound(state, room)?;
    number_orders::register(state)?;
    bytes::register(state)?;
    collecting_aggregates::register(state)?;
    state.register_udf(attr::function())?;
    state.register_udf(spans::first_event())?;
    state.register_udf(process_runs::function())?;
    for (name, arity, gives) in OF_TEXTS {
        state.register_udf(text_functions::function(name, *arity, *gives))?;
    }
    for function in json::functions() {
        state.register_udf(function)?;
    }
    for function in
        json_elements::functions(room).chain(json_build::functions(room)).chain(regex_matches::functions(room))
    {
        state.register_udf(function)?;
    }
    for function in json_edit::functions(room).chain(json_paths::functions(room)) {
        state.register_udf(function)?;
    }
    let part = state.udf("substr")?;
    state.register_udf(substring::function(part, room))?;
    for name in moments::NAMES {
        let of_texts = state.udf(name)?;
        state.register_udf(moments::function(of_texts))?;
    }
    for function in digests::functions().chain(sizes::functions()) {
        state.register_udf(function)?;
    }
    let numbers = numbers::functions().chain(scales::functions());
    for function in justify::functions().chain(numbers).chain(number_format::functions(room)) {
        state.register_udf(function)?;
    }
    for function in trace_trees::functions().into_iter().chain(gauges::functions()).chain(bits::functions()) {
        state.register_udaf(function)?;
    }
    for function in checked_numbers::functions().into_iter().chain(degrees::functions()) {
        state.register_udf(function)?;
    }
    for function in frame_exclusion::marks() {
        state.register_udf(function)?;
    }
    state.register_udaf(averages::function())?;
    for function in mode::functions() {
        state.register_udaf(function)?;
    }
    state.register_udaf(overlaps::function())?;
    state.register_udaf(bucket_quantile::function())?;
    state.register_udaf(rate::function())?;
    state.register_udaf(count_distinct())?;
    state.register_udf(scalar(&date_bin::function(), "time_bucket"))?;
    state.register_udf(scalar(&regexp_like(), "re_match"))?;
    state.register_udf(scalar(&uuid(), "gen_random_uuid"))?;
    state.register_udf(scalar(&signum(), "sign"))?;
    state.register_udaf(aggregate(&bool_and_udaf(), "every"))?;
    state.register_udaf(aggregate(&var_samp_udaf(), "variance"))?;
    state.register_udf(age::function())?;
    state.register_udf(divisor::function())?;
    state.register_udf(fractional_sums::function())?;
    state.register_udf(epoch_seconds::function())?;
    state.register_udf(time_of_day::function())?;
    state.register_udf(time_parts::function())?;
    state.register_udf(single_value::function())?;
    state.register_udf(nullable::function())?;
    state.register_udf(recursive_value::function())?;
    state.register_udf(row_bound::function())?;
    state.register_udf(regex_replace_from::function(room))?;
    state.register_udf(empty_list::function())?;
    state.register_udf(json_lists::function(room))?;
    state.register_udf(level_slices::function())?;
    state.register_udf(list_texts::function())?;
    state.register_udf(named_items::function())?;
    state.register_udf(map_entries::function())?;
    state.register_udf(untyped_literal::function())?;
    state.register_udf(format::function(room))?;
    state.register_udf(time_format::function(room))?;
    state.register_udf(row_format::function(room))?;
    state.register_udf(typeof_value::function())?;
    for function in named_types::functions() {
        state.register_udf(function)?;
    }
    state.register_udf(date_trunc::function())?;
    state.register_udf(make_date::function())?;
    state.register_udf(rounding_casts::function())?;
    state.register_udf(zones::function())?;
    state.register_udaf(quantile())?;
    state.register_udaf(quantiles())?;
    for function in digest_sizes::functions() {
        state.register_udaf(function)?;
    }
    state.register_udaf(approximate::function())?;
    for function in sketches::functions() {
        state.register_udaf(function)?;
    }
    Ok(())
}

#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
