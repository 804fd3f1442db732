//! Passwords of people and the ends of their sessions (`config-api` section 5).

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::response::Response;
use futures::future::BoxFuture;
use http::{HeaderValue, header};
use quiver_auth::{
    Account, AccountKind, AuthMethod, PasswordRule, Passwords, Request as Asking, RequestCredentials, Subject,
    TokenError,
};
use quiver_config::families::USERS;
use quiver_config::{AuditEvent, Caller, ChangeMode, Condition, Op, Place, Problem, ProblemKind, Result, System};
use serde_json::{Map, Value, json};

use crate::config_api::body_members::only_members;
use crate::config_api::request::Ask;
use crate::config_api::response::{Answer, with_dry_run};
use crate::forbidden_records::challenge;
use crate::identity::Identities;
use crate::state::AppState;

/// Most bytes of a body of access control.
pub(super) const BODY_BYTES_MAX: usize = 256 << 10;
/// Member of a problem: seconds after which to come back.
const COME_BACK: &str = "retryAfter";

/// What is answered to a password or token that is not good, below a public path.
fn not_let_in(error: TokenError) -> Problem {
    match error {
        TokenError::TooMany(after_s) => {
            Problem::new(ProblemKind::Limited, "RATE_LIMITED", error.to_string()).with(COME_BACK, json!(after_s))
        }
        _ => Problem::new(ProblemKind::Unauthenticated, error.code(), error.to_string()),
    }
}

/// Keys and clients have no password that they could change.
fn not_a_user() -> Problem {
    Problem::new(ProblemKind::Forbidden, "FORBIDDEN", "this needs a user's own token, or name and password as Basic")
}

/// The person who asks, by name and password or by a token of his own, and the session of the token.
async fn person_of(ask: &Ask) -> Result<(Arc<Account>, Option<String>)> {
    let values = ask.headers.get_all(header::AUTHORIZATION).iter().map(HeaderValue::as_bytes);
    let shown = RequestCredentials::read(values, None).map_err(not_let_in)?;
    let auth = &ask.identities()?.auth;
    match &shown {
        RequestCredentials::Basic { name, password } => {
            Ok((auth.person(name, password.expose(), ask.caller.ip).await.map_err(not_let_in)?, None))
        }
        RequestCredentials::Nothing => Err(not_let_in(TokenError::Missing)),
        shown => {
            let issuer = ask.identities()?.issuer_here();
            let asking = Asking { issuer: &issuer, ip: ask.caller.ip };
            let identity = auth.identify(shown, asking).await.map_err(not_let_in)?;
            let Subject::Account(AccountKind::User, id) = &identity.subject else {
                return Err(not_a_user());
            };
            let account = auth.directory().account(AccountKind::User, id).cloned();
            // A key acts for its owner, but must not take over the account.
            if identity.way != AuthMethod::Token {
                return Err(not_a_user());
            }
            Ok((account.ok_or_else(|| not_let_in(TokenError::Invalid))?, identity.session))
        }
    }
}

/// The new password in the body. A token alone is not enough to change it: the body also has the present one.
async fn checked_password(ask: &Ask, account: &Account) -> Result<String> {
    let body = ask.object()?;
    only_members(&body, &["currentPassword", "newPassword"])?;
    let text = |key: &str| {
        let found = body.get(key).and_then(Value::as_str);
        found.ok_or_else(|| Problem::field(format!("/{key}"), "REQUIRED", "is required"))
    };
    let (current, new) = (text("currentPassword")?, text("newPassword")?);
    match ask.identities()?.auth.person(&account.name, current, ask.caller.ip).await {
        Ok(_) => {}
        Err(TokenError::Invalid) => {
            return Err(Problem::field("/currentPassword", "INVALID_VALUE", "is not the present password"));
        }
        Err(error) => return Err(not_let_in(error)),
    }
    match Passwords::check(&account.name, new).map(PasswordRule::said) {
        Some((code, why)) => Err(Problem::field("/newPassword", code, why)),
        None => Ok(new.to_owned()),
    }
}

/// The only path that takes a person's password as Basic, whatever the settings say: a temporary one gives no token.
pub(super) async fn own_password(State(state): State<Arc<AppState>>, request: Request) -> Response {
    let mut mode = ChangeMode::Apply;
    let run = async {
        let ask = Ask::read(&state, Place::of(&USERS), request, BODY_BYTES_MAX).await?;
        mode = ask.mode;
        ask.only_parameters(&[])?;
        let (account, session) = person_of(&ask).await?;
        let new = checked_password(&ask, &account).await?;
        let subject = Subject::Account(AccountKind::User, account.id.clone());
        let caller = Caller {
            subject: subject.text(),
            name: account.name.clone(),
            kind: "user",
            ip: ask.caller.ip,
            request_id: ask.caller.request_id.clone(),
            override_managed: true,
            ..Caller::system()
        };
        set_password(&ask, &caller, &account.id, &new, Lasting::ForGood).await?;
        if !ask.mode.is_dry_run() {
            ask.identities()?.forget_first_password();
            end_all(ask.identities()?, &subject, session.as_deref()).await?;
            ask.acts().await;
        }
        Ok::<_, Problem>(Answer::nothing())
    };
    let outcome = run.await;
    let problem = outcome.as_ref().err();
    let asks_for = problem.and_then(|problem| challenge(problem.code));
    let after_s = problem.and_then(|problem| problem.more.get(COME_BACK)?.as_u64());
    let mut answer = Answer::respond(outcome);
    let headers = answer.headers_mut();
    headers.extend(asks_for.map(|value| (header::WWW_AUTHENTICATE, value)));
    if let Some(after_s) = after_s {
        headers.insert(header::RETRY_AFTER, HeaderValue::from(after_s));
    }
    with_dry_run(answer, mode)
}

/// How long a new password lasts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lasting {
    ForGood,
    /// Until the person chooses another one, before which there is no token.
    UntilChanged,
}

/// Gives a user a password, or only says whether that would do.
async fn set_password(ask: &Ask, caller: &Caller, id: &str, password: &str, lasting: Lasting) -> Result<()> {
    let identities = ask.identities()?;
    let mut patch = Map::new();
    patch.insert("password".to_owned(), json!(password));
    patch.insert("mustChangePassword".to_owned(), json!(lasting == Lasting::UntilChanged));
    let op = Op::Patch { id: id.to_owned(), patch, condition: Condition::None };
    let done = identities.config.change(&Place::of(&USERS), caller, op, System::default(), ask.mode).await?;
    if ask.mode.is_dry_run() {
        return Ok(());
    }
    let event = AuditEvent {
        action: "PASSWORD_CHANGE",
        family: "rbac/users",
        entity_id: Some(id.to_owned()),
        entity_name: done.after.and_then(|e| e.body.get("username").and_then(Value::as_str).map(str::to_owned)),
        outcome: "ok",
        code: None,
    };
    identities.config.audit(caller, event).await;
    Ok(())
}

async fn end_all(identities: &Identities, subject: &Subject, but: Option<&str>) -> Result<()> {
    identities.auth.end_sessions(subject, but).await.map_err(|error| {
        let busy = Problem::new(ProblemKind::Busy, "STORE_BUSY", "sessions cannot be ended now; try again");
        Problem { cause: Some(error.to_string()), ..busy }
    })
}

pub(super) fn reset_password<'a>(ask: &'a Ask, ids: &'a [String]) -> BoxFuture<'a, Result<Answer>> {
    Box::pin(async move {
        let id = &ids[0];
        ask.only_parameters(&[])?;
        let body = ask.object()?;
        only_members(&body, &["password", "mustChangePassword"])?;
        let password = body.get("password").and_then(Value::as_str);
        let password = password.ok_or_else(|| Problem::field("/password", "REQUIRED", "is required"))?;
        let lasting = match body.get("mustChangePassword") {
            None | Some(Value::Null | Value::Bool(true)) => Lasting::UntilChanged,
            Some(Value::Bool(false)) => Lasting::ForGood,
            Some(_) => return Err(Problem::field("/mustChangePassword", "INVALID_TYPE", "must be true or false")),
        };
        let user = ask.config.get(&ask.place, id, &ask.caller).await?;
        let name = user.body.get("username").and_then(Value::as_str).unwrap_or_default();
        if let Some((code, why)) = Passwords::check(name, password).map(PasswordRule::said) {
            return Err(Problem::field("/password", code, why));
        }
        set_password(ask, &ask.caller, id, password, lasting).await?;
        if !ask.mode.is_dry_run() {
            end_all(ask.identities()?, &Subject::Account(AccountKind::User, id.clone()), None).await?;
            ask.acts().await;
        }
        Ok(Answer::nothing())
    })
}

pub(super) fn end_sessions<'a>(ask: &'a Ask, ids: &'a [String]) -> BoxFuture<'a, Result<Answer>> {
    Box::pin(async move {
        let id = &ids[0];
        ask.only_parameters(&[])?;
        ask.config.get(&ask.place, id, &ask.caller).await?;
        if !ask.mode.is_dry_run() {
            end_all(ask.identities()?, &Subject::Account(AccountKind::User, id.clone()), None).await?;
        }
        Ok(Answer::nothing())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_that_are_not_good_are_told_with_their_code() {
        for (error, kind, code) in [
            (TokenError::Missing, ProblemKind::Unauthenticated, "TOKEN_MISSING"),
            (TokenError::Invalid, ProblemKind::Unauthenticated, "TOKEN_INVALID"),
            (TokenError::Expired, ProblemKind::Unauthenticated, "TOKEN_EXPIRED"),
            (TokenError::TooMany(30), ProblemKind::Limited, "RATE_LIMITED"),
        ] {
            let problem = not_let_in(error);
            assert_eq!((problem.kind, problem.code), (kind, code));
            let after_s = matches!(error, TokenError::TooMany(_)).then(|| json!(30));
            assert_eq!(problem.more.get(COME_BACK), after_s.as_ref(), "{code}");
        }
        // No password helps a key to change one: it is no challenge.
        assert_eq!((not_a_user().kind, not_a_user().code), (ProblemKind::Forbidden, "FORBIDDEN"));
    }
}
