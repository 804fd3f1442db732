//! Grants, sessions, keys: what goes well, and how it ends.

use super::*;

#[tokio::test]
async fn password_and_refresh() {
    let fx = fixture().await;
    let first = fx.login("&scope=openid+offline_access+nonsense").await;
    assert_eq!((&first["expires_in"], &first["token_type"]), (&json!(300), &json!("Bearer")));
    assert_eq!(first["scope"], "profile email openid offline_access");
    let said = claims(&first["access_token"]);
    assert_eq!((&said["iss"], &said["sub"], &said["aud"]), (&json!(ISSUER), &json!("u1"), &json!(["platform"])));
    assert_eq!(
        (&said["typ"], &said["azp"], &said["realm_access"]),
        (&json!("Bearer"), &json!("ui"), &json!({"roles": ["carts"]}))
    );
    assert_eq!((&said["name"], &said["email"]), (&json!("The ann"), &json!("ann@example.org")));
    assert_eq!((&said["sid"], &said["exp"]), (&first["session_state"], &json!(NOW / 1000 + 300)));
    let identity = fx.bearer(&first["access_token"]).await.unwrap();
    assert_eq!((identity.name.as_str(), identity.subject.text().as_str()), ("ann", "user:u1"));
    assert!(identity.access(Domain::Logs).allows("cart"));
    assert!(!identity.access(Domain::Logs).allows("shop"));
    // An id token is no access token.
    assert_eq!(claims(&first["id_token"])["typ"], "ID");
    assert_eq!(fx.bearer(&first["id_token"]).await.unwrap_err(), TokenError::Invalid);
    let second = fx.refresh(first["refresh_token"].as_str().unwrap(), "&scope=profile").await.unwrap();
    assert_eq!((&second["scope"], &second["session_state"]), (&json!("profile"), &first["session_state"]));
    assert_ne!(second["refresh_token"], first["refresh_token"]);
    let wider = fx.refresh(second["refresh_token"].as_str().unwrap(), "&scope=profile+admin").await.unwrap_err();
    assert_eq!((wider.error, wider.status), ("invalid_scope", 400));
    // What was refused for its scope is still good.
    fx.refresh(second["refresh_token"].as_str().unwrap(), "").await.unwrap();
}

#[tokio::test]
async fn expiry() {
    let fx = fixture().await;
    let token = fx.login("").await;
    fx.pass_s(299);
    fx.bearer(&token["access_token"]).await.unwrap();
    fx.pass_s(5);
    fx.bearer(&token["access_token"]).await.unwrap();
    fx.pass_s(1);
    assert_eq!(fx.bearer(&token["access_token"]).await.unwrap_err(), TokenError::Expired);
    let refresh = token["refresh_token"].as_str().unwrap().to_owned();
    fx.pass_s(30 * 60);
    assert_eq!(fx.refresh(&refresh, "").await.unwrap_err(), OAuthError::not_active());
    // A session that is used ends after ten hours all the same.
    let mut token = fx.login("").await["refresh_token"].as_str().unwrap().to_owned();
    for _ in 0..20 {
        fx.pass_s(29 * 60);
        token = fx.refresh(&token, "").await.unwrap()["refresh_token"].as_str().unwrap().to_owned();
    }
    fx.pass_s(21 * 60);
    assert_eq!(fx.refresh(&token, "").await.unwrap_err(), OAuthError::not_active());
    let offline = fx.login("&scope=offline_access").await;
    fx.pass_s(20 * 86_400);
    fx.refresh(offline["refresh_token"].as_str().unwrap(), "").await.unwrap();
}

#[tokio::test]
async fn a_reused_refresh_token_ends_its_session() {
    let fx = fixture().await;
    let text = |v: &Value| v["refresh_token"].as_str().unwrap().to_owned();
    let first = fx.login("").await;
    let second = fx.refresh(&text(&first), "").await.unwrap();
    // A lost answer: the same successor within ten seconds.
    fx.pass_s(10);
    assert_eq!(text(&fx.refresh(&text(&first), "").await.unwrap()), text(&second));
    let third = fx.refresh(&text(&second), "").await.unwrap();
    // The grace does not reach back two generations.
    let error = fx.refresh(&text(&first), "").await.unwrap_err();
    let happened = error.happened.as_ref().unwrap();
    assert_eq!((error.error, happened.action, &*happened.name), ("invalid_grant", "REFRESH_REUSE", "ann"));
    assert_eq!(fx.refresh(&text(&third), "").await.unwrap_err().error, "invalid_grant");
    assert_eq!(fx.bearer(&third["access_token"]).await.unwrap_err(), TokenError::Invalid, "the session is over");
    // Too late for the grace.
    let first = fx.login("").await;
    let second = fx.refresh(&text(&first), "").await.unwrap();
    fx.pass_s(11);
    assert!(fx.refresh(&text(&first), "").await.unwrap_err().happened.is_some());
    assert!(fx.refresh(&text(&second), "").await.is_err());
    // Nor does a clock that is set back make that moment any longer.
    let first = fx.login("").await;
    fx.refresh(&text(&first), "").await.unwrap();
    fx.pass_s(-3600);
    assert!(fx.refresh(&text(&first), "").await.unwrap_err().happened.is_some());
    fx.pass_s(3600);
    // What was never issued ends nothing.
    let good = fx.login("").await;
    let (head, _) = good["refresh_token"].as_str().unwrap().rsplit_once('_').unwrap();
    for made_up in [format!("{head}_AAAA"), format!("{}_0_x", &head[..36]), "qvr_".to_owned(), "x".repeat(500)] {
        assert_eq!(fx.refresh(&made_up, "").await.unwrap_err(), OAuthError::not_active());
    }
    fx.refresh(&text(&good), "").await.unwrap();
}

/// Two tabs refresh at the same moment: both go on.
#[tokio::test(flavor = "multi_thread")]
async fn two_at_once_get_the_same() {
    let fx = Arc::new(fixture().await);
    let token = fx.login("").await["refresh_token"].as_str().unwrap().to_owned();
    let each: Vec<_> = (0..4)
        .map(|_| {
            let (fx, token) = (Arc::clone(&fx), token.clone());
            tokio::spawn(async move { fx.refresh(&token, "").await.unwrap()["refresh_token"].clone() })
        })
        .collect();
    let mut answers = Vec::new();
    for one in each {
        answers.push(one.await.unwrap());
    }
    assert!(answers.iter().all(|a| *a == answers[0]), "{answers:?}");
}

#[tokio::test]
async fn clients() {
    let fx = fixture().await;
    // As Prometheus sends it: parts encoded as forms are.
    let encoded = basic("agent:a%3Ab%2Fc");
    let token = fx.token_with("grant_type=client_credentials&scope=unknown", Some(&encoded)).await.unwrap();
    assert_eq!(
        (&token["refresh_expires_in"], token.get("refresh_token"), token.get("session_state")),
        (&json!(0), None, None)
    );
    let identity = fx.bearer(&token["access_token"]).await.unwrap();
    assert_eq!(identity.subject.text(), "serviceAccount:s1");
    fx.token("grant_type=client_credentials&client_id=agent&client_secret=a%3Ab%2Fc").await.unwrap();
    let check = async |form: &str, authorization: Option<&str>, error: &str, status: u16| {
        let refused = fx.token_with(form, authorization).await.unwrap_err();
        assert_eq!((refused.error, refused.status), (error, status), "{form}");
    };
    check("grant_type=client_credentials", Some(&basic("agent:wrong")), "invalid_client", 401).await;
    check("grant_type=client_credentials", Some("Basic !"), "invalid_client", 401).await;
    check("grant_type=client_credentials&client_id=nobody&client_secret=x", None, "invalid_client", 401).await;
    check("grant_type=client_credentials&client_id=agent", None, "invalid_client", 401).await;
    check("grant_type=client_credentials&client_id=ui", None, "unauthorized_client", 400).await;
    check("grant_type=client_credentials&client_id=agent&client_secret=x", Some(&encoded), "invalid_request", 400)
        .await;
    check("grant_type=client_credentials&client_id=ui", Some(&encoded), "invalid_request", 400).await;
    check("grant_type=client_credentials&client_id=other", Some(&encoded), "invalid_request", 400).await;
    fx.token_with("grant_type=client_credentials&client_id=agent", Some(&encoded)).await.unwrap();
    check("grant_type=password&username=ann&password=x", Some(&encoded), "unauthorized_client", 400).await;
    check("grant_type=password&client_id=ui&username=ann", None, "invalid_request", 400).await;
    check("grant_type=password&client_id=other&username=ann&password=x", None, "invalid_client", 401).await;
    // A secret that is shown here is guessed as anywhere else.
    let other = "grant_type=password&client_id=agent&username=ann&password=x&client_secret=";
    check(&format!("{other}a%3Ab%2Fc"), None, "unauthorized_client", 400).await;
    check("grant_type=password&client_id=agent&username=ann&password=x", None, "invalid_client", 401).await;
    for _ in 0..5 {
        check(&format!("{other}wrong"), None, "invalid_client", 401).await;
    }
    check(&format!("{other}wrong"), None, "slow_down", 429).await;
    fx.pass_s(2);
    check(&format!("{other}a%3Ab%2Fc"), None, "unauthorized_client", 400).await;
    check("grant_type=authorization_code", None, "unsupported_grant_type", 400).await;
    check("username=ann", None, "invalid_request", 400).await;
    check("grant_type=refresh_token&client_id=ui", None, "invalid_request", 400).await;
    let other = "grant_type=refresh_token&client_id=agent&refresh_token=x";
    check(other, None, "invalid_client", 401).await;
    check(&format!("{other}&client_secret=a%3Ab%2Fc"), None, "invalid_grant", 400).await;
    check("grant_type=refresh_token&refresh_token=x", Some(&encoded), "invalid_grant", 400).await;
}

#[tokio::test]
async fn wrong_passwords_look_alike() {
    let mut fx = fixture().await;
    fx.accounts.accounts.push(Account {
        enabled: false,
        ..account(AccountKind::User, "u3", "gone", fx.accounts.accounts[0].hash.clone().unwrap().expose().to_owned())
    });
    fx.publish();
    let form =
        |name: &str, password: &str| format!("grant_type=password&client_id=ui&username={name}&password={password}");
    let bare = |refused: OAuthError| OAuthError { happened: None, ..refused };
    for (name, password) in
        [("ann", "wrong"), ("nobody", "wrong"), ("gone", "correct+horse+battery"), ("newbie", "wrong")]
    {
        let refused = fx.token(&form(name, password)).await.unwrap_err();
        assert_eq!(refused.happened.as_ref().unwrap().reason, Some("INVALID_CREDENTIALS"));
        assert_eq!(bare(refused), OAuthError::user(), "{name}");
    }
    let refused = fx.token(&form("newbie", "correct+horse+battery")).await.unwrap_err();
    assert_eq!(bare(refused), OAuthError::not_set_up());
    fx.token(&form("ANN", "correct+horse+battery")).await.unwrap();
    // Whoever guesses waits, named or not; then it goes on.
    for name in ["ann", "nobody"] {
        for _ in 0..10 {
            let _ = fx.token(&form(name, "wrong")).await;
        }
        let refused = fx.token(&form(name, "correct+horse+battery")).await.unwrap_err();
        assert_eq!((refused.error, refused.status, refused.retry_after_s.is_some()), ("slow_down", 429, true));
    }
    fx.pass_s(301);
    fx.token(&form("ann", "correct+horse+battery")).await.unwrap();
}

/// A session that was ended is kept as long as its tokens might be valid, not as long as it would have lasted.
#[tokio::test]
async fn ended_sessions_are_forgotten() {
    let fx = fixture().await;
    let count = async || -> i64 {
        let sql = "SELECT count(*) FROM session";
        quiver_database::statement(sql).fetch_one(&fx.pool).await.unwrap().try_get(0).unwrap()
    };
    let ann = Subject::Account(AccountKind::User, "u1".to_owned());
    let ended = fx.login("&scope=offline_access").await;
    fx.login("&scope=offline_access").await;
    fx.auth.end_sessions(&ann, None).await.unwrap();
    fx.login("&scope=offline_access").await;
    assert_eq!(count().await, 3);
    assert_eq!(fx.bearer(&ended["access_token"]).await.unwrap_err(), TokenError::Invalid);
    fx.pass_s(400);
    let going = fx.login("&scope=offline_access").await;
    assert_eq!(count().await, 2, "those that were not ended");
    assert_eq!(fx.refresh(ended["refresh_token"].as_str().unwrap(), "").await.unwrap_err(), OAuthError::not_active());
    fx.refresh(going["refresh_token"].as_str().unwrap(), "").await.unwrap();
}

/// Wrong secrets of others keep no service account out, whether they come under its name or from its network.
#[tokio::test]
async fn service_accounts_are_not_kept_out() {
    let fx = fixture().await;
    let right = basic("agent:a:b/c");
    for (names, guesses) in [(1, 10), (40, 1)] {
        let mut last = Ok(());
        for n in 0..names * guesses {
            let name = if names == 1 { "agent".to_owned() } else { format!("nobody-{n}") };
            last = fx.identify(&basic(&format!("{name}:wrong"))).await.map(|_| ());
        }
        // Those who guess wait all the same.
        assert!(matches!(last, Err(TokenError::TooMany(_))), "{names}: {last:?}");
        fx.identify(&right).await.unwrap();
    }
    let token = fx.token_with("grant_type=client_credentials", Some(&right)).await.unwrap();
    fx.bearer(&token["access_token"]).await.unwrap();
    let wrong = fx.token_with("grant_type=client_credentials", Some(&basic("agent:wrong"))).await.unwrap_err();
    assert_eq!(wrong.status, 429);
}

/// Who guesses many times at once gets no further than who guesses time after time.
#[tokio::test(flavor = "multi_thread")]
async fn guesses_at_once_are_counted() {
    let Fixture { auth, pool: _pool, _dir, .. } = fixture().await;
    let auth = Arc::new(auth);
    let mut asked = tokio::task::JoinSet::new();
    for _ in 0..40 {
        let auth = Arc::clone(&auth);
        asked.spawn(async move {
            let form = Form::parse(b"grant_type=password&client_id=ui&username=ann&password=wrong").unwrap();
            auth.token(&form, None, request()).await.map_or_else(|no| no.status, |_| 200)
        });
    }
    let answers = asked.join_all().await;
    let tried = answers.iter().filter(|status| **status == 401).count();
    // Five are free; one more may be under way when the fifth fails.
    assert!((5..=6).contains(&tried), "{answers:?}");
    assert!(answers.iter().all(|status| matches!(status, 401 | 429)), "{answers:?}");
}

/// Who guesses at servers in turn gets no further than at one, and a success anywhere is one everywhere.
#[tokio::test]
async fn servers_tell_each_other_of_guesses() {
    let fx = fixture().await;
    let other = open(&fx.pool, &fx.clock, AuthSettings::default(), None).await;
    other.set_directory(Directory::new(fx.accounts.clone()));
    let ask = async |auth: &Auth, password: &str| {
        let form = format!("grant_type=password&client_id=ui&username=ann&password={password}");
        auth.token(&Form::parse(form.as_bytes()).unwrap(), None, request()).await.map_or_else(|no| no.status, |_| 200)
    };
    let right = "correct+horse+battery";
    let exchange = async || {
        for auth in [&fx.auth, &other, &fx.auth] {
            auth.synchronize().await.unwrap();
        }
    };
    exchange().await;
    for auth in [&fx.auth, &other] {
        for _ in 0..3 {
            assert_eq!(ask(auth, "wrong").await, 401);
        }
    }
    assert_eq!(ask(&other, right).await, 200, "neither knows of more than three");
    fx.pass_s(1);
    for _ in 0..3 {
        assert_eq!(ask(&other, "wrong").await, 401);
    }
    exchange().await;
    for _ in 0..2 {
        // What failed before the success elsewhere is forgotten: there are three failures, then four.
        assert_eq!(ask(&fx.auth, "wrong").await, 401);
        exchange().await;
    }
    for auth in [&fx.auth, &other] {
        assert_eq!(ask(auth, right).await, 429, "three there and two here");
    }
    fx.pass_s(2);
    assert_eq!(ask(&fx.auth, right).await, 200);
    exchange().await;
    for _ in 0..4 {
        assert_eq!(ask(&other, "wrong").await, 401);
    }
    assert_eq!(ask(&other, right).await, 200, "four are free");
}

#[tokio::test]
async fn introspection_revocation_logout() {
    let fx = fixture().await;
    let client = basic(&format!("agent:{CLIENT_SECRET}"));
    let ask = async |token: &Value| {
        let form = Form::parse(format!("token={}", token.as_str().unwrap()).as_bytes()).unwrap();
        fx.auth.introspect(&form, Some(client.as_bytes()), request()).await.unwrap()
    };
    let token = fx.login("").await;
    let said = ask(&token["access_token"]).await;
    assert_eq!((&said["active"], &said["username"], &said["client_id"]), (&json!(true), &json!("ann"), &json!("ui")));
    assert_eq!(ask(&token["refresh_token"]).await["active"], true);
    assert_eq!(ask(&json!("nonsense")).await, json!({"active": false}));
    let form = Form::parse(b"token=x").unwrap();
    let nobody = fx.auth.introspect(&form, None, request()).await.unwrap_err();
    assert_eq!((nobody.error, nobody.status), ("invalid_client", 401));
    let ui = Form::parse(b"token=x&client_id=ui").unwrap();
    assert_eq!(fx.auth.introspect(&ui, None, request()).await.unwrap_err().error, "invalid_client");
    let nothing = fx.auth.introspect(&Form::parse(b"").unwrap(), Some(client.as_bytes()), request()).await;
    assert_eq!(nothing.unwrap_err().error, "invalid_request");
    let form = Form::parse(format!("token={}", token["refresh_token"].as_str().unwrap()).as_bytes()).unwrap();
    assert!(fx.auth.revoke(&form, request()).await.unwrap().is_some());
    assert!(fx.auth.revoke(&form, request()).await.is_ok(), "again is no error");
    assert_eq!(ask(&token["access_token"]).await, json!({"active": false}));
    assert_eq!(ask(&token["refresh_token"]).await, json!({"active": false}));
    // A token of a service account has no session to end: it ends alone.
    let grant = "grant_type=client_credentials&client_id=agent&client_secret=a%3Ab%2Fc";
    let (own, other) = (fx.token(grant).await.unwrap(), fx.token(grant).await.unwrap());
    let form = Form::parse(format!("token={}", own["access_token"].as_str().unwrap()).as_bytes()).unwrap();
    for said in [Some(("LOGOUT", "agent", "serviceAccount:s1")), None] {
        let happened = fx.auth.revoke(&form, request()).await.unwrap();
        let happened = happened.as_ref().map(|h| (h.action, &*h.name, h.subject.as_deref().unwrap()));
        assert_eq!(happened, said, "once");
        assert_eq!(fx.bearer(&own["access_token"]).await.unwrap_err(), TokenError::Invalid);
    }
    // An id token ends its session as well, which is noted once, too.
    let hinted = fx.login("&scope=openid").await;
    let hint = hinted["id_token"].as_str().unwrap();
    for said in [Some(("LOGOUT", "ann", "user:u1")), None] {
        let happened = fx.auth.end_of_hint(hint, ISSUER).await.unwrap();
        assert_eq!(happened.as_ref().map(|h| (h.action, &*h.name, h.subject.as_deref().unwrap())), said);
        assert_eq!(fx.bearer(&hinted["access_token"]).await.unwrap_err(), TokenError::Invalid);
    }
    assert_eq!(ask(&own["access_token"]).await, json!({"active": false}));
    assert_eq!(ask(&other["access_token"]).await["active"], true);
    let again = open(&fx.pool, &fx.clock, AuthSettings::default(), None).await;
    again.set_directory(Directory::new(fx.accounts.clone()));
    let shown = RequestCredentials::Token(Secret::new(own["access_token"].as_str().unwrap()));
    assert_eq!(again.identify(&shown, request()).await.unwrap_err(), TokenError::Invalid, "another server knows it");
    let token = fx.login("").await;
    let form = format!("client_id=ui&refresh_token={}", token["refresh_token"].as_str().unwrap());
    fx.auth.logout(&Form::parse(form.as_bytes()).unwrap()).await.unwrap();
    assert_eq!(fx.bearer(&token["access_token"]).await.unwrap_err(), TokenError::Invalid);
    // It stays so for another process on the same database.
    let again = open(&fx.pool, &fx.clock, AuthSettings::default(), None).await;
    again.set_directory(Directory::new(fx.accounts.clone()));
    let shown = RequestCredentials::Token(Secret::new(token["access_token"].as_str().unwrap()));
    assert_eq!(again.identify(&shown, request()).await.unwrap_err(), TokenError::Invalid);
    let other = fx.login("").await;
    let kept = other["session_state"].as_str();
    fx.auth.end_sessions(&Subject::Account(AccountKind::User, "u1".to_owned()), kept).await.unwrap();
    fx.bearer(&other["access_token"]).await.unwrap();
}

#[tokio::test]
async fn keys_of_the_token_service() {
    let fx = fixture().await;
    let kids = |v: &Value| {
        v["keys"].as_array().unwrap().iter().map(|k| k["kid"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let before = kids(&fx.auth.signing_keys().await.unwrap().jwks());
    assert_eq!(before.len(), 2, "the next one is published, too");
    let old = fx.login("").await;
    let rotated = fx.auth.rotate_keys(OldTokens::Expire).await.unwrap();
    assert_eq!(rotated.kid, before[1]);
    assert_eq!(kids(&fx.auth.signing_keys().await.unwrap().jwks()).len(), 3);
    let new = fx.login("").await;
    fx.bearer(&old["access_token"]).await.unwrap();
    fx.bearer(&new["access_token"]).await.unwrap();
    fx.auth.rotate_keys(OldTokens::EndAtOnce).await.unwrap();
    assert_eq!(fx.bearer(&old["access_token"]).await.unwrap_err(), TokenError::Invalid);
    assert_eq!(fx.bearer(&new["access_token"]).await.unwrap_err(), TokenError::Invalid);
    // After 90 days the next one signs, and another one is published.
    let present = fx.auth.signing_keys().await.unwrap().jwks();
    fx.pass_s(91 * 86_400);
    fx.auth.signing_keys().await.unwrap().maintain().await.unwrap();
    let later = kids(&fx.auth.signing_keys().await.unwrap().jwks());
    assert_eq!(later.iter().filter(|k| kids(&present).contains(k)).count(), 2);
    assert_eq!(later.len(), 3);
    // Keys rest encrypted: another master key does not open them.
    let vault = Arc::new(MasterVault::new(&[8; 32], Arc::new(OsRandom)));
    let clock = Arc::clone(&fx.clock) as Arc<dyn Clock>;
    let error =
        Auth::open(AuthSettings::default(), fx.pool.clone(), vault, clock, Arc::new(OsRandom), None).await.unwrap_err();
    assert!(error.message.contains("master key"), "{error}");
    assert!(
        base64::Engine::decode(
            &base64::engine::general_purpose::STANDARD,
            fx.auth.signing_keys().await.unwrap().public_key()
        )
        .unwrap()
        .len()
            > 290
    );
}

#[tokio::test]
async fn api_keys() {
    let mut fx = fixture().await;
    let bearer = format!("Bearer {}", fx.key);
    let services = |i: Identity| i.access(Domain::Logs).patterns();
    // The key says cart*, its owner holds cart.
    assert_eq!(services(fx.identify(&bearer).await.unwrap()), ["cart"]);
    assert_eq!(services(fx.identify(&basic(&format!("any:{}", fx.key))).await.unwrap()), ["cart"]);
    let elsewhere = Request { ip: Some(IpAddr::from([198, 51, 100, 1])), ..request() };
    let shown = RequestCredentials::ApiKey(Secret::new(fx.key.clone()));
    assert_eq!(fx.auth.identify(&shown, elsewhere).await.unwrap_err(), TokenError::Invalid);
    assert_eq!(fx.auth.identify(&shown, Request { ip: None, ..request() }).await.unwrap_err(), TokenError::Invalid);
    let other = api_key::make(&OsRandom);
    assert_eq!(fx.identify(&format!("Bearer {other}")).await.unwrap_err(), TokenError::Invalid);
    fx.pass_s(3600);
    assert_eq!(fx.identify(&bearer).await.unwrap_err(), TokenError::Invalid, "it ended");
    fx.accounts.keys[0].expires_ms = None;
    fx.publish();
    fx.identify(&bearer).await.unwrap();
    fx.accounts.accounts[0].enabled = false;
    fx.publish();
    assert_eq!(fx.identify(&bearer).await.unwrap_err(), TokenError::Invalid, "its owner is disabled");
}

#[tokio::test]
async fn basic_credentials() {
    let fx = fixture().await;
    let identity = fx.identify(&basic(&format!("agent:{CLIENT_SECRET}"))).await.unwrap();
    assert_eq!(identity.subject.text(), "serviceAccount:s1");
    assert_eq!(fx.identify(&basic("agent:wrong")).await.unwrap_err(), TokenError::Invalid);
    assert_eq!(fx.identify(&basic(&format!("ann:{PASSWORD}"))).await.unwrap_err(), TokenError::Invalid);
    let open = fixture_with(AuthSettings { basic_passwords: true, ..AuthSettings::default() }, None).await;
    assert_eq!(open.identify(&basic(&format!("ann:{PASSWORD}"))).await.unwrap().name, "ann");
    assert_eq!(open.identify(&basic(&format!("newbie:{PASSWORD}"))).await.unwrap_err(), TokenError::Invalid);
}

#[tokio::test]
async fn rights_follow_the_directory_not_the_token() {
    let mut fx = fixture().await;
    let token = fx.login("").await;
    assert!(fx.bearer(&token["access_token"]).await.unwrap().rights.has_in_some_domain(Right::View));
    fx.accounts.grants.clear();
    fx.publish();
    assert!(!fx.bearer(&token["access_token"]).await.unwrap().rights.has_in_some_domain(Right::View));
    fx.accounts.accounts.remove(0);
    fx.publish();
    assert_eq!(fx.bearer(&token["access_token"]).await.unwrap_err(), TokenError::Invalid);
    assert_eq!(fx.refresh(token["refresh_token"].as_str().unwrap(), "").await.unwrap_err(), OAuthError::not_active());
}

/// Work that goes on in somebody's name ends with what he may see.
#[tokio::test]
async fn what_goes_on_in_a_name_ends_with_its_rights() {
    let mut fx = fixture().await;
    let check = |fx: &Fixture, subject: &str, rights: &Rights, domain: Option<Domain>, expected: bool| {
        assert_eq!(fx.auth.still_shows(subject, rights, domain), expected, "{subject} {rights:?} {domain:?}");
    };
    let of = |domain, service: &str| Triple::new(Right::View, Some(domain), Services::parse(service).unwrap());
    let both: Rights = [of(Domain::Metrics, "cart"), of(Domain::Traces, "bank")].into_iter().collect();
    for domain in [None, Some(Domain::Metrics)] {
        check(&fx, "user:u1", &view("cart"), domain, true);
        check(&fx, "user:u1", &view("bank"), domain, false);
        check(&fx, "user:u1", &view("cart*"), domain, false);
        check(&fx, "user:gone", &view("cart"), domain, false);
        check(&fx, "serviceAccount:s1", &view("cart"), domain, false);
        check(&fx, "serviceAccount:s1", &Rights::default(), domain, true);
        // Who cannot be looked up.
        for subject in ["", "system", "oidc:https://other.example:ann"] {
            check(&fx, subject, &view("cart"), domain, true);
        }
    }
    // What it does not read does not matter.
    check(&fx, "user:u1", &both, Some(Domain::Metrics), true);
    check(&fx, "user:u1", &both, Some(Domain::Traces), false);
    check(&fx, "user:u1", &both, None, false);
    fx.accounts.accounts[0].enabled = false;
    fx.publish();
    check(&fx, "user:u1", &view("cart"), None, false);
    fx.accounts.accounts[0].enabled = true;
    fx.accounts.grants.clear();
    fx.publish();
    check(&fx, "user:u1", &view("cart"), None, false);
    // A database that is gone for long takes nothing from anybody.
    fx.accounts = Accounts::default();
    fx.publish();
    check(&fx, "user:u1", &view("cart"), None, true);
}
