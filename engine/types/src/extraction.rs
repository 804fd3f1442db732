//! Data-extraction rules (`config-api` 3.7): derive new typed fields from the fields of a record. One compiled form for
//! ingest and for test endpoints.

use std::borrow::Cow;

use serde_json::{Map, Value};

use crate::cancellation::{RULE_MAX, Until, Watch};
use crate::condition::{Case, Condition, ConditionError, FieldName, Fields, RequiredText, glob_of_services};
use crate::matcher::Places;

mod json_path;
mod method;
mod target;

use method::Method;
pub use target::{ConvertedValue, Target};

/// Most targets of a rule.
const TARGETS_MAX: usize = 20;
/// Fields that rules do not write unless they say so, with the right `admin`.
pub const RESERVED: [&str; 7] = ["_time", "_stream", "_stream_id", "traceId", "trace_id", "spanId", "service.name"];

/// Why a field of a record that names its service is not written.
const NAMES_SERVICE: &str = "names the service; `allowReserved` and the right admin let it be written";

/// A record that rules are applied to.
pub trait Record: Fields {
    /// Puts a value into a field; null takes it away.
    fn set(&mut self, field: &str, value: &Value);

    /// Says whether a field names the service of the record, beside those that are [`RESERVED`] for all: who sees a record
    /// follows from it.
    fn is_reserved(&self, _field: &str) -> bool {
        false
    }

    /// Gives the text of a field, the one that [`ExtractionRule::reads`] has at a place: whoever puts a rule to many records
    /// knows where it stands.
    fn read(&self, _: usize, name: &FieldName) -> Option<Cow<'_, str>> {
        self.get(name)
    }

    /// Puts what a target made into its field, the one that [`ExtractionRule::writes`] has at a place.
    fn write(&mut self, _: usize, field: &str, made: &ConvertedValue<'_>) {
        self.set(field, &made.to_json());
    }
}

/// What became of one record.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ExtractionOutcome {
    /// Whether service and condition fit, and the method found something.
    pub matched: bool,
    /// Fields that were written, with their new values; null: the field was taken away.
    pub fields: Vec<(String, Value)>,
    /// What could not be: the target and why.
    pub errors: Vec<(String, String)>,
}

/// A compiled rule.
#[derive(Debug, Clone)]
pub struct ExtractionRule {
    /// The entity's id.
    pub id: String,
    /// Whether the chain ends with it when it matched.
    pub stop: bool,
    service: String,
    condition: Option<Condition>,
    source: FieldName,
    method: Method,
    /// What the source must have, where that is known.
    sought: Option<RequiredText>,
    targets: Vec<Target>,
    /// How many fields [`ExtractionRule::reads`] has before those of the targets.
    read_before: usize,
    /// Whether it may write fields that are reserved.
    writes_reserved: bool,
}

/// A rule on its way over records that fulfil its condition, with room for what each of them takes.
#[derive(Debug)]
pub struct RuleExtractor<'r> {
    rule: &'r ExtractionRule,
    source: String,
    places: Option<Places>,
}

fn text<'a>(body: &'a Map<String, Value>, key: &str) -> &'a str {
    body.get(key).and_then(Value::as_str).unwrap_or_default()
}

impl ExtractionRule {
    /// Compiles a rule whose fields have the right types already.
    ///
    /// # Errors
    /// All that is wrong with it; places are JSON Pointers of the entity.
    pub fn of_json(id: &str, body: &Map<String, Value>) -> Result<Self, Vec<ConditionError>> {
        let mut errors = Vec::new();
        let condition = match body.get("condition") {
            None | Some(Value::Null) => None,
            Some(value) => Condition::parse(value).map_err(|found| below("/condition", found, &mut errors)).ok(),
        };
        let word = text(body, "method");
        let expression = body.get("expression").and_then(Value::as_str);
        let options = body.get("options").and_then(Value::as_object).cloned().unwrap_or_default();
        let method = match Method::parse(word, expression, &options) {
            Ok(method) => Some(method),
            Err(found) => {
                errors.extend(found);
                None
            }
        };
        let reads_source = !matches!(word, "constant" | "template");
        let source = match text(body, "source") {
            "" if text(body, "signal") == "logs" => "_msg",
            "" if reads_source => {
                errors.push(ConditionError::new("/source", "REQUIRED", "is required for this signal"));
                ""
            }
            given => given,
        };
        let targets = Self::targets(body, method.as_ref(), &mut errors);
        let case = match options.get("caseSensitive") {
            Some(Value::Bool(false)) => Case::Insensitive,
            _ => Case::Sensitive,
        };
        match method {
            Some(method) if errors.is_empty() => Ok(Self {
                id: id.to_owned(),
                stop: body.get("stop").and_then(Value::as_bool).unwrap_or_default(),
                service: text(body, "service").to_owned(),
                condition,
                source: FieldName::parse(source),
                sought: method.sought(case),
                read_before: usize::from(method.reads_source()) + method.fields().count(),
                method,
                targets,
                writes_reserved: body.get("allowReserved").and_then(Value::as_bool).unwrap_or_default(),
            }),
            _ => Err(errors),
        }
    }

    fn targets(body: &Map<String, Value>, method: Option<&Method>, errors: &mut Vec<ConditionError>) -> Vec<Target> {
        let items = body.get("targets").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        if items.is_empty() || items.len() > TARGETS_MAX {
            let code = if items.is_empty() { "REQUIRED" } else { "LIMIT_EXCEEDED" };
            errors.push(ConditionError::new("/targets", code, format!("must hold 1 to {TARGETS_MAX} targets")));
            return Vec::new();
        }
        let reserved = body.get("allowReserved").and_then(Value::as_bool).unwrap_or_default();
        let mut targets = Vec::with_capacity(items.len());
        for (n, item) in items.iter().enumerate() {
            let Value::Object(map) = item else { continue };
            match Target::parse(map, method, reserved) {
                Ok(target) => targets.push(target),
                Err(found) => below(&format!("/targets/{n}"), found, errors),
            }
        }
        targets
    }

    /// Says whether the rule is for records of a service; the empty name is no service.
    pub fn is_for(&self, service: &str) -> bool {
        glob_of_services(if self.service.is_empty() { "*" } else { &self.service }, service)
    }

    /// What its regular expressions take in memory, in bytes: see [`Condition::held_bytes`].
    pub fn held_bytes(&self) -> usize {
        self.condition.as_ref().map_or(0, Condition::held_bytes) + self.method.held_bytes()
    }

    /// What must hold of a record; none: nothing.
    pub fn condition(&self) -> Option<&Condition> {
        self.condition.as_ref()
    }

    /// The field that the method reads, and what its text must have for the method to find something; none: nothing is
    /// known of that.
    pub fn sought(&self) -> Option<(&FieldName, &RequiredText)> {
        Some((&self.source, self.sought.as_ref()?))
    }

    /// All fields that [`RuleExtractor`] looks at: the source, those of a template, those of the targets.
    pub fn reads(&self) -> impl Iterator<Item = &FieldName> {
        let source = self.method.reads_source().then_some(&self.source);
        source.into_iter().chain(self.method.fields()).chain(self.targets.iter().map(Target::name))
    }

    /// All fields that it may write.
    pub fn writes(&self) -> impl Iterator<Item = &str> {
        self.targets.iter().map(Target::field)
    }

    /// Applies the rule to a record of a service that it is for; what takes longer than [`RULE_MAX`] does not match.
    pub fn apply(&self, record: &mut dyn Record) -> ExtractionOutcome {
        let (mut applied, watch) = (ExtractionOutcome::default(), Watch::new(Until::new(RULE_MAX)));
        let holds = watch.over(|| self.condition.as_ref().is_none_or(|c| c.matches(&RecordFields(record))));
        // What stopped work says is worth nothing.
        if holds && !watch.is_stopped() {
            applied.matched = watch.over(|| self.extracting().extract(record, Some(&mut applied))).is_some();
        }
        applied
    }

    /// Begins to do to records what comes after the condition.
    pub fn extracting(&self) -> RuleExtractor<'_> {
        RuleExtractor { rule: self, source: String::new(), places: None }
    }

    /// Says whether a target may write to a record: over what is there only where it says so.
    fn is_open(&self, n: usize, record: &dyn Record) -> bool {
        let target = &self.targets[n];
        target.overwrites() || record.read(self.read_before + n, target.name()).is_none_or(|value| value.is_empty())
    }
}

impl RuleExtractor<'_> {
    /// Runs the method and writes the targets. Gives how many of them could not be written; none: the method found nothing.
    /// `note` takes what was written.
    pub fn extract(&mut self, record: &mut dyn Record, mut note: Option<&mut ExtractionOutcome>) -> Option<u64> {
        let rule = self.rule;
        self.source.clear();
        if rule.method.reads_source() {
            self.source.push_str(&record.read(0, &rule.source)?);
        }
        let (source, targets) = (self.source.as_str(), rule.targets.len());
        if !(0..targets).any(|n| rule.is_open(n, record)) {
            return rule.method.finds(source, &mut self.places, &RecordFields(record)).then_some(0);
        }
        let wanted = rule.targets.iter().map(Target::from);
        let found = rule.method.run(source, wanted, &mut self.places, &RecordFields(record));
        if !found.matched() {
            return None;
        }
        let mut failed = 0;
        for (n, target) in rule.targets.iter().enumerate() {
            // What one target writes is there for the next.
            if targets > 1 && !rule.is_open(n, record) {
                continue;
            }
            if !rule.writes_reserved && record.is_reserved(target.field()) {
                failed += 1;
                if let Some(note) = &mut note {
                    note.errors.push((target.field().to_owned(), NAMES_SERVICE.to_owned()));
                }
                continue;
            }
            let made = match target.converted(found.get(target.from())) {
                Ok(made) => Some(made),
                Err((why, instead)) => {
                    failed += 1;
                    if let Some(note) = &mut note {
                        note.errors.push((target.field().to_owned(), why));
                    }
                    instead
                }
            };
            if let Some(made) = made {
                record.write(n, target.field(), &made);
                if let Some(note) = &mut note {
                    note.fields.push((target.field().to_owned(), made.to_json()));
                }
            }
        }
        Some(failed)
    }
}

/// A record, read only.
struct RecordFields<'a>(&'a dyn Record);

impl Fields for RecordFields<'_> {
    fn get(&self, name: &FieldName) -> Option<Cow<'_, str>> {
        self.0.get(name)
    }
}

fn below(place: &str, found: Vec<ConditionError>, errors: &mut Vec<ConditionError>) {
    let moved = found.into_iter().map(|e| ConditionError { pointer: format!("{place}{}", e.pointer), ..e });
    errors.extend(moved);
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde_json::json;

    use super::*;

    struct Log(BTreeMap<String, String>);

    impl Fields for Log {
        fn get(&self, name: &FieldName) -> Option<Cow<'_, str>> {
            self.0.get(&name.to_string()).map(|v| Cow::Borrowed(v.as_str()))
        }
    }

    impl Record for Log {
        fn set(&mut self, field: &str, value: &Value) {
            let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            match value {
                Value::Null => self.0.remove(field),
                _ => self.0.insert(field.to_owned(), text),
            };
        }
    }

    fn rule(mut body: Value) -> Result<ExtractionRule, Vec<ConditionError>> {
        body["signal"] = json!("logs");
        ExtractionRule::of_json("r", body.as_object().expect("an object"))
    }

    fn run(body: Value, message: &str) -> ExtractionOutcome {
        let rule = rule(body.clone()).unwrap_or_else(|e| panic!("{body}: {e:?}"));
        let mut log = Log([("_msg".to_owned(), message.to_owned()), ("host".to_owned(), "h1".to_owned())].into());
        rule.apply(&mut log)
    }

    fn check(body: Value, message: &str, expected: Value) {
        let applied = run(body.clone(), message);
        let fields: Map<String, Value> = applied.fields.into_iter().collect();
        assert_eq!(Value::Object(fields), expected, "{body} {message}");
    }

    #[test]
    fn methods() {
        let one = |method: &str, from: &str, more: Value| {
            let mut body = json!({"method": method, "targets": [{"field": "x", "from": from}]});
            body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            body
        };
        check(one("regex", "n", json!({"expression": "took (?P<n>[0-9]+)"})), "took 12 ms", json!({"x": "12"}));
        let folded = json!({"expression": "TOOK (?P<n>[0-9]+)", "options": {"caseSensitive": false}});
        check(one("regex", "n", folded), "took 12 ms", json!({"x": "12"}));
        check(one("regex", "n", json!({"expression": "gave (?P<n>.)"})), "took 12 ms", json!({}));
        check(one("jsonPath", "$.a['b'][1]", json!({})), r#"{"a":{"b":[1,2]}}"#, json!({"x": "2"}));
        check(one("json", "a.b", json!({})), r#"{"a":{"b":true}}"#, json!({"x": "true"}));
        let targets = [("x", "a.b"), ("y", "a.c"), ("z", "d"), ("n", "a.n")];
        let targets = targets.map(|(field, from)| json!({"field": field, "from": from}));
        let flat = json!({"options": {"maxDepth": 2}, "targets": targets});
        let text = r#"{"d":[1,{"e":2}],"a":{"b":{"c":{}},"c":"","n":null},"a.b":7}"#;
        check(one("json", "", flat), text, json!({"x": "{\"c\":{}}", "y": "", "z": "[1,{\"e\":2}]"}));
        check(one("logfmt", "user", json!({})), r#"level=info user="Ann B" x=1"#, json!({"x": "Ann B"}));
        let columns = json!({"options": {"delimiter": ";", "columns": ["_", "b"]}});
        check(one("delimited", "b", columns), "1;2;3", json!({"x": "2"}));
        check(
            one("pattern", "ip", json!({"expression": "<ip> - <who> ["})),
            "1.2.3.4 - ann [x",
            json!({"x": "1.2.3.4"}),
        );
        check(one("urlPart", "host", json!({})), "https://shop.example/cart?id=7#top", json!({"x": "shop.example"}));
        check(one("urlPart", "query.id", json!({})), "https://shop.example/cart?id=7#top", json!({"x": "7"}));
        check(json!({"method": "constant", "expression": "c", "targets": [{"field": "x"}]}), "m", json!({"x": "c"}));
        let template = json!({"method": "template", "expression": "{host}/{_msg}", "targets": [{"field": "x"}]});
        check(template, "m", json!({"x": "h1/m"}));
    }

    #[test]
    fn types_and_transforms() {
        let one = |target: Value| {
            let mut target = target;
            target["field"] = json!("x");
            target["from"] = json!("v");
            json!({"method": "regex", "expression": "v=(?P<v>.*)", "targets": [target]})
        };
        check(one(json!({"type": "int"})), "v=12", json!({"x": 12}));
        check(one(json!({"type": "double"})), "v=1.5", json!({"x": 1.5}));
        check(one(json!({"type": "bool"})), "v=TRUE", json!({"x": true}));
        check(one(json!({"type": "durationMs"})), "v=1.5s", json!({"x": 1500.0}));
        check(one(json!({"type": "timestamp"})), "v=1700000000", json!({"x": "2023-11-14T22:13:20.000Z"}));
        check(one(json!({"transform": "upper"})), "v=abc", json!({"x": "ABC"}));
        check(one(json!({"transform": "urlDecode"})), "v=a%20b", json!({"x": "a b"}));
        check(one(json!({"transform": "redact"})), "v=secret", json!({"x": "***"}));
        let hashed = run(one(json!({"transform": "hash"})), "v=abc");
        let sha = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(hashed.fields[0].1, json!(sha));
        // What cannot be: left out, null, or something else.
        let bad = run(one(json!({"type": "int"})), "v=x");
        assert!(bad.matched && bad.fields.is_empty() && bad.errors.len() == 1, "{bad:?}");
        check(one(json!({"type": "int", "onError": "null"})), "v=x", json!({"x": null}));
        check(one(json!({"type": "int", "onError": "default", "default": 7})), "v=x", json!({"x": 7}));
    }

    #[test]
    fn what_is_there_stays() {
        let body = |overwrite: bool| {
            let target = json!({"field": "host", "overwrite": overwrite});
            json!({"method": "constant", "expression": "new", "targets": [target]})
        };
        check(body(false), "m", json!({}));
        check(body(true), "m", json!({"host": "new"}));
    }

    #[test]
    fn when_it_applies() {
        let condition = json!({"field": "_msg", "op": "contains", "value": "yes"});
        let body = json!({"method": "constant", "expression": "c", "condition": condition,
            "targets": [{"field": "x"}], "service": "cart*"});
        assert!(run(body.clone(), "yes").matched && !run(body.clone(), "no").matched);
        let rule = rule(body).unwrap();
        assert!(rule.is_for("cart-db") && !rule.is_for("front") && !rule.is_for(""));
    }

    #[test]
    fn what_is_wrong() {
        let check = |body: Value, pointer: &str, code: &str| {
            let errors = rule(body.clone()).err().unwrap_or_else(|| panic!("{body} is taken"));
            assert!(errors.iter().any(|e| e.pointer == pointer && e.code == code), "{body} {errors:?}");
        };
        let good = json!([{"field": "x", "from": "a"}]);
        check(json!({"method": "regex", "targets": good}), "/expression", "REQUIRED");
        check(json!({"method": "regex", "expression": "(", "targets": good}), "/expression", "INVALID_REGEX");
        check(
            json!({"method": "regex", "expression": "(?P<b>.)", "targets": good}),
            "/targets/0/from",
            "INVALID_VALUE",
        );
        check(json!({"method": "logfmt", "expression": "x", "targets": good}), "/expression", "UNSUPPORTED");
        check(json!({"method": "logfmt", "options": {"a": 1}, "targets": good}), "/options/a", "UNKNOWN_FIELD");
        for (depth, code) in [(json!("8"), "INVALID_TYPE"), (json!(0), "OUT_OF_RANGE"), (json!(-1), "OUT_OF_RANGE")] {
            check(
                json!({"method": "json", "options": {"maxDepth": depth}, "targets": good}),
                "/options/maxDepth",
                code,
            );
        }
        check(json!({"method": "delimited", "targets": good}), "/options/delimiter", "REQUIRED");
        check(json!({"method": "logfmt", "targets": []}), "/targets", "REQUIRED");
        check(json!({"method": "logfmt", "targets": [{"field": "x"}]}), "/targets/0/from", "REQUIRED");
        check(
            json!({"method": "logfmt", "targets": [{"field": "x", "from": "a", "onError": "default"}]}),
            "/targets/0/default",
            "REQUIRED",
        );
        check(
            json!({"method": "logfmt", "targets": [{"field": "_time", "from": "a"}]}),
            "/targets/0/field",
            "INVALID_VALUE",
        );
        check(
            json!({"method": "jsonPath", "targets": [{"field": "x", "from": "$..a"}]}),
            "/targets/0/from",
            "INVALID_EXPR",
        );
        check(
            json!({"method": "urlPart", "targets": [{"field": "x", "from": "user"}]}),
            "/targets/0/from",
            "INVALID_VALUE",
        );
        check(json!({"method": "constant", "expression": "c", "targets": good}), "/targets/0/from", "UNSUPPORTED");
    }
}
