//! Columns of a scan of spans: which ones a read asks for, and access to them in the resulting batches.

use arrow::array::{
    Array, AsArray, BinaryArray, BinaryViewArray, FixedSizeBinaryArray, Int32Array, Int64Array, RecordBatch,
    StringArray, StringViewArray, UInt8Array, UInt64Array,
};
use arrow::datatypes::{Int32Type, Int64Type, UInt8Type, UInt64Type};
use quiver_types::Error;
use quiver_types::spans::{Attributes, Place, SpanColumn, Value, events, links};

/// Columns of a batch by name and type.
pub(crate) struct Columns<'b>(pub(crate) &'b RecordBatch);

impl<'b> Columns<'b> {
    fn column(&self, name: &str) -> Result<&'b dyn Array, Error> {
        let column = self.0.column_by_name(name).map(|c| &**c);
        column.ok_or_else(|| Error::internal(format!("a scan of spans lacks `{name}`")))
    }

    pub(crate) fn ids(&self, name: &str) -> Result<&'b FixedSizeBinaryArray, Error> {
        Ok(self.column(name)?.as_fixed_size_binary())
    }

    pub(crate) fn times(&self, name: &str) -> Result<&'b Int64Array, Error> {
        Ok(self.column(name)?.as_primitive::<Int64Type>())
    }

    pub(crate) fn scales(&self, name: &str) -> Result<&'b Int32Array, Error> {
        Ok(self.column(name)?.as_primitive::<Int32Type>())
    }

    pub(crate) fn sizes(&self, name: &str) -> Result<&'b UInt64Array, Error> {
        Ok(self.column(name)?.as_primitive::<UInt64Type>())
    }

    pub(crate) fn small(&self, name: &str) -> Result<&'b UInt8Array, Error> {
        Ok(self.column(name)?.as_primitive::<UInt8Type>())
    }

    pub(crate) fn text(&self, name: &str) -> Result<&'b StringArray, Error> {
        Ok(self.column(name)?.as_string::<i32>())
    }

    pub(crate) fn bytes(&self, name: &str) -> Result<&'b BinaryArray, Error> {
        Ok(self.column(name)?.as_binary::<i32>())
    }

    pub(crate) fn view(&self, name: &str) -> Result<&'b StringViewArray, Error> {
        Ok(self.column(name)?.as_string_view())
    }

    pub(crate) fn bytes_view(&self, name: &str) -> Result<&'b BinaryViewArray, Error> {
        Ok(self.column(name)?.as_binary_view())
    }
}

/// Names columns of spans and contexts.
pub(crate) fn columns(own: &[&'static str], context: &[&'static str]) -> Vec<SpanColumn> {
    let own = own.iter().map(|c| SpanColumn::Own(c));
    own.chain(context.iter().map(|c| SpanColumn::Context(c))).collect()
}

/// Gives the columns in which attributes of a place stand.
pub(crate) fn place_columns(place: Option<Place>) -> Vec<SpanColumn> {
    match place {
        Some(Place::Span) => columns(&["attributes"], &[]),
        Some(Place::Resource) => columns(&[], &["resource", "service"]),
        Some(Place::Event) => columns(&["events"], &[]),
        Some(Place::Link) => columns(&["links"], &[]),
        Some(Place::Scope) => columns(&[], &["scope_attributes"]),
        None => columns(&["attributes", "events", "links"], &["resource", "service", "scope_attributes"]),
    }
}

/// Hands each attribute of a row with its place to a function. Columns that were not asked for have none.
pub(crate) fn each_attribute(c: &Columns<'_>, row: usize, mut f: impl FnMut(Place, &str, Value<'_>)) {
    let mut list = |place: Place, bytes: &[u8]| Attributes::read(bytes).for_each(|(key, value)| f(place, key, value));
    if let Ok(bytes) = c.bytes("attributes") {
        list(Place::Span, bytes.value(row));
    }
    if let Ok(bytes) = c.bytes_view("resource") {
        list(Place::Resource, bytes.value(row));
    }
    if let Ok(bytes) = c.bytes("events") {
        events(bytes.value(row)).for_each(|e| list(Place::Event, e.attributes));
    }
    if let Ok(bytes) = c.bytes("links") {
        links(bytes.value(row)).for_each(|l| list(Place::Link, l.attributes));
    }
    if let Ok(bytes) = c.bytes_view("scope_attributes") {
        list(Place::Scope, bytes.value(row));
    }
    if c.0.column_by_name("resource").is_some()
        && let Ok(services) = c.view("service")
        && !services.value(row).is_empty()
    {
        f(Place::Resource, "service.name", Value::Text(services.value(row)));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::ArrayRef;
    use quiver_types::ErrorKind;
    use quiver_types::spans::{EventRef, LinkRef, push_event, push_link};

    use super::*;

    #[test]
    fn a_column_that_lacks_is_named() {
        let empty = RecordBatch::new_empty(Arc::new(arrow::datatypes::Schema::empty()));
        let c = Columns(&empty);
        let errors = [
            c.ids("a").err(),
            c.times("a").err(),
            c.scales("a").err(),
            c.sizes("a").err(),
            c.small("a").err(),
            c.text("a").err(),
            c.bytes("a").err(),
            c.view("a").err(),
            c.bytes_view("a").err(),
        ];
        for error in errors {
            let error = error.expect("there is no such column");
            assert_eq!((error.kind, error.message.as_str()), (ErrorKind::Internal, "a scan of spans lacks `a`"));
        }
    }

    fn attributes(key: &str, value: &str) -> Attributes {
        Attributes::of([(key, Value::Text(value))])
    }

    /// One row with an attribute at each place; without the columns that are left out.
    fn batch(service: &str, without: &[&str]) -> RecordBatch {
        let (own, resource, scope) = (attributes("a", "span"), attributes("a", "resource"), attributes("a", "scope"));
        let (mut events, mut links) = (Vec::new(), Vec::new());
        for value in ["first", "second"] {
            let of = attributes("a", value);
            push_event(&mut events, &EventRef { time: 1, name: "e", dropped: 0, attributes: of.bytes() });
        }
        let of = attributes("b", "link");
        let link = LinkRef {
            trace_id: [1; 16],
            span_id: [2; 8],
            trace_state: "",
            flags: 0,
            dropped: 0,
            attributes: of.bytes(),
        };
        push_link(&mut links, &link);
        let bytes = |of: &[u8]| Arc::new(BinaryArray::from_vec(vec![of])) as ArrayRef;
        let views = |of: &[u8]| Arc::new(BinaryViewArray::from_iter_values([of])) as ArrayRef;
        let all = [
            ("attributes", bytes(own.bytes())),
            ("events", bytes(&events)),
            ("links", bytes(&links)),
            ("resource", views(resource.bytes())),
            ("service", Arc::new(StringViewArray::from_iter_values([service])) as ArrayRef),
            ("scope_attributes", views(scope.bytes())),
        ];
        RecordBatch::try_from_iter(all.into_iter().filter(|(name, _)| !without.contains(name))).unwrap()
    }

    fn found(batch: &RecordBatch) -> Vec<String> {
        let mut found = Vec::new();
        each_attribute(&Columns(batch), 0, |place, key, value| {
            found.push(format!("{}.{key}={}", place.name(), value.text()));
        });
        found
    }

    /// Breaks if a place is left out, or attributes of one come as those of another.
    #[test]
    fn attributes_come_with_their_places() {
        assert_eq!(
            found(&batch("web", &[])),
            [
                "span.a=span",
                "resource.a=resource",
                "event.a=first",
                "event.a=second",
                "link.b=link",
                "scope.a=scope",
                "resource.service.name=web",
            ]
        );
        // A service that no sender named is not an attribute.
        assert!(!found(&batch("", &[])).iter().any(|one| one.starts_with("resource.service.name")));
        // Nor is it one where resources were not asked for.
        assert_eq!(found(&batch("web", &["resource", "events", "links", "scope_attributes"])), ["span.a=span"]);
        assert_eq!(
            found(&batch("web", &["attributes", "events", "links", "scope_attributes"])),
            ["resource.a=resource", "resource.service.name=web"]
        );
    }

    /// Breaks if the columns of a place are not those in which its attributes stand.
    #[test]
    fn columns_of_a_place_hold_its_attributes() {
        let names = ["attributes", "events", "links", "resource", "service", "scope_attributes"];
        for place in Place::ALL {
            let wanted: Vec<String> = place_columns(Some(place)).iter().map(SpanColumn::name).collect();
            let without: Vec<&str> = names.into_iter().filter(|name| !wanted.iter().any(|one| one == name)).collect();
            let found = found(&batch("web", &without));
            assert!(!found.is_empty(), "{place:?}");
            assert!(found.iter().all(|one| one.starts_with(place.name())), "{place:?}: {found:?}");
        }
        let all: Vec<String> = place_columns(None).iter().map(SpanColumn::name).collect();
        assert!(names.iter().all(|name| all.iter().any(|one| one == name)), "{all:?}");
    }
}
