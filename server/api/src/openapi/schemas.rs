//! Schemas: of entities, made from the fields of their families; of lists; and of problems.

use quiver_config::families::RULE_GROUPS;
use quiver_config::{Family, Field, FieldKind, Mode};
use serde_json::Value;
use utoipa::openapi::schema::{
    AdditionalProperties, ArrayBuilder, KnownFormat, ObjectBuilder, Schema, SchemaFormat, SchemaType, Type,
};
use utoipa::openapi::{Ref, RefOr};

/// The name of a family's schema; if it has an owner, that is part of the name.
pub(super) fn name_of(family: &Family) -> String {
    let word = |part: &str| {
        let mut chars = part.chars();
        chars.next().map(|c| c.to_uppercase().chain(chars).collect::<String>()).unwrap_or_default()
    };
    family.name.split(['-', '/']).map(word).collect()
}

/// A reference to a schema.
pub(super) fn named(name: &str) -> RefOr<Schema> {
    RefOr::Ref(Ref::from_schema_name(name))
}

fn typed(kind: Type, or_null: bool) -> SchemaType {
    if or_null { SchemaType::Array(vec![kind, Type::Null]) } else { SchemaType::Type(kind) }
}

/// A value of any type.
pub(super) fn any() -> Schema {
    ObjectBuilder::new().schema_type(SchemaType::AnyValue).into()
}

pub(super) fn string() -> ObjectBuilder {
    ObjectBuilder::new().schema_type(Type::String)
}

fn list(items: impl Into<RefOr<Schema>>, max: usize, or_null: bool) -> Schema {
    ArrayBuilder::new().schema_type(typed(Type::Array, or_null)).items(items.into()).max_items(Some(max)).into()
}

/// The schema of a kind of values.
fn of_kind(kind: FieldKind, or_null: bool, about: Option<&str>) -> Schema {
    let text = |about: &str| {
        let text = ObjectBuilder::new().schema_type(typed(Type::String, or_null));
        text.description((!about.is_empty()).then(|| about.to_owned()))
    };
    let object = || ObjectBuilder::new().schema_type(typed(Type::Object, or_null));
    let note = about.unwrap_or_default();
    match kind {
        FieldKind::Text { min, max } | FieldKind::Login { min, max } => {
            text(note).min_length((min > 0 && !or_null).then_some(min)).max_length(Some(max)).into()
        }
        FieldKind::Prose { max } => text(note).max_length(Some(max)).into(),
        FieldKind::Bool => ObjectBuilder::new().schema_type(typed(Type::Boolean, or_null)).into(),
        FieldKind::Time => text(note).format(Some(SchemaFormat::KnownFormat(KnownFormat::DateTime))).into(),
        FieldKind::Id => text(note).format(Some(SchemaFormat::Custom("uuid".to_owned()))).into(),
        FieldKind::Labels => object()
            .additional_properties(Some(RefOr::T(Schema::from(string().max_length(Some(1000)).build()))))
            .max_properties(Some(64))
            .into(),
        // May be written as a string, a list or an object; shown as an object.
        FieldKind::Triples { max } => {
            let about = "a right, as `{view, logs, cart}` or `{\"right\": …, \"domain\": …, \"service\": …}`";
            list(ObjectBuilder::new().schema_type(SchemaType::AnyValue).description(Some(about)), max, or_null)
        }
        FieldKind::Services { max } => {
            list(string().description(Some("a service, or a pattern like `cart*`")), max, or_null)
        }
        FieldKind::Networks { max } => {
            list(string().description(Some("an address or a network, as `10.0.0.0/8`")), max, or_null)
        }
        FieldKind::Ids { max } => list(string().format(Some(SchemaFormat::Custom("uuid".to_owned()))), max, or_null),
        FieldKind::Texts { max } => list(string().min_length(Some(1)).max_length(Some(200)), max, or_null),
        FieldKind::Subject => object()
            .property("type", string().enum_values(Some(["user", "serviceAccount", "group", "externalRole"])))
            .property("id", string())
            .required("type")
            .required("id")
            .additional_properties(Some(AdditionalProperties::FreeForm(false)))
            .into(),
        FieldKind::Word(words) => {
            let words = words.iter().map(|w| Value::from(*w)).chain(or_null.then_some(Value::Null));
            text(note).enum_values(Some(words.collect::<Vec<_>>())).into()
        }
        FieldKind::Int { min, max } => ObjectBuilder::new()
            .schema_type(typed(Type::Integer, or_null))
            .minimum(Some(min as f64))
            .maximum(Some(max as f64))
            .into(),
        FieldKind::Number { min, max } => {
            ObjectBuilder::new().schema_type(typed(Type::Number, or_null)).minimum(Some(min)).maximum(Some(max)).into()
        }
        FieldKind::Slug => {
            text("a key for programs").max_length(Some(100)).pattern(Some("^[a-z0-9][a-z0-9_.-]*$")).into()
        }
        FieldKind::Duration => {
            text("a length of time, as `24h` or `1d12h`").pattern(Some("^([0-9]+(y|w|d|h|m|s|ms))+$|^0$")).into()
        }
        FieldKind::Offset => {
            text("a length of time, as `24h` or `-10s`").pattern(Some("^-?([0-9]+(y|w|d|h|m|s|ms))+$|^-?0$")).into()
        }
        FieldKind::Condition => object().description(Some("a condition over the fields of records")).into(),
        FieldKind::Map { max } => {
            object().additional_properties(Some(AdditionalProperties::FreeForm(true))).max_properties(Some(max)).into()
        }
        FieldKind::Object(fields) => fields
            .iter()
            .fold(object(), |made, field| with_field(made, field, Extent::Whole))
            .additional_properties(Some(AdditionalProperties::FreeForm(false)))
            .into(),
        FieldKind::List { of, max } => list(of_kind(FieldKind::Object(of), false, None), max, or_null),
        FieldKind::Json => any(),
    }
}

/// How much of an entity there is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Extent {
    Whole,
    /// As in lists with `fields` and in merge patches: each field may be missing or null.
    Part,
}

/// Adds a field to an object.
fn with_field(made: ObjectBuilder, field: &Field, extent: Extent) -> ObjectBuilder {
    let part = extent == Extent::Part;
    let default = serde_json::from_str::<Value>(field.default).unwrap_or_default();
    let or_null = part || (default.is_null() && field.mode != Mode::Required);
    let schema = match of_kind(field.kind, or_null, None) {
        Schema::Object(mut object) => {
            object.read_only = (field.mode == Mode::ReadOnly).then_some(true);
            object.write_only = (field.mode == Mode::WriteOnly).then_some(true);
            object.default = (field.mode == Mode::Open && !part).then_some(default);
            Schema::Object(object)
        }
        other => other,
    };
    let made = made.property(field.name, schema);
    if field.mode == Mode::Required && !part { made.required(field.name) } else { made }
}

/// The schema of an entity.
pub(super) fn entity(family: &Family, extent: Extent) -> Schema {
    let mut made = family
        .all_fields()
        .fold(ObjectBuilder::new().schema_type(Type::Object), |made, field| with_field(made, &field, extent));
    let kept = |name: &str| -> ObjectBuilder {
        match name {
            "id" => string().format(Some(SchemaFormat::Custom("uuid".to_owned()))),
            "createdAt" | "updatedAt" => string().format(Some(SchemaFormat::KnownFormat(KnownFormat::DateTime))),
            "version" => ObjectBuilder::new().schema_type(Type::Integer),
            _ => ObjectBuilder::new().schema_type(typed(Type::String, true)),
        }
    };
    for name in quiver_config::KEPT {
        // A client may choose the id of an entity that it creates.
        made = made.property(name, kept(name).read_only(Some(name != "id")));
    }
    // Rules show some fields of their group.
    made = RULE_GROUPS
        .all_fields()
        .filter(|field| family.derived.contains(&field.name))
        .map(|field| Field { mode: Mode::ReadOnly, ..field })
        .fold(made, |made, field| with_field(made, &field, extent));
    if family.can_wait() {
        let about = "whether changes wait for a deploy; only where they do not act by themselves";
        let staged = ObjectBuilder::new().schema_type(Type::Boolean).read_only(Some(true));
        made = made.property("staged", staged.description(Some(about)));
    }
    made.into()
}

/// The schema of a list, or of the body of a bulk request.
pub(super) fn page_of(name: &str) -> Schema {
    let items = ArrayBuilder::new().items(named(&format!("{name}Part")));
    let whole = |about: &str| ObjectBuilder::new().schema_type(Type::Integer).description(Some(about.to_owned()));
    ObjectBuilder::new()
        .property("items", items)
        .property("nextCursor", ObjectBuilder::new().schema_type(typed(Type::String, true)))
        .property("total", whole("with `count=true`"))
        .required("items")
        .into()
}

/// A problem object.
pub(super) fn problem() -> Schema {
    let error = ObjectBuilder::new()
        .property("field", string().description(Some("JSON Pointer")))
        .property("code", string())
        .property("message", string())
        .required("field")
        .required("code")
        .required("message");
    let integer = ObjectBuilder::new().schema_type(Type::Integer);
    let texts = ["type", "title", "code", "detail", "instance", "error"];
    let made = texts.iter().fold(ObjectBuilder::new(), |made, name| made.property(*name, string()));
    let made =
        made.property("status", integer).property("errors", ArrayBuilder::new().items(error).max_items(Some(100)));
    ["type", "title", "status", "code", "detail"].iter().fold(made, |made, name| made.required(*name)).into()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use quiver_config::families::FAMILIES;
    use serde_json::json;

    use super::*;

    fn shown(kind: FieldKind, or_null: bool) -> Value {
        serde_json::to_value(of_kind(kind, or_null, None)).unwrap()
    }

    #[test]
    fn families_have_names_of_their_own() {
        let names: BTreeSet<String> = FAMILIES.iter().map(|family| name_of(family)).collect();
        assert_eq!(names.len(), FAMILIES.len(), "{names:?}");
        for name in &names {
            assert!(name.starts_with(|c: char| c.is_ascii_uppercase()), "{name}");
            assert!(name.chars().all(|c| c.is_ascii_alphanumeric()), "{name}");
        }
    }

    #[test]
    fn values_that_may_lack_may_be_null() {
        for (kind, word) in [
            (FieldKind::Bool, "boolean"),
            (FieldKind::Prose { max: 5 }, "string"),
            (FieldKind::Int { min: 1, max: 5 }, "integer"),
            (FieldKind::Number { min: 0.5, max: 5.0 }, "number"),
            (FieldKind::Labels, "object"),
            (FieldKind::Texts { max: 5 }, "array"),
        ] {
            assert_eq!(shown(kind, false)["type"], word);
            assert_eq!(shown(kind, true)["type"], json!([word, "null"]));
        }
        assert_eq!(shown(FieldKind::Word(&["a", "b"]), false)["enum"], json!(["a", "b"]));
        assert_eq!(shown(FieldKind::Word(&["a", "b"]), true)["enum"], json!(["a", "b", null]));
    }

    #[test]
    fn bounds_are_told() {
        let text = shown(FieldKind::Text { min: 1, max: 200 }, false);
        assert_eq!((text["minLength"].as_u64(), text["maxLength"].as_u64()), (Some(1), Some(200)));
        let int = shown(FieldKind::Int { min: 1, max: 600_000 }, false);
        assert_eq!((int["minimum"].as_f64(), int["maximum"].as_f64()), (Some(1.0), Some(600_000.0)));
        let ids = shown(FieldKind::Ids { max: 7 }, false);
        assert_eq!((ids["maxItems"].as_u64(), ids["items"]["format"].as_str()), (Some(7), Some("uuid")));
    }

    #[test]
    fn patterns_are_those_of_the_values() {
        for (kind, good, bad) in [
            (FieldKind::Duration, &["0", "24h", "1d12h", "90s", "5ms"][..], &["", "h", "-1h", "1.5h", "00x"][..]),
            (FieldKind::Offset, &["0", "-0", "-10s", "1d12h"][..], &["", "-", "--1s", "1"][..]),
            (FieldKind::Slug, &["a", "0a", "cart.api_v2-x"][..], &["", "A", "-a", "_a", "a b"][..]),
        ] {
            let schema = shown(kind, false);
            let pattern = regex::Regex::new(schema["pattern"].as_str().unwrap()).unwrap();
            for text in good {
                assert!(pattern.is_match(text), "`{text}` of {schema}");
            }
            for text in bad {
                assert!(!pattern.is_match(text), "`{text}` of {schema}");
            }
        }
    }
}
