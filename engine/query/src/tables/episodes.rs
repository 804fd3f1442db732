//! `alert_episodes`: one row per firing period of an alert, computed from the state changes.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit};
use datafusion::catalog::TableProvider;
use datafusion::catalog::view::ViewTable;
use futures::future::BoxFuture;
use quiver_types::tables::history::{ALERT_EVENTS, NOTIFICATIONS};
use quiver_types::{Domain, Result};

use super::cells::{text, text_map, time};
use super::history::{HistoryTable, entry_of};
use super::named_table::{Ask, NamedTable};
use crate::name_resolution::Names;
use crate::quoting;

#[derive(Debug)]
pub(super) struct EpisodeTable;

/// State changes outside of a firing period (pending alerts) are no episodes. The newest change decides: a period
/// that is reported again still has one row, and one that became pending again by a raised `for` has ended. `@` is
/// replaced by the columns that were found by name.
const STATEMENT: &str = "
SELECT e.episode_id, e.fingerprint, e.state, e.starts_at, e.ends_at, e.value, e.source, e.rule_id, e.rule_name,
    e.namespace, e.rule_group, e.generator_url, e.labels, e.annotations, e.service_name, n.last_receiver,
    coalesce(e.starts_at <= e.previous_end + INTERVAL '15 minutes', false) AS reopened_within_15m@
FROM (
    SELECT *, lag(ends_at) OVER (PARTITION BY fingerprint ORDER BY starts_at) AS previous_end
    FROM (
        SELECT episode_id, last_value(fingerprint ORDER BY time) AS fingerprint,
            CASE last_value(to_state ORDER BY time) WHEN 'firing' THEN 'firing' ELSE 'resolved' END AS state,
            min(starts_at) AS starts_at, max(ends_at) AS ends_at,
            last_value(value ORDER BY time) AS value, last_value(source ORDER BY time) AS source,
            last_value(rule_id ORDER BY time) AS rule_id, last_value(rule_name ORDER BY time) AS rule_name,
            last_value(namespace ORDER BY time) AS namespace, last_value(rule_group ORDER BY time) AS rule_group,
            last_value(generator_url ORDER BY time) AS generator_url, last_value(labels ORDER BY time) AS labels,
            last_value(annotations ORDER BY time) AS annotations,
            last_value(service_name ORDER BY time) AS service_name@inner
        FROM alert_events WHERE episode_id IS NOT NULL GROUP BY episode_id
    )
) AS e LEFT JOIN (
    SELECT fingerprint, last_value(receiver ORDER BY time) AS last_receiver
    FROM (SELECT unnest(fingerprints) AS fingerprint, receiver, time FROM notifications WHERE outcome = 'sent')
    GROUP BY fingerprint
) AS n ON n.fingerprint = e.fingerprint";

/// The statement with columns that were found by name, whatever characters the names contain.
fn statement(found: &[String]) -> String {
    let list = |of: &dyn Fn(String) -> String| {
        found.iter().flat_map(|name| [", ".to_owned(), of(quoting::name(name))]).collect::<String>()
    };
    let inner = list(&|name| format!("last_value({name} ORDER BY time) AS {name}"));
    let outer = list(&|name| format!("e.{name}"));
    let (before, behind) = STATEMENT.split_once("@inner").unwrap_or((STATEMENT, ""));
    [before.replace('@', &outer).as_str(), inner.as_str(), behind].concat()
}

fn columns() -> Vec<Field> {
    let mut columns: Vec<Field> = ["episode_id", "fingerprint", "state"].map(text).to_vec();
    columns.extend(["starts_at", "ends_at"].map(|name| time(name, TimeUnit::Millisecond)));
    columns.push(Field::new("value", DataType::Float64, true));
    columns.extend(["source", "rule_id", "rule_name", "namespace", "rule_group", "generator_url"].map(text));
    columns.extend(["labels", "annotations"].map(text_map));
    columns.extend(["service_name", "last_receiver"].map(text));
    columns.push(Field::new("reopened_within_15m", DataType::Boolean, true));
    columns
}

impl NamedTable for EpisodeTable {
    fn name(&self) -> &'static str {
        "alert_episodes"
    }

    fn domain(&self) -> Domain {
        Domain::Alerts
    }

    fn columns(&self) -> SchemaRef {
        Arc::new(Schema::new(columns()))
    }

    fn finds(&self, column: &str) -> bool {
        entry_of(column).is_some()
    }

    fn open<'a>(&'a self, ask: &'a Ask<'a>) -> BoxFuture<'a, Result<Arc<dyn TableProvider>>> {
        Box::pin(async move {
            let events = HistoryTable(&ALERT_EVENTS).open(ask).await?;
            let plain = Ask {
                sources: ask.sources,
                found: &[],
                by_domain: ask.by_domain,
                typed_by: ask.typed_by,
                ctx: ask.ctx,
            };
            let messages = HistoryTable(&NOTIFICATIONS).open(&plain).await?;
            let mut names = Names::new(ask.sources.engine.relational());
            names.add(None, "alert_events", events);
            names.add(None, "notifications", messages);
            let statement = statement(ask.found);
            let plan = names.plan(&statement)?;
            Ok(Arc::new(ViewTable::new(plan, Some(statement))) as Arc<dyn TableProvider>)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_were_found_stand_in_both_selects() {
        let plain = statement(&[]);
        assert!(!plain.contains('@') && plain.contains("AS reopened_within_15m\nFROM"), "{plain}");
        let names = ["labels.a@b", "annotations.say \"@inner\""].map(str::to_owned);
        let both = statement(&names);
        let outer = r#"AS reopened_within_15m, e."labels.a@b", e."annotations.say ""@inner"""
FROM"#;
        assert!(both.contains(outer), "{both}");
        let inner = r#"AS service_name, last_value("labels.a@b" ORDER BY time) AS "labels.a@b", last_value("annotations.say ""@inner""" ORDER BY time) AS "annotations.say ""@inner"""
"#;
        assert!(both.contains(inner), "{both}");
        assert_eq!(both.matches("labels.a@b").count(), 3, "a name is no place for others: {both}");
    }

    #[test]
    fn columns_are_found_by_keys_of_maps_alone() {
        for (name, expected) in [
            ("labels.team", true),
            ("annotations.a.b", true),
            ("labels.", false),
            ("labels", false),
            ("values.a", false),
            (".a", false),
            ("", false),
        ] {
            assert_eq!(EpisodeTable.finds(name), expected, "{name}");
        }
    }
}
