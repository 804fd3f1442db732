//! Tokens that are none: the table of `identity-and-access` 1.3, and more of their kind.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::hmac;

use super::*;

fn part(value: &Value) -> String {
    URL_SAFE_NO_PAD.encode(value.to_string())
}

/// Claims that are good, changed; null takes a claim away.
fn changed(good: &Value, changes: &[(&str, Value)]) -> Value {
    let mut claims = good.clone();
    let map = claims.as_object_mut().unwrap();
    for (key, value) in changes {
        match value {
            Value::Null => {
                map.remove(*key);
            }
            value => {
                map.insert((*key).to_owned(), value.clone());
            }
        }
    }
    claims
}

#[tokio::test]
async fn signed_by_us_and_still_no_token() {
    let fx = fixture().await;
    let good = claims(&fx.login("").await["access_token"]);
    let now = NOW / 1000;
    let keys = fx.auth.signing_keys().await.unwrap();
    let sign = |claims: &Value| json!(keys.sign(claims).unwrap());
    fx.bearer(&sign(&good)).await.unwrap();
    let cases: Vec<(&str, Value, TokenError)> = vec![
        ("iss", json!(null), TokenError::Invalid),
        ("iss", json!("http://evil.example/realms/platform"), TokenError::Invalid),
        ("iss", json!([ISSUER]), TokenError::Invalid),
        ("iss", json!(7), TokenError::Invalid),
        ("iss", json!(format!("{ISSUER}/")), TokenError::Invalid),
        ("aud", json!(null), TokenError::Invalid),
        ("aud", json!("other"), TokenError::Invalid),
        ("aud", json!([]), TokenError::Invalid),
        ("aud", json!(["platform", 7]), TokenError::Invalid),
        ("aud", json!({"platform": true}), TokenError::Invalid),
        ("aud", json!(true), TokenError::Invalid),
        ("sub", json!(null), TokenError::Invalid),
        ("sub", json!(""), TokenError::Invalid),
        ("sub", json!(["u1"]), TokenError::Invalid),
        ("sub", json!("nobody"), TokenError::Invalid),
        ("sub", json!("s1"), TokenError::Invalid),
        ("exp", json!(null), TokenError::Invalid),
        ("exp", json!("never"), TokenError::Invalid),
        ("exp", json!(1.8e99), TokenError::Invalid),
        ("exp", json!(u64::MAX), TokenError::Invalid),
        ("exp", json!(now as f64 + 300.5), TokenError::Invalid),
        ("exp", json!(true), TokenError::Invalid),
        ("exp", json!([now + 300]), TokenError::Invalid),
        ("exp", json!(i64::MIN), TokenError::Expired),
        ("exp", json!(now - 6), TokenError::Expired),
        ("exp", json!(-1), TokenError::Expired),
        ("iat", json!(null), TokenError::Invalid),
        ("iat", json!("now"), TokenError::Invalid),
        ("iat", json!(now + 61), TokenError::Invalid),
        ("iat", json!(i64::MAX), TokenError::Invalid),
        ("nbf", json!(u64::MAX), TokenError::Invalid),
        ("nbf", json!([0]), TokenError::Invalid),
        ("aud", json!([["platform"]]), TokenError::Invalid),
        ("aud", json!("Platform"), TokenError::Invalid),
        ("aud", json!(" platform"), TokenError::Invalid),
        ("aud", json!("platform,other"), TokenError::Invalid),
        ("iss", json!(ISSUER.to_uppercase()), TokenError::Invalid),
        ("iss", json!(format!("{ISSUER}#x")), TokenError::Invalid),
        ("iss", json!(format!("{ISSUER}\u{0}")), TokenError::Invalid),
        ("sub", json!("../u1"), TokenError::Invalid),
        ("sub", json!("u1 "), TokenError::Invalid),
        ("sub", json!("u1' OR '1'='1"), TokenError::Invalid),
        ("typ", json!("bearer"), TokenError::Invalid),
        ("nbf", json!(now + 6), TokenError::Invalid),
        ("nbf", json!("x"), TokenError::Invalid),
        ("typ", json!(null), TokenError::Invalid),
        ("typ", json!("ID"), TokenError::Invalid),
        ("typ", json!("Refresh"), TokenError::Invalid),
        ("typ", json!(["Bearer"]), TokenError::Invalid),
        ("clientId", json!("agent"), TokenError::Invalid),
    ];
    for (key, value, expected) in cases {
        let token = sign(&changed(&good, &[(key, value.clone())]));
        assert_eq!(fx.bearer(&token).await.unwrap_err(), expected, "{key} {value}");
    }
    for (key, value) in
        [("nbf", json!(now + 5)), ("iat", json!(now + 60)), ("exp", json!(now - 4)), ("aud", json!("platform"))]
    {
        fx.bearer(&sign(&changed(&good, &[(key, value.clone())])))
            .await
            .unwrap_or_else(|e| panic!("{key} {value}: {e}"));
    }
}

#[tokio::test]
async fn headers_and_forms() {
    let fx = fixture().await;
    let token = fx.login("").await["access_token"].as_str().unwrap().to_owned();
    let parts: Vec<&str> = token.split('.').collect();
    let [head, body, signature] = parts[..] else { panic!("three parts") };
    let header: Value = serde_json::from_slice(&URL_SAFE_NO_PAD.decode(head).unwrap()).unwrap();
    let check = async |token: &str| {
        assert_eq!(fx.identify(&format!("Bearer {token}")).await.unwrap_err(), TokenError::Invalid, "{token:.100}");
    };
    for alg in [
        "none", "None", "nOnE", "", "HS256", "HS384", "HS512", "RS384", "RS512", "PS256", "PS384", "ES256", "EdDSA",
        "rs256",
    ] {
        let other = part(&changed(&header, &[("alg", json!(alg))]));
        check(&format!("{other}.{body}.{signature}")).await;
        check(&format!("{other}.{body}.")).await;
    }
    // The public key as the secret of an HMAC.
    let public = fx.auth.signing_keys().await.unwrap().jwks()["keys"][0]["n"].as_str().unwrap().to_owned();
    for secret in [
        public.as_bytes().to_vec(),
        URL_SAFE_NO_PAD.decode(&public).unwrap(),
        fx.auth.signing_keys().await.unwrap().public_key().into_bytes(),
    ] {
        let message = format!("{}.{body}", part(&changed(&header, &[("alg", json!("HS256"))])));
        let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, &secret), message.as_bytes());
        check(&format!("{message}.{}", URL_SAFE_NO_PAD.encode(tag))).await;
    }
    let kids = [
        json!(null),
        json!("../../etc/passwd"),
        json!("' OR 1=1 --"),
        json!("http://evil.example/key"),
        json!("x".repeat(10_240)),
        json!(7),
        json!([]),
    ];
    for kid in kids {
        check(&format!("{}.{body}.{signature}", part(&changed(&header, &[("kid", kid)])))).await;
    }
    let more = [
        ("crit", json!(["exp"])),
        ("crit", json!([])),
        ("b64", json!(false)),
        ("typ", json!("JWE")),
        ("typ", json!(7)),
        ("alg", json!(["RS256"])),
    ];
    for (key, value) in more {
        check(&format!("{}.{body}.{signature}", part(&changed(&header, &[(key, value)])))).await;
    }
    // Keys that come with the token are not looked at: the signature is not over this header.
    for (key, value) in [
        ("jku", json!("http://127.0.0.1:1/k")),
        ("jwk", json!({"kty": "RSA"})),
        ("x5u", json!("http://127.0.0.1:1/k")),
        ("x5c", json!(["AA"])),
    ] {
        check(&format!("{}.{body}.{signature}", part(&changed(&header, &[(key, value)])))).await;
    }
    check(&format!("{head}.{body}.")).await;
    check(&format!("{head}.{body}\t.{signature}")).await;
    check(&format!("{head}.{body}.{signature}%2e")).await;
    check(&format!("{head}.{body}.{signature}\u{e4}")).await;
    check(&format!("{head}.{body}.{signature},{head}.{body}.{signature}")).await;
    // Five parts are an encrypted token, which nothing here opens.
    check(&format!("{head}.{body}.{signature}.{body}.{signature}")).await;
    // Bits after the last byte: another text of the same bytes is another token.
    let (last, rest) = (signature.chars().last().unwrap(), &signature[..signature.len() - 1]);
    let alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let twin = alphabet.chars().nth(alphabet.find(last).unwrap() ^ 1).unwrap();
    check(&format!("{head}.{body}.{rest}{twin}")).await;
    check(&format!("{head}.{body}")).await;
    check(&format!("{head}.{body}.{signature}.{signature}")).await;
    check(&format!("{head}.{body}.{signature}=")).await;
    check(&format!("{head}.{body}. {signature}")).await;
    check(&format!("{head}.{}.{signature}", part(&json!([1])))).await;
    check(&format!("{head}.!!!.{signature}")).await;
    check(&format!("..{signature}")).await;
    check(&format!("{token}{}", "A".repeat(20_000))).await;
    let mut bent = URL_SAFE_NO_PAD.decode(signature).unwrap();
    bent[0] ^= 1;
    check(&format!("{head}.{body}.{}", URL_SAFE_NO_PAD.encode(bent))).await;
    let other = URL_SAFE_NO_PAD.encode(
        URL_SAFE_NO_PAD.decode(body).unwrap().iter().map(|b| if *b == b'u' { b'v' } else { *b }).collect::<Vec<_>>(),
    );
    check(&format!("{head}.{other}.{signature}")).await;
    // A token that is good here is not good where another issuer is expected, cached or not.
    fx.identify(&format!("Bearer {token}")).await.unwrap();
    let elsewhere = Request { issuer: "https://other.example/realms/platform", ..request() };
    let shown = RequestCredentials::Token(Secret::new(token));
    assert_eq!(fx.auth.identify(&shown, elsewhere).await.unwrap_err(), TokenError::Invalid);
}

#[tokio::test]
async fn signatures_that_are_none() {
    let fx = fixture().await;
    let token = fx.login("").await["access_token"].as_str().unwrap().to_owned();
    let (signed, signature) = token.rsplit_once('.').unwrap();
    let good = URL_SAFE_NO_PAD.decode(signature).unwrap();
    let n = fx.auth.signing_keys().await.unwrap().jwks()["keys"][0]["n"].as_str().unwrap().to_owned();
    let n = URL_SAFE_NO_PAD.decode(n).unwrap();
    assert_eq!((good.len(), n.len()), (256, 256));
    // What is the same modulo n, and numbers that are their own power.
    let (mut same, mut carry) = (vec![0_u8; 257], 0_u16);
    for at in (0..256).rev() {
        let sum = u16::from(good[at]) + u16::from(n[at]) + carry;
        (same[at + 1], carry) = (sum.to_le_bytes()[0], sum >> 8);
    }
    same[0] = carry.to_le_bytes()[0];
    let of_last = |last: u8| [vec![0; 255], vec![last]].concat();
    let mut less_one = n.clone();
    less_one[255] -= 1;
    let reversed: Vec<u8> = good.iter().rev().copied().collect();
    for (what, bytes) in [
        ("zero", of_last(0)),
        ("one", of_last(1)),
        ("n", n.clone()),
        ("n - 1", less_one),
        ("as large as it goes", vec![0xff; 256]),
        ("the same and n", same),
        ("a zero before", [&[0][..], &good].concat()),
        ("a zero behind", [&good[..], &[0]].concat()),
        ("without its end", good[..255].to_vec()),
        ("without its beginning", good[1..].to_vec()),
        ("from behind", reversed),
        ("twice", [&good[..], &good].concat()),
        ("a byte", vec![1]),
    ] {
        let forged = format!("Bearer {signed}.{}", URL_SAFE_NO_PAD.encode(bytes));
        assert_eq!(fx.identify(&forged).await.unwrap_err(), TokenError::Invalid, "{what}");
    }
    // A right signature over the same claims, written in another way.
    let (head, claims) = signed.split_once('.').unwrap();
    let again = |part: &str, before: &str, behind: &str| {
        let text = String::from_utf8(URL_SAFE_NO_PAD.decode(part).unwrap()).unwrap();
        URL_SAFE_NO_PAD.encode(format!("{before}{text}{behind}"))
    };
    for (before, behind) in [(" ", ""), ("", "\n")] {
        for forged in [
            format!("Bearer {}.{claims}.{signature}", again(head, before, behind)),
            format!("Bearer {head}.{}.{signature}", again(claims, before, behind)),
        ] {
            assert_eq!(fx.identify(&forged).await.unwrap_err(), TokenError::Invalid, "{before:?} {behind:?}");
        }
    }
    fx.identify(&format!("Bearer {token}")).await.unwrap();
}

/// All are signed by us, so that nothing but what they say refuses them.
#[tokio::test]
async fn texts_that_two_readers_take_differently() {
    let fx = fixture().await;
    let good = claims(&fx.login("").await["access_token"]);
    let keys = fx.auth.signing_keys().await.unwrap();
    let (key, kid) = (keys.signer(NOW).unwrap(), keys.jwks()["keys"][0]["kid"].as_str().unwrap().to_owned());
    let (header, body) = (format!(r#"{{"alg":"RS256","typ":"JWT","kid":"{kid}"}}"#), good.to_string());
    let identified = async |header: &str, body: &str| {
        let token = key.sign(header, body).unwrap();
        fx.identify(&format!("Bearer {token}")).await
    };
    identified(&header, &body).await.unwrap();
    // Names that stand twice, of which readers take one or the other; depth; texts that only look alike; packed claims.
    for text in [
        format!(r#"{{"alg":"none","alg":"RS256","typ":"JWT","kid":"{kid}"}}"#),
        format!(r#"{{"alg":"RS256","typ":"JWT","kid":"{kid}","kid":"{kid}"}}"#),
        format!(r#"{{"alg":"RS256","typ":"JWT","kid":"{kid}\u0000"}}"#),
        format!(r#"{{"alg":"RS256","typ":"JWT","kid":"\u200b{kid}"}}"#),
        format!(r#"{{"alg":"RS256 ","typ":"JWT","kid":"{kid}"}}"#),
        format!(r#"{{"alg":"RS256","typ":"JWT","kid":"{kid}","zip":"DEF","crit":["zip"]}}"#),
        format!(r#"{{"alg":"RS256","typ":"JWT","kid":"{kid}"}}trailing"#),
        format!("\u{feff}{{\"alg\":\"RS256\",\"kid\":\"{kid}\"}}"),
        format!(r#"{{"alg":"RSA-OAEP","enc":"A256GCM","zip":"DEF","kid":"{kid}"}}"#),
        format!(r#"{{"alg":"RS256","kid":"{kid}","x":{}{}}}"#, "[".repeat(3000), "]".repeat(3000)),
        r#""RS256""#.to_owned(),
        "null".to_owned(),
        String::new(),
    ] {
        assert_eq!(identified(&text, &body).await.unwrap_err(), TokenError::Invalid, "{text:.100}");
    }
    // Members that readers would pass over, or of which they would take one, were they read.
    let with = |claims: &Value, member: &str| claims.to_string().replacen('{', &format!("{{{member},"), 1);
    for text in [
        with(&good, &format!(r#""iss":"{ISSUER}""#)),
        with(&changed(&good, &[("exp", json!(null))]), &format!(r#""exp":{}"#, "9".repeat(400))),
        with(&good, &format!(r#""x":{}"#, "{\"a\":".repeat(200) + "1" + &"}".repeat(200))),
    ] {
        assert_eq!(identified(&header, &text).await.unwrap_err(), TokenError::Invalid, "{text:.100}");
    }
    identified(&header, &with(&good, r#""x":1"#)).await.unwrap();
}

#[test]
fn nothing_secret_is_shown() {
    let secret = "s3cret-of-somebody";
    let shown = RequestCredentials::Basic { name: "x".to_owned(), password: Secret::new(secret) };
    let account = account(AccountKind::User, "u", "x", secret.to_owned());
    for text in
        [format!("{shown:?}"), format!("{account:?}"), format!("{:?}", RequestCredentials::Token(Secret::new(secret)))]
    {
        assert!(!text.contains(secret), "{text}");
    }
}

#[test]
fn addresses() {
    for (text, sane) in [
        ("https://quiver.example", true),
        ("http://127.0.0.1:8800", true),
        ("https://quiver.example/below", true),
        ("https://quiver.example/", false),
        ("ftp://quiver.example", false),
        ("quiver.example", false),
        ("https://quiver.example?x", false),
    ] {
        assert_eq!(base_url_is_sane(text), sane, "{text}");
    }
}
