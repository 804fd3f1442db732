//! Fields of entities as data: which values they accept, and their defaults.

use quiver_types::{Network, Triple};
use serde_json::{Map, Value, json};
use uuid::Uuid;

use crate::json::{time_of, time_text};
use crate::problem::{FieldError, shown};

mod nested;

pub use nested::duration_ms;

/// How secrets are shown; when sent back, it keeps the stored secret.
pub(crate) const SECRET: &str = "<secret>";
/// Most entries of a map of labels.
const LABELS_MAX: usize = 64;
/// Longest key or value of a label, in characters.
const LABEL_CHARS_MAX: usize = 1000;

/// The type of a field.
#[derive(Debug, Clone, Copy)]
pub enum FieldKind {
    /// Text of limited length, trimmed, without control characters.
    Text {
        /// Fewest characters (not bytes); 0: it may be empty.
        min: usize,
        /// Most characters (not bytes).
        max: usize,
    },
    /// As text, converted to lower case, of letters, digits and `.`, `_`, `-`, `@`, `+`.
    Login {
        /// Fewest characters.
        min: usize,
        /// Most characters.
        max: usize,
    },
    /// Free text of several lines.
    Prose {
        /// Most characters (not bytes).
        max: usize,
    },
    /// True or false.
    Bool,
    /// A time, RFC 3339.
    Time,
    /// A map from text to text.
    Labels,
    /// Permissions, each written `{right, domain, scope}`.
    Triples {
        /// Most permissions of the list.
        max: usize,
    },
    /// Names or patterns of services.
    Services {
        /// Most names and patterns.
        max: usize,
    },
    /// Ids of entities.
    Ids {
        /// Most ids of the list.
        max: usize,
    },
    /// The id of an entity.
    Id,
    /// The subject of a binding: `{type, id}`.
    Subject,
    /// IP addresses and networks in CIDR notation: `10.0.0.0/8`, `::1`.
    Networks {
        /// Most addresses and networks.
        max: usize,
    },
    /// One of these words.
    Word(&'static [&'static str]),
    /// A whole number.
    Int {
        /// Least, included.
        min: i64,
        /// Greatest, included.
        max: i64,
    },
    /// A finite number, with or without a fraction.
    Number {
        /// Least, included.
        min: f64,
        /// Greatest, included.
        max: f64,
    },
    /// A key for programs: lower-case letters, digits, `_`, `-`, `.`, at most 100.
    Slug,
    /// Distinct texts of 1 to 200 characters each, in the order given.
    Texts {
        /// Most texts of the list.
        max: usize,
    },
    /// A length of time as Prometheus writes it: `24h`, `1d12h`.
    Duration,
    /// A length of time that may be negative: `-10s`.
    Offset,
    /// A condition (`config-api` 1.6).
    Condition,
    /// Any JSON of at most 64 KiB.
    Json,
    /// A map from names to any JSON.
    Map {
        /// Most entries of the map.
        max: usize,
    },
    /// An object of these fields.
    Object(&'static [Field]),
    /// A list of objects.
    List {
        /// Fields of each object.
        of: &'static [Field],
        /// Most objects of the list.
        max: usize,
    },
}

/// Who writes a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Anyone who may write the entity.
    Open,
    /// The same, and it must be given.
    Required,
    /// Only the server; in a request it is ignored if equal, else refused.
    ReadOnly,
    /// Anyone who may write the entity; it is never shown.
    WriteOnly,
}

/// A field of a family: its name, type, and who may write it.
#[derive(Debug, Clone, Copy)]
pub struct Field {
    /// Its name in JSON.
    pub name: &'static str,
    /// What it holds.
    pub kind: FieldKind,
    /// Whether clients or the server write it.
    pub mode: Mode,
    /// Its default, as JSON text.
    pub default: &'static str,
}

impl Field {
    /// An optional field.
    pub const fn open(name: &'static str, kind: FieldKind, default: &'static str) -> Self {
        Self { name, kind, mode: Mode::Open, default }
    }

    /// A required field.
    pub const fn required(name: &'static str, kind: FieldKind) -> Self {
        Self { name, kind, mode: Mode::Required, default: "null" }
    }

    /// A field that the server maintains.
    pub const fn read_only(name: &'static str, kind: FieldKind, default: &'static str) -> Self {
        Self { name, kind, mode: Mode::ReadOnly, default }
    }

    /// Its default.
    pub(crate) fn default_value(&self) -> Value {
        serde_json::from_str(self.default).expect("a default is JSON: a test reads all of them")
    }
}

type CheckResult = Result<Value, (&'static str, String)>;

fn wrong_type<T>(what: &str) -> Result<T, (&'static str, String)> {
    Err(("INVALID_TYPE", format!("must be {what}")))
}

fn text(value: &Value, min: usize, max: usize) -> Result<String, (&'static str, String)> {
    let Value::String(text) = value else { return wrong_type("a text") };
    let text = text.trim();
    if text.chars().any(char::is_control) {
        return Err(("PATTERN", "must hold no control characters".to_owned()));
    }
    length(text, min, max)?;
    Ok(text.to_owned())
}

fn length(text: &str, min: usize, max: usize) -> Result<(), (&'static str, String)> {
    let chars = text.chars().count();
    if chars > max {
        return Err(("TOO_LONG", format!("must have at most {max} characters, has {chars}")));
    }
    if chars < min {
        let code = if chars == 0 { "REQUIRED" } else { "OUT_OF_RANGE" };
        return Err((code, format!("must have at least {min} characters")));
    }
    Ok(())
}

fn list<'a>(value: &'a Value, max: usize, what: &str) -> Result<&'a [Value], (&'static str, String)> {
    let Value::Array(items) = value else { return wrong_type(&format!("a list of {what}")) };
    if items.len() > max {
        return Err(("LIMIT_EXCEEDED", format!("must have at most {max} entries, has {}", items.len())));
    }
    Ok(items)
}

fn id(value: &Value) -> Result<String, (&'static str, String)> {
    let Value::String(text) = value else { return wrong_type("an id") };
    match Uuid::try_parse(text) {
        Ok(id) => Ok(id.to_string()),
        Err(_) => Err(("INVALID_VALUE", "must be an id (a UUID)".to_owned())),
    }
}

/// Removes repeated items, keeping the order of the first ones.
fn set(mut items: Vec<Value>) -> Value {
    let mut seen = std::collections::HashSet::new();
    items.retain(|item| seen.insert(item.to_string()));
    Value::Array(items)
}

impl FieldKind {
    /// Checks a value and gives it in stored form; errors are added with the path of what is wrong.
    pub(crate) fn check(self, value: &Value, place: &str, errors: &mut Vec<FieldError>) -> Value {
        let mut put =
            |at: String, (code, message): (&'static str, String)| errors.push(FieldError::new(at, code, message));
        let items = |max,
                     what: &str,
                     one: &dyn Fn(&Value) -> CheckResult,
                     put: &mut dyn FnMut(String, (&'static str, String))| {
            let items = match list(value, max, what) {
                Ok(items) => items,
                Err(error) => {
                    put(place.to_owned(), error);
                    return Value::Null;
                }
            };
            let mut good = Vec::with_capacity(items.len());
            for (n, item) in items.iter().enumerate() {
                match one(item) {
                    Ok(item) => good.push(item),
                    Err(error) => put(format!("{place}/{n}"), error),
                }
            }
            set(good)
        };
        match self {
            Self::Triples { max } => {
                let one = |v: &Value| Triple::of_json(v).map(|t| t.to_json()).map_err(|e| ("INVALID_VALUE", e));
                items(max, "permissions", &one, &mut put)
            }
            Self::Services { max } => {
                let one = |v: &Value| {
                    let name = v.as_str().and_then(quiver_types::Services::parse);
                    name.map(|n| json!(n.as_str()))
                        .ok_or(("INVALID_VALUE", "must be a service, or a prefix with `*`".to_owned()))
                };
                items(max, "services", &one, &mut put)
            }
            Self::Ids { max } => items(max, "ids", &|v| id(v).map(Value::String), &mut put),
            Self::Networks { max } => {
                let one = |v: &Value| match v.as_str().filter(|t| Network::parse(t).is_ok()) {
                    Some(text) => Ok(json!(text)),
                    None => Err(("INVALID_VALUE", "must be a network: `10.0.0.0/8`".to_owned())),
                };
                items(max, "networks", &one, &mut put)
            }
            Self::Labels => labels(value, place, &mut put),
            Self::Texts { max } => items(max, "texts", &|v| text(v, 1, 200).map(Value::String), &mut put),
            Self::Condition => {
                let found = quiver_types::condition::Condition::parse(value).err().unwrap_or_default();
                for e in found {
                    put(format!("{place}{}", e.pointer), (e.code, e.message));
                }
                value.clone()
            }
            Self::Object(fields) => nested::object(fields, value, place, errors),
            Self::Subject => subject(value, place, errors),
            Self::List { of, max } => match list(value, max, "objects") {
                Ok(items) => {
                    let each = items.iter().enumerate();
                    each.map(|(n, item)| nested::object(of, item, &format!("{place}/{n}"), errors)).collect()
                }
                Err(error) => {
                    put(place.to_owned(), error);
                    Value::Null
                }
            },
            single => match single.check_one(value) {
                Ok(value) => value,
                Err(error) => {
                    put(place.to_owned(), error);
                    Value::Null
                }
            },
        }
    }

    fn check_one(self, value: &Value) -> CheckResult {
        match self {
            Self::Text { min, max } => text(value, min, max).map(Value::String),
            Self::Login { min, max } => {
                let name = text(value, min, max)?.to_lowercase();
                let plain = |c: char| c.is_alphanumeric() || matches!(c, '.' | '_' | '-' | '@' | '+');
                if name.chars().all(plain) {
                    return Ok(Value::String(name));
                }
                Err(("PATTERN", "must be of letters, digits and `.`, `_`, `-`, `@`, `+`".to_owned()))
            }
            Self::Prose { max } => {
                let Value::String(text) = value else { return wrong_type("a text") };
                length(text, 0, max)?;
                if text.chars().any(|c| c.is_control() && !matches!(c, '\n' | '\r' | '\t')) {
                    return Err(("PATTERN", "must hold no control characters but line ends and tabs".to_owned()));
                }
                Ok(value.clone())
            }
            Self::Bool => {
                if value.is_boolean() {
                    Ok(value.clone())
                } else {
                    wrong_type("true or false")
                }
            }
            Self::Time => match value.as_str().map(time_of) {
                Some(Some(ms)) => Ok(json!(time_text(ms))),
                Some(None) => Err(("INVALID_VALUE", "must be a time like `2026-01-31T12:00:00Z`".to_owned())),
                None => wrong_type("a time"),
            },
            Self::Id => id(value).map(Value::String),
            Self::Word(words) => nested::word(value, words),
            Self::Int { min, max } => nested::int(value, min, max),
            Self::Number { min, max } => nested::number(value, min, max),
            Self::Slug => nested::slug(value),
            Self::Duration => nested::duration(value),
            Self::Offset => nested::offset(value),
            Self::Json => nested::json(value),
            Self::Map { max } => nested::map(value, max),
            _ => wrong_type("a list"),
        }
    }
}

/// Checks a map of texts; errors have the path of the entry.
fn labels(value: &Value, place: &str, put: &mut dyn FnMut(String, (&'static str, String))) -> Value {
    let Value::Object(map) = value else {
        put(place.to_owned(), ("INVALID_TYPE", "must be a map of texts".to_owned()));
        return Value::Null;
    };
    if map.len() > LABELS_MAX {
        let text = format!("must have at most {LABELS_MAX} entries, has {}", map.len());
        put(place.to_owned(), ("LIMIT_EXCEEDED", text));
        return Value::Null;
    }
    for (key, value) in map {
        let checked = match value.as_str() {
            Some(text) => length(key, 1, LABEL_CHARS_MAX).and_then(|()| length(text, 0, LABEL_CHARS_MAX)),
            None => wrong_type("a text"),
        };
        if let Err(error) = checked {
            put(format!("{place}/{}", shown(key).replace('~', "~0").replace('/', "~1")), error);
        }
    }
    value.clone()
}

/// The fields of the subject of a binding.
const SUBJECT: &[Field] = &[
    Field::required("type", FieldKind::Word(&["user", "serviceAccount", "group", EXTERNAL_ROLE])),
    Field::required("id", FieldKind::Text { min: 1, max: 200 }),
];
/// The type of subject that has a name instead of an id.
const EXTERNAL_ROLE: &str = "externalRole";

fn subject(value: &Value, place: &str, errors: &mut Vec<FieldError>) -> Value {
    let mut whole = nested::object(SUBJECT, value, place, errors);
    let is_ours = whole["type"].as_str().is_some_and(|kind| kind != EXTERNAL_ROLE);
    if is_ours && whole["id"].is_string() {
        match id(&whole["id"]) {
            Ok(id) => whole["id"] = json!(id),
            Err((code, message)) => errors.push(FieldError::new(format!("{place}/id"), code, message)),
        }
    }
    whole
}

/// Fills in the defaults of missing fields.
pub(crate) fn fill(body: &mut Map<String, Value>, fields: impl Iterator<Item = Field>) {
    for field in fields.filter(|f| f.mode != Mode::WriteOnly) {
        body.entry(field.name).or_insert_with(|| field.default_value());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A value that is taken, and how it is kept; or where and why it is not.
    pub(super) fn check(kind: FieldKind, value: Value, expected: Result<Value, (&str, &str)>) {
        let mut errors = Vec::new();
        let got = kind.check(&value, "/f", &mut errors);
        match expected {
            Ok(expected) => assert!(errors.is_empty() && got == expected, "{value} {got} {errors:?}"),
            Err((at, code)) => {
                let found = errors.iter().any(|e| e.field == at && e.code == code);
                assert!(found, "{value} {errors:?}");
            }
        }
    }

    #[test]
    fn kinds() {
        let name = FieldKind::Text { min: 1, max: 5 };
        check(name, json!(" ab "), Ok(json!("ab")));
        check(name, json!(""), Err(("/f", "REQUIRED")));
        check(name, json!("abcdef"), Err(("/f", "TOO_LONG")));
        check(name, json!("a\u{0}b"), Err(("/f", "PATTERN")));
        check(name, json!(1), Err(("/f", "INVALID_TYPE")));
        check(FieldKind::Login { min: 3, max: 9 }, json!("Ann-1"), Ok(json!("ann-1")));
        check(FieldKind::Login { min: 3, max: 9 }, json!("a b c"), Err(("/f", "PATTERN")));
        check(FieldKind::Login { min: 3, max: 9 }, json!("an"), Err(("/f", "OUT_OF_RANGE")));
        check(FieldKind::Time, json!("2026-01-31T13:00:00+01:00"), Ok(json!("2026-01-31T12:00:00.000Z")));
        check(FieldKind::Time, json!("soon"), Err(("/f", "INVALID_VALUE")));
        check(
            FieldKind::Triples { max: 2 },
            json!(["{view, logs, a}", "{see, logs, a}"]),
            Err(("/f/1", "INVALID_VALUE")),
        );
        check(
            FieldKind::Triples { max: 1 },
            json!(["{view, logs, a}", "{view, logs, b}"]),
            Err(("/f", "LIMIT_EXCEEDED")),
        );
        check(FieldKind::Services { max: 3 }, json!(["a", "b*", "a"]), Ok(json!(["a", "b*"])));
        check(FieldKind::Services { max: 3 }, json!(["a*b"]), Err(("/f/0", "INVALID_VALUE")));
        check(FieldKind::Networks { max: 3 }, json!(["10.0.0.0/8", "::1"]), Ok(json!(["10.0.0.0/8", "::1"])));
        for wrong in ["10.0.0.0/33", "10.0.0", "::1/129", "10.0.0.0/", "10.0.0.0/+8", "1.1.1.1/8/8"] {
            check(FieldKind::Networks { max: 3 }, json!([wrong]), Err(("/f/0", "INVALID_VALUE")));
        }
        check(
            FieldKind::Subject,
            json!({"type": "externalRole", "id": "ops"}),
            Ok(json!({"type": "externalRole", "id": "ops"})),
        );
        check(FieldKind::Subject, json!({"type": "user", "id": "ops"}), Err(("/f/id", "INVALID_VALUE")));
        check(FieldKind::Subject, json!({"type": "user", "id": 5}), Err(("/f/id", "INVALID_TYPE")));
        check(FieldKind::Subject, json!({"type": "user"}), Err(("/f/id", "REQUIRED")));
        check(FieldKind::Subject, json!({"type": "role", "id": "ops"}), Err(("/f/type", "INVALID_VALUE")));
        check(FieldKind::Subject, json!({"type": "user", "name": "ops"}), Err(("/f/name", "UNKNOWN_FIELD")));
        check(FieldKind::Subject, json!("ops"), Err(("/f", "INVALID_TYPE")));
        check(FieldKind::Labels, json!({"b": "x", "a/b": 1}), Err(("/f/a~1b", "INVALID_TYPE")));
        check(FieldKind::Labels, json!({"a": "x".repeat(1001)}), Err(("/f/a", "TOO_LONG")));
        check(FieldKind::Labels, json!({"": "x"}), Err(("/f/", "REQUIRED")));
        check(FieldKind::Labels, json!(["a"]), Err(("/f", "INVALID_TYPE")));
    }

    #[test]
    fn texts_and_their_lengths() {
        let text = FieldKind::Text { min: 2, max: 4 };
        for (value, expected) in [
            (json!("ab"), Ok(json!("ab"))),
            (json!("  abcd\t"), Ok(json!("abcd"))),
            (json!("éèüß"), Ok(json!("éèüß"))),
            (json!("a"), Err(("/f", "OUT_OF_RANGE"))),
            (json!(" a "), Err(("/f", "OUT_OF_RANGE"))),
            (json!("   "), Err(("/f", "REQUIRED"))),
            (json!("abcde"), Err(("/f", "TOO_LONG"))),
            (json!("a\nb"), Err(("/f", "PATTERN"))),
            (json!("a\u{7f}b"), Err(("/f", "PATTERN"))),
            (json!(null), Err(("/f", "INVALID_TYPE"))),
            (json!(["ab"]), Err(("/f", "INVALID_TYPE"))),
        ] {
            check(text, value, expected);
        }
        let prose = FieldKind::Prose { max: 5 };
        check(prose, json!(" a\n\tb"), Ok(json!(" a\n\tb")));
        check(prose, json!(""), Ok(json!("")));
        check(prose, json!("abcdef"), Err(("/f", "TOO_LONG")));
        check(prose, json!("a\u{1b}b"), Err(("/f", "PATTERN")));
        check(prose, json!(5), Err(("/f", "INVALID_TYPE")));
        let login = FieldKind::Login { min: 2, max: 20 };
        check(login, json!(" Ann.B_c-d@e+1 "), Ok(json!("ann.b_c-d@e+1")));
        check(login, json!("ÄB"), Ok(json!("äb")));
        for wrong in ["a/b", "a:b", "a\\b", "a b", "a*b", "<ab>"] {
            check(login, json!(wrong), Err(("/f", "PATTERN")));
        }
    }

    #[test]
    fn lists_of_texts() {
        let texts = FieldKind::Texts { max: 3 };
        check(texts, json!([]), Ok(json!([])));
        check(texts, json!([" b ", "a", "b"]), Ok(json!(["b", "a"])));
        check(texts, json!(["a", ""]), Err(("/f/1", "REQUIRED")));
        check(texts, json!(["a", 1]), Err(("/f/1", "INVALID_TYPE")));
        check(texts, json!(["x".repeat(201)]), Err(("/f/0", "TOO_LONG")));
        check(texts, json!(["a", "b", "c", "d"]), Err(("/f", "LIMIT_EXCEEDED")));
        check(texts, json!("a"), Err(("/f", "INVALID_TYPE")));
        check(texts, json!({"0": "a"}), Err(("/f", "INVALID_TYPE")));
        let ids = FieldKind::Ids { max: 2 };
        let (large, small) = ("0191D0A0-7C3E-7ABC-8DEF-0123456789AB", "0191d0a0-7c3e-7abc-8def-0123456789ab");
        check(ids, json!([large, small]), Ok(json!([small])));
        check(ids, json!([small, "x"]), Err(("/f/1", "INVALID_VALUE")));
        check(FieldKind::Id, json!(large), Ok(json!(small)));
        check(FieldKind::Id, json!(""), Err(("/f", "INVALID_VALUE")));
        check(FieldKind::Id, json!(7), Err(("/f", "INVALID_TYPE")));
    }

    #[test]
    fn times_flags_and_permissions() {
        check(FieldKind::Time, json!("2026-01-31T12:00:00.9999Z"), Ok(json!("2026-01-31T12:00:00.999Z")));
        for wrong in ["2026-01-31", "2026-01-31T12:00:00", "2026-02-30T12:00:00Z", ""] {
            check(FieldKind::Time, json!(wrong), Err(("/f", "INVALID_VALUE")));
        }
        check(FieldKind::Time, json!(1_769_860_800), Err(("/f", "INVALID_TYPE")));
        check(FieldKind::Bool, json!(true), Ok(json!(true)));
        for wrong in [json!("true"), json!(1), json!(null)] {
            check(FieldKind::Bool, wrong, Err(("/f", "INVALID_TYPE")));
        }
        let triples = FieldKind::Triples { max: 3 };
        let once = json!([{"right": "view", "domain": "logs", "service": "a"}]);
        check(triples, json!(["{view, logs, a}", "{view, logs, a}"]), Ok(once));
        check(triples, json!(["view logs"]), Err(("/f/0", "INVALID_VALUE")));
        check(triples, json!([5]), Err(("/f/0", "INVALID_VALUE")));
        check(triples, json!("{view, logs, a}"), Err(("/f", "INVALID_TYPE")));
        let services = FieldKind::Services { max: 2 };
        check(services, json!(["*"]), Ok(json!(["*"])));
        check(services, json!(["", "a"]), Err(("/f/0", "INVALID_VALUE")));
        check(services, json!(["a", "b", "c"]), Err(("/f", "LIMIT_EXCEEDED")));
        let networks = FieldKind::Networks { max: 9 };
        let good = json!(["0.0.0.0/0", "::/0", "10.1.2.3", "10.1.2.3/32", "2001:db8::/128"]);
        check(networks, good.clone(), Ok(good));
        for wrong in ["", "/8", "10.0.0.0/ 8", "10.0.0.0/-1", "10.0.0.0/0008", "host", "10.0.0.1-10.0.0.9", "[::1]"] {
            check(networks, json!([wrong]), Err(("/f/0", "INVALID_VALUE")));
        }
    }

    /// Names and values of labels are free, but for their number and length.
    #[test]
    fn labels_at_their_bounds() {
        let labels = |count: usize| Value::Object((0..count).map(|n| (format!("k{n:03}"), json!("v"))).collect());
        check(FieldKind::Labels, labels(LABELS_MAX), Ok(labels(LABELS_MAX)));
        check(FieldKind::Labels, labels(LABELS_MAX + 1), Err(("/f", "LIMIT_EXCEEDED")));
        check(FieldKind::Labels, json!({"a/b.c": "", "é": "x\ny"}), Ok(json!({"a/b.c": "", "é": "x\ny"})));
        let long = "x".repeat(LABEL_CHARS_MAX);
        check(FieldKind::Labels, json!({ &long: &long }), Ok(json!({ &long: &long })));
        check(FieldKind::Labels, json!({"a": null}), Err(("/f/a", "INVALID_TYPE")));
        check(FieldKind::Labels, json!({"a": {"b": "c"}}), Err(("/f/a", "INVALID_TYPE")));
        check(FieldKind::Labels, json!(null), Err(("/f", "INVALID_TYPE")));
    }
}
