//! Functions for plans over spans that DataFusion lacks: they read the store's encoding of attributes, or round in the
//! way results require.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, Int32Array, Int64Array, ListBuilder, RecordBatch, StringArray, StringBuilder,
};
use arrow::datatypes::{DataType, Field, Int64Type, Schema, UInt8Type};
use datafusion::common::exec_err;
use datafusion::error::Result;
use datafusion::logical_expr::{
    ColumnarValue, Expr, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, TypeSignature, Volatility, ident,
};
use quiver_types::spans::{Attributes, Place, SpanColumn, events, instance_name, instance_parts, kind_name};
use serde::{Deserialize, Serialize};

use crate::columns::{Columns, each_attribute, place_columns};
use crate::export::spanarray::remote_of;
use crate::resource::instance_of;

/// What a function computes; plain data, like everything in a plan.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) enum SpanFunctionKind {
    /// The step that contains a time, counted from an origin.
    Step { origin: i64, step: i64 },
    /// The duration on a logarithmic scale with 16 steps per power of two.
    Scale,
    /// The instance name from resource attributes.
    Instance,
    /// The instance part of such a name.
    InstancePart,
    /// The other side of a span, from its kind and its attributes; NULL if unknown.
    Remote,
    /// The name of a kind.
    Kind,
    /// The distinct names of events.
    EventNames,
    /// The first value of an attribute, or an empty string; with the columns in which it may be.
    Attribute { key: String, columns: Vec<String> },
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct SpanFunction {
    what: SpanFunctionKind,
    signature: Signature,
}

/// The function with this number of arguments.
pub(crate) fn function(what: SpanFunctionKind, arguments: usize) -> ScalarUDF {
    ScalarUDF::from(SpanFunction { what, signature: Signature::any(arguments, Volatility::Immutable) })
}

/// What a function computes and its number of arguments, if it is one of these.
pub(crate) fn parts(function: &ScalarUDF) -> Option<(&SpanFunctionKind, usize)> {
    let of: &SpanFunction = function.inner().downcast_ref()?;
    match of.signature.type_signature {
        TypeSignature::Any(arguments) => Some((&of.what, arguments)),
        _ => None,
    }
}

fn call(what: SpanFunctionKind, arguments: Vec<Expr>) -> Expr {
    function(what, arguments.len()).call(arguments)
}

/// The step that contains a time (`Int64`), counted from an origin.
pub(crate) fn step(of: Expr, origin: i64, step: i64) -> Expr {
    call(SpanFunctionKind::Step { origin, step: step.max(1) }, vec![of])
}

/// The position of a duration on the scale of heat maps (`Int32`).
pub(crate) fn scale(of: Expr) -> Expr {
    call(SpanFunctionKind::Scale, vec![of])
}

/// The instance name from resource attributes.
pub(crate) fn instance(of: Expr) -> Expr {
    call(SpanFunctionKind::Instance, vec![of])
}

/// The instance part of such a name.
pub(crate) fn instance_part(of: Expr) -> Expr {
    call(SpanFunctionKind::InstancePart, vec![of])
}

/// The other side of a span with this kind and these attributes.
pub(crate) fn remote(kind: Expr, attributes: Expr) -> Expr {
    call(SpanFunctionKind::Remote, vec![kind, attributes])
}

/// The name of a kind.
pub(crate) fn kind_word(of: Expr) -> Expr {
    call(SpanFunctionKind::Kind, vec![of])
}

/// The distinct names of a span's events (a list of `Utf8`).
pub(crate) fn event_names(of: Expr) -> Expr {
    call(SpanFunctionKind::EventNames, vec![of])
}

/// The first value of an attribute at a place, or at any; with the columns needed.
pub(crate) fn attribute(place: Option<Place>, key: &str) -> (Expr, Vec<SpanColumn>) {
    let wanted = place_columns(place);
    let columns: Vec<String> = wanted.iter().map(SpanColumn::name).collect();
    let arguments = columns.iter().map(ident).collect();
    (call(SpanFunctionKind::Attribute { key: key.to_owned(), columns }, arguments), wanted)
}

impl ScalarUDFImpl for SpanFunction {
    fn name(&self) -> &'static str {
        match &self.what {
            SpanFunctionKind::Step { .. } => "time_step",
            SpanFunctionKind::Scale => "duration_scale",
            SpanFunctionKind::Instance => "span_instance",
            SpanFunctionKind::InstancePart => "instance_part",
            SpanFunctionKind::Remote => "remote_name",
            SpanFunctionKind::Kind => "kind_word",
            SpanFunctionKind::EventNames => "event_names",
            SpanFunctionKind::Attribute { .. } => "first_attribute",
        }
    }

    fn schema_name(&self, args: &[Expr]) -> Result<String> {
        let mut shown: Vec<String> = args.iter().map(ToString::to_string).collect();
        match &self.what {
            SpanFunctionKind::Step { origin, step } => shown.extend([origin.to_string(), step.to_string()]),
            SpanFunctionKind::Attribute { key, .. } => shown.push(format!("{key:?}")),
            _ => {}
        }
        Ok(format!("{}({})", self.name(), shown.join(", ")))
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(match &self.what {
            SpanFunctionKind::Step { .. } => DataType::Int64,
            SpanFunctionKind::Scale => DataType::Int32,
            SpanFunctionKind::EventNames => DataType::new_list(DataType::Utf8, true),
            _ => DataType::Utf8,
        })
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let arrays = ColumnarValue::values_to_arrays(&args.args)?;
        self.what.evaluate(&arrays).map(ColumnarValue::Array)
    }
}

impl SpanFunctionKind {
    fn evaluate(&self, arrays: &[ArrayRef]) -> Result<ArrayRef> {
        let Some(first) = arrays.first() else { return exec_err!("a function of spans has an argument") };
        let ints = || first.as_primitive_opt::<Int64Type>().map(|of| of.values().iter().copied());
        Ok(match self {
            Self::Step { origin, step } => {
                let Some(times) = ints() else { return exec_err!("times are whole numbers") };
                let step = |time: i64| time.saturating_sub(*origin).div_euclid(*step);
                Arc::new(Int64Array::from_iter_values(times.map(step)))
            }
            Self::Scale => {
                let Some(durations) = ints() else { return exec_err!("durations are whole numbers") };
                let scale = |duration: i64| ((duration.max(1) as f64).log2() * 16.0).floor() as i32;
                Arc::new(Int32Array::from_iter_values(durations.map(scale)))
            }
            Self::Instance => {
                let Some(resources) = first.as_binary_view_opt() else { return exec_err!("resources are bytes") };
                instances((0..resources.len()).map(|row| resources.value(row)))
            }
            Self::InstancePart => {
                let Some(names) = first.as_string_opt::<i32>() else { return exec_err!("names are texts") };
                Arc::new(names.iter().map(|name| name.map(|name| instance_parts(name)[0])).collect::<StringArray>())
            }
            Self::Remote => {
                let Some(kinds) = first.as_primitive_opt::<UInt8Type>() else { return exec_err!("kinds are numbers") };
                let attributes = arrays.get(1).and_then(|of| of.as_binary_opt::<i32>());
                let Some(attributes) = attributes else { return exec_err!("attributes are bytes") };
                let remote = |row| remote_of(kinds.value(row), attributes.value(row));
                Arc::new((0..attributes.len()).map(remote).collect::<StringArray>())
            }
            Self::Kind => {
                let Some(kinds) = first.as_primitive_opt::<UInt8Type>() else { return exec_err!("kinds are numbers") };
                Arc::new(StringArray::from_iter_values(kinds.values().iter().map(|kind| kind_name(*kind))))
            }
            Self::EventNames => {
                let Some(of_spans) = first.as_binary_opt::<i32>() else { return exec_err!("events are bytes") };
                names_of((0..of_spans.len()).map(|row| of_spans.value(row)))
            }
            Self::Attribute { key, columns } => first_values(key, columns, arrays)?,
        })
    }
}

/// Consecutive spans often have the same resource, which is then decoded only once.
fn instances<'a>(resources: impl Iterator<Item = &'a [u8]>) -> ArrayRef {
    let mut out = StringBuilder::new();
    let mut last: Option<(&[u8], String)> = None;
    for bytes in resources {
        if last.as_ref().is_none_or(|(known, _)| *known != bytes) {
            let resource = Attributes::from_bytes(bytes);
            let get = |key: &str| resource.get(key).map(|v| v.text().into_owned()).unwrap_or_default();
            let (version, host, pod) = (get("service.version"), get("host.name"), get("k8s.pod.name"));
            last = Some((bytes, instance_name([&instance_of(bytes), &version, &host, &pod])));
        }
        out.append_option(last.as_ref().map(|(_, name)| name));
    }
    Arc::new(out.finish())
}

/// Events with the same name count once per span.
fn names_of<'a>(of_spans: impl Iterator<Item = &'a [u8]>) -> ArrayRef {
    let (mut out, mut names) = (ListBuilder::new(StringBuilder::new()), Vec::new());
    for bytes in of_spans {
        names.clear();
        names.extend(events(bytes).map(|event| event.name));
        names.sort_unstable();
        names.dedup();
        for name in &names {
            out.values().append_value(name);
        }
        out.append(true);
    }
    Arc::new(out.finish())
}

fn first_values(key: &str, columns: &[String], arrays: &[ArrayRef]) -> Result<ArrayRef> {
    let fields: Vec<Field> =
        columns.iter().zip(arrays).map(|(name, array)| Field::new(name, array.data_type().clone(), true)).collect();
    let batch = RecordBatch::try_new(Arc::new(Schema::new(fields)), arrays.to_vec())?;
    let (columns, mut out) = (Columns(&batch), StringBuilder::new());
    let mut found = String::new();
    for row in 0..batch.num_rows() {
        found.clear();
        each_attribute(&columns, row, |_, k, value| {
            if k == key && found.is_empty() {
                found.push_str(&value.text());
            }
        });
        out.append_value(&found);
    }
    Ok(Arc::new(out.finish()))
}

#[cfg(test)]
mod tests {
    use arrow::array::{BinaryArray, BinaryViewArray, StringViewArray, UInt8Array};
    use quiver_types::spans::{EventRef, Value, push_event};

    use super::*;

    fn ints(what: &SpanFunctionKind, values: &[i64]) -> ArrayRef {
        what.evaluate(&[Arc::new(Int64Array::from(values.to_vec())) as ArrayRef]).unwrap()
    }

    #[test]
    fn steps_count_from_their_origin() {
        let steps = ints(&SpanFunctionKind::Step { origin: 10, step: 5 }, &[10, 14, 15, 9, i64::MAX]);
        assert_eq!(steps.as_primitive::<Int64Type>().values()[..4], [0, 0, 1, -1]);
    }

    #[test]
    fn a_scale_has_sixteen_steps_for_twice_as_long() {
        let scale = ints(&SpanFunctionKind::Scale, &[0, 1, 2, 1024, 2048]);
        assert_eq!(scale.as_primitive::<arrow::datatypes::Int32Type>().values()[..], [0, 0, 16, 160, 176]);
    }

    #[test]
    fn only_the_instance_of_a_name() {
        let names = Arc::new(StringArray::from(vec![instance_name(["a", "1", "h", "p"]), String::new()])) as ArrayRef;
        let parts = SpanFunctionKind::InstancePart.evaluate(&[names]).unwrap();
        assert_eq!(parts.as_string::<i32>().iter().collect::<Vec<_>>(), [Some("a"), Some("")]);
    }

    #[test]
    fn arguments_of_other_types_are_refused() {
        let texts = Arc::new(StringArray::from(vec!["x"])) as ArrayRef;
        let others = [
            SpanFunctionKind::Remote,
            SpanFunctionKind::Kind,
            SpanFunctionKind::EventNames,
            SpanFunctionKind::Step { origin: 0, step: 1 },
        ];
        for what in [SpanFunctionKind::Scale, SpanFunctionKind::Instance].into_iter().chain(others) {
            assert!(what.evaluate(&[Arc::clone(&texts)]).is_err(), "{what:?}");
        }
        assert!(SpanFunctionKind::Kind.evaluate(&[]).is_err());
    }

    fn attributes(list: &[(&str, Value<'_>)]) -> Vec<u8> {
        Attributes::of(list.iter().copied()).bytes().to_vec()
    }

    fn texts(array: &ArrayRef) -> Vec<Option<&str>> {
        array.as_string::<i32>().iter().collect()
    }

    fn bytes(rows: &[&[u8]]) -> ArrayRef {
        Arc::new(BinaryArray::from_vec(rows.to_vec()))
    }

    fn views(rows: &[&[u8]]) -> ArrayRef {
        Arc::new(BinaryViewArray::from_iter_values(rows))
    }

    /// Breaks if a time before the origin, or one that is too far from it, falls into another step or overflows.
    #[test]
    fn steps_of_times_at_the_ends() {
        let of = |origin: i64, step: i64, time: i64| {
            ints(&SpanFunctionKind::Step { origin, step }, &[time]).as_primitive::<Int64Type>().value(0)
        };
        assert_eq!([of(0, 10, -1), of(0, 10, -10), of(0, 10, -11)], [-1, -1, -2]);
        assert_eq!(of(i64::MAX, 1, i64::MIN), i64::MIN);
        assert_eq!(of(i64::MIN, 2, i64::MAX), i64::MAX / 2);
        assert_eq!(of(5, i64::MAX, 4), -1);
        // A step has a length.
        for length in [0, -5, i64::MIN] {
            let call = step(ident("start"), 0, length);
            let Expr::ScalarFunction(of) = &call else { panic!("{call}") };
            assert_eq!(parts(&of.func), Some((&SpanFunctionKind::Step { origin: 0, step: 1 }, 1)), "{length}");
        }
    }

    /// Negative durations are those of no time; the greatest has a place, too.
    #[test]
    fn a_scale_has_a_place_for_each_duration() {
        let scale = ints(&SpanFunctionKind::Scale, &[i64::MIN, -1, i64::MAX, (1 << 62) - 1, 3]);
        let scale = scale.as_primitive::<arrow::datatypes::Int32Type>().values();
        // As a double, what lies right below a power of two that great is the power.
        assert_eq!(scale[..], [0, 0, 1008, 992, 25]);
    }

    /// Breaks if functions of one name with other bounds are taken for one, as plans name what they compute.
    #[test]
    fn functions_are_told_apart_by_what_they_do() {
        let name = |call: &Expr| call.schema_name().to_string();
        let a = |key: &str| attribute(Some(Place::Span), key).0;
        assert_eq!(name(&step(ident("start"), 3, 60)), "time_step(start, 3, 60)");
        assert_ne!(name(&step(ident("start"), 3, 60)), name(&step(ident("start"), 0, 60)));
        assert_eq!(name(&a("k\"1")), "first_attribute(attributes, \"k\\\"1\")");
        assert_ne!(a("k"), a("l"));
        assert_eq!(a("k"), a("k"));
        assert_eq!(name(&kind_word(ident("kind"))), "kind_word(kind)");
    }

    #[test]
    fn instances_of_resources() {
        let full = attributes(&[
            ("host.name", Value::Text("h")),
            ("k8s.pod.name", Value::Text("p")),
            ("service.instance.id", Value::Text("i")),
            ("service.version", Value::Double(1.5)),
        ]);
        let pod = attributes(&[("host.name", Value::Text("h")), ("k8s.pod.name", Value::Text("p"))]);
        let empty = attributes(&[("host.name", Value::Text("h")), ("service.instance.id", Value::Text(""))]);
        let rows: [&[u8]; 6] = [&full, &full, &pod, &empty, &[], &full];
        let found = SpanFunctionKind::Instance.evaluate(&[views(&rows)]).unwrap();
        let expected = [
            instance_name(["i", "1.5", "h", "p"]),
            instance_name(["i", "1.5", "h", "p"]),
            instance_name(["p", "", "h", "p"]),
            // An id that is empty is none: the host is the next that says one.
            instance_name(["h", "", "h", ""]),
            instance_name(["", "", "", ""]),
            instance_name(["i", "1.5", "h", "p"]),
        ];
        assert_eq!(texts(&found), expected.each_ref().map(|name| Some(name.as_str())));
    }

    #[test]
    fn words_of_kinds_and_names_of_the_other_side() {
        let kinds = Arc::new(UInt8Array::from(vec![0, 1, 5, 6, 255])) as ArrayRef;
        let words = SpanFunctionKind::Kind.evaluate(&[kinds]).unwrap();
        assert_eq!(texts(&words), [Some(""), Some("internal"), Some("consumer"), Some(""), Some("")]);
        let said = attributes(&[("db.name", Value::Text("orders")), ("server.address", Value::Text("h"))]);
        let number = attributes(&[("peer.service", Value::Int(7)), ("net.peer.name", Value::Text(""))]);
        let peer = attributes(&[("peer.service", Value::Text("p")), ("server.address", Value::Text("h"))]);
        let kinds = Arc::new(UInt8Array::from(vec![3, 3, 4, 2, 2])) as ArrayRef;
        let rows = bytes(&[&said, &number, &[], &said, &peer]);
        let names = SpanFunctionKind::Remote.evaluate(&[kinds, rows]).unwrap();
        // Of who is called, addresses are its own.
        assert_eq!(texts(&names), [Some("h"), None, None, None, Some("p")]);
    }

    /// Breaks if an event counts twice for its span, or spans without events go missing.
    #[test]
    fn names_of_events_stand_once_in_order() {
        let mut events = Vec::new();
        for name in ["b", "a", "", "b", "ü"] {
            push_event(&mut events, &EventRef { time: 1, name, dropped: 0, attributes: &[] });
        }
        let names = SpanFunctionKind::EventNames.evaluate(&[bytes(&[&events, &[], &events[..8]])]).unwrap();
        let names = names.as_list::<i32>();
        assert_eq!(names.len(), 3);
        assert_eq!(texts(&names.value(0)), [Some(""), Some("a"), Some("b"), Some("ü")]);
        // What is cut off is none.
        assert_eq!([1, 2].map(|row| names.value(row).len()), [0, 0]);
    }

    /// Breaks if the value of another place is given than the first that has the key, or that of another key.
    #[test]
    fn an_attribute_is_the_first_of_its_places() {
        let own = attributes(&[("k", Value::Int(7)), ("kk", Value::Text("longer"))]);
        let blank = attributes(&[("k", Value::Text(""))]);
        let resource = attributes(&[("k", Value::Text("of the resource"))]);
        let of = |key: &str| {
            let what = SpanFunctionKind::Attribute {
                key: key.to_owned(),
                columns: ["attributes", "resource", "service"].map(str::to_owned).to_vec(),
            };
            let services = Arc::new(StringViewArray::from_iter_values(["web", "", "web", ""])) as ArrayRef;
            let rows = [bytes(&[&own, &[], &blank, &[]]), views(&[&resource, &resource, &resource, &[]]), services];
            let found = what.evaluate(&rows).unwrap();
            texts(&found).into_iter().map(|text| text.unwrap_or("NULL").to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(of("k"), ["7", "of the resource", "of the resource", ""]);
        assert_eq!(of("kk"), ["longer", "", "", ""]);
        assert_eq!(of("service.name"), ["web", "", "web", ""]);
        assert_eq!(of("service"), ["", "", "", ""]);
        // The columns that it asks for are those of its place.
        let columns = |place| attribute(place, "k").1.iter().map(SpanColumn::name).collect::<Vec<_>>();
        assert_eq!(columns(Some(Place::Link)), ["links"]);
        assert_eq!(columns(Some(Place::Resource)).len(), 2);
        assert_eq!(columns(None).len(), 6);
    }
}
