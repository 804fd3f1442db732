//! The columns that a scan can return, and how whole spans are read back from them.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use arrow::array::{
    Array as _, ArrayRef, AsArray, DictionaryArray, Int32Array, RecordBatch, StringArray, StringViewArray, UInt32Array,
};
use arrow::datatypes::{DataType, Field, Int32Type, Int64Type, Schema, SchemaRef, UInt8Type, UInt32Type};
use hashbrown::{Equivalent, HashMap};
use serde::{Deserialize, Serialize};

use super::schema::{CONTEXT_COLUMNS, SPAN_COLUMNS, span_schema};
use super::{AttributeKind, Attributes, Place, Span, SpanContext, SpanFilter, events, links};
use crate::{Error, Result};

/// A column of a scan. None is ever null but [`SpanColumn::Attribute`].
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum SpanColumn {
    /// A column of [`SPAN_COLUMNS`] but `context`, of its type there.
    Own(&'static str),
    /// A text of [`SPAN_COLUMNS`] as a view: `name`, `status_message` or `trace_state`.
    Text(&'static str),
    /// End minus start, nanoseconds (`Int64`).
    Duration,
    /// A column of [`CONTEXT_COLUMNS`], as a view (`Utf8View`, `BinaryView`).
    Context(&'static str),
    /// An attribute, read as one type; null when there is none. The place is `Span` or `Resource`.
    Attribute(Place, String, AttributeKind),
    /// A column of views of texts by codes ([`coded_texts`]), for those who group and compare: rows that share a text mostly
    /// share its code, and a code may be there more than once.
    Coded(Box<SpanColumn>),
    /// Whether the span passes a filter (`Boolean`), beside that of the request.
    Passes(NumberedFilter),
}

/// A filter as a column, told from others of a request by its number. Filters of their own are not compared.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct NumberedFilter {
    /// No other column of the request has it.
    pub number: usize,
    /// What is said of each span.
    pub filter: Arc<SpanFilter>,
}

impl PartialEq for NumberedFilter {
    fn eq(&self, other: &Self) -> bool {
        self.number == other.number && Arc::ptr_eq(&self.filter, &other.filter)
    }
}

impl Eq for NumberedFilter {}

impl Hash for NumberedFilter {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.number.hash(state);
    }
}

/// The type of texts by codes: a dictionary of views.
pub fn coded_texts() -> DataType {
    DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8View))
}

/// Gives texts each with a code of its own.
pub fn code_each(texts: &StringViewArray) -> DictionaryArray<Int32Type> {
    let codes = Int32Array::new((0..texts.len() as i32).collect(), texts.nulls().cloned());
    DictionaryArray::new(codes, Arc::new(texts.clone()))
}

impl SpanColumn {
    /// Gives its name in the schema.
    pub fn name(&self) -> String {
        match self {
            Self::Own(name) | Self::Text(name) | Self::Context(name) => (*name).to_owned(),
            Self::Duration => "duration".to_owned(),
            Self::Coded(of) => of.name(),
            Self::Attribute(place, key, _) => format!("{}.{key}", place.name()),
            Self::Passes(one) => format!("passes_{}", one.number),
        }
    }

    /// Says whether texts of it may be read as views: it is made of none, or gives them so itself.
    pub fn takes_views(&self) -> bool {
        const COPIED: [&str; 6] = ["name", "status_message", "trace_state", "attributes", "events", "links"];
        match self {
            Self::Own(name) => !COPIED.contains(name),
            Self::Context(name) => !matches!(*name, "resource" | "scope_attributes"),
            Self::Text(_) | Self::Duration | Self::Attribute(..) | Self::Passes(_) => true,
            Self::Coded(of) => of.takes_views(),
        }
    }

    fn field(&self) -> Field {
        let (kind, nullable) = match self {
            Self::Own(name) => {
                let schema = span_schema();
                let kind = schema.field_with_name(name).map_or(DataType::Null, |f| f.data_type().clone());
                (kind, false)
            }
            Self::Context("resource" | "scope_attributes") => (DataType::BinaryView, false),
            Self::Context(_) | Self::Text(_) => (DataType::Utf8View, false),
            Self::Duration => (DataType::Int64, false),
            Self::Attribute(.., kind) => (kind.data_type(), true),
            Self::Coded(of) => (coded_texts(), of.field().is_nullable()),
            Self::Passes(_) => (DataType::Boolean, false),
        };
        Field::new(self.name(), kind, nullable)
    }
}

/// Gives all columns, from which [`read_spans`] makes spans.
pub fn all_columns() -> Vec<SpanColumn> {
    let own = SPAN_COLUMNS.iter().filter(|c| **c != "context").map(|c| SpanColumn::Own(c));
    own.chain(CONTEXT_COLUMNS.iter().map(|c| SpanColumn::Context(c))).collect()
}

/// Gives the schema of a batch with these columns, in this order.
pub fn schema_of(columns: &[SpanColumn]) -> SchemaRef {
    Arc::new(Schema::new(columns.iter().map(SpanColumn::field).collect::<Vec<_>>()))
}

/// A context as it stands in columns: most of those of a batch were read before, and are looked up without a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct ContextRef<'b> {
    // The members of `SpanContext` in its order: both have the same hash.
    service: &'b str,
    resource: &'b [u8],
    scope_name: &'b str,
    scope_version: &'b str,
    scope_attributes: &'b [u8],
}

impl ContextRef<'_> {
    fn is(&self, context: &SpanContext) -> bool {
        context.service == self.service
            && context.resource.bytes() == self.resource
            && context.scope_name == self.scope_name
            && context.scope_version == self.scope_version
            && context.scope_attributes.bytes() == self.scope_attributes
    }

    fn to_context(self) -> SpanContext {
        SpanContext {
            service: self.service.to_owned(),
            resource: Attributes::from_bytes(self.resource),
            scope_name: self.scope_name.to_owned(),
            scope_version: self.scope_version.to_owned(),
            scope_attributes: Attributes::from_bytes(self.scope_attributes),
        }
    }
}

impl Equivalent<SpanContext> for ContextRef<'_> {
    fn equivalent(&self, key: &SpanContext) -> bool {
        self.is(key)
    }
}

/// Contexts that were read before, so that equal ones are one.
pub(super) type ContextCache = HashMap<SpanContext, Arc<SpanContext>>;

/// The views of a context in the columns of a batch: rows with the same ones have the same context, whatever it says.
type Views = [u128; CONTEXT_COLUMNS.len()];

/// Contexts of the spans of a batch, each made once.
struct Contexts {
    known: ContextCache,
    /// Most rows are told by their views, without a look at what these show, which may be long.
    by_views: HashMap<Views, Arc<SpanContext>>,
    last: Option<(Views, Arc<SpanContext>)>,
}

impl Contexts {
    /// Goes on after the context of a span of another batch.
    fn after(context: Option<&Arc<SpanContext>>) -> Self {
        let known = context.map(|context| ((**context).clone(), Arc::clone(context))).into_iter().collect();
        Self { known, by_views: HashMap::new(), last: None }
    }

    /// Gives the context of the next row.
    fn next<'b>(&mut self, views: Views, here: impl FnOnce() -> ContextRef<'b>) -> Arc<SpanContext> {
        let same = self.last.as_ref().filter(|(last, _)| *last == views).map(|(_, context)| context);
        let context = if let Some(same) = same.or_else(|| self.by_views.get(&views)) {
            Arc::clone(same)
        } else {
            let context = self.by_value(here());
            self.by_views.insert(views, Arc::clone(&context));
            context
        };
        self.last = Some((views, Arc::clone(&context)));
        context
    }

    fn by_value(&mut self, here: ContextRef<'_>) -> Arc<SpanContext> {
        let same = self.last.as_ref().map(|(_, context)| context).filter(|context| here.is(context));
        if let Some(same) = same.or_else(|| self.known.get(&here)) {
            return Arc::clone(same);
        }
        let shared = Arc::new(here.to_context());
        self.known.insert(here.to_context(), Arc::clone(&shared));
        shared
    }
}

/// A column of a batch by name, as its array; `None` when the batch is without it.
fn optional<'b, T>(
    batch: &'b RecordBatch,
    name: &str,
    cast: impl FnOnce(&'b ArrayRef) -> Option<&'b T>,
) -> Result<Option<&'b T>> {
    let Some(column) = batch.column_by_name(name) else { return Ok(None) };
    let other = || Error::internal(format!("`{name}` of a scan of spans is of another type"));
    cast(column).map(Some).ok_or_else(other)
}

/// Reads spans from a batch, and appends them. Ids, times, names, kinds, states and services must be there; what else
/// [`all_columns`] has may be left out, and is empty then.
///
/// # Errors
/// Internal: a column is missing or of another type.
pub fn read_spans(batch: &RecordBatch, out: &mut Vec<Span>) -> Result<()> {
    let missing = |name: &str| Error::internal(format!("a scan of spans lacks `{name}`"));
    let column = |name: &str| batch.column_by_name(name).ok_or_else(|| missing(name));
    let fixed = |name: &str| column(name)?.as_fixed_size_binary_opt().ok_or_else(|| missing(name));
    let i64s = |name: &str| column(name)?.as_primitive_opt::<Int64Type>().ok_or_else(|| missing(name));
    let u8s = |name: &str| column(name)?.as_primitive_opt::<UInt8Type>().ok_or_else(|| missing(name));
    let u32s = |name: &str| optional(batch, name, |c| c.as_primitive_opt::<UInt32Type>());
    let text = |name: &str| optional(batch, name, |c| c.as_string_opt::<i32>());
    let bytes = |name: &str| optional(batch, name, |c| c.as_binary_opt::<i32>());
    let view = |name: &str| optional(batch, name, |c| c.as_string_view_opt());
    let bytes_view = |name: &str| optional(batch, name, |c| c.as_binary_view_opt());
    let (trace_ids, span_ids, parents) = (fixed("trace_id")?, fixed("span_id")?, fixed("parent_span_id")?);
    let names = text("name")?.ok_or_else(|| missing("name"))?;
    let (messages, states) = (text("status_message")?, text("trace_state")?);
    let (kinds, statuses, marks) = (u8s("kind")?, u8s("status")?, u8s("marks")?);
    let (starts, ends, received) = (i64s("start")?, i64s("end")?, i64s("received")?);
    let flags = u32s("flags")?;
    let dropped = [u32s("dropped_attributes")?, u32s("dropped_events")?, u32s("dropped_links")?];
    let (attributes, event_bytes, link_bytes) = (bytes("attributes")?, bytes("events")?, bytes("links")?);
    let services = view("service")?.ok_or_else(|| missing("service"))?;
    let (resources, scope_attributes) = (bytes_view("resource")?, bytes_view("scope_attributes")?);
    let (scope_names, scope_versions) = (view("scope_name")?, view("scope_version")?);
    let text_at = |column: Option<&'_ StringArray>, i: usize| column.map_or("", |c| c.value(i)).to_owned();
    let number_at = |column: Option<&'_ UInt32Array>, i: usize| column.map_or(0, |c| c.value(i));
    let mut contexts = Contexts::after(out.last().map(|span| &span.context));
    let id8 = |bytes: &[u8]| <[u8; 8]>::try_from(bytes).unwrap_or_default();
    out.reserve(batch.num_rows());
    for i in 0..batch.num_rows() {
        let views = [
            services.views()[i],
            resources.map_or(0, |c| c.views()[i]),
            scope_names.map_or(0, |c| c.views()[i]),
            scope_versions.map_or(0, |c| c.views()[i]),
            scope_attributes.map_or(0, |c| c.views()[i]),
        ];
        let context = contexts.next(views, || ContextRef {
            service: services.value(i),
            resource: resources.map_or(&[][..], |c| c.value(i)),
            scope_name: scope_names.map_or("", |c| c.value(i)),
            scope_version: scope_versions.map_or("", |c| c.value(i)),
            scope_attributes: scope_attributes.map_or(&[][..], |c| c.value(i)),
        });
        let parent = id8(parents.value(i));
        out.push(Span {
            trace_id: trace_ids.value(i).try_into().unwrap_or_default(),
            span_id: id8(span_ids.value(i)),
            parent: (parent != [0; 8]).then_some(parent),
            context,
            name: names.value(i).to_owned(),
            kind: kinds.value(i),
            start: starts.value(i),
            end: ends.value(i),
            status: statuses.value(i),
            status_message: text_at(messages, i),
            trace_state: text_at(states, i),
            flags: number_at(flags, i),
            dropped: dropped.map(|d| number_at(d, i)),
            received: received.value(i),
            marks: marks.value(i),
            attributes: attributes.map(|c| Attributes::from_bytes(c.value(i))).unwrap_or_default(),
            events: event_bytes.map_or_else(Vec::new, |c| events(c.value(i)).map(|e| e.to_event()).collect()),
            links: link_bytes.map_or_else(Vec::new, |c| links(c.value(i)).map(|l| l.to_link()).collect()),
        });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use arrow::compute::take;

    use super::*;
    use crate::spans::{ContextFields, SpanFields, SpansBuilder, Value};

    #[test]
    fn contexts_are_known_as_they_stand_in_columns() {
        let (resource, scope) = (Attributes::of([("k", Value::Int(1))]), Attributes::of([("s", Value::Text("t"))]));
        let here = ContextRef {
            service: "a",
            resource: resource.bytes(),
            scope_name: "lib",
            scope_version: "1",
            scope_attributes: scope.bytes(),
        };
        let mut known = ContextCache::new();
        known.insert(here.to_context(), Arc::default());
        assert!(known.contains_key(&here) && known.contains_key(&here.to_context()));
        for other in [
            ContextRef { service: "b", ..here },
            ContextRef { resource: &[], ..here },
            ContextRef { scope_name: "", ..here },
            ContextRef { scope_version: "2", ..here },
            ContextRef { scope_attributes: resource.bytes(), ..here },
        ] {
            assert!(!known.contains_key(&other) && !other.is(&here.to_context()), "{other:?}");
        }
    }

    /// Rows that share views, that have the same bytes under other views, and that follow another batch.
    #[test]
    fn rows_of_one_context_share_it() {
        let long = ["a service of a long name", "another service of a long name"];
        let of = |row: usize| usize::from(row.is_multiple_of(3));
        let each = StringViewArray::from_iter_values((0..9).map(|row| long[of(row)]));
        let rows: Int32Array = (0..9).map(|row| of(row) as i32).collect();
        let shared = take(&StringViewArray::from_iter_values(long), &rows, None).unwrap();
        let mut last: Option<Arc<SpanContext>> = None;
        for services in [&each, shared.as_string_view()] {
            let mut contexts = Contexts::after(last.as_ref());
            let next = |row: usize| {
                let here = || ContextRef {
                    service: services.value(row),
                    resource: b"r",
                    scope_name: "",
                    scope_version: "",
                    scope_attributes: &[],
                };
                contexts.next([services.views()[row], 1, 0, 0, 0], here)
            };
            let made: Vec<Arc<SpanContext>> = (0..9).map(next).collect();
            for (row, context) in made.iter().enumerate() {
                assert_eq!((&*context.service, context.resource.bytes()), (long[of(row)], &b"r"[..]), "{row}");
                let first = made.iter().find(|other| *other == context).unwrap();
                assert!(Arc::ptr_eq(first, context), "{row}");
            }
            let goes_on = last.is_none_or(|last| made.iter().any(|context| Arc::ptr_eq(context, &last)));
            assert!(goes_on, "that of the batch before is known");
            last = made.last().cloned();
        }
    }

    fn flat() -> RecordBatch {
        let mut builder = SpansBuilder::default();
        let resource = Attributes::of([("pod", Value::Text("p"))]);
        let fields =
            ContextFields { service: "cart", resource: resource.bytes(), scope_name: "lib", ..Default::default() };
        let context = builder.context(&fields);
        builder.attributes(&mut vec![("k", Value::Int(1))]);
        builder.span(&SpanFields { context, name: "GET", flags: 1, dropped: [1, 2, 3], end: 5, ..Default::default() });
        builder.finish().flat()
    }

    fn without(batch: &RecordBatch, names: &[&str]) -> RecordBatch {
        let schema = batch.schema();
        let kept = (0..batch.num_columns()).filter(|at| !names.contains(&schema.field(*at).name().as_str()));
        batch.project(&kept.collect::<Vec<_>>()).expect("columns of the batch")
    }

    fn read(batch: &RecordBatch) -> Result<Span> {
        let mut out = Vec::new();
        read_spans(batch, &mut out).map(|()| out.remove(0))
    }

    #[test]
    fn what_may_be_left_out_is_empty_then() {
        let batch = flat();
        let whole = read(&batch).expect("all columns");
        assert_eq!((whole.context.service.as_str(), whole.context.scope_name.as_str()), ("cart", "lib"));
        assert_eq!((whole.flags, whole.dropped, whole.attributes.get("k")), (1, [1, 2, 3], Some(Value::Int(1))));
        let optional = [
            "status_message",
            "trace_state",
            "flags",
            "dropped_attributes",
            "dropped_events",
            "dropped_links",
            "attributes",
            "events",
            "links",
            "resource",
            "scope_name",
            "scope_version",
            "scope_attributes",
        ];
        let few = read(&without(&batch, &optional)).expect("the others are enough");
        assert_eq!((few.name.as_str(), few.end, few.context.service.as_str()), ("GET", 5, "cart"));
        assert_eq!((few.flags, few.dropped, few.context.scope_name.as_str()), (0, [0; 3], ""));
        assert!(few.attributes.is_empty() && few.context.resource.is_empty());
        let schema = batch.schema();
        for field in schema.fields() {
            let name = field.name().as_str();
            let read = read(&without(&batch, &[name]));
            assert_eq!(read.is_ok(), optional.contains(&name), "{name}");
            if let Err(error) = read {
                assert_eq!(error.to_string(), format!("a scan of spans lacks `{name}`"));
            }
        }
    }

    #[test]
    fn columns_of_another_type_are_named() {
        let batch = flat();
        let numbers: ArrayRef = Arc::new(arrow::array::Float64Array::from(vec![1.0]));
        let schema = batch.schema();
        for (at, field) in schema.fields().iter().enumerate() {
            let mut columns = batch.columns().to_vec();
            columns[at] = Arc::clone(&numbers);
            let mut fields = schema.fields().to_vec();
            fields[at] = Arc::new(Field::new(field.name(), DataType::Float64, false));
            let other = RecordBatch::try_new(Arc::new(Schema::new(fields)), columns).expect("columns of its schema");
            let error = read(&other).expect_err(field.name()).to_string();
            assert!(error.contains(&format!("`{}`", field.name())), "{error}");
        }
    }

    /// Breaks if a column of one filter is taken for that of another.
    #[test]
    fn filters_are_told_apart() {
        let filter = Arc::new(SpanFilter::Root);
        let column = |number, filter: &Arc<SpanFilter>| {
            SpanColumn::Passes(NumberedFilter { number, filter: Arc::clone(filter) })
        };
        assert_eq!(column(1, &filter), column(1, &filter));
        assert_ne!(column(1, &filter), column(2, &filter));
        assert_ne!(column(1, &filter), column(1, &Arc::new(SpanFilter::All)));
    }

    #[test]
    fn fields_of_columns() {
        let passes = SpanColumn::Passes(NumberedFilter { number: 7, filter: Arc::new(SpanFilter::Root) });
        let attribute = |place, kind| SpanColumn::Attribute(place, "k".to_owned(), kind);
        let coded = |of: SpanColumn| SpanColumn::Coded(Box::new(of));
        for (column, name, kind, nullable, views) in [
            (SpanColumn::Own("start"), "start", DataType::Int64, false, true),
            (SpanColumn::Own("name"), "name", DataType::Utf8, false, false),
            (SpanColumn::Text("name"), "name", DataType::Utf8View, false, true),
            (SpanColumn::Duration, "duration", DataType::Int64, false, true),
            (SpanColumn::Context("resource"), "resource", DataType::BinaryView, false, false),
            (SpanColumn::Context("service"), "service", DataType::Utf8View, false, true),
            (attribute(Place::Span, AttributeKind::Int), "span.k", DataType::Int64, true, true),
            (attribute(Place::Resource, AttributeKind::Text), "resource.k", DataType::Utf8View, true, true),
            (coded(SpanColumn::Context("service")), "service", coded_texts(), false, true),
            (coded(attribute(Place::Span, AttributeKind::Text)), "span.k", coded_texts(), true, true),
            (passes, "passes_7", DataType::Boolean, false, true),
        ] {
            let schema = schema_of(std::slice::from_ref(&column));
            let field = schema.field(0);
            let found = (field.name().as_str(), field.data_type(), field.is_nullable(), column.takes_views());
            assert_eq!(found, (name, &kind, nullable, views), "{column:?}");
        }
        let texts = StringViewArray::from(vec![Some("a"), None, Some("a")]);
        let coded = code_each(&texts);
        assert_eq!(coded.keys().iter().collect::<Vec<_>>(), [Some(0), None, Some(2)], "a code of its own for each");
        assert_eq!(coded.values().as_string_view(), &texts);
    }
}
