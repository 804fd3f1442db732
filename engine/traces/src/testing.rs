//! What tests share: a naive evaluation of span filters, against which scans are compared; and a query's memory.

use quiver_query::{EngineSettings, Limits, QueryContext, QueryEngine, QueryReservation};
use quiver_types::Access;
use quiver_types::spans::{Place, Span, SpanFilter, Value};

/// A reservation of a query in a pool of so many bytes.
pub(crate) fn memory(bytes: usize) -> QueryReservation {
    let engine = QueryEngine::new(&EngineSettings::small(bytes)).expect("an engine");
    engine.collected("numbers", &QueryContext::new(Access::full(), Limits::default()))
}

/// Says whether a span passes a filter.
pub(crate) fn passes(filter: &SpanFilter, span: &Span) -> bool {
    match filter {
        SpanFilter::All | SpanFilter::WithoutRepeats => true,
        SpanFilter::None => false,
        SpanFilter::And(all) => all.iter().all(|one| passes(one, span)),
        SpanFilter::Or(any) => any.iter().any(|one| passes(one, span)),
        SpanFilter::Not(one) => !passes(one, span),
        SpanFilter::Traces(ids) => ids.contains(&span.trace_id),
        SpanFilter::Starts(min, max) => (*min..=*max).contains(&span.start),
        SpanFilter::Overlaps(min, max) => span.start <= *max && span.end >= *min,
        SpanFilter::Duration(min, max) => (*min..=*max).contains(&span.duration()),
        SpanFilter::Service(test) => test.matches(span.service_shown()),
        SpanFilter::Name(test) => test.matches(&span.name),
        SpanFilter::Kinds(kinds) => kinds.contains(&span.kind),
        SpanFilter::Status(status) => span.status == *status,
        SpanFilter::Root => span.parent.is_none(),
        SpanFilter::Received(max) => span.received <= *max,
        SpanFilter::Message(test) => test.matches(&span.status_message),
        SpanFilter::EventName(test) => span.events.iter().any(|event| test.matches(&event.name)),
        SpanFilter::ScopeName(test) => test.matches(&span.context.scope_name),
        SpanFilter::ScopeVersion(test) => test.matches(&span.context.scope_version),
        SpanFilter::Attribute { place, key, test } => {
            let places: &[Place] = match place {
                Some(place) => std::slice::from_ref(place),
                None => &Place::ALL,
            };
            places.iter().flat_map(|place| values(span, *place, key)).any(|value| test.matches(value))
        }
    }
}

/// The values of a key at a place.
fn values<'s>(span: &'s Span, place: Place, key: &str) -> Vec<Value<'s>> {
    let context = &span.context;
    match place {
        Place::Span => span.attributes.get(key).into_iter().collect(),
        Place::Resource if key == "service.name" => {
            let service = context.service.as_str();
            if service.is_empty() { Vec::new() } else { vec![Value::Text(service)] }
        }
        Place::Resource => context.resource.get(key).into_iter().collect(),
        Place::Scope => context.scope_attributes.get(key).into_iter().collect(),
        Place::Event => span.events.iter().filter_map(|event| event.attributes.get(key)).collect(),
        Place::Link => span.links.iter().filter_map(|link| link.attributes.get(key)).collect(),
    }
}
