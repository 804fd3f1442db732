//! `process_runs(definition, now, events)`: the instances of a business process for one correlation value (`config-api`
//! 3.4).
//!
//! `definition` is a JSON text with the timeout and the steps. `now` and all times are ns since 1970. `events` is a
//! list of structs `{time, step, trace_id, service, is_error, user_id, value, session_id}` in any order, where `step`
//! is the position of the step that was seen. The result is a list, because after an instance has ended the first step
//! begins another one. The `value` and `session_id` of an instance are the last ones that its events have.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, BooleanBuilder, Float64Builder, Int64Array, Int64Builder, ListArray, StringViewBuilder,
    StructArray,
};
use arrow::buffer::OffsetBuffer;
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, Fields, Float64Type, Int64Type};
use datafusion::common::{exec_err, plan_err};
use datafusion::error::Result;
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility};
use serde_json::Value;

const MS: i64 = 1_000_000;

/// What a process asks of its steps.
#[derive(Debug, Clone, PartialEq)]
struct Definition {
    timeout: i64,
    steps: Vec<Step>,
}

#[derive(Debug, Clone, PartialEq)]
struct Step {
    optional: bool,
    outcome: Outcome,
    max_gap: Option<i64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    None,
    Success,
    Failure,
}

impl Definition {
    fn read(text: &str) -> Option<Self> {
        let value: Value = serde_json::from_str(text).ok()?;
        let step = |step: &Value| Step {
            optional: step["optional"] == Value::Bool(true),
            outcome: match step["outcome"].as_str() {
                Some("success") => Outcome::Success,
                Some("failure") => Outcome::Failure,
                _ => Outcome::None,
            },
            max_gap: step["maxGapMs"].as_i64().map(|ms| ms.saturating_mul(MS)),
        };
        Some(Self {
            timeout: value["timeoutMs"].as_i64()?.saturating_mul(MS),
            steps: value["steps"].as_array()?.iter().map(step).collect(),
        })
    }

    /// Whether an instance that reached a step may be followed by another step next.
    fn may_follow(&self, reached: usize, next: usize) -> bool {
        next > reached && next < self.steps.len() && self.steps[reached + 1..next].iter().all(|step| step.optional)
    }

    /// Whether nothing that must be reached stands behind a step.
    fn is_last(&self, step: usize) -> bool {
        self.steps[step + 1..].iter().all(|step| step.optional)
    }
}

/// Something that was seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct StepEvent {
    time: i64,
    step: usize,
    /// Its place in the list.
    row: usize,
}

/// One way of a value through the process: its state, and the steps that it reached in order.
#[derive(Debug, Clone, PartialEq, Eq)]
struct ProcessInstance {
    state: &'static str,
    reached: Vec<StepEvent>,
}

/// Follows events through the steps.
fn runs(definition: &Definition, now: i64, mut events: Vec<StepEvent>) -> Vec<ProcessInstance> {
    events.sort_unstable();
    let mut all = Vec::new();
    let mut open: Vec<StepEvent> = Vec::new();
    let mut is_complete = false;
    for event in events {
        if let Some(last) = open.last().copied() {
            if event.time.saturating_sub(last.time) > definition.timeout {
                let state = if is_complete { "completed" } else { "abandoned" };
                all.push(ProcessInstance { state, reached: std::mem::take(&mut open) });
            } else if is_complete && event.step == 0 {
                all.push(ProcessInstance { state: "completed", reached: std::mem::take(&mut open) });
            } else {
                let step = &definition.steps[event.step.min(definition.steps.len() - 1)];
                let in_time = step.max_gap.is_none_or(|max| event.time.saturating_sub(last.time) <= max);
                if !in_time || !definition.may_follow(last.step, event.step) {
                    continue;
                }
                open.push(event);
                is_complete |= definition.is_last(event.step);
                let end = match step.outcome {
                    Outcome::Failure => Some("failed"),
                    Outcome::Success => Some("completed"),
                    Outcome::None => (event.step + 1 == definition.steps.len()).then_some("completed"),
                };
                if let Some(state) = end {
                    all.push(ProcessInstance { state, reached: std::mem::take(&mut open) });
                }
                continue;
            }
        }
        is_complete = false;
        if event.step == 0 {
            open.push(event);
            is_complete = definition.is_last(0);
        }
    }
    if let Some(last) = open.last() {
        let state = match (is_complete, now.saturating_sub(last.time) > definition.timeout) {
            (true, _) => "completed",
            (false, true) => "abandoned",
            (false, false) => "running",
        };
        all.push(ProcessInstance { state, reached: open });
    }
    all
}

fn text(name: &str) -> Field {
    Field::new(name, DataType::Utf8View, true)
}

fn number(name: &str) -> Field {
    Field::new(name, DataType::Int64, true)
}

fn list(of: Fields) -> DataType {
    DataType::List(Arc::new(Field::new("item", DataType::Struct(of), true)))
}

fn event_fields() -> Fields {
    Fields::from(vec![
        number("time"),
        number("step"),
        text("trace_id"),
        text("service"),
        Field::new("is_error", DataType::Boolean, true),
        text("user_id"),
        Field::new("value", DataType::Float64, true),
        text("session_id"),
    ])
}

fn reached_fields() -> Fields {
    Fields::from(vec![
        number("position"),
        number("time"),
        number("gap"),
        text("trace_id"),
        text("service"),
        Field::new("is_error", DataType::Boolean, true),
    ])
}

fn run_fields() -> Fields {
    Fields::from(vec![
        number("number"),
        text("state"),
        number("start"),
        number("end"),
        number("last_position"),
        text("service"),
        text("user_id"),
        Field::new("value", DataType::Float64, true),
        text("session_id"),
        Field::new("steps", list(reached_fields()), true),
    ])
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct ProcessRuns {
    signature: Signature,
}

pub(super) fn function() -> Arc<ScalarUDF> {
    Arc::new(ScalarUDF::from(ProcessRuns { signature: Signature::user_defined(Volatility::Immutable) }))
}

impl ScalarUDFImpl for ProcessRuns {
    fn name(&self) -> &'static str {
        "process_runs"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        if let [_, _, DataType::List(_)] = types {
            Ok(vec![DataType::Utf8, DataType::Int64, list(event_fields())])
        } else {
            plan_err!("`process_runs` is called as `process_runs(definition, now, events)`")
        }
    }

    fn return_type(&self, _types: &[DataType]) -> Result<DataType> {
        Ok(list(run_fields()))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let rows = args.number_rows;
        let [definitions, now, events] = args.args.as_slice() else {
            return exec_err!("`process_runs` is called as `process_runs(definition, now, events)`");
        };
        let definitions = cast(&definitions.to_array(rows)?, &DataType::Utf8)?;
        let now = cast(&now.to_array(rows)?, &DataType::Int64)?;
        let events = cast(&events.to_array(rows)?, &list(event_fields()))?;
        let mut out = InstanceColumns::default();
        let mut known: Option<(String, Definition)> = None;
        for row in 0..rows {
            let text = definitions.as_string::<i32>().value(row);
            if known.as_ref().is_none_or(|(of, _)| of != text) {
                let Some(read) = Definition::read(text).filter(|d| !d.steps.is_empty()) else {
                    return exec_err!("`process_runs` reads a definition as JSON");
                };
                known = Some((text.to_owned(), read));
            }
            let Some((_, definition)) = &known else { continue };
            let (list, now) = (events.as_list::<i32>(), now.as_primitive::<Int64Type>().value(row));
            if list.is_valid(row) {
                out.row(definition, now, &list.value(row));
            }
            out.ends.push(out.numbers.len());
        }
        out.finish().map(ColumnarValue::Array)
    }
}

#[derive(Default)]
struct InstanceColumns {
    ends: Vec<usize>,
    numbers: Vec<i64>,
    states: StringViewBuilder,
    starts: Int64Builder,
    finishes: Int64Builder,
    last: Int64Builder,
    services: StringViewBuilder,
    users: StringViewBuilder,
    values: Float64Builder,
    sessions: StringViewBuilder,
    step_ends: Vec<usize>,
    positions: Vec<i64>,
    times: Int64Builder,
    gaps: Int64Builder,
    traces: StringViewBuilder,
    step_services: StringViewBuilder,
    errors: BooleanBuilder,
}

impl InstanceColumns {
    fn row(&mut self, definition: &Definition, now: i64, events: &ArrayRef) {
        let events = events.as_struct();
        let numbers = |at: usize| events.column(at).as_primitive::<Int64Type>();
        let texts = |at: usize| events.column(at).as_string_view();
        let values = events.column(6).as_primitive::<Float64Type>();
        let (times, steps): (&Int64Array, &Int64Array) = (numbers(0), numbers(1));
        let seen = (0..events.len()).filter(|&row| times.is_valid(row) && steps.is_valid(row)).filter_map(|row| {
            let step = usize::try_from(steps.value(row)).ok().filter(|step| *step < definition.steps.len())?;
            Some(StepEvent { time: times.value(row), step, row })
        });
        let option = |texts: &'_ arrow::array::StringViewArray, row: usize| {
            texts.is_valid(row).then(|| texts.value(row).to_owned())
        };
        for (number, run) in runs(definition, now, seen.collect()).into_iter().enumerate() {
            let (Some(first), Some(last)) = (run.reached.first(), run.reached.last()) else { continue };
            self.numbers.push(number as i64);
            self.states.append_value(run.state);
            self.starts.append_value(first.time);
            self.finishes.append_value(last.time);
            self.last.append_value(last.step as i64);
            self.services.append_option(option(texts(3), first.row));
            self.users.append_option(run.reached.iter().find_map(|seen| option(texts(5), seen.row)));
            let told = run.reached.iter().rev().find(|seen| values.is_valid(seen.row));
            self.values.append_option(told.map(|seen| values.value(seen.row)));
            self.sessions.append_option(run.reached.iter().rev().find_map(|seen| option(texts(7), seen.row)));
            let mut before = None;
            for seen in &run.reached {
                self.positions.push(seen.step as i64);
                self.times.append_value(seen.time);
                self.gaps.append_option(before.map(|before| seen.time.saturating_sub(before)));
                self.traces.append_option(option(texts(2), seen.row));
                self.step_services.append_option(option(texts(3), seen.row));
                let errors = events.column(4).as_boolean();
                self.errors.append_option(errors.is_valid(seen.row).then(|| errors.value(seen.row)));
                before = Some(seen.time);
            }
            self.step_ends.push(self.positions.len());
        }
    }

    fn finish(mut self) -> Result<ArrayRef> {
        let steps = StructArray::try_new(
            reached_fields(),
            vec![
                Arc::new(Int64Array::from(std::mem::take(&mut self.positions))),
                Arc::new(self.times.finish()),
                Arc::new(self.gaps.finish()),
                Arc::new(self.traces.finish()),
                Arc::new(self.step_services.finish()),
                Arc::new(self.errors.finish()),
            ],
            None,
        )?;
        let steps = into_list(reached_fields(), &self.step_ends, steps)?;
        let runs = StructArray::try_new(
            run_fields(),
            vec![
                Arc::new(Int64Array::from(std::mem::take(&mut self.numbers))),
                Arc::new(self.states.finish()),
                Arc::new(self.starts.finish()),
                Arc::new(self.finishes.finish()),
                Arc::new(self.last.finish()),
                Arc::new(self.services.finish()),
                Arc::new(self.users.finish()),
                Arc::new(self.values.finish()),
                Arc::new(self.sessions.finish()),
                Arc::new(steps),
            ],
            None,
        )?;
        Ok(Arc::new(into_list(run_fields(), &self.ends, runs)?))
    }
}

fn into_list(of: Fields, ends: &[usize], values: StructArray) -> Result<ListArray> {
    let lengths = ends.iter().scan(0, |before, end| Some(end - std::mem::replace(before, *end)));
    let item = Arc::new(Field::new("item", DataType::Struct(of), true));
    Ok(ListArray::try_new(item, OffsetBuffer::from_lengths(lengths), Arc::new(values), None)?)
}

#[cfg(test)]
mod tests {
    use arrow::array::{BooleanArray, Float64Array, StringViewArray};
    use datafusion::common::ScalarValue;

    use super::super::testing::{call, column, text};
    use super::*;

    fn definition(steps: &str) -> Definition {
        Definition::read(&format!(r#"{{"timeoutMs":100,"steps":[{steps}]}}"#)).unwrap()
    }

    /// Events as (time in ms, step).
    fn check(definition: &Definition, now: i64, events: &[(i64, usize)], expected: &[(&str, &[usize])]) {
        let seen = events.iter().enumerate().map(|(row, (ms, step))| StepEvent { time: ms * MS, step: *step, row });
        let found = runs(definition, now * MS, seen.collect());
        let found: Vec<(&str, Vec<usize>)> =
            found.iter().map(|r| (r.state, r.reached.iter().map(|s| s.step).collect())).collect();
        let expected: Vec<(&str, Vec<usize>)> = expected.iter().map(|(s, r)| (*s, r.to_vec())).collect();
        assert_eq!(found, expected, "{events:?}");
    }

    #[test]
    fn instances() {
        let plain = definition("{},{},{}");
        check(&plain, 1000, &[(2, 1), (1, 0), (3, 2)], &[("completed", &[0, 1, 2])]);
        check(&plain, 1000, &[(1, 0), (3, 2)], &[("abandoned", &[0])]);
        check(&plain, 50, &[(1, 0), (2, 1)], &[("running", &[0, 1])]);
        check(&plain, 1000, &[(1, 1), (2, 2)], &[]);
        check(&plain, 1000, &[(1, 0), (102, 1)], &[("abandoned", &[0])]);
        let again = [(1, 0), (2, 1), (3, 2), (4, 0), (5, 0), (6, 1)];
        check(&plain, 7, &again, &[("completed", &[0, 1, 2]), ("running", &[0, 1])]);
        check(&plain, 1000, &[(1, 0), (200, 0), (201, 1)], &[("abandoned", &[0]), ("abandoned", &[0, 1])]);
    }

    #[test]
    fn options_outcomes_and_gaps() {
        let all = definition(r#"{},{"optional":true},{"optional":true,"outcome":"failure"},{"outcome":"success"},{}"#);
        check(&all, 1000, &[(1, 0), (2, 3), (3, 4)], &[("completed", &[0, 3])]);
        check(&all, 1000, &[(1, 0), (2, 1), (3, 2), (4, 3)], &[("failed", &[0, 1, 2])]);
        let gap = definition(r#"{},{"maxGapMs":10},{}"#);
        check(&gap, 1000, &[(1, 0), (20, 1), (21, 2)], &[("abandoned", &[0])]);
        check(&gap, 1000, &[(1, 0), (11, 1), (21, 2)], &[("completed", &[0, 1, 2])]);
        let end = definition(r#"{},{},{"optional":true}"#);
        check(&end, 5, &[(1, 0), (2, 1)], &[("completed", &[0, 1])]);
        check(&end, 5, &[(1, 0), (2, 1), (3, 2)], &[("completed", &[0, 1, 2])]);
        check(&end, 5, &[(1, 0), (2, 1), (3, 0)], &[("completed", &[0, 1]), ("running", &[0])]);
    }

    #[test]
    fn definitions_are_read_or_refused() {
        let read =
            definition(r#"{"optional":true,"maxGapMs":5},{"outcome":"other"},{"optional":"yes","maxGapMs":"5"}"#);
        let plain = Step { optional: false, outcome: Outcome::None, max_gap: None };
        let first = Step { optional: true, outcome: Outcome::None, max_gap: Some(5 * MS) };
        assert_eq!(read, Definition { timeout: 100 * MS, steps: vec![first, plain.clone(), plain] });
        let long = Definition::read(r#"{"timeoutMs":9223372036854775807,"steps":[]}"#).unwrap();
        assert_eq!(long.timeout, i64::MAX, "it is longer than any time");
        for wrong in ["", "{", "[]", "{}", r#"{"timeoutMs":1}"#, r#"{"steps":[]}"#, r#"{"timeoutMs":"1","steps":[]}"#] {
            assert_eq!(Definition::read(wrong), None, "{wrong}");
        }
    }

    /// Breaks if what lies between two times is calculated as if it were never longer than a number.
    #[test]
    fn times_may_be_as_far_apart_as_there_are() {
        let step = |max_gap| Step { optional: false, outcome: Outcome::None, max_gap };
        let whole = Definition { timeout: i64::MAX, steps: vec![step(None), step(Some(5)), step(None)] };
        let seen = |time, step, row| StepEvent { time, step, row };
        let events = vec![seen(i64::MAX, 1, 1), seen(i64::MIN, 0, 0)];
        let found = runs(&whole, i64::MAX, events);
        assert_eq!(found, [ProcessInstance { state: "running", reached: vec![seen(i64::MIN, 0, 0)] }]);
    }

    /// Events of one value: time in ms, step, trace, service, whether it failed, user, value, session.
    type Event = (
        i64,
        i64,
        &'static str,
        Option<&'static str>,
        Option<bool>,
        Option<&'static str>,
        Option<f64>,
        Option<&'static str>,
    );

    fn events_of(rows: &[&[Event]]) -> ListArray {
        let all = || rows.iter().flat_map(|row| row.iter());
        let texts = |of: fn(&Event) -> Option<&'static str>| -> ArrayRef {
            Arc::new(all().map(of).collect::<StringViewArray>())
        };
        let columns: Vec<ArrayRef> = vec![
            Arc::new(all().map(|e| e.0 * MS).collect::<Int64Array>()),
            Arc::new(all().map(|e| e.1).collect::<Int64Array>()),
            texts(|e| Some(e.2)),
            texts(|e| e.3),
            Arc::new(all().map(|e| e.4).collect::<BooleanArray>()),
            texts(|e| e.5),
            Arc::new(all().map(|e| e.6).collect::<Float64Array>()),
            texts(|e| e.7),
        ];
        let events = StructArray::try_new(event_fields(), columns, None).unwrap();
        let ends: Vec<usize> = rows
            .iter()
            .scan(0, |end, row| {
                *end += row.len();
                Some(*end)
            })
            .collect();
        into_list(event_fields(), &ends, events).unwrap()
    }

    #[test]
    fn rows_become_lists_of_instances() {
        let of = r#"{"timeoutMs":100,"steps":[{},{},{}]}"#;
        let rows: [&[Event]; 3] = [
            &[
                (3, 2, "c", Some("pay"), Some(true), None, None, Some("s2")),
                (1, 0, "a", None, None, None, Some(7.5), Some("s1")),
                (2, 1, "b", Some("cart"), Some(false), Some("me"), None, None),
                (4, 9, "d", None, None, None, None, None),
                (5, -1, "e", None, None, None, None, None),
                (6, 0, "f", Some("web"), None, None, None, None),
            ],
            &[],
            &[(1, 1, "g", None, None, None, None, None)],
        ];
        let now = ColumnarValue::Scalar(ScalarValue::from(10 * MS));
        let found = call(&function(), &[text(of), now.clone(), column(events_of(&rows))], 3).unwrap();
        let lists = found.as_list::<i32>();
        assert_eq!((0..3).map(|row| lists.value_length(row)).collect::<Vec<_>>(), [2, 0, 0]);
        let first = lists.value(0);
        let runs = first.as_struct();
        let part = |name: &str| Arc::clone(runs.column_by_name(name).unwrap());
        let numbers = |name: &str| part(name).as_primitive::<Int64Type>().iter().collect::<Vec<_>>();
        let words = |name: &str| part(name).as_string_view().iter().map(|t| t.map(str::to_owned)).collect::<Vec<_>>();
        let some = |text: &str| Some(text.to_owned());
        assert_eq!(words("state"), [some("completed"), some("running")]);
        assert_eq!(numbers("number"), [Some(0), Some(1)]);
        assert_eq!(numbers("start"), [Some(MS), Some(6 * MS)]);
        assert_eq!(numbers("end"), [Some(3 * MS), Some(6 * MS)]);
        assert_eq!(numbers("last_position"), [Some(2), Some(0)]);
        // The service of the first step, the first user, the last value and session that are told.
        assert_eq!(words("service"), [None, some("web")]);
        assert_eq!(words("user_id"), [some("me"), None]);
        assert_eq!(part("value").as_primitive::<Float64Type>().iter().collect::<Vec<_>>(), [Some(7.5), None]);
        assert_eq!(words("session_id"), [some("s2"), None]);
        let steps = part("steps").as_list::<i32>().value(0);
        let steps = steps.as_struct();
        let step =
            |name: &str| steps.column_by_name(name).unwrap().as_primitive::<Int64Type>().iter().collect::<Vec<_>>();
        assert_eq!(step("position"), [Some(0), Some(1), Some(2)]);
        assert_eq!(step("gap"), [None, Some(MS), Some(MS)]);
        let errors = steps.column_by_name("is_error").unwrap().as_boolean().iter().collect::<Vec<_>>();
        assert_eq!(errors, [None, Some(false), Some(true)]);
        for wrong in ["no", "{}", r#"{"timeoutMs":100,"steps":[]}"#] {
            let refused = call(&function(), &[text(wrong), now.clone(), column(events_of(&rows))], 3).unwrap_err();
            assert!(refused.to_string().contains("reads a definition as JSON"), "{refused}");
        }
        let refused = function().coerce_types(&[DataType::Utf8, DataType::Int64, DataType::Utf8]).unwrap_err();
        assert!(refused.to_string().contains("`process_runs(definition, now, events)`"), "{refused}");
    }
}
