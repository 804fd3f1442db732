//! `resources` and `resource_relationships`: managed resources in the current configuration, and their relationships.
//! The owner of the configuration makes the rows; here they are filtered by the caller's rights.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::{
    Array as _, ArrayRef, AsArray as _, BooleanArray, Float64Array, Int64Array, MapArray, RecordBatch, StringViewArray,
};
use arrow::compute::filter_record_batch;
use arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit};
use datafusion::catalog::{MemTable, TableProvider};
use futures::future::BoxFuture;
use quiver_types::{Access, Domain, Error, Result};

use super::cells::{TextMaps, text, text_column, text_map, time, time_column};
use super::named_table::{Ask, NamedTable};
use crate::error::from_datafusion;

/// Prefix of columns that are attributes.
const ATTRIBUTES: &str = "attributes.";
/// Columns with services, all of which the caller must be allowed to see.
const SERVICE: &str = "service_name";
const TARGET_SERVICE: &str = "target_service_name";
/// The column with the number of a resource's relationships.
const RELATIONSHIPS: &str = "relationships";

/// A managed resource; empty texts are NULL.
#[derive(Debug, Clone, Default)]
pub struct ManagedResource<'a> {
    /// Id of the resource.
    pub id: &'a str,
    /// The name that people see.
    pub display_name: &'a str,
    /// What distinguishes it from others of its type.
    pub key: &'a str,
    /// The key of its type.
    pub kind: &'a str,
    /// The key of the CI class of the type.
    pub ci_class: &'a str,
    /// The key of the subclass.
    pub ci_subclass: &'a str,
    /// `active`, `inactive`, `retired`.
    pub state: &'a str,
    /// `ok`, `warning`, `critical`, `unknown`.
    pub health: &'a str,
    /// Name of the service that it belongs to; empty if none.
    pub service: &'a str,
    /// `discovered`, `manual`, `import`.
    pub source: &'a str,
    /// Attributes sorted by key.
    pub attributes: Vec<(&'a str, String)>,
    /// When telemetry first mentioned it, Unix milliseconds.
    pub first_seen_ms: Option<i64>,
    /// When telemetry last mentioned it, Unix milliseconds.
    pub last_seen_ms: Option<i64>,
    /// The number of its relationships.
    pub relationships: i64,
}

/// One end of a relationship; empty texts are NULL.
#[derive(Debug, Clone, Copy, Default)]
pub struct RelatedResource<'a> {
    /// Id of the resource.
    pub id: &'a str,
    /// The name that people see.
    pub display_name: &'a str,
    /// The key of its type.
    pub kind: &'a str,
    /// Name of the service that it belongs to; empty if none.
    pub service: &'a str,
}

/// A relationship between two resources.
#[derive(Debug, Clone, Default)]
pub struct ManagedRelationship<'a> {
    /// Id of the relationship.
    pub id: &'a str,
    /// The key of its type.
    pub kind: &'a str,
    /// Where it comes from.
    pub source: RelatedResource<'a>,
    /// Where it goes to.
    pub target: RelatedResource<'a>,
    /// `discovered`, `manual`, `import`.
    pub origin: &'a str,
    /// Confidence, 0 to 1.
    pub confidence: Option<f64>,
    /// Start of validity, Unix milliseconds.
    pub valid_from_ms: Option<i64>,
    /// End of validity, Unix milliseconds.
    pub valid_to_ms: Option<i64>,
}

/// One of the two tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ResourceTable {
    /// One row per resource.
    Resources,
    /// One row per relationship.
    Relationships,
}

fn resource_columns() -> SchemaRef {
    Arc::new(Schema::new(vec![
        text("id"),
        text("display_name"),
        text("key"),
        text("type"),
        text("ci_class"),
        text("ci_subclass"),
        text("state"),
        text("health"),
        text(SERVICE),
        text("source"),
        text_map("attributes"),
        time("first_seen", TimeUnit::Millisecond),
        time("last_seen", TimeUnit::Millisecond),
        Field::new(RELATIONSHIPS, DataType::Int64, true),
    ]))
}

fn relationship_columns() -> SchemaRef {
    Arc::new(Schema::new(vec![
        text("id"),
        text("type"),
        text("source_id"),
        text("source_name"),
        text("source_type"),
        text(SERVICE),
        text("target_id"),
        text("target_name"),
        text("target_type"),
        text(TARGET_SERVICE),
        text("origin"),
        Field::new("confidence", DataType::Float64, true),
        time("valid_from", TimeUnit::Millisecond),
        time("valid_to", TimeUnit::Millisecond),
    ]))
}

fn batch(columns: SchemaRef, arrays: Vec<ArrayRef>) -> Result<RecordBatch> {
    RecordBatch::try_new(columns, arrays).map_err(|e| Error::internal("cannot list resources").with_source(e))
}

/// Rows of `resources`.
///
/// # Errors
///
/// Internal only.
pub fn resource_rows(rows: &[ManagedResource<'_>]) -> Result<RecordBatch> {
    let mut attributes = TextMaps::default();
    for row in rows {
        row.attributes.iter().for_each(|(key, value)| attributes.push(key, value));
        attributes.end();
    }
    let arrays: Vec<ArrayRef> = vec![
        text_column(rows, |row| row.id),
        text_column(rows, |row| row.display_name),
        text_column(rows, |row| row.key),
        text_column(rows, |row| row.kind),
        text_column(rows, |row| row.ci_class),
        text_column(rows, |row| row.ci_subclass),
        text_column(rows, |row| row.state),
        text_column(rows, |row| row.health),
        text_column(rows, |row| row.service),
        text_column(rows, |row| row.source),
        Arc::new(attributes.finish()?),
        time_column(rows, |row| row.first_seen_ms),
        time_column(rows, |row| row.last_seen_ms),
        Arc::new(rows.iter().map(|row| Some(row.relationships)).collect::<Int64Array>()),
    ];
    batch(resource_columns(), arrays)
}

/// Rows of `resource_relationships`.
///
/// # Errors
///
/// Internal only.
pub fn relationship_rows(rows: &[ManagedRelationship<'_>]) -> Result<RecordBatch> {
    let arrays: Vec<ArrayRef> = vec![
        text_column(rows, |row| row.id),
        text_column(rows, |row| row.kind),
        text_column(rows, |row| row.source.id),
        text_column(rows, |row| row.source.display_name),
        text_column(rows, |row| row.source.kind),
        text_column(rows, |row| row.source.service),
        text_column(rows, |row| row.target.id),
        text_column(rows, |row| row.target.display_name),
        text_column(rows, |row| row.target.kind),
        text_column(rows, |row| row.target.service),
        text_column(rows, |row| row.origin),
        Arc::new(rows.iter().map(|row| row.confidence).collect::<Float64Array>()),
        time_column(rows, |row| row.valid_from_ms),
        time_column(rows, |row| row.valid_to_ms),
    ];
    batch(relationship_columns(), arrays)
}

/// Keeps the rows whose services a caller may see. Rows without a service are visible to callers who see all.
fn cut(rows: &RecordBatch, access: &Access) -> Result<RecordBatch> {
    let services: Vec<&StringViewArray> =
        [SERVICE, TARGET_SERVICE].iter().filter_map(|name| rows.column_by_name(name)?.as_string_view_opt()).collect();
    let sees = |row: usize| services.iter().all(|of| of.is_valid(row) && access.allows(of.value(row)));
    let seen: BooleanArray = (0..rows.num_rows()).map(|row| Some(sees(row))).collect();
    filter_record_batch(rows, &seen).map_err(|e| Error::internal("cannot choose resources").with_source(e))
}

/// Resources with the number of those relationships that the caller may see.
fn recounted(rows: &RecordBatch, related: &RecordBatch) -> Result<RecordBatch> {
    let fault = || Error::internal("a column of resources is of another type");
    let texts = |batch: &RecordBatch, name: &str| -> Result<StringViewArray> {
        batch.column_by_name(name).and_then(|column| column.as_string_view_opt()).cloned().ok_or_else(fault)
    };
    let (ids, ends) = (texts(rows, "id")?, [texts(related, "source_id")?, texts(related, "target_id")?]);
    let mut numbers: HashMap<&str, i64> = HashMap::new();
    ends.iter().flat_map(StringViewArray::iter).flatten().for_each(|id| *numbers.entry(id).or_default() += 1);
    let counted: Int64Array = ids.iter().map(|id| Some(numbers.get(id?).copied().unwrap_or_default())).collect();
    let at = rows.schema().index_of(RELATIONSHIPS).map_err(|_| fault())?;
    let mut arrays = rows.columns().to_vec();
    arrays[at] = Arc::new(counted);
    batch(rows.schema(), arrays)
}

/// The values of an attribute.
fn attribute(maps: &MapArray, key: &str) -> Option<StringViewArray> {
    let (keys, values) = (maps.keys().as_string_opt::<i32>()?, maps.values().as_string_opt::<i32>()?);
    let value = |ends: &[i32]| {
        let mut places = ends[0] as usize..ends[1] as usize;
        places.find(|at| keys.value(*at) == key).map(|at| values.value(at))
    };
    Some(maps.value_offsets().windows(2).map(value).collect())
}

impl NamedTable for ResourceTable {
    fn name(&self) -> &'static str {
        match self {
            Self::Resources => "resources",
            Self::Relationships => "resource_relationships",
        }
    }

    fn domain(&self) -> Domain {
        Domain::Resources
    }

    fn columns(&self) -> SchemaRef {
        match self {
            Self::Resources => resource_columns(),
            Self::Relationships => relationship_columns(),
        }
    }

    fn finds(&self, column: &str) -> bool {
        *self == Self::Resources && column.strip_prefix(ATTRIBUTES).is_some_and(|key| !key.is_empty())
    }

    fn open<'a>(&'a self, ask: &'a Ask<'a>) -> BoxFuture<'a, Result<Arc<dyn TableProvider>>> {
        Box::pin(async move {
            let fault = || Error::internal("a column of resources is of another type");
            let all = ask.sources.configuration.resources().await?;
            let rows = match self {
                Self::Resources => &all.resources,
                Self::Relationships => &all.relationships,
            };
            let mut rows = rows.clone().unwrap_or_else(|| RecordBatch::new_empty(self.columns()));
            let access = ask.access(Domain::Resources);
            if !access.is_full() {
                rows = cut(&rows, &access)?;
                if let (Self::Resources, Some(related)) = (self, &all.relationships) {
                    rows = recounted(&rows, &cut(related, &access)?)?;
                }
            }
            let mut fields: Vec<Field> = rows.schema().fields().iter().map(|field| Field::clone(field)).collect();
            let mut arrays = rows.columns().to_vec();
            for name in ask.found {
                let maps =
                    rows.column_by_name("attributes").and_then(|column| column.as_map_opt()).ok_or_else(fault)?;
                let key = name.strip_prefix(ATTRIBUTES).unwrap_or(name);
                fields.push(text(name.clone()));
                arrays.push(Arc::new(attribute(maps, key).ok_or_else(fault)?));
            }
            let schema = Arc::new(Schema::new(fields));
            let rows = batch(Arc::clone(&schema), arrays)?;
            Ok(Arc::new(MemTable::try_new(schema, vec![vec![rows]]).map_err(from_datafusion)?)
                as Arc<dyn TableProvider>)
        })
    }
}

#[cfg(test)]
mod tests {
    use arrow::datatypes::Int64Type;

    use super::*;
    use crate::testing::misplaced;

    /// Neither rows nor counts reveal what a caller may not see.
    #[test]
    fn what_a_caller_sees() {
        let resource = |id, service| ManagedResource { id, service, relationships: 9, ..ManagedResource::default() };
        let rows =
            resource_rows(&[resource("1", "cart"), resource("2", "cart"), resource("3", "pay"), resource("4", "")]);
        let end = |id, service| RelatedResource { id, service, ..RelatedResource::default() };
        let edge = |source, target| ManagedRelationship { source, target, ..ManagedRelationship::default() };
        let (one, two) = (end("1", "cart"), end("2", "cart"));
        let related =
            relationship_rows(&[edge(one, two), edge(one, end("3", "pay")), edge(one, end("4", ""))]).unwrap();
        let access = Access::services(["cart"]);
        let (rows, related) = (cut(&rows.unwrap(), &access).unwrap(), cut(&related, &access).unwrap());
        assert_eq!((rows.num_rows(), related.num_rows()), (2, 1));
        let counted = recounted(&rows, &related).unwrap();
        let numbers = counted.column_by_name(RELATIONSHIPS).unwrap().as_primitive::<Int64Type>();
        assert_eq!(numbers.values().to_vec(), [1, 1]);
    }

    #[test]
    fn rows_and_attributes() {
        let one = ManagedResource {
            id: "1",
            key: "cart",
            attributes: vec![("host.name", "h1".to_owned()), ("region", "eu".to_owned())],
            first_seen_ms: Some(5),
            ..ManagedResource::default()
        };
        let rows = resource_rows(&[one, ManagedResource { id: "2", ..ManagedResource::default() }]).unwrap();
        assert_eq!((rows.num_rows(), rows.schema()), (2, ResourceTable::Resources.columns()));
        assert!(rows.column_by_name("service_name").unwrap().is_null(0), "empty texts are NULL");
        let maps = rows.column_by_name("attributes").unwrap().as_map();
        let regions = attribute(maps, "region").unwrap();
        assert_eq!((regions.value(0), regions.is_null(1)), ("eu", true));
        let related = relationship_rows(&[ManagedRelationship { id: "r", ..ManagedRelationship::default() }]).unwrap();
        assert_eq!(related.schema(), ResourceTable::Relationships.columns());
        assert!(
            ResourceTable::Resources.finds("attributes.a.b") && !ResourceTable::Relationships.finds("attributes.a")
        );
    }

    #[test]
    fn each_value_stands_in_its_column() {
        let resource = ManagedResource {
            id: "id",
            display_name: "display_name",
            key: "key",
            kind: "type",
            ci_class: "ci_class",
            ci_subclass: "ci_subclass",
            state: "state",
            health: "health",
            service: SERVICE,
            source: "source",
            attributes: Vec::new(),
            first_seen_ms: Some(1),
            last_seen_ms: None,
            relationships: 4,
        };
        let rows = resource_rows(&[resource]).unwrap();
        assert!(misplaced(&rows).is_empty(), "{:?}", misplaced(&rows));
        let is_null = |rows: &RecordBatch, name: &str| rows.column_by_name(name).unwrap().is_null(0);
        assert!(!is_null(&rows, "first_seen") && is_null(&rows, "last_seen"));
        let edge = ManagedRelationship {
            id: "id",
            kind: "type",
            source: RelatedResource {
                id: "source_id",
                display_name: "source_name",
                kind: "source_type",
                service: SERVICE,
            },
            target: RelatedResource {
                id: "target_id",
                display_name: "target_name",
                kind: "target_type",
                service: TARGET_SERVICE,
            },
            origin: "origin",
            confidence: Some(0.5),
            valid_from_ms: None,
            valid_to_ms: Some(2),
        };
        let rows = relationship_rows(&[edge]).unwrap();
        assert!(misplaced(&rows).is_empty(), "{:?}", misplaced(&rows));
        assert!(is_null(&rows, "valid_from") && !is_null(&rows, "valid_to"));
    }
}
