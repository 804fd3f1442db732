//! Parameters of a list, and its pages.

use std::cmp::Ordering;

use aws_lc_rs::digest::{SHA256, digest};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Map, Value, json};

use crate::document::Page;
use crate::family::Family;
use crate::filter::{self, Class, Filter, Op, order};
use crate::json::shown;
use crate::problem::{Problem, ProblemKind, Result};

/// Most entries of a page.
const LIMIT_MAX: usize = 1000;
/// Entries of a page when nothing is said.
const LIMIT: usize = 100;
/// Most fields to sort by, or to return.
const FIELDS_MAX: usize = 50;

/// What a list is asked for.
#[derive(Debug, Clone)]
pub struct ListQuery {
    pub(crate) filter: Option<Filter>,
    pub(crate) contains: Option<String>,
    pub(crate) sort: Vec<(String, bool)>,
    pub(crate) fields: Option<Vec<String>>,
    pub(crate) count: bool,
    pub(crate) limit: usize,
    pub(crate) after: Option<(Vec<Value>, String)>,
    /// What a cursor is bound to.
    pub(crate) bound: String,
}

impl ListQuery {
    /// Reads parameters; those in `other` are the caller's to read.
    ///
    /// # Errors
    /// `INVALID_PARAMETER`, `CURSOR_MISMATCH`.
    pub fn parse(family: &Family, parameters: &[(String, String)], other: &[&str]) -> Result<Self> {
        let mut query = Self {
            filter: None,
            contains: None,
            sort: Vec::new(),
            fields: None,
            count: false,
            limit: LIMIT,
            after: None,
            bound: String::new(),
        };
        let (mut all, mut cursor) = (Vec::new(), None);
        let mut any: Vec<(String, Vec<String>)> = Vec::new();
        let mut seen: Vec<&str> = Vec::new();
        for (key, value) in parameters.iter().filter(|(key, _)| !other.contains(&key.as_str())) {
            let once = matches!(key.as_str(), "limit" | "cursor" | "sort" | "filter" | "q" | "fields" | "count");
            if once && seen.contains(&key.as_str()) {
                return Err(Problem::parameter(format!("`{key}` stands twice")));
            }
            seen.push(key);
            match key.as_str() {
                "limit" => query.limit = limit(value)?,
                "cursor" => cursor = Some(value),
                "sort" => query.sort = sort(family, value)?,
                "filter" => all.push(filter::parse(value)?),
                // All texts contain an empty one.
                "q" => query.contains = Some(value.to_lowercase()).filter(|text| !text.is_empty()),
                "fields" => query.fields = Some(paths(family, value)?),
                "count" => query.count = flag("count", value)?,
                path if family.can_be_read(path) => match any.iter_mut().find(|(p, _)| p == path) {
                    Some((_, values)) => values.push(value.clone()),
                    None => any.push((path.to_owned(), vec![value.clone()])),
                },
                other => return Err(Problem::parameter(format!("unknown parameter `{}`", shown(other)))),
            }
        }
        for filter in &mut all {
            let mut named = Vec::new();
            filter.paths(&mut named);
            if let Some(unknown) = named.into_iter().find(|p| !family.can_be_read(p)) {
                return Err(Problem::parameter(format!("unknown field `{}` in `filter`", shown(unknown))));
            }
            filter.fit(&|path| family.class_of(path))?;
        }
        for (path, values) in any {
            all.push(any_of(&path, &values, &|path| family.class_of(path))?);
        }
        query.filter = (!all.is_empty()).then_some(Filter::All(all));
        if query.sort.is_empty() {
            let natural = family.natural.iter().map(|(field, down)| ((*field).to_owned(), *down));
            query.sort = natural.collect();
        }
        if query.sort.is_empty() {
            query.sort = vec![(if family.has_name { "name" } else { "createdAt" }.to_owned(), false)];
        }
        query.bound = query.digest(family);
        query.after = cursor.map(|text| query.read_cursor(text)).transpose()?;
        Ok(query)
    }

    fn digest(&self, family: &Family) -> String {
        bound_to(&format!("{} {:?} {:?} {:?}", family.name, self.filter, self.contains, self.sort))
    }

    fn read_cursor(&self, text: &str) -> Result<(Vec<Value>, String)> {
        let bytes = URL_SAFE_NO_PAD.decode(text).map_err(|_| cursor_mismatch())?;
        let (bound, keys, id): (String, Vec<Value>, String) =
            serde_json::from_slice(&bytes).map_err(|_| cursor_mismatch())?;
        if bound != self.bound || keys.len() != self.sort.len() {
            return Err(cursor_mismatch());
        }
        Ok((keys, id))
    }

    /// The keys that an entity is sorted by.
    pub(crate) fn keys(&self, entity: &Map<String, Value>) -> Vec<Value> {
        self.sort.iter().map(|(path, _)| filter::at(entity, path).cloned().unwrap_or(Value::Null)).collect()
    }

    /// Compares two entities by keys and id.
    pub(crate) fn order(&self, a: (&[Value], &str), b: (&[Value], &str)) -> Ordering {
        for ((x, y), (_, descending)) in a.0.iter().zip(b.0).zip(&self.sort) {
            let by_key = if *descending { order(y, x) } else { order(x, y) };
            if by_key != Ordering::Equal {
                return by_key;
            }
        }
        a.1.cmp(b.1)
    }

    /// Says whether an entity lies behind the cursor.
    pub(crate) fn is_behind(&self, keys: &[Value], id: &str) -> bool {
        let Some((at, last)) = &self.after else { return true };
        self.order((keys, id), (at, last)) == Ordering::Greater
    }

    /// Says whether an entity is asked for.
    pub(crate) fn wants(&self, family: &Family, entity: &Map<String, Value>) -> bool {
        let text = |field: &str| entity.get(field).and_then(Value::as_str).unwrap_or_default().to_lowercase();
        let found =
            self.contains.as_ref().is_none_or(|q| family.searched().iter().any(|field| text(field).contains(q)));
        found && self.filter.as_ref().is_none_or(|f| f.allows(entity))
    }

    /// The cursor behind an entity.
    pub(crate) fn cursor(&self, keys: &[Value], id: &str) -> String {
        URL_SAFE_NO_PAD.encode(json!([self.bound, keys, id]).to_string())
    }

    /// Gives the page of rows that are made of entities instead of being some: id and fields of each.
    pub fn page(&self, family: &Family, rows: Vec<(String, Map<String, Value>)>) -> Page {
        let mut wanted: Vec<_> = rows.into_iter().filter(|(_, row)| self.wants(family, row)).collect();
        let total = self.count.then_some(wanted.len());
        wanted.sort_by(|(a, x), (b, y)| self.order((&self.keys(x), a), (&self.keys(y), b)));
        wanted.retain(|(id, row)| self.is_behind(&self.keys(row), id));
        let more = wanted.len() > self.limit;
        wanted.truncate(self.limit);
        let next_cursor = wanted.last().filter(|_| more).map(|(id, row)| self.cursor(&self.keys(row), id));
        Page { items: wanted.into_iter().map(|(_, row)| self.cut(row)).collect(), next_cursor, total }
    }

    /// The same without pages.
    #[must_use]
    pub fn everything(self) -> Self {
        Self { limit: usize::MAX - 1, count: false, ..self }
    }

    /// Cuts an entity to the fields that are asked for.
    pub fn cut(&self, entity: Map<String, Value>) -> Map<String, Value> {
        match &self.fields {
            None => entity,
            Some(paths) => cut(&entity, paths),
        }
    }
}

/// A short text for what a cursor is bound to.
pub(crate) fn bound_to(text: &str) -> String {
    URL_SAFE_NO_PAD.encode(&digest(&SHA256, text.as_bytes()).as_ref()[..12])
}

/// A cursor of another list, or none at all.
pub(crate) fn cursor_mismatch() -> Problem {
    Problem::new(ProblemKind::Malformed, "CURSOR_MISMATCH", "the cursor is not one of this list")
}

/// Keeps `id` and what stands at some paths.
pub(crate) fn cut(entity: &Map<String, Value>, paths: &[String]) -> Map<String, Value> {
    let mut kept = Map::new();
    kept.insert("id".to_owned(), entity.get("id").cloned().unwrap_or(Value::Null));
    for path in paths {
        keep(&mut kept, entity, path);
    }
    kept
}

/// Copies what stands at a path, below the keys that lead there, of a list from each of its objects. As [`filter::at`] reads
/// paths, a key with dots in it stays one key.
fn keep(kept: &mut Map<String, Value>, from: &Map<String, Value>, path: &str) {
    if let Some(value) = from.get(path) {
        kept.insert(path.to_owned(), value.clone());
        return;
    }
    let Some((first, rest)) = path.split_once('.') else { return };
    if let Some(Value::Array(items)) = from.get(first).filter(|list| list[0].is_object()) {
        let nothing = || Value::Array(vec![json!({}); items.len()]);
        if let Value::Array(kept) = kept.entry(first).or_insert_with(nothing) {
            for (kept, item) in kept.iter_mut().zip(items) {
                if let (Value::Object(below), Value::Object(inner)) = (kept, item) {
                    keep(below, inner, rest);
                }
            }
        }
        return;
    }
    let Some(inner) = from.get(first).and_then(Value::as_object) else { return };
    if filter::at(inner, rest).is_none() {
        return;
    }
    if let Value::Object(below) = kept.entry(first).or_insert_with(|| json!({})) {
        keep(below, inner, rest);
    }
}

fn limit(text: &str) -> Result<usize> {
    let number = text.parse().ok().filter(|n| (1..=LIMIT_MAX).contains(n) && !text.starts_with('+'));
    number.ok_or_else(|| Problem::parameter(format!("`limit` must be a number from 1 to {LIMIT_MAX}")))
}

/// Reads `true` or `false`.
pub(crate) fn flag(name: &str, text: &str) -> Result<bool> {
    match text {
        "true" => Ok(true),
        "false" => Ok(false),
        _ => Err(Problem::parameter(format!("`{name}` must be true or false"))),
    }
}

fn sort(family: &Family, text: &str) -> Result<Vec<(String, bool)>> {
    let list = text.split(',').map(|part| match part.trim().strip_prefix('-') {
        Some(field) => (field.to_owned(), true),
        None => (part.trim().to_owned(), false),
    });
    let list: Vec<(String, bool)> = list.take(FIELDS_MAX + 1).collect();
    match list.iter().find(|(field, _)| !family.can_be_read(field)) {
        Some((unknown, _)) => Err(Problem::parameter(format!("unknown field `{}` in `sort`", shown(unknown)))),
        None if list.len() > FIELDS_MAX => Err(Problem::parameter("`sort` names too many fields")),
        None => Ok(list),
    }
}

fn paths(family: &Family, text: &str) -> Result<Vec<String>> {
    let list: Vec<String> = text.split(',').map(|p| p.trim().to_owned()).take(FIELDS_MAX + 1).collect();
    match list.iter().find(|path| !family.can_be_read(path)) {
        Some(unknown) => Err(Problem::parameter(format!("unknown field `{}` in `fields`", shown(unknown)))),
        None if list.len() > FIELDS_MAX => Err(Problem::parameter("`fields` names too many fields")),
        None => Ok(list),
    }
}

/// What `<field>=value` asks for, of a field that is named more than once any of its values.
///
/// # Errors
/// `INVALID_PARAMETER`: what the field cannot be.
pub(crate) fn any_of(path: &str, values: &[String], class: &dyn Fn(&str) -> Option<Class>) -> Result<Filter> {
    let mut either = Vec::new();
    for text in values {
        // `name=7` means the text, `version=7` the number, and where neither is known it may be both.
        let read = shorthand(text);
        let as_text = (!read.is_string()).then(|| json!(text));
        let (before, mut refused) = (either.len(), None);
        for value in [Some(read), as_text].into_iter().flatten() {
            let mut filter = Filter::Compare(path.to_owned(), Op::Eq, value);
            match filter.fit(class) {
                Ok(()) => either.push(filter),
                Err(problem) => refused = Some(problem),
            }
        }
        if let (true, Some(problem)) = (either.len() == before, refused) {
            return Err(problem);
        }
    }
    Ok(Filter::Any(either))
}

/// A value without quotes: what is a number, true, false or null is meant as one.
fn shorthand(text: &str) -> Value {
    match serde_json::from_str(text) {
        Ok(value @ (Value::Bool(_) | Value::Number(_) | Value::Null)) => value,
        _ => Value::String(text.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_keep_the_shape_of_the_entity() {
        let entity = json!({
            "id": "1", "name": "n", "labels": {"a.b": "x", "a": "y"},
            "conditions": {"logs": {"field": "env", "op": "eq"}, "spans": null},
            "steps": [{"id": "s1", "name": "pay"}, {"id": "s2", "on": {"a": 1}}],
        });
        let check = |fields: &[&str], expected: Value| {
            let paths: Vec<String> = fields.iter().map(|path| (*path).to_owned()).collect();
            assert_eq!(Value::Object(cut(entity.as_object().expect("an object"), &paths)), expected, "{fields:?}");
        };
        check(&["name"], json!({"id": "1", "name": "n"}));
        check(&["labels.a.b"], json!({"id": "1", "labels": {"a.b": "x"}}));
        check(&["labels.none", "none"], json!({"id": "1"}));
        check(&["steps.name", "steps.on.a"], json!({"id": "1", "steps": [{"name": "pay"}, {"on": {"a": 1}}]}));
        check(&["conditions.logs.op"], json!({"id": "1", "conditions": {"logs": {"op": "eq"}}}));
        check(
            &["conditions.logs.op", "conditions.logs.field", "conditions.spans"],
            json!({"id": "1", "conditions": {"logs": {"field": "env", "op": "eq"}, "spans": null}}),
        );
        check(
            &["conditions.logs", "conditions.logs.op"],
            json!({"id": "1", "conditions": {"logs": {"field": "env", "op": "eq"}}}),
        );
    }
}
