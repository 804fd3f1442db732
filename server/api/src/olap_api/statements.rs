//! SQL texts over models: `sql` with `format=sql` prints the plan of a statement (`olap-api.md` 9).

use axum::response::Response;
use quiver_olap::{OlapError, QueryError, Reason};
use quiver_sql::{Fault, Params, Request, Session};
use quiver_types::{Error, ErrorKind};
use serde_json::Value;

use super::{ParsedRequest, access, begin, json_answer, parameter};
use crate::state::AppState;

/// Prints the plan of the statement in `query`.
pub(super) async fn sql(state: &AppState, given: &ParsedRequest) -> Result<Response, OlapError> {
    let text = match given.body.get("query") {
        Some(Value::String(text)) => Some(text.as_str()),
        Some(Value::Null) | None => parameter(&given.params, "query")?,
        Some(_) => {
            let text = "with `format=sql` a `query` is a text";
            return Err(QueryError::new(Reason::BadType, "", text).into());
        }
    };
    let text = text.ok_or_else(|| QueryError::new(Reason::QueryRequired, "", "a request needs a `query`"))?;
    let ctx = begin(state, given, &Value::from(text))?;
    let session = Session::of(&state.identity().name);
    let request = Request { text: text.to_owned(), params: Params::default(), session, ..Request::default() };
    let planned =
        state.engines.sql.plan_of_models(request, &access(state), &ctx.another_run()).await.map_err(query_error)?;
    Ok(json_answer(&state.engines.olap.sql_of_statement(planned, &ctx).await?))
}

/// Reports an error in a statement as one of a query.
pub(super) fn query_error(error: Error) -> OlapError {
    if error.kind != ErrorKind::Invalid {
        return error.into();
    }
    let reason = match Fault::of(&error) {
        Fault::Table => Reason::UnknownModel,
        Fault::Column => Reason::UnknownMember,
        _ => Reason::BadValue,
    };
    QueryError::new(reason, "", error.message).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statements_are_wrong_as_queries_are() {
        for (text, reason) in [
            ("there is no table `x`", "UNKNOWN_MODEL"),
            ("there is no column `x`", "UNKNOWN_MEMBER"),
            ("cannot read the statement: `x`", "BAD_VALUE"),
        ] {
            let OlapError::Query(error) = query_error(Error::invalid(text)) else { panic!("{text}") };
            assert_eq!((error.reason.as_str(), error.message.as_str()), (reason, text));
        }
        let error = query_error(Error::new(ErrorKind::Timeout, "there is no table `x`"));
        assert!(matches!(error, OlapError::Engine(e) if e.kind == ErrorKind::Timeout));
    }
}
