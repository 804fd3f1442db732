//! What attributes that a statement names hold: numbers where all values that the caller sees are numbers, else text.

use arrow::array::AsArray;
use futures::TryStreamExt as _;
use quiver_types::spans::{AttributeTest, Attributes, Place, SpanColumn, SpanFilter, SpanRequest, Value};
use quiver_types::{Domain, Error, Result};

use super::attribute_of;
use crate::tables::cells::Kind;
use crate::tables::named::Ask;

/// Gives the kind of each column that was found by name, text where nothing is known.
pub(super) async fn kinds(ask: &Ask<'_>) -> Result<Vec<Kind>> {
    let mut kinds = Vec::with_capacity(ask.found.len());
    for name in ask.found {
        let Some((place, key)) = attribute_of(name) else {
            return Err(Error::internal(format!("`{name}` is no attribute")));
        };
        kinds.push(kind(ask, place, key).await?.unwrap_or(Kind::Text));
    }
    Ok(kinds)
}

fn kind_of(value: Value<'_>) -> Option<Kind> {
    match value {
        Value::Int(_) => Some(Kind::Int),
        Value::Double(number) if number.is_finite() => Some(Kind::Float),
        Value::Text("") => None,
        _ => Some(Kind::Text),
    }
}

async fn kind(ask: &Ask<'_>, place: Place, key: &str) -> Result<Option<Kind>> {
    // A service has a column of its own; no sender means a number by it.
    if (place, key) == (Place::Resource, "service.name") {
        return Ok(None);
    }
    let column = if place == Place::Span { SpanColumn::Own("attributes") } else { SpanColumn::Context("resource") };
    let exists = SpanFilter::Attribute { place: Some(place), key: key.to_owned(), test: AttributeTest::Exists };
    let request = SpanRequest { filter: exists, columns: vec![column] };
    let sources = ask.sources;
    let access = ask.access(Domain::Traces);
    let table = sources.span_tables.spans(&sources.spans, &access, &request, &ask.ctx.stats)?;
    let mut rows = ask.probe(table).await?;
    let mut found: Option<Kind> = None;
    while let Some(batch) = rows.try_next().await.map_err(crate::from_datafusion)? {
        let column = batch.column(0);
        for row in 0..batch.num_rows() {
            let bytes = match column.as_binary_opt::<i32>() {
                Some(bytes) => bytes.value(row),
                None => column.as_binary_view_opt().map_or(&[][..], |bytes| bytes.value(row)),
            };
            let own = Attributes::raw(bytes).find(|a| a.key == key.as_bytes()).and_then(|a| kind_of(a.value()?));
            found = match (found, own) {
                (Some(a), Some(b)) => Some(a.and(b)),
                (a, b) => a.or(b),
            };
        }
        if found == Some(Kind::Text) {
            return Ok(found);
        }
        ask.ctx.check("query planning")?;
    }
    Ok(found)
}
