//! The tables of `information_schema`.

use arrow::datatypes::DataType;

use super::rows::{Row, Shape};
use super::schemas::{INFORMATION_SCHEMA, SCHEMAS};
use super::types::{pg_type, type_oid};
use super::{Catalog, type_name};
use crate::session::{DATABASE, Session};

const fn shape(name: &'static str, columns: &'static str) -> Shape {
    Shape { name, columns }
}

/// Bytes of a text at most, as PostgreSQL has it.
const TEXT_BYTES: i64 = 1 << 30;

/// Columns of the tables about privileges; `SELECT` is the only one.
const PRIVILEGES: &str = "grantor:t grantee:t table_catalog:t table_schema:t table_name:t privilege_type:t=SELECT \
                          is_grantable:t=NO with_hierarchy:t=YES";

/// Columns of the tables about rights to functions.
const ROUTINES: &str = "grantor:t grantee:t specific_catalog:t specific_schema:t specific_name:t routine_catalog:t \
                        routine_schema:t routine_name:t privilege_type:t is_grantable:t";

/// The tables of the schema. Most are about objects that Quiver does not have.
pub(super) const ALL: [Shape; 36] = [
    shape(
        "character_sets",
        "character_set_catalog:t character_set_schema:t character_set_name:t=UTF8 character_repertoire:t=UCS \
         form_of_use:t=UTF8 default_collate_catalog:t default_collate_schema:t default_collate_name:t",
    ),
    shape("schemata", "catalog_name:t schema_name:t schema_owner:t"),
    shape(
        "tables",
        "table_catalog:t table_schema:t table_name:t table_type:t self_referencing_column_name:t \
         reference_generation:t user_defined_type_catalog:t user_defined_type_schema:t user_defined_type_name:t \
         is_insertable_into:t=NO is_typed:t=NO commit_action:t",
    ),
    shape(
        "columns",
        "table_catalog:t table_schema:t table_name:t column_name:t ordinal_position:l column_default:t is_nullable:t \
         data_type:t character_maximum_length:i character_octet_length:i numeric_precision:i numeric_precision_radix:i \
         numeric_scale:i datetime_precision:i interval_type:t interval_precision:i character_set_catalog:t \
         character_set_schema:t character_set_name:t collation_catalog:t collation_schema:t collation_name:t \
         domain_catalog:t domain_schema:t domain_name:t udt_catalog:t udt_schema:t=pg_catalog udt_name:t scope_catalog:t \
         scope_schema:t scope_name:t maximum_cardinality:i dtd_identifier:t is_self_referencing:t=NO is_identity:t=NO \
         identity_generation:t identity_start:t identity_increment:t identity_maximum:t identity_minimum:t \
         identity_cycle:t=NO is_generated:t=NEVER generation_expression:t is_updatable:t=NO",
    ),
    shape(
        "views",
        "table_catalog:t table_schema:t table_name:t view_definition:t check_option:t is_updatable:t \
         is_insertable_into:t is_trigger_updatable:t is_trigger_deletable:t is_trigger_insertable_into:t",
    ),
    shape(
        "table_constraints",
        "constraint_catalog:t constraint_schema:t constraint_name:t table_catalog:t table_schema:t table_name:t \
         constraint_type:t is_deferrable:t initially_deferred:t enforced:t",
    ),
    shape(
        "key_column_usage",
        "constraint_catalog:t constraint_schema:t constraint_name:t table_catalog:t table_schema:t table_name:t \
         column_name:t ordinal_position:l position_in_unique_constraint:l",
    ),
    shape(
        "referential_constraints",
        "constraint_catalog:t constraint_schema:t constraint_name:t unique_constraint_catalog:t \
         unique_constraint_schema:t unique_constraint_name:t match_option:t update_rule:t delete_rule:t",
    ),
    shape(
        "constraint_column_usage",
        "table_catalog:t table_schema:t table_name:t column_name:t constraint_catalog:t constraint_schema:t constraint_name:t",
    ),
    shape(
        "sequences",
        "sequence_catalog:t sequence_schema:t sequence_name:t data_type:t numeric_precision:i numeric_precision_radix:i \
         numeric_scale:i start_value:t minimum_value:t maximum_value:t increment:t cycle_option:t",
    ),
    shape(
        "routines",
        "specific_catalog:t specific_schema:t specific_name:t routine_catalog:t routine_schema:t routine_name:t \
         routine_type:t data_type:t type_udt_catalog:t type_udt_schema:t type_udt_name:t routine_body:t=EXTERNAL \
         routine_definition:t external_name:t external_language:t=INTERNAL is_deterministic:t=NO sql_data_access:t \
         is_null_call:t security_type:t=INVOKER created:z last_altered:z",
    ),
    shape(
        "parameters",
        "specific_catalog:t specific_schema:t specific_name:t ordinal_position:l parameter_mode:t is_result:t \
         as_locator:t parameter_name:t data_type:t udt_catalog:t udt_schema:t udt_name:t parameter_default:t",
    ),
    shape(
        "element_types",
        "object_catalog:t object_schema:t object_name:t object_type:t collection_type_identifier:t data_type:t \
         udt_catalog:t udt_schema:t udt_name:t",
    ),
    shape(
        "column_privileges",
        "grantor:t grantee:t table_catalog:t table_schema:t table_name:t column_name:t privilege_type:t is_grantable:t",
    ),
    shape(
        "triggers",
        "trigger_catalog:t trigger_schema:t trigger_name:t event_manipulation:t event_object_catalog:t \
         event_object_schema:t event_object_table:t action_order:i action_condition:t action_statement:t \
         action_orientation:t action_timing:t created:z",
    ),
    shape("table_privileges", PRIVILEGES),
    shape("role_table_grants", PRIVILEGES),
    shape("check_constraints", "constraint_catalog:t constraint_schema:t constraint_name:t check_clause:t"),
    shape(
        "domains",
        "domain_catalog:t domain_schema:t domain_name:t data_type:t character_maximum_length:l numeric_precision:l \
         numeric_scale:l domain_default:t udt_catalog:t udt_schema:t udt_name:t",
    ),
    shape(
        "foreign_tables",
        "foreign_table_catalog:t foreign_table_schema:t foreign_table_name:t foreign_server_catalog:t \
         foreign_server_name:t",
    ),
    shape("information_schema_catalog_name", "catalog_name:t"),
    shape("enabled_roles", "role_name:t"),
    shape("applicable_roles", "grantee:t role_name:t is_grantable:t"),
    shape("administrable_role_authorizations", "grantee:t role_name:t is_grantable:t"),
    shape(
        "role_column_grants",
        "grantor:t grantee:t table_catalog:t table_schema:t table_name:t column_name:t privilege_type:t is_grantable:t",
    ),
    shape("routine_privileges", ROUTINES),
    shape("role_routine_grants", ROUTINES),
    shape(
        "usage_privileges",
        "grantor:t grantee:t object_catalog:t object_schema:t object_name:t object_type:t privilege_type:t \
         is_grantable:t",
    ),
    shape(
        "constraint_table_usage",
        "table_catalog:t table_schema:t table_name:t constraint_catalog:t constraint_schema:t constraint_name:t",
    ),
    shape("view_table_usage", "view_catalog:t view_schema:t view_name:t table_catalog:t table_schema:t table_name:t"),
    shape(
        "view_column_usage",
        "view_catalog:t view_schema:t view_name:t table_catalog:t table_schema:t table_name:t column_name:t",
    ),
    shape("collations", "collation_catalog:t collation_schema:t collation_name:t pad_attribute:t"),
    shape(
        "attributes",
        "udt_catalog:t udt_schema:t udt_name:t attribute_name:t ordinal_position:l attribute_default:t is_nullable:t \
         data_type:t attribute_udt_catalog:t attribute_udt_schema:t attribute_udt_name:t",
    ),
    shape(
        "user_defined_types",
        "user_defined_type_catalog:t user_defined_type_schema:t user_defined_type_name:t user_defined_type_category:t \
         is_instantiable:t",
    ),
    shape(
        "domain_constraints",
        "constraint_catalog:t constraint_schema:t constraint_name:t domain_catalog:t domain_schema:t domain_name:t \
         is_deferrable:t initially_deferred:t",
    ),
    shape(
        "foreign_servers",
        "foreign_server_catalog:t foreign_server_name:t foreign_data_wrapper_catalog:t foreign_data_wrapper_name:t \
         foreign_server_type:t foreign_server_version:t authorization_identifier:t",
    ),
];

/// Whether a table of the schema never has rows.
pub(super) fn is_empty(name: &str) -> bool {
    let filled = [
        "character_sets",
        "schemata",
        "tables",
        "columns",
        "routines",
        "table_privileges",
        "role_table_grants",
        "information_schema_catalog_name",
        "enabled_roles",
    ];
    !filled.contains(&name) && ALL.iter().any(|shape| shape.name == name)
}

impl Catalog {
    /// Rows of a table of `information_schema`.
    pub(super) fn about_rows(&self, name: &str, session: &Session) -> Vec<Row> {
        match name {
            "schemata" => SCHEMAS
                .iter()
                .map(|schema| {
                    vec![
                        ("catalog_name", DATABASE.into()),
                        ("schema_name", (*schema).into()),
                        ("schema_owner", session.user.as_str().into()),
                    ]
                })
                .collect(),
            "information_schema_catalog_name" => vec![vec![("catalog_name", DATABASE.into())]],
            "enabled_roles" => vec![vec![("role_name", session.user.as_str().into())]],
            "character_sets" => vec![vec![("default_collate_catalog", DATABASE.into())]],
            "tables" => self
                .relations()
                .into_iter()
                .map(|relation| {
                    let is_own = self.entries.iter().any(|entry| entry.schema == relation.schema);
                    vec![
                        ("table_catalog", DATABASE.into()),
                        ("table_schema", relation.schema.into()),
                        ("table_name", relation.name.into()),
                        ("table_type", if is_own { "BASE TABLE" } else { "VIEW" }.into()),
                    ]
                })
                .collect(),
            "columns" => self.columns(),
            "table_privileges" | "role_table_grants" => self
                .entries
                .iter()
                .map(|entry| {
                    vec![
                        ("grantor", session.user.as_str().into()),
                        ("grantee", session.user.as_str().into()),
                        ("table_catalog", DATABASE.into()),
                        ("table_schema", entry.schema.into()),
                        ("table_name", entry.name.as_str().into()),
                    ]
                })
                .collect(),
            "routines" => super::functions::known()
                .iter()
                .map(|function| {
                    vec![
                        ("specific_catalog", DATABASE.into()),
                        ("specific_schema", "quiver".into()),
                        ("specific_name", format!("{}_{}", function.name, function.oid).into()),
                        ("routine_catalog", DATABASE.into()),
                        ("routine_schema", "quiver".into()),
                        ("routine_name", function.name.into()),
                        ("routine_type", "FUNCTION".into()),
                    ]
                })
                .collect(),
            _ => Vec::new(),
        }
    }

    fn columns(&self) -> Vec<Row> {
        let mut rows = Vec::new();
        for entry in &self.entries {
            debug_assert_ne!(entry.schema, INFORMATION_SCHEMA);
            for (at, field) in entry.columns.fields().iter().enumerate() {
                let oid = type_oid(field.data_type());
                let array = || super::types::PG_TYPES.iter().find(|known| known.array == oid);
                let udt = match pg_type(oid) {
                    Some(known) => known.name.to_owned(),
                    None => array().map_or_else(String::new, |known| format!("_{}", known.name)),
                };
                let mut row: Row = vec![
                    ("table_catalog", DATABASE.into()),
                    ("table_schema", entry.schema.into()),
                    ("table_name", entry.name.as_str().into()),
                    ("column_name", field.name().as_str().into()),
                    ("ordinal_position", (at as i64 + 1).into()),
                    ("is_nullable", if field.is_nullable() { "YES" } else { "NO" }.into()),
                    ("data_type", type_name(field.data_type()).into()),
                    ("udt_catalog", DATABASE.into()),
                    ("udt_name", udt.into()),
                    ("dtd_identifier", (at as i64 + 1).to_string().into()),
                ];
                row.extend(sizes(field.data_type()));
                rows.push(row);
            }
        }
        rows
    }
}

/// How large values of a type can be, and how exact.
fn sizes(data_type: &DataType) -> Row {
    let number = |precision: i64, radix: i64, scale: Option<i64>| {
        let mut sizes: Row = vec![("numeric_precision", precision.into()), ("numeric_precision_radix", radix.into())];
        sizes.extend(scale.map(|scale| ("numeric_scale", scale.into())));
        sizes
    };
    match data_type {
        DataType::Int8 | DataType::Int16 | DataType::UInt8 => number(16, 2, Some(0)),
        DataType::Int32 | DataType::UInt16 => number(32, 2, Some(0)),
        DataType::Int64 | DataType::UInt32 => number(64, 2, Some(0)),
        DataType::UInt64 => number(20, 10, Some(0)),
        DataType::Float16 | DataType::Float32 => number(24, 2, None),
        DataType::Float64 => number(53, 2, None),
        DataType::Decimal128(precision, scale) => number(i64::from(*precision), 10, Some(i64::from(*scale))),
        DataType::Date32 | DataType::Date64 => vec![("datetime_precision", 0_i64.into())],
        // The port cuts off what is below a microsecond.
        DataType::Timestamp(..)
        | DataType::Time32(_)
        | DataType::Time64(_)
        | DataType::Interval(_)
        | DataType::Duration(_) => vec![("datetime_precision", 6_i64.into())],
        kind if kind.is_string() => vec![("character_octet_length", TEXT_BYTES.into())],
        _ => Row::new(),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::sync::Arc;

    use arrow::datatypes::{Field, Schema, TimeUnit};
    use quiver_query::tables::{PUBLIC_SCHEMA, TableEntry};

    use super::*;
    use crate::catalog::rows::Cell;

    fn catalog() -> Catalog {
        let list = DataType::List(Arc::new(Field::new("item", DataType::Int64, true)));
        let columns = Schema::new(vec![
            Field::new("name", DataType::Utf8, false),
            Field::new("At", DataType::Timestamp(TimeUnit::Nanosecond, Some("UTC".into())), true),
            Field::new("ids", list, true),
            Field::new("attributes", quiver_types::tables::columns::map(), true),
            Field::new("size", DataType::UInt64, false),
        ]);
        let hosts = TableEntry { schema: PUBLIC_SCHEMA, name: "hosts".to_owned(), columns: Arc::new(columns) };
        Catalog::new(vec![hosts], &Session::default())
    }

    /// Texts of a column of a table, row by row.
    fn texts(table: &str, column: &str) -> Vec<String> {
        let rows = catalog().about_rows(table, &Session::of("ann"));
        let text = |row: &Row| match row.iter().find(|(name, _)| *name == column) {
            Some((_, Cell::Text(text))) => text.clone(),
            Some((_, Cell::Int(number))) => number.to_string(),
            other => panic!("{table}.{column}: {other:?}"),
        };
        rows.iter().map(text).collect()
    }

    #[test]
    fn columns_have_names_places_and_types() {
        for (column, expected) in [
            ("column_name", ["name", "At", "ids", "attributes", "size"]),
            ("ordinal_position", ["1", "2", "3", "4", "5"]),
            ("is_nullable", ["NO", "YES", "YES", "YES", "NO"]),
            ("data_type", ["text", "timestamp with time zone", "bigint[]", "map(text, text)", "numeric(20,0)"]),
            // Clients identify types by this name; that of a list is PostgreSQL's name of the array type.
            ("udt_name", ["text", "timestamptz", "_int8", "json", "numeric"]),
            ("table_schema", [PUBLIC_SCHEMA; 5]),
            ("table_catalog", [DATABASE; 5]),
        ] {
            assert_eq!(texts("columns", column), expected, "{column}");
        }
    }

    #[test]
    fn numbers_and_times_have_a_precision() {
        for (data_type, expected) in [
            (DataType::Int64, vec![("numeric_precision", 64), ("numeric_precision_radix", 2), ("numeric_scale", 0)]),
            (DataType::Float64, vec![("numeric_precision", 53), ("numeric_precision_radix", 2)]),
            (
                DataType::Decimal128(9, 4),
                vec![("numeric_precision", 9), ("numeric_precision_radix", 10), ("numeric_scale", 4)],
            ),
            (DataType::Timestamp(TimeUnit::Nanosecond, None), vec![("datetime_precision", 6)]),
            (DataType::Date32, vec![("datetime_precision", 0)]),
            (DataType::Utf8View, vec![("character_octet_length", TEXT_BYTES)]),
            (DataType::Boolean, vec![]),
        ] {
            let expected: Row = expected.into_iter().map(|(name, size)| (name, Cell::Int(size))).collect();
            assert_eq!(sizes(&data_type), expected, "{data_type}");
        }
    }

    #[test]
    fn tables_of_the_system_are_views() {
        let (names, kinds) = (texts("tables", "table_name"), texts("tables", "table_type"));
        let of = |table: &str| names.iter().position(|name| name == table).map(|at| kinds[at].as_str());
        assert_eq!((of("hosts"), of("pg_class"), of("columns")), (Some("BASE TABLE"), Some("VIEW"), Some("VIEW")));
        assert_eq!(kinds.iter().filter(|kind| *kind == "BASE TABLE").count(), 1);
        // Callers may read what they see, and the views about privileges need no privilege.
        for table in ["table_privileges", "role_table_grants"] {
            assert_eq!(texts(table, "table_name"), ["hosts"]);
            assert_eq!(texts(table, "grantee"), ["ann"]);
        }
        assert_eq!(texts("schemata", "schema_name"), SCHEMAS);
        assert_eq!(texts("schemata", "schema_owner"), ["ann"; 5]);
    }

    #[test]
    fn functions_have_names_of_their_own() {
        let names = texts("routines", "specific_name");
        assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), names.len());
        for (own, plain) in names.iter().zip(texts("routines", "routine_name")) {
            let number = own.strip_prefix(&plain).and_then(|rest| rest.strip_prefix('_'));
            assert!(number.is_some_and(|number| number.parse::<u32>().is_ok()), "{own}");
        }
    }
}
