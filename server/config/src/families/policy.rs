//! The notification policy (`config-api` 2.5 and 2.6): receivers, routes and related entities. The server validates
//! the whole after each change (`Checks::whole`).

use std::collections::BTreeSet;

use futures::future::BoxFuture;
use quiver_database::{Connection, statement};
use quiver_types::{Domain, Right};
use serde_json::{Value, json};

use super::body::{id_link, text};
use super::names;
use crate::entity::{DraftContent, Entity, find};
use crate::family::{ChangeContext, EntityChange, Family, OnDelete};
use crate::fields::{Field, FieldKind};
use crate::problem::{LISTED_MAX, Problem, ProblemKind, Result};
use crate::sort_encoding::encoded;
use crate::sort_text::place_behind;

/// The root of the routing tree.
pub const ROOT_ROUTE_ID: &str = "00000000-0000-7000-8000-000000000401";
/// The receiver that notifies nobody.
pub const EMPTY_RECEIVER_ID: &str = "00000000-0000-7000-8000-000000000402";
/// The single entity of globals.
pub const GLOBAL_ID: &str = "00000000-0000-7000-8000-000000000403";
/// Name of the receiver that notifies nobody.
pub const EMPTY_RECEIVER: &str = "empty";

/// Most levels of routes.
const DEPTH_MAX: usize = 60;

/// What the families of the policy share.
const PART: Family =
    Family { domain: Domain::Alerting, write: Right::Edit, composes: true, entities_max: 10_000, ..Family::BASE };

/// A field with the integrations of one kind.
const fn integrations(name: &'static str) -> Field {
    Field::open(name, FieldKind::Json, "[]")
}

/// Alertmanager receivers, each with its integrations by kind.
pub const RECEIVERS: Family = Family {
    name: names::RECEIVERS,
    path: "/rulesapi/rulepolicy/receivers",
    fields: &[
        integrations("webhook_configs"),
        integrations("email_configs"),
        integrations("slack_configs"),
        integrations("pagerduty_configs"),
        integrations("opsgenie_configs"),
        integrations("telegram_configs"),
        integrations("msteamsv2_configs"),
        integrations("discord_configs"),
        integrations("mattermost_configs"),
        integrations("msteams_configs"),
        integrations("pushover_configs"),
        integrations("victorops_configs"),
        integrations("wechat_configs"),
        integrations("webex_configs"),
        integrations("sns_configs"),
        integrations("jira_configs"),
        integrations("rocketchat_configs"),
        integrations("incidentio_configs"),
    ],
    builtin: || vec![(EMPTY_RECEIVER_ID, json!({"name": EMPTY_RECEIVER, "description": "tells nobody"}))],
    hook: Some(receiver_is_free),
    ..PART
};

/// Routes: a tree in which siblings are tried in order.
pub const ROUTES: Family = Family {
    name: names::ROUTES,
    path: "/rulesapi/rulepolicy/routes",
    title: "receiver",
    has_name: false,
    fields: &[
        Field::open("parentId", FieldKind::Id, "null"),
        Field::open("position", FieldKind::Int { min: 0, max: 1_000_000 }, "null"),
        Field::open("receiver", FieldKind::Text { min: 1, max: 200 }, "null"),
        Field::open("matchers", FieldKind::Json, "[]"),
        Field::open("group_by", FieldKind::Json, "null"),
        Field::open("group_wait", FieldKind::Duration, "null"),
        Field::open("group_interval", FieldKind::Duration, "null"),
        Field::open("repeat_interval", FieldKind::Duration, "null"),
        Field::open("continue", FieldKind::Bool, "false"),
        Field::open("mute_time_intervals", FieldKind::Texts { max: 100 }, "[]"),
        Field::open("active_time_intervals", FieldKind::Texts { max: 100 }, "[]"),
    ],
    unique: &[],
    natural: &[("parentId", false), ("position", false)],
    links: |body| id_link(body, "parentId", &["routes"], OnDelete::Cascade),
    builtin: || vec![(ROOT_ROUTE_ID, json!({"receiver": EMPTY_RECEIVER, "position": 0}))],
    builtin_open: true,
    prepare: Some(place_route),
    hook: Some(root_stays),
    ..PART
};

/// Named time intervals.
pub const TIME_INTERVALS: Family = Family {
    name: names::TIME_INTERVALS,
    path: "/rulesapi/rulepolicy/time-intervals",
    fields: &[Field::open("time_intervals", FieldKind::Json, "[]")],
    hook: Some(interval_is_free),
    ..PART
};

/// Rules by which alerts mute others.
pub const INHIBIT_RULES: Family = Family {
    name: names::INHIBIT_RULES,
    path: "/rulesapi/rulepolicy/inhibit-rules",
    title: "name",
    has_name: false,
    fields: &[
        Field::open("name", FieldKind::Text { min: 1, max: 200 }, "null"),
        Field::open("source_matchers", FieldKind::Json, "[]"),
        Field::open("target_matchers", FieldKind::Json, "[]"),
        Field::open("equal", FieldKind::Texts { max: 100 }, "[]"),
    ],
    unique: &[],
    ..PART
};

/// Templates of messages.
pub const TEMPLATES: Family = Family {
    name: names::TEMPLATES,
    path: "/rulesapi/rulepolicy/templates",
    fields: &[Field::required("content", FieldKind::Prose { max: 1 << 20 })],
    ..PART
};

/// Defaults that receivers inherit: a single entity that always exists.
pub const POLICY_GLOBAL: Family = Family {
    name: names::POLICY_GLOBAL,
    path: "/rulesapi/rulepolicy/global",
    has_name: false,
    title: "description",
    own_paths: true,
    fields: &[
        Field::open("options", FieldKind::Json, "{}"),
        // Patterns of template files, set by a deployed configuration.
        Field::open("template_files", FieldKind::Texts { max: 100 }, "[]"),
    ],
    unique: &[],
    builtin: || vec![(GLOBAL_ID, json!({}))],
    builtin_open: true,
    ..PART
};

fn managed(what: &str) -> Problem {
    Problem::new(ProblemKind::Conflict, "MANAGED_ENTITY", what)
}

/// Places a route below its parent, after its siblings if no position is given.
fn place_route<'a>(
    db: &'a mut Connection,
    making: &'a ChangeContext<'a>,
    draft: &'a mut DraftContent,
) -> BoxFuture<'a, Result<()>> {
    Box::pin(async move {
        let body = &mut draft.body;
        if making.id == Some(ROOT_ROUTE_ID) {
            if !text(body, "parentId").is_empty() {
                return Err(managed("the root stays where it is"));
            }
            body.insert("position".to_owned(), json!(0));
            return Ok(());
        }
        let parent = body.entry("parentId").or_insert(Value::Null);
        if parent.is_null() {
            *parent = json!(ROOT_ROUTE_ID);
        }
        let parent = text(body, "parentId").to_owned();
        let mut above = Some(parent.clone());
        for depth in 0.. {
            let Some(id) = above else { break };
            if making.id == Some(id.as_str()) {
                return Err(Problem::new(ProblemKind::Conflict, "CYCLE", "a route cannot stand below itself"));
            }
            if depth > DEPTH_MAX {
                let why = format!("routes are nested deeper than {DEPTH_MAX}");
                return Err(Problem::field("/parentId", "LIMIT_EXCEEDED", why));
            }
            // One by one: a deployed policy states the position of each of its routes.
            let found = find(db, ROUTES.name, &id).await?;
            above = found.map(|e| text(&e.body, "parentId").to_owned()).filter(|id| !id.is_empty());
        }
        if body.get("position").is_none_or(Value::is_null) {
            let last = place_behind(db, &ROUTES, making, &[&parent]).await?;
            body.insert("position".to_owned(), json!(last));
        }
        Ok(())
    })
}

fn root_stays(EntityChange { before, after, .. }: EntityChange<'_>) -> BoxFuture<'_, Result<()>> {
    let goes = after.is_none() && before.is_some_and(|e| e.id == ROOT_ROUTE_ID);
    Box::pin(async move { if goes { Err(managed("the root cannot be deleted")) } else { Ok(()) } })
}

/// Refuses to delete names that routes refer to. They are looked up in the index of values, since many may be deleted
/// at once.
async fn name_is_free(
    db: &mut Connection,
    (before, after): (Option<&Entity>, Option<&Entity>),
    fields: &[&str],
) -> Result<()> {
    let name = before.map(|e| text(&e.body, "name")).unwrap_or_default();
    if name.is_empty() || after.is_some_and(|e| text(&e.body, "name") == name) {
        return Ok(());
    }
    let mut by = BTreeSet::new();
    for field in fields {
        let sql = "SELECT id FROM entity_value WHERE family = ? AND owner = ? AND field = ? AND value = ?";
        let select = statement(sql).bind(ROUTES.name).bind("").bind(*field).bind(encoded(&json!(name)));
        for row in select.fetch_all(&mut *db).await? {
            by.insert(row.try_get::<String>(0)?);
        }
    }
    if by.is_empty() {
        return Ok(());
    }
    let mut listed = Vec::new();
    for id in by.iter().take(LISTED_MAX) {
        let Some(route) = find(db, ROUTES.name, id).await? else { continue };
        listed.push(json!({"family": ROUTES.name, "id": id, "name": text(&route.body, "receiver")}));
    }
    let hidden = by.len() - listed.len();
    let problem = Problem::new(ProblemKind::Conflict, "REFERENCED", format!("routes name `{name}`"));
    Err(problem.with("references", Value::Array(listed)).with("hiddenReferences", json!(hidden)))
}

fn receiver_is_free(EntityChange { db, before, after, .. }: EntityChange<'_>) -> BoxFuture<'_, Result<()>> {
    Box::pin(name_is_free(db, (before, after), &["receiver"]))
}

fn interval_is_free(EntityChange { db, before, after, .. }: EntityChange<'_>) -> BoxFuture<'_, Result<()>> {
    Box::pin(name_is_free(db, (before, after), &["mute_time_intervals", "active_time_intervals"]))
}
