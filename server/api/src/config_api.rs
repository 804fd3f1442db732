//! Configuration over HTTP: one set of handlers for every family (`config-api` section 1). What a family does beyond it
//! stands in a module of its own.
//!
//! `ask` is a request, read, with its `conditions`; `entities` and `many` do what it asks for, `answer` is what comes of
//! it, `refusals` what is kept of one that is refused.

use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::response::Response;
use axum::routing::{MethodFilter, MethodRouter, get, on, post, put};
use futures::future::BoxFuture;
use quiver_config::families::FAMILIES;
use quiver_config::{Family, Place, Problem, ProblemKind, Result};

use crate::state::AppState;

mod answer;
mod apdex;
mod apply;
mod ask;
mod conditions;
mod csv;
mod deploy;
mod detection;
mod entities;
mod extraction;
mod ids;
mod many;
mod members;
mod old_matchers;
mod policy;
mod policy_revisions;
mod processes;
mod refusals;
mod resource_summary;
mod resources;
mod rule_export;
mod rule_groups;
mod rules;
mod segments;
mod settings;
mod silence_changes;
pub(crate) mod silence_entity;
mod silence_form;
mod silences;
mod silences_many;
pub(crate) mod special;
mod steps;
mod telemetry;
mod transactions;
mod warned;
mod window;
mod yaml;

pub(crate) use answer::{Answer, with_dry_run};
pub(crate) use ask::{Ask, of_body};
pub(crate) use deploy::refused;
pub(crate) use ids::{Ids, is_dry_run, no_parameters};
pub(crate) use members::only_members;
pub(crate) use yaml::write as yaml_text;

use refusals::{Write, to_its_end, told};

/// Largest body, and that of an import.
const BODY_BYTES_MAX: usize = 4 << 20;
const IMPORT_BYTES_MAX: usize = 16 << 20;

/// Parameters of lists that make no sense where there are no pages, and those that say how a list looks.
const NOT_OF_EXPORTS: [&str; 3] = ["limit", "cursor", "count"];
const NOT_OF_IMPORTS: [&str; 5] = ["limit", "cursor", "count", "sort", "fields"];

/// Routes of all families.
pub(crate) fn routes() -> Router<Arc<AppState>> {
    let mut router = Router::new();
    for family in FAMILIES.iter().copied().filter(|family| !family.own_paths) {
        if family.owners.is_empty() {
            router = router.merge(of_family(family, family.path.to_owned(), None));
        }
        for owner in family.owners {
            // Both kinds of owners have keys; the path says which.
            let path = family.path.replace("{owner}", &format!("{}/{{id}}", owner.trim_start_matches("rbac/")));
            router = router.merge(of_family(family, path, Some(owner)));
        }
    }
    for routes in [
        detection::routes,
        apply::routes,
        transactions::routes,
        processes::routes,
        steps::routes,
        apdex::routes,
        segments::routes,
        extraction::routes,
        resources::routes,
        rules::routes,
        rule_groups::routes,
        deploy::routes,
        policy::routes,
        policy_revisions::routes,
        settings::routes,
        silences::routes,
    ] {
        router = router.merge(routes());
    }
    router
}

/// Something that a family does beyond the contract: it gets the ids of the path, in order.
pub(crate) type Run = for<'a> fn(&'a Ask, &'a [String]) -> BoxFuture<'a, Result<Answer>>;

/// A route of a special operation: by these methods.
fn special_at(family: &'static Family, methods: MethodFilter, run: Run) -> Routes {
    special_of(family, methods, BODY_BYTES_MAX, run)
}

/// The same with a body of so many bytes.
pub(crate) fn special_of(family: &'static Family, methods: MethodFilter, largest: usize, run: Run) -> Routes {
    let handler = move |State(state): State<Arc<AppState>>, Ids(ids): Ids, request: Request| {
        serve_special(state, family, ids, run, largest, request)
    };
    on(methods, handler).fallback(not_allowed)
}

async fn serve_special(
    state: Arc<AppState>,
    family: &'static Family,
    ids: Vec<(String, String)>,
    run: Run,
    largest: usize,
    request: Request,
) -> Response {
    let id = if let [(_, id)] = &ids[..] { id.as_str() } else { "" };
    let write = refusals::special(family, request.method(), request.uri().path())
        .and_then(|action| Write::of(&state, family, action, id, request.method(), request.uri().query()));
    let ask = match Ask::read(&state, Place::of(family), request, largest).await {
        Ok(ask) => ask,
        Err(problem) => return told(&state.config, write.as_ref(), problem).await.into_response(None),
    };
    let ids: Vec<String> = ids.into_iter().map(|(_, id)| id).collect();
    let dry_run = ask.dry_run;
    let named = ask.is_named();
    let answer = Box::pin(async move { ask.answered(write.as_ref(), run(&ask, &ids)).await });
    let answer = to_its_end(named, answer).await;
    with_dry_run(answer.into_response(state.shown_revision()), dry_run)
}

/// A method that a route does not know; the router adds those that it does.
async fn not_allowed() -> Response {
    let text = "this method is not used here";
    Answer::of_problem(&Problem::new(ProblemKind::Malformed, "METHOD_NOT_ALLOWED", text)).into_response(None)
}

pub(crate) type Routes = MethodRouter<Arc<AppState>>;

fn of_family(family: &'static Family, path: String, owner: Option<&'static str>) -> Router<Arc<AppState>> {
    // Below an owner its id comes first.
    let one = if owner.is_some() { format!("{path}/{{entity}}") } else { format!("{path}/{{id}}") };
    let at = move |what: What| -> Routes {
        let handler = move |State(state): State<Arc<AppState>>, Ids(ids): Ids, request: Request| {
            serve(state, family, owner, ids, what, request)
        };
        let routes = match what {
            What::Export | What::History => get(handler),
            What::Collection => get(handler).post(handler).put(handler).patch(handler).delete(handler),
            What::Entity => get(handler).put(handler).patch(handler).delete(handler),
            What::Order => put(handler),
            _ => post(handler),
        };
        routes.fallback(not_allowed)
    };
    let mut router = Router::new();
    if family.is_one_row() {
        router = router.route(&format!("{path}/order"), at(What::Order));
    }
    router
        .route(&path, at(What::Collection))
        .route(&one, at(What::Entity))
        .route(&format!("{one}/history"), at(What::History))
        .route(&format!("{one}/restore"), at(What::Restore))
        .route(&format!("{path}/bulk-delete"), at(What::BulkDelete))
        .route(&format!("{path}/bulk-update"), at(What::BulkUpdate))
        .route(&format!("{path}/export"), at(What::Export))
        .route(&format!("{path}/import"), at(What::Import))
}

/// What of a family is meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum What {
    Collection,
    Entity,
    History,
    Restore,
    BulkDelete,
    BulkUpdate,
    Export,
    Import,
    Order,
}

async fn serve(
    state: Arc<AppState>,
    family: &'static Family,
    owner: Option<&'static str>,
    mut ids: Vec<(String, String)>,
    what: What,
    request: Request,
) -> Response {
    let place = match owner {
        None => Place::of(family),
        Some(owner) => Place { family, owner: format!("{owner}/{}", ids.remove(0).1) },
    };
    let id = ids.into_iter().next().map(|(_, id)| id).unwrap_or_default();
    let largest = if what == What::Import { IMPORT_BYTES_MAX } else { BODY_BYTES_MAX };
    let action = refusals::action(what, request.method());
    let write = Write::of(&state, family, action, &id, request.method(), request.uri().query());
    let ask = match Ask::read(&state, place, request, largest).await {
        Ok(ask) => ask,
        Err(problem) => return told(&state.config, write.as_ref(), problem).await.into_response(None),
    };
    let dry_run = ask.dry_run;
    let named = ask.is_named();
    let answer = Box::pin(async move { ask.answered(write.as_ref(), Box::pin(ask.run(what, &id))).await });
    let answer = to_its_end(named, answer).await;
    with_dry_run(answer.into_response(state.shown_revision()), dry_run)
}

#[cfg(test)]
mod tests;
