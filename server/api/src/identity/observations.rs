//! Stores what authentication has observed: when keys were used, and new users of other issuers, who are created on
//! first use.

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use quiver_auth::{AccountKind, Observation, Subject};
use quiver_config::families::USERS;
use quiver_config::{Caller, ChangeMode, KeyUse, Op, Place, Problem, Result, System};
use serde_json::{Map, Value, json};
use tokio_util::sync::CancellationToken;

use super::Identities;

/// Time between two writes; observations in between are written together.
const PAUSE: Duration = Duration::from_secs(1);
/// Longest name of a user.
const NAME_CHARS_MAX: usize = 64;
/// Shortest name of a user.
const NAME_CHARS_MIN: usize = 3;

impl Identities {
    /// Stores observations until the server stops.
    pub fn keep_observations(self: Arc<Self>, stop: CancellationToken) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            loop {
                let seen = tokio::select! {
                    () = stop.cancelled() => return,
                    seen = self.auth.observations() => seen,
                };
                if let Err(problem) = self.keep(seen).await {
                    tracing::warn!(cause = problem.cause, "the use of keys, or a new user, cannot be kept");
                }
                tokio::select! {
                    () = stop.cancelled() => return,
                    () = tokio::time::sleep(PAUSE) => {}
                }
            }
        })
    }

    async fn keep(&self, seen: Vec<Observation>) -> Result<()> {
        let mut uses = Vec::new();
        let mut failed = Ok(());
        for one in seen {
            match one {
                Observation::Key { entity_id, owner: (kind, id), at_ms, ip } => {
                    let name = self.auth.directory().account(kind, &id).map(|a| a.name.clone()).unwrap_or_default();
                    let subject = Subject::Account(kind, id).text();
                    let caller = Caller { subject, name, kind: kind.word(), ip, ..Caller::system() };
                    uses.push(KeyUse { id: entity_id, at_ms, caller });
                }
                Observation::User { id, issuer, name, email, display_name, ip } => {
                    let caller = Caller { name: name.clone(), kind: "user", ip, ..Caller::system() };
                    let mut body = Map::new();
                    body.extend(email.filter(|e| e.chars().count() <= 320).map(|e| ("email".to_owned(), json!(e))));
                    let shown: Option<String> = display_name.map(|n| n.chars().take(200).collect());
                    body.extend(shown.map(|n| ("displayName".to_owned(), json!(n))));
                    body.insert("attributes".to_owned(), json!({"issuer": issuer}));
                    let kept = self.appear(&caller, &id, &login_name(&name), &issuer, body).await;
                    failed = failed.and(kept);
                }
            }
        }
        if !uses.is_empty() {
            self.config.keys_used(&uses).await?;
        }
        failed
    }

    /// Creates the user. If its name is taken, another one is derived from it.
    async fn appear(
        &self,
        caller: &Caller,
        id: &str,
        name: &str,
        issuer: &str,
        body: Map<String, Value>,
    ) -> Result<()> {
        if self.auth.directory().account(AccountKind::User, id).is_some() {
            return Ok(());
        }
        let host = issuer.split_once("://").map_or(issuer, |(_, rest)| rest);
        let host = host.split(['/', ':']).next().unwrap_or_default();
        let candidates = [name.to_owned(), login_name(&format!("{name}@{host}")), format!("oidc-{id}")];
        let mut problem = None;
        for candidate in candidates {
            let mut body = body.clone();
            body.insert("username".to_owned(), json!(candidate));
            let system =
                System { body: [("source".to_owned(), json!("oidc"))].into_iter().collect(), ..System::default() };
            let op = Op::Create { id: Some(id.to_owned()), body };
            match self.config.change(&Place::of(&USERS), caller, op, system, ChangeMode::Apply).await {
                Ok(_) => return self.refresh().await,
                Err(e) if e.code == "DUPLICATE" => problem = Some(e),
                Err(e) => return Err(e),
            }
        }
        Err(problem.unwrap_or_else(|| Problem::internal("no name is free")))
    }
}

/// Converts a name of another issuer into a valid user name: some characters are not allowed here.
fn login_name(name: &str) -> String {
    let plain = |c: char| if c.is_alphanumeric() || matches!(c, '.' | '_' | '-' | '@' | '+') { c } else { '_' };
    let mut out: String = name.to_lowercase().chars().map(plain).take(NAME_CHARS_MAX).collect();
    while out.chars().count() < NAME_CHARS_MIN {
        out.push('_');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        let check = |name: &str, expected: &str| assert_eq!(login_name(name), expected);
        check("Ann@Example.org", "ann@example.org");
        check("a b/c", "a_b_c");
        check("", "___");
        check(&"x".repeat(99), &"x".repeat(64));
    }

    /// Names of other issuers are fitted: characters replaced, length limited, lower case.
    #[test]
    fn names_of_other_issuers_are_made_to_fit() {
        let check = |name: &str, expected: &str| assert_eq!(login_name(name), expected, "{name:?}");
        check("a", "a__");
        check("é", "é__");
        check("ab", "ab_");
        check("abc", "abc");
        check("ÄÖÜ.x-y_z+1", "äöü.x-y_z+1");
        check("日本語", "日本語");
        check("a\0b\nc", "a_b_c");
        check("<b>\"'`", "_b____");
        check("\u{1f600}", "___");
        // In capitals it is one letter, and two in small ones.
        check("İx", "i_x");
        check(&"é".repeat(NAME_CHARS_MAX + 1), &"é".repeat(NAME_CHARS_MAX));
        for name in ["", "?", "a@b", "x".repeat(1000).as_str(), "İİİ"] {
            let made = login_name(name);
            assert!((NAME_CHARS_MIN..=NAME_CHARS_MAX).contains(&made.chars().count()), "{name}: {made}");
            assert_eq!(login_name(&made), made, "it stays as it is");
        }
    }
}
