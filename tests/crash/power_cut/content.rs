//! The content of a store, as the numbers of the requests that sent it.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::AsArray;
use datafusion::prelude::SessionContext;
use quiver_query::scan_table;
use quiver_store::{Store, logs_source, logs_table, spans_table};
use quiver_tests::load::Caller;
use quiver_tests::server::Server;
use quiver_types::logs::{LogColumn, LogFilter, LogForm, LogOrder, LogRequest};
use quiver_types::spans::{SpanColumn, SpanFilter, SpanRequest};
use quiver_types::{Access, MillisRange, ReadStats};
use serde_json::Value;

use super::senders::Signal;
use crate::arena::START_MS;

/// How often each request's record is there.
pub(crate) type Content = BTreeMap<(Signal, u64), usize>;

/// Reads everything.
pub(crate) async fn read(store: &Arc<Store>) -> Result<Content, String> {
    let mut found = Content::new();
    samples(store, &mut found).await?;
    let text = |e: quiver_types::Error| format!("{e:?}");
    let request = LogRequest {
        filter: LogFilter::All,
        columns: vec![LogColumn::text("id")],
        rest: false,
        order: LogOrder::Any,
        form: LogForm::Rows,
    };
    let logs = logs_source(store).snapshot();
    let table = logs_table(&*logs, &Access::full(), request, &ReadStats::default()).map_err(text)?;
    for batch in collect(scan_table(table)).await? {
        for id in batch.column(0).as_string_view().iter().flatten() {
            *found.entry((Signal::Logs, id.parse().map_err(|e| format!("{id}: {e}"))?)).or_default() += 1;
        }
    }
    let spans = store.span_source().snapshot();
    let request = SpanRequest { filter: SpanFilter::All, columns: vec![SpanColumn::Own("trace_id")] };
    let table = spans_table(&spans, &Access::full(), &request, &ReadStats::default()).map_err(text)?;
    for batch in collect(scan_table(table)).await? {
        for id in batch.column(0).as_fixed_size_binary().iter().flatten() {
            let id = u64::from_be_bytes(id[8..].try_into().map_err(|e| format!("{e}"))?);
            *found.entry((Signal::Traces, id)).or_default() += 1;
        }
    }
    Ok(found)
}

/// Reads everything over HTTP, and says whether the answers are whole; none when one of them is refused.
pub(crate) async fn over_http(server: &Server) -> Option<(Content, bool)> {
    let (mut found, mut whole) = (Content::new(), true);
    let caller = Caller::new(&server.http);
    let ask = async |path: &str, params: &[(&str, &str)]| {
        let (status, body) = caller.get(path, params).await?;
        (status == 200).then_some(body)
    };
    let end = START_MS / 1000 + 100_000;
    let (from, to) = (format!("{START_MS}000000"), format!("{end}000000000"));
    let samples = ask("/metrics-api/api/v1/query", &[("query", "power[100001s]"), ("time", &end.to_string())]).await?;
    let samples: Value = serde_json::from_slice(&samples).ok()?;
    whole &= samples.get("warnings").is_none();
    for sample in
        samples["data"]["result"].as_array()?.iter().flat_map(|s| s["values"].as_array().into_iter().flatten())
    {
        found.insert((Signal::Metrics, sample[1].as_str()?.parse::<f64>().ok()? as u64), 1);
    }
    let traces = ask("/traces", &[("from", &from), ("to", &to), ("limit", "1000")]).await?;
    let traces: Value = serde_json::from_slice(&traces).ok()?;
    whole &= traces["meta"]["partial"] == false && traces["meta"].get("nextCursor").is_none();
    for trace in traces["data"].as_array()? {
        let id = u64::from_str_radix(trace["traceId"].as_str()?, 16).ok()?;
        *found.entry((Signal::Traces, id)).or_default() += 1;
    }
    // A stream that meets the fault on its way breaks off.
    let url = server.url("/logs-api/select/logsql/query?query=*%20%7C%20fields%20id");
    let answer = reqwest::Client::new().get(url).send().await.ok()?;
    whole &= !answer.headers().contains_key("quiver-partial");
    if answer.status() != 200 {
        return None;
    }
    for line in answer.text().await.ok()?.lines() {
        let row: Value = serde_json::from_str(line).ok()?;
        *found.entry((Signal::Logs, row["id"].as_str()?.parse().ok()?)).or_default() += 1;
    }
    Some((found, whole))
}

async fn collect(table: Arc<dyn datafusion::catalog::TableProvider>) -> Result<Vec<arrow::array::RecordBatch>, String> {
    let frame = SessionContext::new().read_table(table).map_err(|e| e.to_string())?;
    frame.collect().await.map_err(|e| e.to_string())
}

/// Samples of live data and of parts; the value is the number of the request. Equal samples count once, as queries do.
async fn samples(store: &Arc<Store>, found: &mut Content) -> Result<(), String> {
    let mut add = |values: &[f64]| {
        for value in values {
            found.insert((Signal::Metrics, *value as u64), 1);
        }
    };
    let visible = store.visible();
    for part in visible.parts.iter().filter(|p| p.meta.table == "metrics") {
        let mut runs = part.runs();
        while let Some(run) = runs.next().await.map_err(|e| format!("{e:?}"))? {
            add(&run.samples.values);
        }
    }
    for generation in &visible.generations {
        for series in generation.matching(&[], &Access::full(), MillisRange::ALL, u64::MAX) {
            add(&generation.copy_floats(series.slot, MillisRange::ALL, u64::MAX).values);
        }
    }
    Ok(())
}
