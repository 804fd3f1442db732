//! PostgreSQL types of columns: OIDs and names.

use arrow::datatypes::{DataType, Field};
use quiver_query::functions::is_json;

/// A type of PostgreSQL.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PgType {
    /// The OID, the same in each installation of PostgreSQL.
    pub oid: u32,
    /// The name in `pg_type`.
    pub name: &'static str,
    /// The name in SQL.
    pub sql: &'static str,
    /// Bytes of a value; -1 for variable length.
    pub len: i16,
    /// The category in `pg_type`.
    pub category: &'static str,
    /// OID of its array type; 0 if there is none.
    pub array: u32,
    /// Prefix of the names of its functions: `int8recv`, `json_recv`.
    pub(crate) stem: &'static str,
    /// OID of the function that reads its binary form.
    pub(crate) receive: u32,
}

/// The functions of array types, like [`PgType::stem`] and [`PgType::receive`].
pub(crate) const OF_ARRAYS: (&str, u32) = ("array_", 2400);

const fn of(
    oid: u32,
    name: &'static str,
    sql: &'static str,
    len: i16,
    category: &'static str,
    array: u32,
    (stem, receive): (&'static str, u32),
) -> PgType {
    PgType { oid, name, sql, len, category, array, stem, receive }
}

/// The types of columns, parameters and the catalog.
pub const PG_TYPES: [PgType; 26] = [
    of(16, "bool", "boolean", 1, "B", 1000, ("bool", 2436)),
    of(17, "bytea", "bytea", -1, "U", 1001, ("bytea", 2412)),
    of(18, "char", "\"char\"", 1, "Z", 1002, ("char", 2434)),
    of(19, "name", "name", 64, "S", 1003, ("name", 2422)),
    of(20, "int8", "bigint", 8, "N", 1016, ("int8", 2408)),
    of(21, "int2", "smallint", 2, "N", 1005, ("int2", 2404)),
    of(23, "int4", "integer", 4, "N", 1007, ("int4", 2406)),
    of(25, "text", "text", -1, "S", 1009, ("text", 2414)),
    of(26, "oid", "oid", 4, "N", 1028, ("oid", 2418)),
    of(114, "json", "json", -1, "U", 199, ("json_", 323)),
    of(700, "float4", "real", 4, "N", 1021, ("float4", 2424)),
    of(701, "float8", "double precision", 8, "N", 1022, ("float8", 2426)),
    of(705, "unknown", "unknown", -2, "X", 0, ("unknown", 2416)),
    of(1042, "bpchar", "character", -1, "S", 1014, ("bpchar", 2430)),
    of(1043, "varchar", "character varying", -1, "S", 1015, ("varchar", 2432)),
    of(1082, "date", "date", 4, "D", 1182, ("date_", 2468)),
    of(1083, "time", "time without time zone", 8, "D", 1183, ("time_", 2470)),
    of(1114, "timestamp", "timestamp without time zone", 8, "D", 1115, ("timestamp_", 2474)),
    of(1184, "timestamptz", "timestamp with time zone", 8, "D", 1185, ("timestamptz_", 2476)),
    of(1186, "interval", "interval", 16, "T", 1187, ("interval_", 2478)),
    of(1700, "numeric", "numeric", -1, "N", 1231, ("numeric_", 2460)),
    of(2205, "regclass", "regclass", 4, "N", 2210, ("regclass", 2452)),
    of(2206, "regtype", "regtype", 4, "N", 2211, ("regtype", 2454)),
    of(2249, "record", "record", -1, "P", 2287, ("record_", 2402)),
    of(2950, "uuid", "uuid", 16, "U", 2951, ("uuid_", 2961)),
    of(3802, "jsonb", "jsonb", -1, "U", 3807, ("jsonb_", 3805)),
];

/// Finds a type by OID.
pub fn pg_type(oid: u32) -> Option<&'static PgType> {
    PG_TYPES.iter().find(|known| known.oid == oid)
}

/// The SQL name of a type of this OID, or of lists of it, with the length or precision that `modifier` says; `None`: there is
/// no such type here.
pub(crate) fn sql_with_modifier(oid: u32, modifier: i32) -> Option<String> {
    let known = PG_TYPES.iter().find(|known| known.oid == oid || (known.array != 0 && known.array == oid))?;
    let more = match known.name {
        // The length of the header counts, too.
        "bpchar" | "varchar" if modifier > 4 => format!("({})", modifier - 4),
        "numeric" if modifier >= 4 => {
            let scale = (((modifier - 4) & 0x7FF) ^ 1024) - 1024;
            format!("({},{scale})", ((modifier - 4) >> 16) & 0xFFFF)
        }
        "time" | "timestamp" | "timestamptz" if modifier >= 0 => format!("({modifier})"),
        // The upper half says which fields there are: all.
        "interval" if modifier >> 16 == 0x7FFF && modifier & 0xFFFF <= 6 => format!("({})", modifier & 0xFFFF),
        _ => String::new(),
    };
    let (word, zone) = known.sql.split_once(' ').filter(|(_, zone)| zone.ends_with("time zone")).unzip();
    let name = format!("{}{more}", word.unwrap_or(known.sql));
    let name = zone.map_or_else(|| name.clone(), |zone| format!("{name} {zone}"));
    Some(if known.oid == oid { name } else { format!("{name}[]") })
}

/// Finds a type by one of its names.
pub fn type_named(name: &str) -> Option<&'static PgType> {
    let name = name.trim().to_lowercase();
    let name = match name.as_str() {
        "int" | "integer" => "int4",
        "timestamp with time zone" => "timestamptz",
        "decimal" => "numeric",
        "float" => "float8",
        other => other,
    };
    PG_TYPES.iter().find(|known| known.name == name || known.sql == name)
}

/// The OID of the type of a column; texts that hold JSON have type `json`.
pub fn field_oid(field: &Field) -> u32 {
    if is_json(field) { 114 } else { type_oid(field.data_type()) }
}

/// The OID of the type that clients of PostgreSQL see for a column. Composite values are JSON, except lists of plain
/// values and nested lists of these.
pub fn type_oid(data_type: &DataType) -> u32 {
    match data_type {
        DataType::Boolean => 16,
        DataType::Int8 | DataType::Int16 | DataType::UInt8 => 21,
        DataType::Int32 | DataType::UInt16 => 23,
        DataType::Int64 | DataType::UInt32 => 20,
        DataType::Float16 | DataType::Float32 => 700,
        DataType::Float64 => 701,
        DataType::UInt64
        | DataType::Decimal32(..)
        | DataType::Decimal64(..)
        | DataType::Decimal128(..)
        | DataType::Decimal256(..) => 1700,
        DataType::Binary | DataType::LargeBinary | DataType::BinaryView | DataType::FixedSizeBinary(_) => 17,
        DataType::Date32 | DataType::Date64 => 1082,
        DataType::Time32(_) | DataType::Time64(_) => 1083,
        DataType::Timestamp(_, None) => 1114,
        DataType::Timestamp(_, Some(_)) => 1184,
        DataType::Interval(_) | DataType::Duration(_) => 1186,
        DataType::Dictionary(_, values) => type_oid(values),
        DataType::List(item) | DataType::LargeList(item) | DataType::FixedSizeList(item, _) => {
            let inner = type_oid(item.data_type());
            // A PostgreSQL array type covers any number of dimensions.
            if is_list(item.data_type()) {
                return inner;
            }
            let array = pg_type(inner).map_or(0, |known| known.array);
            let is_plain = !matches!(inner, 114) && PG_TYPES.iter().any(|known| known.oid == inner);
            if is_plain && array != 0 { array } else { 114 }
        }
        DataType::Map(..) | DataType::Struct(_) | DataType::Union(..) => 114,
        _ => 25,
    }
}

fn is_list(data_type: &DataType) -> bool {
    matches!(data_type, DataType::List(_) | DataType::LargeList(_) | DataType::FixedSizeList(..))
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::datatypes::TimeUnit;
    use std::sync::Arc;

    #[test]
    fn types_of_columns() {
        let list = |item| DataType::List(Arc::new(Field::new("item", item, true)));
        assert_eq!(type_oid(&list(DataType::Utf8View)), 1009);
        assert_eq!(type_oid(&list(quiver_types::tables::columns::map())), 114);
        assert_eq!(type_oid(&list(list(DataType::Int64))), 1016);
        assert_eq!(type_oid(&list(list(quiver_types::tables::columns::map()))), 114);
        assert_eq!(type_oid(&DataType::Timestamp(TimeUnit::Nanosecond, Some("UTC".into()))), 1184);
        assert_eq!(type_named("Integer").map(|known| known.oid), Some(23));
        assert_eq!(pg_type(25).map(|known| known.sql), Some("text"));
    }

    #[test]
    fn names_have_lengths() {
        for (oid, modifier, expected) in [
            (1043, 14, Some("character varying(10)")),
            (1043, -1, Some("character varying")),
            (1015, 14, Some("character varying(10)[]")),
            (1042, 9, Some("character(5)")),
            (1700, 655_366, Some("numeric(10,2)")),
            (1114, 3, Some("timestamp(3) without time zone")),
            (1184, 0, Some("timestamp(0) with time zone")),
            (1083, 2, Some("time(2) without time zone")),
            (1186, 2_147_418_114, Some("interval(2)")),
            (23, -1, Some("integer")),
            (99_999, 5, None),
        ] {
            assert_eq!(sql_with_modifier(oid, modifier).as_deref(), expected, "{oid} {modifier}");
        }
    }

    #[test]
    fn each_column_has_a_type() {
        let item = |item| Arc::new(Field::new("item", item, true));
        let texts = || DataType::Dictionary(Box::new(DataType::Int8), Box::new(DataType::Utf8));
        for (data_type, expected) in [
            (DataType::UInt8, "int2"),
            (DataType::UInt16, "int4"),
            (DataType::UInt32, "int8"),
            (DataType::UInt64, "numeric"),
            (DataType::Float16, "float4"),
            (DataType::Decimal32(5, 2), "numeric"),
            (DataType::Decimal256(40, 2), "numeric"),
            (DataType::BinaryView, "bytea"),
            (DataType::FixedSizeBinary(16), "bytea"),
            (DataType::Date64, "date"),
            (DataType::Time32(TimeUnit::Second), "time"),
            (DataType::Timestamp(TimeUnit::Second, None), "timestamp"),
            (DataType::Duration(TimeUnit::Second), "interval"),
            (DataType::Null, "text"),
            (texts(), "text"),
            (DataType::Struct(vec![Field::new("a", DataType::Int64, true)].into()), "json"),
            (DataType::List(item(texts())), "_text"),
            (DataType::List(item(DataType::UInt64)), "_numeric"),
            (DataType::FixedSizeList(item(DataType::Boolean), 3), "_bool"),
            // A PostgreSQL array type covers any number of dimensions.
            (DataType::LargeList(item(DataType::List(item(DataType::Utf8)))), "_text"),
        ] {
            let oid = type_oid(&data_type);
            let plain = pg_type(oid).map(|known| known.name.to_owned());
            let array = PG_TYPES.iter().find(|known| known.array == oid).map(|known| format!("_{}", known.name));
            assert_eq!(plain.or(array).as_deref(), Some(expected), "{data_type}");
        }
        let document = quiver_query::functions::json_field("a", DataType::Utf8);
        assert_eq!((field_oid(&document), field_oid(&Field::new("a", DataType::Utf8, true))), (114, 25));
    }

    #[test]
    fn names_and_numbers_lead_to_one_type() {
        let mut oids = Vec::new();
        for known in &PG_TYPES {
            for name in [known.name, known.sql] {
                assert_eq!(type_named(&format!(" {} ", name.to_uppercase())), Some(known), "{name}");
            }
            assert_eq!(pg_type(known.oid), Some(known));
            oids.extend([known.oid, known.array].into_iter().filter(|oid| *oid != 0));
        }
        let count = oids.len();
        oids.sort_unstable();
        oids.dedup();
        assert_eq!(oids.len(), count, "a number is that of two types");
        for (name, expected) in
            [("INT", Some(23)), ("Decimal", Some(1700)), ("float", Some(701)), ("_int4", None), ("", None)]
        {
            assert_eq!(type_named(name).map(|known| known.oid), expected, "{name}");
        }
        assert_eq!(pg_type(0), None);
    }
}
