//! Operations of managed resources beyond the contract: summaries, neighbours, dependencies, merging (`config-api`
//! 4).

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use axum::Router;
use axum::routing::MethodFilter;
use futures::future::BoxFuture;
use quiver_config::families::{CI_CLASSES, CI_SUBCLASSES, RELATIONSHIP_TYPES, RESOURCE_TYPES, RESOURCES};
use quiver_config::graph::{Direction, Graph, Subgraph, Walk};
use quiver_config::{Entity, Family, Problem, Result};
use serde_json::{Map, Value, json};

use super::body_members::only_members;
use super::bulk::all_ids_in;
use super::operation::special_at;
use super::request::Ask;
use super::response::Answer;
use crate::state::AppState;

/// Maximum and default number of resources in neighbourhoods and graphs.
const NEIGHBOURS: (u64, u64) = (2000, 200);
const GRAPH: (u64, u64) = (5000, 500);
/// Most roots of a graph.
const ROOTS_MAX: usize = 100;

pub(super) fn routes() -> Router<Arc<AppState>> {
    let at = |rest: &str| format!("{}{rest}", RESOURCES.path);
    let get = |run| special_at(&RESOURCES, MethodFilter::GET, run);
    let post = |run| special_at(&RESOURCES, MethodFilter::POST, run);
    Router::new()
        .route(&at("/summary"), get(summary))
        .route(&at("/dependency-graph"), post(graph_of_many))
        .route(&at("/{id}/summary"), get(super::resource_summary::summary))
        .route(&at("/{id}/neighbours"), get(neighbours))
        .route(&at("/{id}/neighbors"), get(neighbours))
        .route(&at("/{id}/dependency-graph"), get(graph_of_one))
        .route(&at("/{id}/merge"), post(merge))
}

/// Types and classes by id and by key.
struct Classification {
    types: Vec<Entity>,
    classes: Vec<Entity>,
    subclasses: Vec<Entity>,
}

impl Classification {
    /// The class of a resource's type; if the type names only a subclass, the class of that.
    fn class_of(&self, resource: &Entity) -> Option<&Entity> {
        let of = self.types.iter().find(|t| t.id == resource.text("typeId"))?;
        let subclass = self.subclasses.iter().find(|s| s.id == of.text("ciSubclassId"));
        let class = Some(of.text("ciClassId")).filter(|c| !c.is_empty());
        let class = class.or(subclass.map(|s| s.text("classId")))?;
        self.classes.iter().find(|c| c.id == class)
    }
}

impl Ask {
    async fn types(&self) -> Result<Classification> {
        Ok(Classification {
            types: self.config.all(&RESOURCE_TYPES).await?,
            classes: self.config.all(&CI_CLASSES).await?,
            subclasses: self.config.all(&CI_SUBCLASSES).await?,
        })
    }

    async fn graph(&self) -> Result<Arc<Graph>> {
        self.state.effects.graph(&self.config).await
    }

    /// The ids for a list of ids or keys.
    async fn ids_of(&self, family: &'static Family, name: &str, given: &[String]) -> Result<Option<HashSet<String>>> {
        if given.is_empty() {
            return Ok(None);
        }
        let all = self.config.all(family).await?;
        let mut ids = HashSet::new();
        for one in given {
            let found = all.iter().find(|e| e.id == *one || e.text("key") == one);
            let found =
                found.ok_or_else(|| Problem::parameter(format!("`{name}` names `{one}`, which is not there")))?;
            ids.insert(found.id.clone());
        }
        Ok(Some(ids))
    }
}

/// Parameters of a graph, as strings.
#[derive(Debug, Default)]
struct GraphParams {
    direction: String,
    depth: u64,
    limit: u64,
    relationship_types: Vec<String>,
    resource_types: Vec<String>,
    classes: Vec<String>,
    through: bool,
    at: Option<String>,
}

fn bounded(name: &str, text: Option<&str>, most: u64, otherwise: u64) -> Result<u64> {
    let Some(text) = text else { return Ok(otherwise) };
    let number = text.parse().ok().filter(|n| (1..=most).contains(n) && !text.starts_with('+'));
    number.ok_or_else(|| Problem::parameter(format!("`{name}` must be a number from 1 to {most}")))
}

fn flag(name: &str, text: Option<&str>) -> Result<bool> {
    match text {
        None | Some("false") => Ok(false),
        Some("true") => Ok(true),
        Some(_) => Err(Problem::parameter(format!("`{name}` must be true or false"))),
    }
}

fn names(text: Option<&str>) -> Vec<String> {
    let parts = text.unwrap_or_default().split(',').map(str::trim).filter(|part| !part.is_empty());
    parts.map(str::to_owned).collect()
}

impl GraphParams {
    fn read(get: &dyn Fn(&str) -> Result<Option<String>>, most: (u64, u64), depth: (u64, u64)) -> Result<Self> {
        Ok(Self {
            direction: get("direction")?.unwrap_or_default(),
            depth: bounded("depth", get("depth")?.as_deref(), depth.0, depth.1)?,
            limit: bounded("limit", get("limit")?.as_deref(), most.0, most.1)?,
            relationship_types: names(get("relationshipTypes")?.as_deref()),
            resource_types: names(get("resourceTypes")?.as_deref()),
            classes: names(get("ciClasses")?.as_deref()),
            through: flag("through", get("through")?.as_deref())?,
            at: get("at")?,
        })
    }
}

/// Converts a member of a body to the form of a parameter: numbers and booleans as strings, lists joined by commas.
fn member(body: &Map<String, Value>, key: &str) -> Result<Option<String>> {
    let wrong = || Problem::field(format!("/{key}"), "INVALID_TYPE", "must be a text, a number or a list of texts");
    match body.get(key) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.clone())),
        Some(value @ (Value::Number(_) | Value::Bool(_))) => Ok(Some(value.to_string())),
        Some(Value::Array(items)) => {
            let texts: Option<Vec<&str>> = items.iter().map(Value::as_str).collect();
            texts.map(|t| Some(t.join(","))).ok_or_else(wrong)
        }
        Some(Value::Object(_)) => Err(wrong()),
    }
}

impl Ask {
    async fn walked(&self, roots: &[String], direction: Direction, asked: &GraphParams) -> Result<Subgraph> {
        let graph = self.graph().await?;
        let sees = |e: &Entity| RESOURCES.is_visible(&self.caller, e);
        for root in roots {
            if graph.node(root).is_none_or(|e| !sees(&e)) {
                return Err(Problem::not_found(root));
            }
        }
        let now = self.state.clock.now_ms();
        let at_ms = match &asked.at {
            None => now,
            Some(text) => crate::traces_params::time(text, now.saturating_mul(1_000_000))
                .map(|ns| ns.div_euclid(1_000_000))
                .ok_or_else(|| Problem::parameter("`at` must be a time"))?,
        };
        let relationship_types =
            self.ids_of(&RELATIONSHIP_TYPES, "relationshipTypes", &asked.relationship_types).await?;
        let resource_types = self.ids_of(&RESOURCE_TYPES, "resourceTypes", &asked.resource_types).await?;
        let classes = self.ids_of(&CI_CLASSES, "ciClasses", &asked.classes).await?;
        let types = if classes.is_some() { Some(self.types().await?) } else { None };
        let shows = |e: &Entity| {
            let typed = resource_types.as_ref().is_none_or(|ids| ids.contains(e.text("typeId")));
            let classed = match (&classes, &types) {
                (Some(ids), Some(types)) => types.class_of(e).is_some_and(|class| ids.contains(&class.id)),
                _ => true,
            };
            typed && classed
        };
        let mut found = graph.walk(&Walk {
            roots,
            direction,
            depth: asked.depth as usize,
            limit: asked.limit as usize,
            relationship_types,
            shows: &shows,
            through: asked.through,
            may_see: &sees,
            at_ms,
        });
        self.config.complete(&mut found).await?;
        Ok(found)
    }
}

fn neighbours<'a>(ask: &'a Ask, ids: &'a [String]) -> BoxFuture<'a, Result<Answer>> {
    Box::pin(async move {
        ask.only_parameters(&["depth", "direction", "relationshipTypes", "resourceTypes", "limit", "through"])?;
        let get = |key: &str| ask.parameter(key).map(|found| found.map(str::to_owned));
        let asked = GraphParams::read(&get, NEIGHBOURS, (5, 1))?;
        let direction = match asked.direction.as_str() {
            "" | "both" => Direction::Both,
            "in" => Direction::Up,
            "out" => Direction::Down,
            _ => return Err(Problem::parameter("`direction` must be in, out or both")),
        };
        let found = ask.walked(&ids[..1], direction, &asked).await?;
        let mut body = json!({"root": ids[0], "nodes": null, "edges": found.edges, "truncated": found.truncated});
        // Not within the `json!` macro, which would copy each of them.
        body["nodes"] = found.nodes.into_iter().map(Value::Object).collect();
        Ok(Answer::ok(body))
    })
}

/// The direction of a dependency graph; downstream unless another one is asked for.
fn direction_of(text: &str) -> Result<Direction> {
    match text {
        "" | "downstream" => Ok(Direction::Down),
        "upstream" => Ok(Direction::Up),
        "both" => Ok(Direction::Both),
        _ => Err(Problem::parameter("`direction` must be upstream, downstream or both")),
    }
}

const GRAPH_PARAMETERS: [&str; 8] =
    ["direction", "depth", "relationshipTypes", "resourceTypes", "ciClasses", "at", "limit", "through"];

fn graph_answer(roots: (&str, Value), found: Subgraph) -> Answer {
    let mut body = json!({
        "nodes": null, "edges": found.edges, "truncated": found.truncated, "cycles": found.cycles,
        "frontier": found.frontier,
    });
    body["nodes"] = found.nodes.into_iter().map(Value::Object).collect();
    body[roots.0] = roots.1;
    Answer::ok(body)
}

fn graph_of_one<'a>(ask: &'a Ask, ids: &'a [String]) -> BoxFuture<'a, Result<Answer>> {
    Box::pin(async move {
        ask.only_parameters(&GRAPH_PARAMETERS)?;
        let get = |key: &str| ask.parameter(key).map(|found| found.map(str::to_owned));
        let asked = GraphParams::read(&get, GRAPH, (10, 3))?;
        let found = ask.walked(&ids[..1], direction_of(&asked.direction)?, &asked).await?;
        Ok(graph_answer(("root", json!(ids[0])), found))
    })
}

fn graph_of_many<'a>(ask: &'a Ask, _: &'a [String]) -> BoxFuture<'a, Result<Answer>> {
    Box::pin(async move {
        ask.only_parameters(&[])?;
        let body = ask.object()?;
        only_members(&body, &[&GRAPH_PARAMETERS[..], &["roots"]].concat())?;
        let roots = all_ids_in(&body, "roots")?;
        if !(1..=ROOTS_MAX).contains(&roots.len()) {
            return Err(Problem::field("/roots", "OUT_OF_RANGE", format!("must hold 1 to {ROOTS_MAX} ids")));
        }
        let asked = GraphParams::read(&|key| member(&body, key), GRAPH, (10, 3))?;
        let found = ask.walked(&roots, direction_of(&asked.direction)?, &asked).await?;
        Ok(graph_answer(("roots", json!(roots)), found))
    })
}

fn summary<'a>(ask: &'a Ask, _: &'a [String]) -> BoxFuture<'a, Result<Answer>> {
    Box::pin(async move {
        ask.only_parameters(&["groupBy"])?;
        let words = names(Some(ask.parameter("groupBy")?.unwrap_or("type")));
        if let Some(other) = words.iter().find(|w| !matches!(w.as_str(), "type" | "health" | "state" | "ciClass")) {
            return Err(Problem::parameter(format!(
                "`groupBy` must be of type, health, state, ciClass; not `{other}`"
            )));
        }
        let (graph, types) = (ask.graph().await?, ask.types().await?);
        let mut groups: BTreeMap<Vec<Option<String>>, u64> = BTreeMap::new();
        let mut total = 0_u64;
        for resource in graph.nodes().filter(|e| RESOURCES.is_visible(&ask.caller, e)) {
            let resource = &resource;
            total += 1;
            let key = words.iter().map(|word| match word.as_str() {
                "type" => {
                    types.types.iter().find(|t| t.id == resource.text("typeId")).map(|t| t.text("key").to_owned())
                }
                "ciClass" => types.class_of(resource).map(|class| class.text("key").to_owned()),
                other => Some(resource.text(other).to_owned()),
            });
            *groups.entry(key.collect()).or_default() += 1;
        }
        let groups: Vec<Value> = groups
            .into_iter()
            .map(|(key, count)| {
                let key: Map<String, Value> = words.iter().cloned().zip(key.into_iter().map(|k| json!(k))).collect();
                json!({"key": key, "count": count})
            })
            .collect();
        Ok(Answer::ok(json!({"total": total, "groups": groups})))
    })
}

/// Moves the relationships of other resources to one resource; duplicates and self-references are removed.
fn merge<'a>(ask: &'a Ask, ids: &'a [String]) -> BoxFuture<'a, Result<Answer>> {
    Box::pin(async move {
        ask.only_parameters(&[])?;
        let body = ask.object()?;
        only_members(&body, &["from"])?;
        let from = all_ids_in(&body, "from")?;
        let into = &ids[0];
        if from.is_empty() || from.contains(into) {
            return Err(Problem::field("/from", "INVALID_VALUE", "must name others than the resource itself"));
        }
        let kept = ask.config.get(&ask.place, into, &ask.caller).await?;
        for id in &from {
            ask.config.get(&ask.place, id, &ask.caller).await?;
        }
        let done = ask.config.merge_resources(&ask.caller, into, &from, ask.mode).await?;
        ask.acts().await;
        let entity = if ask.mode.is_dry_run() { kept } else { ask.config.get(&ask.place, into, &ask.caller).await? };
        let answer = json!({"resource": entity.shown(), "moved": done.0, "folded": done.1, "deleted": from});
        Ok(Answer { etag: Some(entity.etag()), ..Answer::ok(answer) })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(parameters: &[(&str, &str)]) -> Result<GraphParams> {
        let get = |name: &str| Ok(parameters.iter().find(|(n, _)| *n == name).map(|(_, value)| (*value).to_owned()));
        GraphParams::read(&get, (50, 20), (4, 1))
    }

    #[test]
    fn numbers_lie_within_their_bounds() {
        let none = asked(&[]).unwrap();
        assert_eq!((none.limit, none.depth, none.through), (20, 1, false));
        let most = asked(&[("limit", "50"), ("depth", "4"), ("through", "true")]).unwrap();
        assert_eq!((most.limit, most.depth, most.through), (50, 4, true));
        for wrong in ["0", "51", "-1", "+1", "1.0", "", " 1", "x", "18446744073709551616"] {
            let problem = asked(&[("limit", wrong)]).unwrap_err();
            assert!(problem.detail.contains("`limit` must be a number from 1 to 50"), "{wrong}: {}", problem.detail);
        }
        for wrong in ["", "1", "TRUE", "yes"] {
            assert!(asked(&[("through", wrong)]).is_err(), "{wrong}");
        }
    }

    #[test]
    fn lists_are_parted_by_commas() {
        let found = asked(&[("resourceTypes", " a,,b c ,"), ("ciClasses", ",")]).unwrap();
        assert_eq!(found.resource_types, ["a", "b c"]);
        assert!(found.classes.is_empty() && found.relationship_types.is_empty());
    }

    /// Members of bodies mean the same as parameters.
    #[test]
    fn members_of_bodies_are_read_as_parameters() {
        for (value, expected) in [
            (json!(null), None),
            (json!(""), Some("")),
            (json!("a,b"), Some("a,b")),
            (json!(7), Some("7")),
            (json!(true), Some("true")),
            (json!([]), Some("")),
            (json!(["a", "b"]), Some("a,b")),
        ] {
            let body: Map<String, Value> = [("key".to_owned(), value)].into_iter().collect();
            assert_eq!(member(&body, "key").unwrap().as_deref(), expected, "{body:?}");
            assert_eq!(member(&body, "other").unwrap(), None);
        }
        for wrong in [json!({}), json!([1]), json!(["a", null]), json!([["a"]])] {
            let body: Map<String, Value> = [("key".to_owned(), wrong)].into_iter().collect();
            assert_eq!(member(&body, "key").unwrap_err().errors[0].field, "/key", "{body:?}");
        }
    }

    #[test]
    fn directions_have_names() {
        let down = [("", Direction::Down), ("downstream", Direction::Down)];
        for (text, direction) in down.into_iter().chain([("upstream", Direction::Up), ("both", Direction::Both)]) {
            assert_eq!(direction_of(text).unwrap(), direction, "{text}");
        }
        for wrong in ["in", "out", "Upstream", "down"] {
            assert!(direction_of(wrong).is_err(), "{wrong}");
        }
    }
}
