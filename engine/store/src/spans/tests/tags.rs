//! Attribute keys and values, compared with a naive count over the spans that a scan returns.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use arrow::array::AsArray;
use arrow::datatypes::{UInt8Type, UInt64Type};
use datafusion::datasource::provider_as_source;
use datafusion::logical_expr::LogicalPlanBuilder;
use datafusion::physical_plan::collect;
use datafusion::prelude::SessionContext;
use quiver_query::scan_table;
use quiver_types::Access;
use quiver_types::spans::{Place, Span, SpanFilter, SpanSource, TagRequest, Value, tag_kind, tag_value_kind};
use xxhash_rust::xxh3::xxh3_64;

use crate::tags_table;

/// Place and text; types, spans, hashes of values.
type Counts = BTreeMap<(usize, String), (u8, u64, BTreeSet<u64>)>;

fn attributes(span: &Span) -> Vec<(Place, &str, Value<'_>)> {
    let mut all = Vec::new();
    for (place, of) in [
        (Place::Span, &span.attributes),
        (Place::Resource, &span.context.resource),
        (Place::Scope, &span.context.scope_attributes),
    ] {
        all.extend(of.iter().map(|(k, v)| (place, k, v)));
    }
    span.events.iter().for_each(|e| all.extend(e.attributes.iter().map(|(k, v)| (Place::Event, k, v))));
    span.links.iter().for_each(|l| all.extend(l.attributes.iter().map(|(k, v)| (Place::Link, k, v))));
    if !span.context.service.is_empty() {
        all.push((Place::Resource, "service.name", Value::Text(&span.context.service)));
    }
    all
}

fn model(spans: &[Span], request: &TagRequest) -> Counts {
    let mut out = Counts::new();
    for span in spans {
        let mut seen = BTreeSet::new();
        for (place, key, value) in attributes(span).into_iter().filter(|(place, ..)| request.asks(*place)) {
            let text = value.text().into_owned();
            let (about, kind) = match &request.key {
                Some(wanted) if wanted != key => continue,
                Some(_) => ((0, text.clone()), tag_value_kind(value)),
                None => ((place as usize, key.to_owned()), tag_kind(value)),
            };
            let counts = out.entry(about.clone()).or_default();
            counts.0 |= kind;
            counts.1 += u64::from(seen.insert(about));
            if request.key.is_none() {
                counts.2.insert(xxh3_64(text.as_bytes()));
            }
        }
    }
    out
}

async fn counted(source: &Arc<dyn SpanSource>, access: &Access, request: &TagRequest) -> Counts {
    let table = scan_table(tags_table(&source.snapshot(), access, request).unwrap());
    let plan = LogicalPlanBuilder::scan("tags", provider_as_source(table), None).unwrap().build().unwrap();
    let session = SessionContext::new();
    let physical = session.state().create_physical_plan(&plan).await.unwrap();
    let mut out = Counts::new();
    for batch in collect(physical, session.task_ctx()).await.unwrap() {
        for i in 0..batch.num_rows() {
            let small = |name: &str| batch[name].as_primitive::<UInt8Type>().value(i);
            let text = batch["text"].as_string::<i32>().value(i).to_owned();
            let counts = out.entry((usize::from(small("place")), text)).or_default();
            counts.0 |= small("kinds");
            counts.1 += batch["spans"].as_primitive::<UInt64Type>().value(i);
            let (hashes, _) = batch["hashes"].as_binary::<i32>().value(i).as_chunks::<8>();
            counts.2.extend(hashes.iter().map(|hash| u64::from_le_bytes(*hash)));
        }
    }
    out
}

/// Checks all keys and the values of some, of the spans that each filter takes.
pub(super) async fn check(source: &Arc<dyn SpanSource>, filters: Vec<SpanFilter>, state: &str) {
    let keys =
        ["text", "number", "double", "mixed", "r", "list", "rare", "host.name", "service.name", "in.event", "no"];
    for filter in filters {
        for access in [Access::full(), Access::services(["b"])] {
            let spans = super::read(source, &access, filter.clone()).await;
            let places = [None].into_iter().chain(Place::ALL.map(Some));
            for place in places {
                for key in [None].into_iter().chain(keys.map(Some)) {
                    let request = TagRequest { filter: filter.clone(), place, key: key.map(str::to_owned) };
                    let got = counted(source, &access, &request).await;
                    assert_eq!(got, model(&spans, &request), "{state}: {filter} {place:?} {key:?}");
                }
            }
        }
    }
}
