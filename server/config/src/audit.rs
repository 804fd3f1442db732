//! The audit log: who did what, each row with the hash of the one before it.

use futures::TryStreamExt;
use futures::future::BoxFuture;
use quiver_database::{Connection, statement};
use ring::digest::{SHA256, digest};
use serde_json::{Map, Value, json};

use crate::access::SERVICES;
use crate::config::Config;
use crate::entity::Entity;
use crate::family::{Caller, Family};
use crate::fields::SECRET;
use crate::filter::{self, Class, Filter};
use crate::json::{time_of, time_text};
use crate::page_buffer::{PAGE_BYTES_MAX, map_bytes};
use crate::problem::{Problem, ProblemKind, Result, shown};
use crate::query::{Page, any_of, bound_to, cursor_mismatch, cut, flag};
use crate::{failpoint, migrations};

/// Most rows of a page.
const LIMIT_MAX: usize = 1000;
/// Bytes of rows behind which a piece of an export ends.
const PIECE_BYTES: usize = 1 << 20;
/// Parameters that stand once.
const ONCE: [&str; 9] = ["start", "end", "sort", "count", "fields", "filter", "q", "limit", "cursor"];
/// How long rows are kept.
const KEPT_MS: i64 = 400 * 86_400_000;

/// What a row holds.
const MEMBERS: [&str; 17] = [
    "id",
    "at",
    "actor",
    "actorId",
    "actorType",
    "ip",
    "requestId",
    "action",
    "family",
    "entityId",
    "entityName",
    "before",
    "after",
    "outcome",
    "code",
    "prevHash",
    "hash",
];

/// Something that happened beside changes of entities.
#[derive(Debug, Clone)]
pub struct AuditEvent {
    /// `LOGIN`, `REFRESH_REUSE` …
    pub action: &'static str,
    /// `rbac/sessions`, `rbac/keys`, `ingest`, `query`.
    pub family: &'static str,
    /// Which entity, if one is meant.
    pub entity_id: Option<String>,
    /// Name of that entity, or of what was asked for, like `GET /path`.
    pub entity_name: Option<String>,
    /// `ok`, `refused`, `failed`.
    pub outcome: &'static str,
    /// Code of the problem; none when it went well.
    pub code: Option<String>,
}

/// Which rows are asked for.
#[derive(Debug, Clone, Default)]
pub struct AuditQuery {
    /// Unix milliseconds from which on rows are asked for, included; none: from the first row.
    pub start_ms: Option<i64>,
    /// Unix milliseconds before which rows are asked for, not included; none: to the last row.
    pub end_ms: Option<i64>,
    /// What rows must be, by `filter` and by members (`actor`, `family`, `entityId` …).
    filters: Vec<Filter>,
    /// A part of the name of the entity, in lower case.
    contains: Option<String>,
    fields: Option<Vec<String>>,
    count: bool,
    oldest_first: bool,
    limit: usize,
    /// Bytes of rows behind which a page ends.
    bytes_max: usize,
    /// The number of the last row that was given.
    cursor: Option<i64>,
    /// What a cursor is bound to. Times are not: those that count from now are others with each page.
    bound: String,
}

/// What a check of the chain found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChainVerification {
    /// Rows that were looked at.
    pub rows: u64,
    /// The first that does not follow from the one before it.
    pub broken_at: Option<i64>,
}

impl AuditQuery {
    /// Reads parameters.
    ///
    /// # Errors
    /// `INVALID_PARAMETER`, `CURSOR_MISMATCH`.
    pub fn parse(parameters: &[(String, String)]) -> Result<Self> {
        let mut query = Self { limit: 100, bytes_max: PAGE_BYTES_MAX, ..Self::default() };
        let time = |key: &str, text: &str| {
            time_of(text)
                .ok_or_else(|| Problem::parameter(format!("`{key}` must be a time like `2026-01-31T12:00:00Z`")))
        };
        let (mut cursor, mut seen) = (None, Vec::new());
        let mut any: Vec<(String, Vec<String>)> = Vec::new();
        for (key, value) in parameters {
            if ONCE.contains(&key.as_str()) && seen.contains(&key) {
                return Err(Problem::parameter(format!("`{key}` is given more than once")));
            }
            seen.push(key);
            match key.as_str() {
                "start" => query.start_ms = Some(time(key, value)?),
                "end" => query.end_ms = Some(time(key, value)?),
                "sort" => {
                    query.oldest_first = match value.as_str() {
                        "at" => true,
                        "-at" => false,
                        _ => return Err(Problem::parameter("`sort` must be at or -at")),
                    };
                }
                "count" => query.count = flag(key, value)?,
                "fields" => {
                    let fields: Vec<String> = value.split(',').map(|field| field.trim().to_owned()).collect();
                    if let Some(other) = fields.iter().find(|field| !is_member(field)) {
                        return Err(Problem::parameter(format!("unknown field `{}` in `fields`", shown(other))));
                    }
                    query.fields = Some(fields);
                }
                "filter" => query.filters.push(read_filter(value)?),
                "q" => query.contains = Some(value.to_lowercase()),
                "limit" => {
                    let limit = value.parse().ok().filter(|n| (1..=LIMIT_MAX).contains(n));
                    let text = "`limit` must be a number from 1 to 1000";
                    query.limit = limit.ok_or_else(|| Problem::parameter(text))?;
                }
                "cursor" => cursor = Some(value),
                path if is_member(path) => match any.iter_mut().find(|(p, _)| p == path) {
                    Some((_, values)) => values.push(value.clone()),
                    None => any.push((path.to_owned(), vec![value.clone()])),
                },
                other => return Err(Problem::parameter(format!("unknown parameter `{}`", shown(other)))),
            }
        }
        if query.start_ms.zip(query.end_ms).is_some_and(|(start, end)| start > end) {
            return Err(Problem::parameter("`start` must come before `end`"));
        }
        for (path, values) in any {
            query.filters.push(any_of(&path, &values, &class_of)?);
        }
        query.bound = bound_to(&format!("audit {:?} {:?} {}", query.filters, query.contains, query.oldest_first));
        query.cursor = cursor.map(|text| query.read_cursor(text)).transpose()?;
        Ok(query)
    }

    /// The same with pages that are small enough to be held for clients that read slowly.
    #[must_use]
    pub fn in_pieces(self) -> Self {
        Self { bytes_max: PIECE_BYTES, ..self }
    }

    fn read_cursor(&self, text: &str) -> Result<i64> {
        let (bound, number) = text.split_once('.').ok_or_else(cursor_mismatch)?;
        let number = number.parse().map_err(|_| cursor_mismatch())?;
        if bound == self.bound { Ok(number) } else { Err(cursor_mismatch()) }
    }

    fn wants(&self, row: &Map<String, Value>) -> bool {
        let name = row.get("entityName").and_then(Value::as_str).unwrap_or_default();
        self.contains.as_ref().is_none_or(|part| name.to_lowercase().contains(part))
            && self.filters.iter().all(|filter| filter.allows(row))
    }
}

/// Says whether a dotted path leads into a row.
fn is_member(path: &str) -> bool {
    path.split('.').next().is_some_and(|first| MEMBERS.contains(&first))
}

/// What the values of a member are; none: what an entity was may be anything.
fn class_of(path: &str) -> Option<Class> {
    match path {
        "at" => Some(Class::Time),
        _ if MEMBERS.contains(&path) && !matches!(path, "before" | "after") => Some(Class::Text),
        _ => None,
    }
}

fn read_filter(text: &str) -> Result<Filter> {
    let mut filter = filter::parse(text)?;
    let mut named = Vec::new();
    filter.paths(&mut named);
    if let Some(unknown) = named.into_iter().find(|path| !is_member(path)) {
        return Err(Problem::parameter(format!("unknown field `{}` in `filter`", shown(unknown))));
    }
    filter.fit(&class_of)?;
    Ok(filter)
}

fn chained(prev: &str, row: &str) -> String {
    let hash = digest(&SHA256, format!("{prev}\n{row}").as_bytes());
    quiver_types::hex(hash.as_ref())
}

/// Appends a row within a transaction that writes.
pub(crate) async fn append(db: &mut Connection, id: String, now_ms: i64, mut row: Map<String, Value>) -> Result<()> {
    row.insert("id".to_owned(), json!(id));
    row.insert("at".to_owned(), json!(time_text(now_ms)));
    failpoint::hit("config.before-audit");
    let row = Value::Object(row).to_string();
    let last = statement("SELECT hash FROM audit ORDER BY number DESC LIMIT 1").fetch_optional(&mut *db).await?;
    let prev: String = last.map(|r| r.try_get(0)).transpose()?.unwrap_or_default();
    let hash = chained(&prev, &row);
    let next = statement("UPDATE audit_end SET number = number + 1 RETURNING number");
    let number: i64 = next.fetch_one(&mut *db).await?.try_get(0)?;
    let sql = "INSERT INTO audit (number, at_ms, row, prev_hash, hash) VALUES (?, ?, ?, ?, ?)";
    statement(sql).bind(number).bind(now_ms).bind(row).bind(prev).bind(hash).execute(db).await?;
    failpoint::hit("config.after-audit");
    Ok(())
}

/// As an audit row shows an entity: that there are secrets, not which.
pub(crate) fn audited(entity: &Entity) -> Value {
    let mut map = entity.shown();
    for key in entity.sealed.keys().filter(|key| *key != SERVICES) {
        map.insert(key.clone(), json!(SECRET));
    }
    Value::Object(map)
}

/// What the log says of a change of an entity.
pub(crate) fn change(
    caller: &Caller,
    family: &Family,
    action: &str,
    before: Option<&Entity>,
    after: Option<&Entity>,
) -> Map<String, Value> {
    let either = after.or(before);
    let mut row = caller.audit_members();
    row.extend(members(json!({
        "action": action,
        "family": family.name,
        "entityId": either.map(|e| e.id.clone()),
        "entityName": either.map(|e| family.title_of(&e.body)),
        "before": before.map(audited),
        "after": after.map(audited),
        "outcome": "ok",
        "code": null,
    })));
    row
}

/// What the log says of a change that was refused, and in the problem that it says so.
pub(crate) fn refusal(family: &Family, action: &'static str, id: Option<&str>, problem: &mut Problem) -> AuditEvent {
    problem.noted = true;
    let ours = matches!(problem.kind, ProblemKind::Busy | ProblemKind::Internal);
    AuditEvent {
        action,
        family: family.name,
        entity_id: id.map(str::to_owned),
        entity_name: None,
        outcome: if ours { "failed" } else { "refused" },
        code: Some(problem.code.to_owned()),
    }
}

fn members(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(map) => map,
        _ => Map::new(),
    }
}

impl Config {
    /// Notes that a change was refused, and in the problem that it is noted. That it cannot be does not change the answer.
    pub(crate) async fn audit_refused(
        &self,
        family: &Family,
        caller: &Caller,
        action: &'static str,
        id: Option<&str>,
        problem: &mut Problem,
    ) {
        let event = refusal(family, action, id, problem);
        self.audit(caller, event).await;
    }

    /// Notes something that happened. What cannot be noted is logged.
    pub fn audit<'a>(&'a self, caller: &'a Caller, event: AuditEvent) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            let action = event.action;
            if let Err(error) = self.try_audit(caller, event).await {
                tracing::error!(action, cause = error.cause, "the audit log cannot be written");
            }
        })
    }

    async fn try_audit(&self, caller: &Caller, event: AuditEvent) -> Result<()> {
        let mut tx = migrations::begin(&self.pool).await?;
        self.audit_within(&mut tx, caller, event).await?;
        tx.commit().await?;
        Ok(())
    }

    /// Notes something that happened within a transaction that writes.
    pub(crate) async fn audit_within(&self, db: &mut Connection, caller: &Caller, event: AuditEvent) -> Result<()> {
        let mut row = caller.audit_members();
        row.extend(members(json!({
            "action": event.action, "family": event.family, "entityId": event.entity_id,
            "entityName": event.entity_name, "before": null, "after": null, "outcome": event.outcome, "code": event.code,
        })));
        append(db, self.new_id(), self.clock.now_ms(), row).await
    }

    /// Lists rows, newest first unless the query says otherwise. A row holds an entity twice, so a page may end early.
    ///
    /// # Errors
    /// `STORE_BUSY`, `INTERNAL`.
    pub fn audit_rows<'a>(&'a self, query: &'a AuditQuery) -> BoxFuture<'a, Result<Page>> {
        Box::pin(async move {
            let (sql, open) = if query.oldest_first {
                let sql = "SELECT number, row, prev_hash, hash FROM audit WHERE at_ms >= ? AND at_ms < ? AND number > ? \
                    ORDER BY number";
                (sql, i64::MIN)
            } else {
                let sql = "SELECT number, row, prev_hash, hash FROM audit WHERE at_ms >= ? AND at_ms < ? AND number < ? \
                    ORDER BY number DESC";
                (sql, i64::MAX)
            };
            let behind = query.cursor.unwrap_or(open);
            let is_behind = |number: i64| if query.oldest_first { number > behind } else { number < behind };
            let rows = statement(sql).bind(query.start_ms.unwrap_or(i64::MIN)).bind(query.end_ms.unwrap_or(i64::MAX));
            // All rows count, those of pages before this one, too.
            let mut rows = rows.bind(if query.count { open } else { behind }).fetch(&self.pool);
            let (mut items, mut last, mut next_cursor, mut total) = (Vec::new(), 0_i64, None, 0_usize);
            let mut bytes = 0;
            while let Some(row) = rows.try_next().await? {
                let (number, text): (i64, String) = (row.try_get(0)?, row.try_get(1)?);
                let mut map: Map<String, Value> = serde_json::from_str(&text).map_err(Problem::internal)?;
                map.insert("prevHash".to_owned(), json!(row.try_get::<String>(2)?));
                map.insert("hash".to_owned(), json!(row.try_get::<String>(3)?));
                if !query.wants(&map) {
                    continue;
                }
                total += 1;
                if next_cursor.is_some() || !is_behind(number) {
                    continue;
                }
                if items.len() == query.limit || bytes > query.bytes_max {
                    next_cursor = Some(format!("{}.{last}", query.bound));
                    if !query.count {
                        break;
                    }
                    continue;
                }
                last = number;
                let item = match &query.fields {
                    Some(fields) => cut(&map, fields),
                    None => map,
                };
                bytes += map_bytes(&item);
                items.push(item);
            }
            Ok(Page { items, next_cursor, total: query.count.then_some(total) })
        })
    }

    /// Checks the chain from its oldest row on.
    ///
    /// # Errors
    /// `STORE_BUSY`, `INTERNAL`.
    pub fn audit_verify(&self) -> BoxFuture<'_, Result<ChainVerification>> {
        Box::pin(async move {
            // Read first: rows that come meanwhile are behind it.
            let last: i64 = statement("SELECT number FROM audit_end").fetch_one(&self.pool).await?.try_get(0)?;
            let sql = "SELECT number, row, prev_hash, hash FROM audit ORDER BY number";
            let mut rows = statement(sql).fetch(&self.pool);
            let (mut count, mut before) = (0_u64, None::<(i64, String)>);
            while let Some(row) = rows.try_next().await? {
                let (number, text): (i64, String) = (row.try_get(0)?, row.try_get(1)?);
                let (prev, hash): (String, String) = (row.try_get(2)?, row.try_get(3)?);
                // The oldest remaining row vouches for the dropped ones.
                let follows = before.as_ref().is_none_or(|(n, h)| *h == prev && n + 1 == number);
                if !follows || chained(&prev, &text) != hash {
                    return Ok(ChainVerification { rows: count, broken_at: Some(number) });
                }
                (count, before) = (count + 1, Some((number, hash)));
            }
            // A number that was given out and is not there was taken away at the end.
            let end = before.map_or(0, |(n, _)| n);
            let broken_at = Some(last).filter(|last| *last > end);
            Ok(ChainVerification { rows: count, broken_at })
        })
    }

    /// Forgets rows and answers that are too old.
    ///
    /// # Errors
    /// `STORE_BUSY`, `INTERNAL`.
    pub fn expire(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            let now_ms = self.clock.now_ms();
            let mut tx = migrations::begin(&self.pool).await?;
            statement("DELETE FROM audit WHERE at_ms < ?").bind(now_ms - KEPT_MS).execute(&mut *tx).await?;
            crate::idempotency::forget_old(&mut tx, now_ms).await?;
            tx.commit().await?;
            Ok(())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::families::RULES;

    fn read(query: &[(&str, &str)]) -> Result<AuditQuery> {
        let parameters: Vec<(String, String)> =
            query.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        AuditQuery::parse(&parameters)
    }

    fn row(value: Value) -> Map<String, Value> {
        members(value)
    }

    #[test]
    fn parameters_of_the_log() {
        let none = read(&[]).expect("nothing is asked for");
        assert_eq!((none.limit, none.oldest_first, none.count, none.cursor), (100, false, false, None));
        assert!(none.wants(&Map::new()));
        let all = read(&[
            ("start", "2026-01-01T00:00:00Z"),
            ("end", "2026-01-02T00:00:00+01:00"),
            ("sort", "at"),
            ("count", "true"),
            ("limit", "1000"),
            ("fields", "actor, before.name"),
            ("q", "Cart"),
        ]);
        let all = all.expect("a query");
        assert_eq!((all.start_ms, all.end_ms), (Some(1_767_225_600_000), Some(1_767_308_400_000)));
        assert_eq!((all.limit, all.oldest_first, all.count), (1000, true, true));
        assert_eq!(all.fields, Some(vec!["actor".to_owned(), "before.name".to_owned()]));
        assert_eq!(all.contains.as_deref(), Some("cart"));
        for (key, value) in [
            ("start", "yesterday"),
            ("end", ""),
            ("sort", "actor"),
            ("sort", "AT"),
            ("count", "1"),
            ("limit", "0"),
            ("limit", "1001"),
            ("limit", "-1"),
            ("limit", "x"),
            ("fields", ""),
            ("fields", "actor,secret"),
            ("Actor", "x"),
            ("secret", "x"),
            ("", "x"),
        ] {
            let problem = read(&[(key, value)]).unwrap_err();
            assert_eq!((problem.kind, problem.code), (ProblemKind::Malformed, "INVALID_PARAMETER"), "{key}={value}");
        }
        for key in ["limit", "q", "count", "fields"] {
            let value = if key == "limit" {
                "5"
            } else if key == "count" {
                "true"
            } else {
                "actor"
            };
            assert!(read(&[(key, value)]).is_ok(), "{key}");
            let problem = read(&[(key, value), (key, value)]).unwrap_err();
            assert_eq!(problem.detail, format!("`{key}` is given more than once"));
        }
        let (early, late) = ("2026-01-01T00:00:00Z", "2026-01-01T00:00:00.001Z");
        assert!(read(&[("start", early), ("end", early)]).is_ok());
        assert!(read(&[("start", late), ("end", early)]).is_err());
    }

    #[test]
    fn rows_that_are_wanted() {
        let one = row(json!({"actor": "Ann", "family": "rules", "action": "UPDATE", "entityName": "Cart is slow"}));
        let check = |query: &[(&str, &str)], expected: bool| {
            assert_eq!(read(query).expect("a query").wants(&one), expected, "{query:?}");
        };
        check(&[("actor", "Ann")], true);
        check(&[("actor", "Bob")], false);
        // Of one member any of its values, of several each.
        check(&[("actor", "Bob"), ("actor", "Ann")], true);
        check(&[("actor", "Ann"), ("family", "rules")], true);
        check(&[("actor", "Ann"), ("family", "silences")], false);
        check(&[("q", "cart")], true);
        check(&[("q", "IS SLOW")], true);
        check(&[("q", "fast")], false);
        check(&[("q", "ann")], false);
        check(&[("q", "")], true);
    }

    #[test]
    fn cursors_belong_to_their_query() {
        let of = |query: &[(&str, &str)]| read(query).expect("a query").bound;
        let bound = of(&[("actor", "Ann")]);
        assert_eq!(
            bound,
            of(&[("actor", "Ann"), ("limit", "5"), ("count", "true"), ("start", "2026-01-01T00:00:00Z")])
        );
        assert_ne!(bound, of(&[]));
        assert_ne!(bound, of(&[("actor", "Bob")]));
        assert_ne!(bound, of(&[("actor", "Ann"), ("sort", "at")]));
        assert_ne!(bound, of(&[("actor", "Ann"), ("q", "ann")]));
        let with = |cursor: &str| read(&[("actor", "Ann"), ("cursor", cursor)]);
        assert_eq!(with(&format!("{bound}.17")).expect("a cursor").cursor, Some(17));
        for wrong in [bound.clone(), format!("{bound}."), format!("{bound}.x"), "x.17".to_owned(), ".17".to_owned()] {
            let problem = with(&wrong).unwrap_err();
            assert_eq!((problem.kind, problem.code), (ProblemKind::Malformed, "CURSOR_MISMATCH"), "{wrong}");
        }
    }

    #[test]
    fn members_of_rows() {
        for (path, expected) in [
            ("actor", true),
            ("before", true),
            ("before.name", true),
            ("after.labels.a", true),
            ("befor", false),
            ("Before", false),
            ("name", false),
            ("", false),
            (".actor", false),
        ] {
            assert_eq!(is_member(path), expected, "{path}");
        }
        assert!(matches!(class_of("at"), Some(Class::Time)) && matches!(class_of("actor"), Some(Class::Text)));
        assert!(class_of("before").is_none() && class_of("after.x").is_none());
    }

    #[test]
    fn each_row_hangs_on_the_one_before_it() {
        let first = chained("", "{}");
        assert_eq!((first.len(), first == chained("", "{}")), (64, true));
        assert_ne!(first, chained("", "{ }"));
        assert_ne!(first, chained(&first, "{}"));
        assert_ne!(chained("a", "b"), chained("", "a\nb"));
    }

    #[test]
    fn refusals_are_told_from_faults() {
        for (kind, expected) in [
            (ProblemKind::Forbidden, "refused"),
            (ProblemKind::Invalid, "refused"),
            (ProblemKind::Precondition, "refused"),
            (ProblemKind::Busy, "failed"),
            (ProblemKind::Internal, "failed"),
        ] {
            let mut problem = Problem::new(kind, "SOME_CODE", "why");
            let event = refusal(&RULES, "UPDATE", Some("1"), &mut problem);
            assert!(problem.noted, "it is not noted once more");
            assert_eq!((event.outcome, event.action, event.family), (expected, "UPDATE", "rules"));
            assert_eq!((event.entity_id.as_deref(), event.code.as_deref()), (Some("1"), Some("SOME_CODE")));
        }
    }
}
