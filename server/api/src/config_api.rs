//! Configuration over HTTP: one set of handlers for every family (`config-api` section 1). Operations that only one
//! family has are in a module of their own.
//!
//! `request` is a parsed request with its `preconditions`; `entities` and `bulk` carry it out, `response` encodes the result
//! (`export`, `list_body`: those of exports and lists), `refusals` records refused requests; `operation` makes the routes of a family's own
//! operations.

use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::response::Response;
use axum::routing::{MethodFilter, on};
use quiver_config::families::FAMILIES;
use quiver_config::{Family, Place};

use crate::handlers::boxed;
use crate::state::AppState;

pub(crate) mod account_effects;
mod apdex;
mod apply_to_all;
pub(crate) mod body_members;
mod bulk;
mod csv;
pub(crate) mod deploy;
mod detection;
mod entities;
mod export;
mod extraction;
mod family_operation;
mod joint_changes;
mod legacy_matchers;
mod list_body;
pub(crate) mod operation;
pub(crate) mod path_ids;
mod policy;
mod policy_revisions;
mod preconditions;
mod process_steps;
mod processes;
mod refusals;
pub(crate) mod request;
mod resource_summary;
mod resources;
pub(crate) mod response;
mod rule_export;
mod rule_groups;
mod rules;
mod segments;
mod settings;
mod silence_changes;
pub(crate) mod silence_entity;
mod silence_form;
mod silences;
mod silences_bulk;
mod telemetry_queries;
mod time_range;
mod transactions;
mod warnings;
pub(crate) mod yaml;

use family_operation::OperationKind;
use operation::{BODY_BYTES_MAX, Call, IMPORT_BYTES_MAX, Routes, not_allowed};
use path_ids::Ids;
use refusals::Write;

/// Routes of all families.
pub(crate) fn routes() -> Router<Arc<AppState>> {
    let mut router = Router::new();
    for family in FAMILIES.iter().copied().filter(|family| !family.own_paths) {
        if family.owners.is_empty() {
            router = router.merge(of_family(family, family.path.to_owned(), None));
        }
        for owner in family.owners {
            // Users and service accounts both have keys; the path says which.
            let path = family.path.replace("{owner}", &format!("{}/{{id}}", owner.trim_start_matches("rbac/")));
            router = router.merge(of_family(family, path, Some(owner)));
        }
    }
    for routes in [
        detection::routes,
        apply_to_all::routes,
        transactions::routes,
        processes::routes,
        process_steps::routes,
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

fn of_family(family: &'static Family, path: String, owner: Option<&'static str>) -> Router<Arc<AppState>> {
    // If there is an owner, its id comes first in the path.
    let one = if owner.is_some() { format!("{path}/{{entity}}") } else { format!("{path}/{{id}}") };
    let at = move |what: OperationKind| -> Routes {
        let handler = move |State(state): State<Arc<AppState>>, Ids(ids): Ids, request: Request| {
            let (place, id) = place_of(family, owner, ids);
            serve(state, place, id, what, request)
        };
        let (get, put, post) = (MethodFilter::GET, MethodFilter::PUT, MethodFilter::POST);
        let changed = get.or(put).or(MethodFilter::PATCH).or(MethodFilter::DELETE);
        let methods = match what {
            OperationKind::Export | OperationKind::History => get,
            OperationKind::Collection => changed.or(post),
            OperationKind::Entity => changed,
            OperationKind::Order => put,
            _ => post,
        };
        on(methods, boxed(handler)).fallback(not_allowed)
    };
    let mut router = Router::new();
    if family.is_one_row() {
        router = router.route(&format!("{path}/order"), at(OperationKind::Order));
    }
    router
        .route(&path, at(OperationKind::Collection))
        .route(&one, at(OperationKind::Entity))
        .route(&format!("{one}/history"), at(OperationKind::History))
        .route(&format!("{one}/restore"), at(OperationKind::Restore))
        .route(&format!("{path}/bulk-delete"), at(OperationKind::BulkDelete))
        .route(&format!("{path}/bulk-update"), at(OperationKind::BulkUpdate))
        .route(&format!("{path}/export"), at(OperationKind::Export))
        .route(&format!("{path}/import"), at(OperationKind::Import))
}

/// The place and the entity that a path names by its ids; no id: all entities of the place.
fn place_of(family: &'static Family, owner: Option<&'static str>, mut ids: Vec<(String, String)>) -> (Place, String) {
    let place = match owner {
        None => Place::of(family),
        Some(owner) => Place { family, owner: format!("{owner}/{}", ids.remove(0).1) },
    };
    (place, ids.into_iter().next().map(|(_, id)| id).unwrap_or_default())
}

async fn serve(state: Arc<AppState>, place: Place, id: String, what: OperationKind, request: Request) -> Response {
    let largest = if what == OperationKind::Import { IMPORT_BYTES_MAX } else { BODY_BYTES_MAX };
    let action = refusals::action(what, request.method());
    let write = Write::of(&state, place.family, action, &id, &request);
    let call = Call { place, largest, write, request };
    call.answer(&state, move |ask| Box::pin(async move { ask.run(what, &id).await })).await
}

#[cfg(test)]
mod tests;
