//! Finds the kinds of attributes that a statement names: numbers if all values that the caller sees are numbers, else
//! text. Where more is read than he sees, that decides nothing.

use arrow::array::AsArray;
use futures::TryStreamExt as _;
use quiver_types::spans::{
    AttributeKind, AttributeTest, Attributes, KnownKind, Place, SpanColumn, SpanFilter, SpanRequest,
};
use quiver_types::{Domain, Error, Result};

use super::columns::attribute_of;
use super::conventions;
use crate::error::from_datafusion;
use crate::tables::cells::CellKind;
use crate::tables::config_columns;
use crate::tables::named_table::Ask;

/// The kind that the conventions or the configuration define for a column, whatever the data is.
fn fixed(name: &str) -> Option<CellKind> {
    conventions::kind_of(name).or_else(|| config_columns::kind_of(name))
}

/// Whether the kind of a column does not depend on the data.
pub(super) fn is_fixed(name: &str) -> bool {
    fixed(name).is_some()
}

/// The kind of each column that was found by name; text if nothing is known.
pub(super) async fn kinds(ask: &Ask<'_>) -> Result<Vec<CellKind>> {
    // Columns of a fixed kind need not be looked up in the data.
    let asked = |name: &&String| fixed(name).is_none();
    let attribute = |name: &String| {
        let found = attribute_of(name).ok_or_else(|| Error::internal(format!("`{name}` is no attribute")));
        found.map(|(place, key)| (place, key.to_owned()))
    };
    let attributes = ask.found.iter().filter(asked).map(attribute).collect::<Result<Vec<_>>>()?;
    let sources = ask.sources;
    let access = ask.typing_access(Domain::Traces);
    let known = sources.span_tables.kinds(&sources.spans, &access, &attributes, &ask.ctx.stats).await?;
    let mut known = attributes.iter().zip(known);
    let mut kinds = Vec::with_capacity(ask.found.len());
    for name in ask.found {
        if let Some(kind) = fixed(name) {
            kinds.push(kind);
            continue;
        }
        let ((place, key), known) = known.next().ok_or_else(|| Error::internal("an attribute without a kind"))?;
        kinds.push(match known {
            // The service has a column of its own, and is never a number.
            _ if (*place, key.as_str()) == (Place::Resource, "service.name") => CellKind::Text,
            KnownKind::None => CellKind::Text,
            KnownKind::All(kind) => kind_of(kind),
            KnownKind::Unknown => looked_at(ask, *place, key).await?.map_or(CellKind::Text, kind_of),
        });
    }
    Ok(kinds)
}

fn kind_of(kind: AttributeKind) -> CellKind {
    match kind {
        AttributeKind::Text => CellKind::Text,
        AttributeKind::Int => CellKind::Int,
        AttributeKind::Double => CellKind::Float,
    }
}

/// Reads rows that have the attribute.
async fn looked_at(ask: &Ask<'_>, place: Place, key: &str) -> Result<Option<AttributeKind>> {
    let column = if place == Place::Span { SpanColumn::Own("attributes") } else { SpanColumn::Context("resource") };
    let exists = SpanFilter::Attribute { place: Some(place), key: key.to_owned(), test: AttributeTest::Exists };
    let request = SpanRequest { filter: exists, columns: vec![column] };
    let sources = ask.sources;
    let access = ask.typing_access(Domain::Traces);
    let table = sources.span_tables.spans(&sources.spans, &access, &request, &ask.ctx.stats)?;
    let mut rows = ask.probe(table).await?;
    let mut found: Option<AttributeKind> = None;
    while let Some(batch) = rows.try_next().await.map_err(from_datafusion)? {
        let column = batch.column(0);
        for row in 0..batch.num_rows() {
            let bytes = match column.as_binary_opt::<i32>() {
                Some(bytes) => bytes.value(row),
                None => column.as_binary_view_opt().map_or(&[][..], |bytes| bytes.value(row)),
            };
            let own =
                Attributes::raw(bytes).find(|a| a.key == key.as_bytes()).and_then(|a| AttributeKind::of(a.value()?));
            found = match (found, own) {
                (Some(a), Some(b)) => Some(a.and(b)),
                (a, b) => a.or(b),
            };
        }
        if found == Some(AttributeKind::Text) {
            return Ok(found);
        }
        ask.ctx.check("query planning")?;
    }
    Ok(found)
}
