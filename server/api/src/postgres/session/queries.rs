//! Queries of a connection to the engine: types and rows, with the client's current rights.

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use pgwire::messages::Message as _;
use pgwire::messages::data::ParameterDescription;
use pgwire::messages::response::TransactionStatus;
use quiver_query::QueryContext;
use quiver_query::tables::DomainAccess;
use quiver_sql::{Answer, Param, Request, SettingChange, StatementDescription};
use quiver_types::{Error, Result, Right};
use tokio_util::sync::CancellationToken;
use tracing::Instrument as _;

use super::{Connection, Trouble, attended};
use crate::error::log;
use crate::forbidden_records::needs;
use crate::metrics::phases::Language;
use crate::postgres::client_messages::Bind;
use crate::postgres::command::{Command, SettingScope};
use crate::postgres::encode;
use crate::postgres::error::Fault;
use crate::postgres::params;
use crate::postgres::portal::{Portal, PortalRows};
use crate::request_context::RequestInfo;
use crate::rights::RequiredRight;

/// The origin of a statement in log lines.
const PORT: &str = "the port of PostgreSQL";

impl Connection {
    /// Begins a query with the client's identity, rights and time limit.
    async fn begin(&mut self, text: &str) -> Result<(QueryContext, DomainAccess, RequestInfo), Fault> {
        if let Some(identities) = self.app.identities.as_ref().filter(|identities| identities.enforced) {
            // Rights withdrawn meanwhile take effect; without the account the connection ends.
            let renewed = identities.auth.renewed(&self.identity);
            self.identity = Arc::new(renewed.map_err(|_| Fault::of_ended_account())?);
            // The same condition as for SQL over HTTP, whatever the statement reads.
            if let Some(triple) = RequiredRight::Somewhere(Right::View).missing(&self.identity.rights) {
                return Err(Fault::new("42501", needs(&triple.to_string())));
            }
        }
        let info = RequestInfo::of_connection(&self.app.process.request_ids, self.peer, Arc::clone(&self.identity));
        let access = DomainAccess::of(|domain| self.identity.access(domain));
        let mut limits = self.app.limits();
        if let Some(timeout) = self.settings.statement_timeout() {
            limits.timeout = limits.timeout.min(timeout);
        }
        let app = Arc::clone(&self.app);
        let ctx = info.clone().scope(async { app.begin(app.asked(Language::Sql, text), limits) }).await;
        Ok((ctx, access, info))
    }

    fn request(&self, text: &str) -> Request {
        Request {
            text: text.to_owned(),
            time_zone: self.settings.time_zone(),
            session: self.settings.session.clone(),
            ..Request::default()
        }
    }

    /// Refuses statements in a transaction that failed.
    pub(super) fn alive(&self) -> Result<(), Fault> {
        if self.transaction != TransactionStatus::Error {
            return Ok(());
        }
        Err(Fault::new("25P02", "the transaction has failed: nothing is done before `ROLLBACK`"))
    }

    /// Determines parameter and column types of a prepared statement, once.
    pub(super) async fn described(&mut self, name: &str) -> Result<Arc<StatementDescription>, Trouble> {
        let statement = self.kept.statement(name)?;
        if let Some(known) = &statement.described {
            return Ok(Arc::clone(known));
        }
        let text = statement.query().unwrap_or(&statement.text).to_owned();
        let declared = statement.declared.clone();
        self.alive()?;
        let (ctx, access, info) = self.begin(&text).await?;
        let running = CancellationToken::new();
        self.cancellable.runs(&running);
        let request = self.request(&text);
        let (app, span) = (Arc::clone(&self.app), info.span());
        let work = async { app.engines.sql.describe(request, &declared, &access, &ctx).await };
        let found = attended(&mut self.stream, &mut self.read, &running, work.instrument(span)).await?;
        let found = Arc::new(found.map_err(|error| statement_fault(&error, &text))?);
        self.kept.describe(name, &found);
        Ok(found)
    }

    async fn types_of_params(&mut self, name: &str) -> Result<Vec<u32>, Trouble> {
        let now = Instant::now();
        if let Some(known) = self.kept.known_params(name, &self.settings.session, now) {
            self.alive()?;
            return Ok(known);
        }
        let found = self.described(name).await?.params.clone();
        self.kept.remember_params(name, &self.settings.session, &found, now);
        Ok(found)
    }

    /// Reads the parameter values of a statement.
    pub(super) async fn params_of(&mut self, bind: &Bind) -> Result<Vec<Param>, Trouble> {
        let statement = self.kept.statement(&bind.statement)?;
        let has_params = statement.query().is_some_and(|query| query.contains('$'));
        let known = if has_params && !bind.values.is_empty() {
            self.types_of_params(&bind.statement).await?
        } else {
            Vec::new()
        };
        if known.len() != bind.values.len() {
            let text = format!("{} values for {} parameters", bind.values.len(), known.len());
            return Err(Fault::new("08P01", text).into());
        }
        let binary = encode::forms(&bind.formats, bind.values.len())?;
        let mut params = Vec::new();
        for (at, value) in bind.values.iter().enumerate() {
            params.push(params::read(known[at], binary[at], value.as_ref())?);
        }
        Ok(params)
    }

    /// Sends the parameter and column types of a prepared statement.
    pub(super) async fn describe_statement(&mut self, name: &str) -> Result<(), Trouble> {
        let statement = self.kept.statement(name)?;
        let command = statement.command.clone();
        if let Command::Execute(inner, _) = &command {
            let found = self.described(inner).await?;
            let _ = ParameterDescription::new(Vec::new()).encode(&mut self.out);
            let forms = vec![false; found.columns.fields().len()];
            encode::describe(&found.columns, &forms, &mut self.out)?;
            return Ok(());
        }
        if command != Command::Query {
            let has_params = statement.query().is_some_and(|query| query.contains('$'));
            let params = if has_params { self.described(name).await?.params.clone() } else { Vec::new() };
            let _ = ParameterDescription::new(params).encode(&mut self.out);
            let mut portal = Portal::new(String::new(), command);
            return self.describe_portal(&mut portal).await;
        }
        let found = self.described(name).await?;
        let _ = ParameterDescription::new(found.params.clone()).encode(&mut self.out);
        let forms = vec![false; found.columns.fields().len()];
        encode::describe(&found.columns, &forms, &mut self.out)?;
        Ok(())
    }

    /// Replaces an `EXECUTE` by the statement that it names, with its values.
    pub(super) async fn resolve(&mut self, portal: &mut Portal) -> Result<(), Trouble> {
        let Command::Execute(name, row) = &portal.command else { return Ok(()) };
        let (name, row) = (name.clone(), row.clone());
        if self.kept.statement(&name)?.command != Command::Query {
            let text = format!("prepared statement `{}` is no query: send it as it is", name.escape_debug());
            return Err(Fault::new("0A000", text).into());
        }
        let values = match row {
            Some(row) => Box::pin(self.values(row)).await?,
            None => Vec::new(),
        };
        let has_params = self.kept.statement(&name)?.query().is_some_and(|query| query.contains('$'));
        let count = if has_params { self.described(&name).await?.params.len() } else { 0 };
        if count != values.len() {
            let text = format!("wrong number of parameters for prepared statement `{}`", name.escape_debug());
            return Err(Fault::new("42601", text).into());
        }
        let results = std::mem::take(&mut portal.results);
        let bind = Bind { portal: String::new(), statement: name, formats: Vec::new(), values, results };
        *portal = self.bound(&bind).await?;
        Ok(())
    }

    /// The values of a query with one row, as texts.
    async fn values(&mut self, query: String) -> Result<Vec<Option<Bytes>>, Trouble> {
        let mut portal = Portal::new(query, Command::Query);
        self.open(&mut portal).await?;
        let Portal { run: Some(run), text, .. } = &mut portal else { return Ok(Vec::new()) };
        let running = CancellationToken::new();
        self.cancellable.runs(&running);
        let row = attended(&mut self.stream, &mut self.read, &running, run.next(1)).await?;
        let values = row.and_then(|row| row.as_ref().map_or_else(|| Ok(Vec::new()), encode::texts));
        Ok(values.map_err(|error| statement_fault(&error, text))?)
    }

    /// Sends the columns of a portal, and starts its statement.
    pub(super) async fn describe_portal(&mut self, portal: &mut Portal) -> Result<(), Trouble> {
        self.resolve(portal).await?;
        if let Command::Fetch(name, _) = &portal.command {
            let name = name.clone();
            let mut cursor = self.kept.take(&name)?;
            cursor.results.clone_from(&portal.results);
            // This starts the cursor; one that fails is closed, as with `FETCH`.
            self.columns(&mut cursor).await?;
            self.kept.put(&name, cursor);
            return Ok(());
        }
        if !Self::gives_rows(&portal.command) {
            self.say(b'n');
            return Ok(());
        }
        self.columns(portal).await
    }

    async fn columns(&mut self, portal: &mut Portal) -> Result<(), Trouble> {
        self.open(portal).await?;
        if let Some(run) = &portal.run {
            let forms = encode::forms(&portal.results, run.schema.fields().len())?;
            encode::describe(&run.schema, &forms, &mut self.out)?;
        }
        Ok(())
    }

    /// Starts the statement of a portal, unless it is running already.
    pub(super) async fn open(&mut self, portal: &mut Portal) -> Result<(), Trouble> {
        if portal.run.is_some() || portal.done {
            return Ok(());
        }
        self.alive()?;
        portal.run = Some(match &portal.command {
            Command::Show(None) => {
                let all: (Vec<String>, Vec<String>) = self.settings.session.settings.clone().into_iter().unzip();
                PortalRows::of_texts(&[("name", all.0), ("setting", all.1)])
                    .map_err(|error| statement_fault(&error, ""))?
            }
            Command::Show(Some(name)) => {
                let value = self.settings.show(name)?;
                PortalRows::of_texts(&[(name.as_str(), vec![value])]).map_err(|error| statement_fault(&error, ""))?
            }
            _ => self.query(portal).await?,
        });
        if let (Some(promised), Some(run)) = (&portal.promised, &portal.run) {
            let types = |schema: &arrow::datatypes::Schema| -> Vec<u32> {
                schema.fields().iter().map(|field| quiver_sql::type_oid(field.data_type())).collect()
            };
            if types(promised) != types(&run.schema) {
                let text = "the data changed the types of columns since the statement was prepared: prepare it again";
                return Err(Fault::new("0A000", text).into());
            }
        }
        Ok(())
    }

    /// Applies what calls of `set_config` set.
    fn apply(&mut self, set: Vec<SettingChange>) -> Result<(), Fault> {
        for SettingChange { name, value, is_local } in set {
            let holds = if is_local { SettingScope::Transaction } else { SettingScope::Connection };
            self.settings.set(&name, value.as_deref(), holds)?;
            self.tell(&name);
        }
        Ok(())
    }

    async fn query(&mut self, portal: &Portal) -> Result<PortalRows, Trouble> {
        let set = quiver_sql::settings(&portal.text, &portal.params);
        let set = set.map_err(|error| statement_fault(&error, &portal.text))?;
        // A statement outside of a transaction is one of its own.
        let is_alone = self.transaction == TransactionStatus::Idle && set.iter().any(|set| set.is_local);
        if is_alone {
            self.settings.begin_transaction();
        }
        let begun = match self.apply(set) {
            Ok(()) => self.begin(&portal.text).await,
            Err(fault) => Err(fault),
        };
        let request = Request { params: portal.params.clone(), ..self.request(&portal.text) };
        if is_alone && self.settings.end_transaction(begun.is_ok()) {
            self.tell_all();
        }
        let (ctx, access, info) = begun?;
        let running = CancellationToken::new();
        self.cancellable.runs(&running);
        let (app, span) = (Arc::clone(&self.app), info.span());
        let work = async { app.engines.sql.query(request, &access, &ctx).await };
        let answer = attended(&mut self.stream, &mut self.read, &running, work.instrument(span)).await?;
        match answer.map_err(|error| statement_fault(&error, &portal.text))? {
            Answer::Rows(rows) => Ok(PortalRows::of(rows, ctx)),
            Answer::Plan(plan) => {
                let column = quiver_sql::plan_columns(&portal.text);
                let run = column.and_then(|column| PortalRows::of_plan(&plan, column));
                Ok(run.map_err(|error| statement_fault(&error, &portal.text))?)
            }
        }
    }
}

/// Converts an error of a statement; internal errors are logged.
pub(super) fn statement_fault(error: &Error, statement: &str) -> Fault {
    log(error, PORT);
    Fault::of(error, statement)
}
