//! `key_transactions`: the key business transactions in the current configuration, of services and of browser
//! applications.

use std::sync::Arc;

use arrow::array::{ArrayRef, BooleanArray, Float64Array, RecordBatch, StringViewArray, TimestampMillisecondArray};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit};
use datafusion::catalog::{MemTable, TableProvider};
use futures::future::BoxFuture;
use quiver_types::query_configuration::{KeyTransaction, PerformanceTargets};
use quiver_types::{Domain, Error, Result};

use super::cells::{text, time};
use super::named_table::{Ask, NamedTable};
use crate::error::from_datafusion;

#[derive(Debug)]
pub(super) struct KeyTable;

impl NamedTable for KeyTable {
    fn name(&self) -> &'static str {
        "key_transactions"
    }

    fn domain(&self) -> Domain {
        Domain::Transactions
    }

    fn columns(&self) -> SchemaRef {
        let number = |name: &str| Field::new(name, DataType::Float64, true);
        Arc::new(Schema::new(vec![
            text("id"),
            text("name"),
            text("service_name"),
            text("transaction_name"),
            text("owner"),
            text("tier"),
            number("apdex_threshold_ms"),
            number("latency_slo_ms"),
            number("latency_percentile"),
            number("error_rate_slo_pct"),
            number("lcp_limit_ms"),
            number("inp_limit_ms"),
            number("cls_limit"),
            Field::new("is_rum", DataType::Boolean, false),
            time("updated_at", TimeUnit::Millisecond),
        ]))
    }

    fn finds(&self, _column: &str) -> bool {
        false
    }

    fn open<'a>(&'a self, ask: &'a Ask<'a>) -> BoxFuture<'a, Result<Arc<dyn TableProvider>>> {
        Box::pin(async move {
            let access = ask.access(Domain::Transactions);
            let configured = &ask.sources.configured;
            let of = |judging: &'_ PerformanceTargets| -> Vec<(KeyTransaction, f64, bool)> {
                let seen = judging.keys.iter().filter(|key| access.allows(&key.service));
                let row = |key: &KeyTransaction| {
                    let threshold = judging.threshold(&key.service, None, Some(key.transaction.text())).threshold_ms;
                    (key.clone(), threshold, judging.is_rum)
                };
                seen.map(row).collect()
            };
            let rows: Vec<_> = of(&configured.services).into_iter().chain(of(&configured.pages)).collect();
            let texts = |of: fn(&KeyTransaction) -> &str| -> ArrayRef {
                Arc::new(
                    rows.iter().map(|(key, ..)| Some(of(key)).filter(|t| !t.is_empty())).collect::<StringViewArray>(),
                )
            };
            let numbers = |of: fn(&KeyTransaction) -> Option<f64>| -> ArrayRef {
                Arc::new(rows.iter().map(|(key, ..)| of(key)).collect::<Float64Array>())
            };
            let updated: TimestampMillisecondArray = rows.iter().map(|(key, ..)| Some(key.updated_ms)).collect();
            let columns: Vec<ArrayRef> = vec![
                texts(|key| &key.id),
                texts(|key| &key.name),
                texts(|key| &key.service),
                texts(|key| key.transaction.text()),
                texts(|key| &key.owner),
                texts(|key| &key.tier),
                Arc::new(rows.iter().map(|(_, threshold, _)| Some(*threshold)).collect::<Float64Array>()),
                numbers(|key| key.latency_slo_ms),
                numbers(|key| Some(key.latency_percentile)),
                numbers(|key| key.error_rate_slo_pct),
                numbers(|key| key.vitals.lcp_ms),
                numbers(|key| key.vitals.inp_ms),
                numbers(|key| key.vitals.cls),
                Arc::new(rows.iter().map(|(.., is_rum)| Some(*is_rum)).collect::<BooleanArray>()),
                Arc::new(updated.with_timezone("UTC")),
            ];
            let schema = self.columns();
            let batch = RecordBatch::try_new(Arc::clone(&schema), columns);
            let batch = batch.map_err(|e| Error::internal("cannot list key transactions").with_source(e))?;
            Ok(Arc::new(MemTable::try_new(schema, vec![vec![batch]]).map_err(from_datafusion)?)
                as Arc<dyn TableProvider>)
        })
    }
}
