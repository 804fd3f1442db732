//! Writes batches into the store, and counts them.

use std::sync::Arc;

use futures::future::try_join_all;
use quiver_ingest::logs::{DropReason, Report};
use quiver_ingest::rules::Clients;
use quiver_store::Refusal;
use quiver_types::tables::logs::millis_of;
use quiver_types::{Domain, LogsBatch, Result};

use super::metrics::Endpoint;
use crate::effects::{Signal, suspend};
use crate::forbidden_records;
use crate::metrics::phases::{Signal as Phase, Step};
use crate::request_context::RequestInfo;
use crate::state::AppState;
use crate::usage::AcceptedRecords;

/// Writes batches concurrently, so that one sync serves all of them; adds the rows that the store refused to the
/// report.
///
/// # Errors
/// Those of the store; some of the batches may be stored then.
pub(super) async fn write(state: &Arc<AppState>, batches: Vec<LogsBatch>, report: &mut Report) -> Result<()> {
    let refused = write_counted(state, batches).await?;
    refuse(report, refused);
    Ok(())
}

/// Counts the rows that the caller may not write.
///
/// # Errors
/// Forbidden: that was all of them.
pub(super) fn judge(report: &Report) -> Result<()> {
    forbidden_records::note(report.forbidden());
    let error = || forbidden_records::error(Domain::Logs, report.first_forbidden.as_deref());
    if report.all_forbidden() { Err(error()) } else { Ok(()) }
}

/// Adds refused rows to a report.
pub(super) fn refuse(report: &mut Report, refused: impl IntoIterator<Item = (Refusal, u64)>) {
    for (why, count) in refused {
        report.rows = report.rows.saturating_sub(count);
        report.drop_rows(if why == Refusal::TooFarInFuture { DropReason::TooNew } else { DropReason::TooOld }, count);
    }
}

/// Writes batches. Returns the rows that the store refused.
///
/// # Errors
/// As [`write`].
pub(super) async fn write_counted(state: &Arc<AppState>, mut batches: Vec<LogsBatch>) -> Result<Vec<(Refusal, u64)>> {
    extract(state, &mut batches);
    note_records(&batches);
    let brought = brought(state, &batches);
    let writes = batches.into_iter().filter(|b| !b.is_empty()).map(|batch| state.engines.store.write_logs(batch));
    let outcomes = state.metrics.phases.timed(Phase::Logs, Step::Store, try_join_all(writes)).await?;
    note_brought(&brought);
    Ok(outcomes.into_iter().flat_map(|outcome| outcome.refused).collect())
}

/// Counts rows against the rate limit of the caller's key.
pub(super) fn note_records(batches: &[LogsBatch]) {
    RequestInfo::note_records(batches.iter().map(|batch| batch.len() as u64).sum());
}

/// Returns what the rows contribute to usage, by service, if usage is tracked.
pub(super) fn brought(state: &AppState, batches: &[LogsBatch]) -> Vec<(Arc<str>, AcceptedRecords)> {
    let mut all = Vec::new();
    RequestInfo::note_taken(|_| {
        let window = state.engines.store.logs_window();
        for batch in batches {
            let mut of = vec![AcceptedRecords::default(); batch.services.len()];
            let rows = batch.row_services.iter().zip(&batch.time).enumerate();
            for (row, (&service, &time)) in rows.filter(|(_, (_, time))| window.contains(*time)) {
                of[service as usize].join(AcceptedRecords::record(millis_of(time), batch.row_bytes(row)));
            }
            all.extend(batch.services.iter().cloned().zip(of).filter(|(_, one)| one.records > 0));
        }
    });
    all
}

/// Notes usage of rows that are stored now.
pub(super) fn note_brought(all: &[(Arc<str>, AcceptedRecords)]) {
    RequestInfo::note_taken(|taken| {
        for (service, brought) in all {
            taken.add_records("logs", service, *brought);
        }
    });
}

/// Applies data-extraction rules. Rules that take too long are noted, and skipped from then on.
pub(super) fn extract(state: &Arc<AppState>, batches: &mut [LogsBatch]) {
    let now_ms = state.clock.now_ms();
    for (signal, clients) in [(Signal::Logs, Clients::All), (Signal::Rum, Clients::Browsers)] {
        let rules = state.effects.extraction(signal);
        for batch in &mut *batches {
            suspend(&state.config, rules.apply(batch, clients, now_ms));
        }
    }
}

/// Counts a request that ended, and tells its sender what was not taken: most formats have no place for that.
pub(super) fn count(state: &AppState, endpoint: Endpoint, bytes: u64, report: &Report) {
    if let Some(text) = dropped_text(report) {
        RequestInfo::note_dropped(&text);
    }
    state.metrics.logs.count(endpoint, bytes, report);
    RequestInfo::note_taken(|taken| {
        report.dropped().for_each(|(why, count)| taken.add_rejected("logs", why.word(), count));
    });
}

/// Says how many rows were not taken, and why: `unreadable=1, too_old=3`. Those of services without rights have a header
/// of their own.
fn dropped_text(report: &Report) -> Option<String> {
    let others = report.dropped().filter(|(why, _)| *why != DropReason::Service);
    let text = others.map(|(why, count)| format!("{}={count}", why.word())).collect::<Vec<_>>().join(", ");
    (!text.is_empty()).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_are_told_in_words() {
        let mut report = Report::default();
        assert_eq!(dropped_text(&report), None);
        report.drop_rows(DropReason::Service, 2);
        assert_eq!(dropped_text(&report), None, "what rights refuse is told elsewhere");
        report.drop_row(DropReason::Unreadable);
        report.drop_rows(DropReason::TooOld, 3);
        assert_eq!(dropped_text(&report).as_deref(), Some("unreadable=1, too_old=3"));
    }

    #[test]
    fn what_the_store_refuses_was_not_taken() {
        let mut report = Report::default();
        refuse(&mut report, []);
        assert_eq!(report, Report::default());
        report.rows = 5;
        refuse(&mut report, [(Refusal::TooOld, 2), (Refusal::TooFarInFuture, 1)]);
        assert_eq!((report.rows, report.dropped_count()), (2, 3));
        assert_eq!(report.dropped().collect::<Vec<_>>(), [(DropReason::TooOld, 2), (DropReason::TooNew, 1)]);
        // The count never drops below zero, whatever the store says.
        refuse(&mut report, [(Refusal::TooOld, 9)]);
        assert_eq!(report.rows, 0);
    }

    #[test]
    fn who_may_write_nothing_of_it_is_refused() {
        let mut report = Report::default();
        assert!(judge(&report).is_ok(), "nothing was sent");
        report.drop_rows(DropReason::Service, 2);
        assert_eq!(judge(&report).unwrap_err().kind, quiver_types::ErrorKind::Forbidden);
        // The request was accepted in part, or could not be read: the counts show that.
        report.rows = 1;
        assert!(judge(&report).is_ok());
        report.rows = 0;
        report.drop_rows(DropReason::Unreadable, 1);
        assert!(judge(&report).is_ok());
    }
}
