//! Lists of alerts and silences.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::response::Response;
use quiver_alertd::router::{AlertFilter, AlertStateFilter, GroupPiece};
use quiver_alerting::matchers::Matchers;
use quiver_alerting::silences::SilenceState;
use quiver_types::matcher::Patterns;
use quiver_types::{Access, Domain, Error, ErrorKind, LabelSet, Result};
use serde_json::Value;

use super::rows::{self, Sight};
use super::silences::{is_within, matches_filter, shown};
use super::{Filter, allows, params_of, read_filters, truth, written};
use crate::alerting::lists::{Text, made};
use crate::state::AppState;

/// Most bytes of alerts that a preview lists: it is made as a tree of values.
const PREVIEW_BYTES_MAX: usize = 16 << 20;
/// How an answer that is too large gets smaller.
const FEWER: &str = "name fewer by `filter`";

/// What is listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rows {
    Alerts,
    /// Groups, each with its alerts.
    Groups,
}

/// Lists alerts, or groups with theirs, as JSON.
pub(super) async fn listed(state: &Arc<AppState>, access: Access, filter: Filter, listed: Rows) -> Result<Vec<u8>> {
    made(state, move |state, go_on| {
        let labels = |labels: &LabelSet| allows(state, &access, labels) && filter.matchers.matches(labels);
        let policy = state.alertd.router.policy();
        let wanted = filter.receivers(&policy.config);
        // One that comes in between may have others.
        let receiver = |name: &str| wanted.get(name).copied().unwrap_or_else(|| filter.fits(name, &BTreeMap::new()));
        let sees = |labels: &LabelSet| allows(state, &access, labels);
        let asked = AlertFilter { shown: filter.shown, labels: &labels, sees: &sees, receiver: &receiver, go_on };
        let sight = Sight::new(state, &access);
        let mut text = Text::new("[", state.settings.answer_bytes_max, FEWER);
        if listed == Rows::Groups {
            let mut is_open = false;
            state.alertd.router.each_group(&asked, &mut |piece| match piece {
                GroupPiece::Group(group) => {
                    if std::mem::replace(&mut is_open, true) {
                        text.push("]}");
                    }
                    text.item(&rows::group(&group))?;
                    text.open("alerts");
                    Ok(())
                }
                GroupPiece::Alert(row) => text.item(&rows::alert(&row, &sight)),
            })?;
            if is_open {
                text.push("]}");
            }
        } else {
            state.alertd.router.each_alert(&asked, &mut |row| text.item(&rows::alert(&row, &sight)))?;
        }
        text.push("]\n");
        Ok(text.into_bytes())
    })
    .await
}

async fn silences_asked(state: &Arc<AppState>, request: Request) -> Result<Vec<u8>> {
    let params = params_of(state, request).await?;
    let filter = read_filters(params.all("filter"), &mut Patterns::default())?;
    let wanted = [
        (SilenceState::Active, truth(&params, "active")),
        (SilenceState::Pending, truth(&params, "pending")),
        (SilenceState::Expired, truth(&params, "expired")),
    ];
    let (access, now) = (state.access(Domain::Alerts), state.alertd.router.now());
    made(state, move |state, go_on| {
        let mut text = Text::new("[", state.settings.answer_bytes_max, FEWER);
        for silence in state.alertd.router.silences() {
            go_on()?;
            let is_wanted = wanted.contains(&(silence.state(now), true));
            if is_wanted && matches_filter(&silence, &filter) && is_within(state, &access, &silence) {
                text.item(&shown(&silence, now))?;
            }
        }
        text.push("]\n");
        Ok(text.into_bytes())
    })
    .await
}

/// Lists silences.
pub(super) async fn silences(State(state): State<Arc<AppState>>, request: Request) -> Response {
    written(silences_asked(&state, request).await)
}

/// Gives the alerts that matchers fit as rows, as far as the caller sees them and what mutes them.
///
/// # Errors
/// LimitExceeded: they are too many. Timeout: they take too long.
pub(crate) async fn preview(state: &Arc<AppState>, access: Access, matchers: Matchers) -> Result<Vec<Value>> {
    made(state, move |state, go_on| {
        let labels = |labels: &LabelSet| matchers.matches(labels) && allows(state, &access, labels);
        let shown = AlertStateFilter { active: true, silenced: true, inhibited: true, muted: true };
        let asked = AlertFilter { shown, labels: &labels, sees: &labels, receiver: &|_| true, go_on };
        let sight = Sight::new(state, &access);
        let (mut found, mut bytes) = (Vec::new(), 0);
        state.alertd.router.each_alert(&asked, &mut |row| {
            let shown = rows::alert(&row, &sight);
            bytes += row.alert.bytes() + shown["status"]["silencedBy"].as_array().map_or(0, |ids| 64 * ids.len());
            if bytes > PREVIEW_BYTES_MAX {
                return Err(Error::new(
                    ErrorKind::LimitExceeded,
                    "the matchers fit more alerts than can be shown; narrow them",
                ));
            }
            found.push(shown);
            Ok(())
        })?;
        Ok(found)
    })
    .await
}
