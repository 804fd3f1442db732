//! The parameters of a list, and its pages.

use std::cmp::Ordering;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::digest::{SHA256, digest};
use serde_json::{Map, Value, json};

use crate::family::Family;
use crate::filter::{self, Class, Filter, Op, order};
use crate::problem::{Problem, ProblemKind, Result, shown};

/// Most entries of a page.
const LIMIT_MAX: usize = 1000;
/// Entries of a page when nothing is said.
const LIMIT: usize = 100;
/// Most fields to sort by, or to return.
const FIELDS_MAX: usize = 50;

/// A page of a list.
#[derive(Debug, Clone, PartialEq)]
pub struct Page {
    /// Entities, as shown.
    pub items: Vec<Map<String, Value>>,
    /// Where the next page begins.
    pub next_cursor: Option<String>,
    /// How many there are, where that was asked for.
    pub total: Option<usize>,
}

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
                return Err(Problem::parameter(format!("`{key}` is given more than once")));
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

    /// Asks for what follows the page that gave a cursor.
    #[cfg(test)]
    pub(crate) fn go_on(&mut self, cursor: &str) -> Result<()> {
        self.after = Some(self.read_cursor(cursor)?);
        Ok(())
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
    use crate::families::{GROUPS, USERS};

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

    fn parsed(family: &Family, parameters: &[(&str, &str)]) -> Result<ListQuery> {
        let owned: Vec<(String, String)> =
            parameters.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        ListQuery::parse(family, &owned, &["dryRun"])
    }

    /// Rows by id and name.
    fn rows(all: &[(&str, &str)]) -> Vec<(String, Map<String, Value>)> {
        let row = |(id, name): &(&str, &str)| {
            let Value::Object(row) = json!({"id": id, "name": name}) else { panic!("an object") };
            ((*id).to_owned(), row)
        };
        all.iter().map(row).collect()
    }

    #[test]
    fn numbers_and_flags() {
        for (text, expected) in [
            ("1", Some(1)),
            ("100", Some(100)),
            ("1000", Some(1000)),
            ("0", None),
            ("1001", None),
            ("-1", None),
            ("+1", None),
            ("1.0", None),
            (" 1", None),
            ("", None),
            ("ten", None),
            ("99999999999999999999", None),
        ] {
            assert_eq!(limit(text).ok(), expected, "{text}");
        }
        assert_eq!((flag("x", "true").ok(), flag("x", "false").ok()), (Some(true), Some(false)));
        for text in ["", "1", "True", "yes", " true"] {
            assert_eq!(flag("count", text).unwrap_err().detail, "`count` must be true or false", "{text}");
        }
    }

    #[test]
    fn what_is_said_of_parameters() {
        for (parameters, detail) in [
            (&[("nothing", "x")][..], "unknown parameter `nothing`"),
            (&[("Limit", "5")][..], "unknown parameter `Limit`"),
            (&[("limit", "5"), ("limit", "5")][..], "`limit` is given more than once"),
            (&[("q", "a"), ("q", "b")][..], "`q` is given more than once"),
            (&[("filter", "name pr"), ("filter", "name pr")][..], "`filter` is given more than once"),
            (&[("limit", "x")][..], "`limit` must be a number from 1 to 1000"),
            (&[("count", "yes")][..], "`count` must be true or false"),
            (&[("sort", "")][..], "unknown field `` in `sort`"),
            (&[("sort", "name,")][..], "unknown field `` in `sort`"),
            (&[("sort", "--name")][..], "unknown field `-name` in `sort`"),
            (&[("sort", "name desc")][..], "unknown field `name desc` in `sort`"),
            (&[("fields", "name,nmae")][..], "unknown field `nmae` in `fields`"),
            (&[("filter", "nmae eq 1")][..], "unknown field `nmae` in `filter`"),
            (&[("filter", "version eq \"1\"")][..], "`version` must be compared with a number"),
            (&[("version", "one")][..], "`version` must be compared with a number"),
            (&[("createdAt", "yesterday")][..], "`createdAt` must be compared with a time like"),
            (&[("a\u{1}b", "x")][..], "unknown parameter `ab`"),
        ] {
            let problem = parsed(&GROUPS, parameters).expect_err(detail);
            assert_eq!(problem.code, "INVALID_PARAMETER", "{parameters:?}");
            assert!(problem.detail.starts_with(detail), "{parameters:?}: {}", problem.detail);
        }
        // Members that are never shown are not fields of a list.
        for parameters in
            [[("password", "x")], [("filter", "password pr")], [("sort", "password")], [("fields", "password")]]
        {
            assert_eq!(parsed(&USERS, &parameters).unwrap_err().code, "INVALID_PARAMETER", "{parameters:?}");
        }
        let many = vec!["name"; FIELDS_MAX + 1].join(",");
        assert_eq!(parsed(&GROUPS, &[("sort", many.as_str())]).unwrap_err().detail, "`sort` names too many fields");
        assert_eq!(parsed(&GROUPS, &[("fields", many.as_str())]).unwrap_err().detail, "`fields` names too many fields");
        assert!(parsed(&GROUPS, &[("dryRun", "maybe"), ("dryRun", "x")]).is_ok(), "it is the caller's to read");
    }

    #[test]
    fn what_lists_are_asked_for() {
        let plain = parsed(&GROUPS, &[]).unwrap();
        assert_eq!((plain.limit, plain.count, plain.filter, plain.contains), (LIMIT, false, None, None));
        assert_eq!(plain.sort, [("name".to_owned(), false)]);
        let sorted = parsed(&GROUPS, &[("sort", "-labels.team, name,-version")]).unwrap();
        let fields: Vec<(&str, bool)> = sorted.sort.iter().map(|(field, down)| (field.as_str(), *down)).collect();
        assert_eq!(fields, [("labels.team", true), ("name", false), ("version", true)]);
        assert_eq!(parsed(&GROUPS, &[("q", "")]).unwrap().contains, None, "all texts contain an empty one");
        assert_eq!(parsed(&GROUPS, &[("q", "ÄB")]).unwrap().contains.as_deref(), Some("äb"));
        let passes = |parameters: &[(&str, &str)], row: Value| {
            parsed(&GROUPS, parameters).unwrap().wants(&GROUPS, row.as_object().expect("an object"))
        };
        // A field that is named twice may have either value, two fields must have theirs.
        assert!(passes(&[("name", "a"), ("name", "b")], json!({"name": "b"})));
        assert!(!passes(&[("name", "a"), ("version", "2")], json!({"name": "a", "version": 1})));
        // A number is one where the field is, and a text where that is.
        assert!(passes(&[("name", "7")], json!({"name": "7"})));
        assert!(passes(&[("version", "7")], json!({"version": 7})));
        assert!(passes(&[("labels.x", "true")], json!({"labels": {"x": "true"}})));
        assert!(passes(&[("filter", "name sw \"a\""), ("labels.x", "1")], json!({"name": "ab", "labels": {"x": "1"}})));
        assert!(passes(&[("q", "b c")], json!({"name": "A B C"})) && !passes(&[("q", "bc")], json!({"name": "A B C"})));
        assert!(passes(&[("q", "why")], json!({"name": "a", "description": "That is WHY."})));
    }

    /// Whatever the order, each row stands on one page, and the last page has no cursor.
    #[test]
    fn pages_of_rows() {
        let all = [("3", "b"), ("1", "b"), ("2", "a"), ("5", "c"), ("4", "")];
        for (sort, expected) in [
            ("name", "4 2 1 3 5"),
            ("-name", "5 1 3 2 4"),
            ("id", "1 2 3 4 5"),
            ("-id", "5 4 3 2 1"),
            ("version,-name", "5 1 3 2 4"),
        ] {
            for limit in ["1", "2", "3", "5", "6"] {
                let (mut found, mut cursor, mut pages) = (Vec::new(), None::<String>, 0);
                loop {
                    let mut parameters = vec![("sort", sort), ("limit", limit), ("count", "true")];
                    parameters.extend(cursor.as_deref().map(|cursor| ("cursor", cursor)));
                    let page = parsed(&GROUPS, &parameters).unwrap().page(&GROUPS, rows(&all));
                    assert_eq!(page.total, Some(all.len()), "the rest is counted, too");
                    found.extend(page.items.iter().map(|row| row["id"].as_str().expect("an id").to_owned()));
                    cursor = page.next_cursor;
                    pages += 1;
                    if cursor.is_none() {
                        break;
                    }
                }
                assert_eq!(found.join(" "), expected, "{sort} {limit}");
                assert_eq!(pages, all.len().div_ceil(limit.parse::<usize>().unwrap()), "{sort} {limit}");
            }
        }
        let whole = parsed(&GROUPS, &[("limit", "1"), ("count", "true")]).unwrap().everything();
        let page = whole.page(&GROUPS, rows(&all));
        assert_eq!((page.items.len(), page.total, page.next_cursor), (5, None, None));
        assert!(parsed(&GROUPS, &[]).unwrap().page(&GROUPS, Vec::new()).items.is_empty());
    }

    /// A cursor is one of a list: of the same family, filter, order; how much is asked for does not matter.
    #[test]
    fn cursors_are_bound() {
        let first = parsed(&GROUPS, &[("limit", "1"), ("name", "a"), ("name", "b")]).unwrap();
        let cursor = first.page(&GROUPS, rows(&[("1", "a"), ("2", "b")])).next_cursor.expect("there is more");
        let again = |family: &Family, parameters: &[(&str, &str)]| {
            let mut all = vec![("cursor", cursor.as_str())];
            all.extend_from_slice(parameters);
            parsed(family, &all).map(drop).map_err(|problem| problem.code)
        };
        let same = [("name", "a"), ("name", "b")];
        assert_eq!(again(&GROUPS, &same), Ok(()));
        assert_eq!(again(&GROUPS, &[same[0], same[1], ("limit", "7"), ("count", "true"), ("fields", "name")]), Ok(()));
        for other in [
            &[][..],
            &[("name", "a")][..],
            &[same[0], same[1], ("sort", "-name")][..],
            &[same[0], same[1], ("sort", "name,id")][..],
            &[same[0], same[1], ("q", "x")][..],
            &[same[0], same[1], ("filter", "name pr")][..],
        ] {
            assert_eq!(again(&GROUPS, other), Err("CURSOR_MISMATCH"), "{other:?}");
        }
        assert_eq!(again(&USERS, &[("username", "a")]), Err("CURSOR_MISMATCH"));
        let forged = [
            String::new(),
            "%".to_owned(),
            cursor[1..].to_owned(),
            format!("{cursor}="),
            URL_SAFE_NO_PAD.encode("[]"),
            URL_SAFE_NO_PAD.encode(json!([first.bound, [], "1"]).to_string()),
            URL_SAFE_NO_PAD.encode(json!([first.bound, ["a"], 1]).to_string()),
            URL_SAFE_NO_PAD.encode(json!([first.bound, ["a", "b"], "1"]).to_string()),
        ];
        for text in &forged {
            let wrong = parsed(&GROUPS, &[same[0], same[1], ("cursor", text.as_str())]);
            assert_eq!(wrong.map(drop).map_err(|problem| problem.code), Err("CURSOR_MISMATCH"), "{text}");
        }
    }
}
