//! `receivers`, `silences` and `audit_log`: who is notified of alerts, what is silenced, and changes of the
//! configuration. The owners of the data make the rows; here they are filtered by the caller's rights.

use std::sync::Arc;

use arrow::array::{Array as _, ArrayRef, AsArray as _, BooleanArray, Int64Array, RecordBatch};
use arrow::compute::filter_record_batch;
use arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit};
use datafusion::catalog::{MemTable, TableProvider};
use futures::future::BoxFuture;
use quiver_types::query_configuration::ConfigurationList;
use quiver_types::{Domain, Error, Result};

use super::cells::{text, text_column, time, time_column};
use super::named_table::{Ask, NamedTable};
use crate::error::from_datafusion;

/// The column with the service that the caller must be allowed to see.
const SERVICE: &str = "service_name";

/// A receiver; empty texts are NULL.
#[derive(Debug, Clone, Default)]
pub struct ListedReceiver<'a> {
    /// Id of the entity.
    pub id: &'a str,
    /// Name of the receiver.
    pub name: &'a str,
    /// The types of its integrations, such as `email,webhook`.
    pub types: String,
    /// The number of routes that lead to it.
    pub routes: i64,
    /// Who manages it.
    pub managed_by: &'a str,
    /// When it was last changed, Unix milliseconds.
    pub updated_ms: i64,
}

/// A silence; empty texts are NULL.
#[derive(Debug, Clone, Copy, Default)]
pub struct ListedSilence<'a> {
    /// Id of the silence.
    pub id: &'a str,
    /// `pending`, `active`, `expired`.
    pub state: &'a str,
    /// The author, as the silence names him.
    pub created_by: &'a str,
    /// The author's comment.
    pub comment: &'a str,
    /// The service that it is limited to; empty if it may apply to any.
    pub service: &'a str,
    /// The service that a matcher names, even if the silence may apply to others, too.
    pub named_service: &'a str,
    /// Start, Unix milliseconds.
    pub starts_ms: i64,
    /// End, Unix milliseconds.
    pub ends_ms: i64,
    /// When it was last changed, Unix milliseconds.
    pub updated_ms: i64,
}

/// A row of the audit log; empty texts are NULL.
#[derive(Debug, Clone, Copy, Default)]
pub struct ListedAudit<'a> {
    /// Id of the entry.
    pub id: &'a str,
    /// Time, Unix milliseconds.
    pub at_ms: Option<i64>,
    /// Who did it.
    pub actor: &'a str,
    /// The kind of actor: `user`, `serviceAccount` …
    pub actor_type: &'a str,
    /// The address that the request came from.
    pub ip: &'a str,
    /// The action.
    pub action: &'a str,
    /// The family of the entity.
    pub family: &'a str,
    /// The id of the entity.
    pub entity_id: &'a str,
    /// The name of the entity.
    pub entity_name: &'a str,
    /// `ok`, `refused`, `failed`.
    pub outcome: &'a str,
    /// The code of the problem; empty if it succeeded.
    pub code: &'a str,
}

#[derive(Debug)]
pub(super) struct ListedTable(pub(super) ConfigurationList);

fn columns_of(listed: ConfigurationList) -> SchemaRef {
    let at = |name: &str| time(name, TimeUnit::Millisecond);
    let columns = match listed {
        ConfigurationList::Receivers => {
            let mut columns = ["id", "name", "types"].map(text).to_vec();
            columns.push(Field::new("routes", DataType::Int64, true));
            columns.extend([text("managed_by"), at("updated_at")]);
            columns
        }
        ConfigurationList::Silences => {
            let mut columns = ["id", "state", "created_by", "comment", SERVICE, "named_service"].map(text).to_vec();
            columns.extend(["starts_at", "ends_at", "updated_at"].map(at));
            columns
        }
        ConfigurationList::Audit => {
            let mut columns = vec![text("id"), at("time")];
            columns.extend(
                ["actor", "actor_type", "ip", "action", "family", "entity_id", "entity_name", "outcome", "code"]
                    .map(text),
            );
            columns
        }
    };
    Arc::new(Schema::new(columns))
}

fn batch(listed: ConfigurationList, arrays: Vec<ArrayRef>) -> Result<RecordBatch> {
    let made = RecordBatch::try_new(columns_of(listed), arrays);
    made.map_err(|e| Error::internal("cannot list what is configured").with_source(e))
}

/// Rows of `receivers`.
///
/// # Errors
///
/// Internal only.
pub fn receiver_rows(rows: &[ListedReceiver<'_>]) -> Result<RecordBatch> {
    let arrays: Vec<ArrayRef> = vec![
        text_column(rows, |row| row.id),
        text_column(rows, |row| row.name),
        text_column(rows, |row| row.types.as_str()),
        Arc::new(rows.iter().map(|row| Some(row.routes)).collect::<Int64Array>()),
        text_column(rows, |row| row.managed_by),
        time_column(rows, |row| Some(row.updated_ms)),
    ];
    batch(ConfigurationList::Receivers, arrays)
}

/// Rows of `silences`.
///
/// # Errors
///
/// Internal only.
pub fn silence_rows(rows: &[ListedSilence<'_>]) -> Result<RecordBatch> {
    let arrays: Vec<ArrayRef> = vec![
        text_column(rows, |row| row.id),
        text_column(rows, |row| row.state),
        text_column(rows, |row| row.created_by),
        text_column(rows, |row| row.comment),
        text_column(rows, |row| row.service),
        text_column(rows, |row| row.named_service),
        time_column(rows, |row| Some(row.starts_ms)),
        time_column(rows, |row| Some(row.ends_ms)),
        time_column(rows, |row| Some(row.updated_ms)),
    ];
    batch(ConfigurationList::Silences, arrays)
}

/// Rows of `audit_log`.
///
/// # Errors
///
/// Internal only.
pub fn audit_rows(rows: &[ListedAudit<'_>]) -> Result<RecordBatch> {
    let arrays: Vec<ArrayRef> = vec![
        text_column(rows, |row| row.id),
        time_column(rows, |row| row.at_ms),
        text_column(rows, |row| row.actor),
        text_column(rows, |row| row.actor_type),
        text_column(rows, |row| row.ip),
        text_column(rows, |row| row.action),
        text_column(rows, |row| row.family),
        text_column(rows, |row| row.entity_id),
        text_column(rows, |row| row.entity_name),
        text_column(rows, |row| row.outcome),
        text_column(rows, |row| row.code),
    ];
    batch(ConfigurationList::Audit, arrays)
}

impl NamedTable for ListedTable {
    fn name(&self) -> &'static str {
        match self.0 {
            ConfigurationList::Receivers => "receivers",
            ConfigurationList::Silences => "silences",
            ConfigurationList::Audit => "audit_log",
        }
    }

    fn domain(&self) -> Domain {
        match self.0 {
            ConfigurationList::Receivers | ConfigurationList::Silences => Domain::Alerts,
            ConfigurationList::Audit => Domain::Audit,
        }
    }

    fn columns(&self) -> SchemaRef {
        columns_of(self.0)
    }

    fn finds(&self, _column: &str) -> bool {
        false
    }

    fn open<'a>(&'a self, ask: &'a Ask<'a>) -> BoxFuture<'a, Result<Arc<dyn TableProvider>>> {
        Box::pin(async move {
            let schema = columns_of(self.0);
            let access = ask.access(self.domain());
            // Rows without a service are visible to callers who see all; callers also see their own entries of the
            // audit log.
            let has_service = schema.column_with_name(SERVICE).is_some();
            let is_own = self.0 == ConfigurationList::Audit && !access.is_full();
            let own = is_own.then_some(ask.ctx.query().asked.caller.as_str());
            let mut batches = Vec::new();
            if access.is_full() || has_service || own.is_some_and(|caller| !caller.is_empty()) {
                let memory = ask.sources.engine.collected("listed", ask.ctx);
                batches = ask.sources.configuration.listed(self.0, own, &|bytes| memory.add(bytes)).await?;
                ask.ctx.keep(memory);
            }
            if !access.is_full() && !is_own {
                for rows in &mut batches {
                    let services = rows.column_by_name(SERVICE).and_then(|column| column.as_string_view_opt());
                    let services =
                        services.ok_or_else(|| Error::internal("services of what is listed are no texts"))?;
                    let sees = |row: usize| services.is_valid(row) && access.allows(services.value(row));
                    let seen: BooleanArray = (0..rows.num_rows()).map(|row| Some(sees(row))).collect();
                    let cut = filter_record_batch(rows, &seen);
                    *rows = cut.map_err(|e| Error::internal("cannot choose what is listed").with_source(e))?;
                }
            }
            Ok(Arc::new(MemTable::try_new(schema, vec![batches]).map_err(from_datafusion)?) as Arc<dyn TableProvider>)
        })
    }
}

#[cfg(test)]
mod tests {
    use arrow::datatypes::{Int64Type, TimestampMillisecondType};

    use super::*;
    use crate::testing::misplaced;

    #[test]
    fn rows_have_the_columns_of_their_tables() {
        let columns = |listed| ListedTable(listed).columns();
        let receivers = receiver_rows(&[ListedReceiver { name: "ops", ..ListedReceiver::default() }]).unwrap();
        assert_eq!((receivers.num_rows(), receivers.schema()), (1, columns(ConfigurationList::Receivers)));
        let silences = silence_rows(&[ListedSilence { id: "s", ..ListedSilence::default() }]).unwrap();
        assert_eq!((silences.num_rows(), silences.schema()), (1, columns(ConfigurationList::Silences)));
        assert!(silences.column_by_name(SERVICE).unwrap().is_null(0), "empty texts are NULL");
        let audit = audit_rows(&[ListedAudit { id: "a", at_ms: Some(5), ..ListedAudit::default() }]).unwrap();
        assert_eq!((audit.num_rows(), audit.schema()), (1, columns(ConfigurationList::Audit)));
    }

    #[test]
    fn each_value_stands_in_its_column() {
        let receiver = ListedReceiver {
            id: "id",
            name: "name",
            types: "types".to_owned(),
            routes: 3,
            managed_by: "managed_by",
            updated_ms: 7,
        };
        let rows = receiver_rows(&[receiver]).unwrap();
        assert!(misplaced(&rows).is_empty(), "{:?}", misplaced(&rows));
        assert_eq!(rows.column_by_name("routes").unwrap().as_primitive::<Int64Type>().values(), &[3]);
        let silence = ListedSilence {
            id: "id",
            state: "state",
            created_by: "created_by",
            comment: "comment",
            service: SERVICE,
            named_service: "named_service",
            starts_ms: 1,
            ends_ms: 2,
            updated_ms: 3,
        };
        let rows = silence_rows(&[silence]).unwrap();
        assert!(misplaced(&rows).is_empty(), "{:?}", misplaced(&rows));
        let times = ["starts_at", "ends_at", "updated_at"]
            .map(|name| rows.column_by_name(name).unwrap().as_primitive::<TimestampMillisecondType>().value(0));
        assert_eq!(times, [1, 2, 3]);
        let audit = ListedAudit {
            id: "id",
            at_ms: None,
            actor: "actor",
            actor_type: "actor_type",
            ip: "ip",
            action: "action",
            family: "family",
            entity_id: "entity_id",
            entity_name: "entity_name",
            outcome: "outcome",
            code: "code",
        };
        let rows = audit_rows(&[audit]).unwrap();
        assert!(misplaced(&rows).is_empty(), "{:?}", misplaced(&rows));
        assert!(rows.column_by_name("time").unwrap().is_null(0), "nobody knows when");
        assert_eq!(audit_rows(&[]).unwrap().num_rows(), 0);
    }
}
