//! Issuers beside this one.

use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::task::Poll;

use async_trait::async_trait;

use super::*;

const OUTSIDE: &str = "https://id.example/realms/x";

/// An issuer that answers as it is told.
#[derive(Debug, Default)]
struct Issuer {
    jwks: parking_lot::Mutex<Value>,
    lies: AtomicBool,
    hangs: AtomicBool,
    slow: AtomicBool,
    asked: AtomicUsize,
}

#[async_trait]
impl Fetch for Issuer {
    async fn get(&self, url: &str) -> Option<Vec<u8>> {
        self.asked.fetch_add(1, SeqCst);
        if self.hangs.load(SeqCst) {
            std::future::pending::<()>().await;
        }
        if self.slow.load(SeqCst) {
            tokio::task::yield_now().await;
        }
        let issuer = if self.lies.load(SeqCst) { "https://evil.example" } else { OUTSIDE };
        match url {
            "https://id.example/realms/x/.well-known/openid-configuration" => {
                Some(json!({"issuer": issuer, "jwks_uri": "https://id.example/keys"}).to_string().into_bytes())
            }
            "https://id.example/keys" => Some(self.jwks.lock().to_string().into_bytes()),
            other => panic!("asked for {other}"),
        }
    }
}

fn settings() -> AuthSettings {
    let external = ExternalIssuer {
        issuer: OUTSIDE.to_owned(),
        audiences: vec!["quiver".to_owned()],
        client_id_claim: "azp".to_owned(),
        roles_claim: "realm_access.roles".to_owned(),
        username_claim: "preferred_username".to_owned(),
        jwks_refresh_ms: 300_000,
    };
    AuthSettings { external: vec![external], ..AuthSettings::default() }
}

/// Whoever makes us ask an issuer and hangs up keeps out nobody else: what was asked for comes all the same.
#[tokio::test]
async fn keys_come_although_nobody_waits() {
    let theirs = fixture().await;
    let issuer = Arc::new(Issuer {
        jwks: parking_lot::Mutex::new(theirs.auth.signing_keys().await.unwrap().jwks()),
        ..Issuer::default()
    });
    issuer.slow.store(true, SeqCst);
    let fx = fixture_with(settings(), Some(Arc::clone(&issuer) as Arc<dyn Fetch>)).await;
    let now = fx.clock.now_ms() / 1000;
    let claims = json!({"iss": OUTSIDE, "sub": "42", "aud": "quiver", "exp": now + 300, "iat": now});
    let token = json!(theirs.auth.signing_keys().await.unwrap().sign(&claims).unwrap());
    let mut asking = Box::pin(fx.bearer(&token));
    let is_pending = std::future::poll_fn(|cx| Poll::Ready(asking.as_mut().poll(cx).is_pending())).await;
    assert!(is_pending);
    drop(asking);
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    fx.bearer(&token).await.unwrap();
    assert_eq!(issuer.asked.load(SeqCst), 2, "for its discovery, and for its keys");
}

#[tokio::test]
async fn roles_of_another_issuer() {
    // Another token service stands in for the issuer: its keys sign.
    let theirs = fixture().await;
    let keys = theirs.auth.signing_keys().await.unwrap();
    let issuer = Arc::new(Issuer { jwks: parking_lot::Mutex::new(keys.jwks()), ..Issuer::default() });
    let fx = fixture_with(settings(), Some(Arc::clone(&issuer) as Arc<dyn Fetch>)).await;
    let token = |roles: Value, aud: &str| {
        let now = fx.clock.now_ms() / 1000;
        json!(
            keys.sign(&json!({
                "iss": OUTSIDE, "sub": "42", "aud": aud, "exp": now + 300, "iat": now,
                "preferred_username": "eve", "realm_access": {"roles": roles},
            }))
            .unwrap()
        )
    };
    let identity = fx.bearer(&token(json!(["ops", "unknown"]), "quiver")).await.unwrap();
    assert_eq!(
        (identity.name.as_str(), identity.subject.text().as_str()),
        ("eve", "oidc:https://id.example/realms/x:42")
    );
    assert!(identity.access(Domain::Logs).allows("ops"));
    assert_eq!(fx.auth.roles_of(&identity), ["ops"]);
    // Work in his name ends when he is disabled here.
    let (mut accounts, subject) = (fx.accounts.clone(), identity.subject.text());
    let mut here = account(AccountKind::User, &external_id(OUTSIDE, "42"), "eve", String::new());
    for enabled in [true, false] {
        here.enabled = enabled;
        accounts.accounts.push(here.clone());
        fx.auth.set_directory(Directory::new(accounts.clone()));
        assert_eq!(fx.auth.still_shows(&subject, &view("ops"), None), enabled);
    }
    fx.publish();
    let nothing = fx.bearer(&token(json!(["unknown"]), "quiver")).await.unwrap();
    assert!(fx.auth.roles_of(&nothing).is_empty());
    assert!(!nothing.rights.has_in_some_domain(Right::View));
    assert_eq!(fx.bearer(&token(json!(["ops"]), "else")).await.unwrap_err(), TokenError::Invalid);
    // A key that is not known makes us ask, once a minute at most: for its discovery, and for its keys.
    let asked = issuer.asked.load(SeqCst);
    theirs.auth.rotate_keys(OldTokens::EndAtOnce).await.unwrap();
    theirs.auth.rotate_keys(OldTokens::EndAtOnce).await.unwrap();
    for _ in 0..5 {
        assert_eq!(fx.bearer(&token(json!(["ops"]), "quiver")).await.unwrap_err(), TokenError::Invalid);
    }
    assert_eq!(issuer.asked.load(SeqCst), asked + 2);
    *issuer.jwks.lock() = theirs.auth.signing_keys().await.unwrap().jwks();
    assert_eq!(fx.bearer(&token(json!(["ops"]), "quiver")).await.unwrap_err(), TokenError::Invalid);
    fx.pass_s(61);
    // A document that speaks for another issuer is none.
    issuer.lies.store(true, SeqCst);
    assert_eq!(fx.bearer(&token(json!(["ops"]), "quiver")).await.unwrap_err(), TokenError::Invalid);
    issuer.lies.store(false, SeqCst);
    fx.pass_s(61);
    fx.bearer(&token(json!(["ops"]), "quiver")).await.unwrap();
    // An issuer that does not answer holds up who asks it, not those whose keys are known.
    fx.pass_s(301);
    issuer.hangs.store(true, SeqCst);
    let (one, other) = (token(json!(["ops"]), "quiver"), token(json!(["ops", "more"]), "quiver"));
    let mut asking = Box::pin(fx.bearer(&one));
    let is_pending = std::future::poll_fn(|cx| Poll::Ready(asking.as_mut().poll(cx).is_pending())).await;
    assert!(is_pending);
    fx.bearer(&other).await.unwrap();
    drop(asking);
}
