//! Issuers whose tokens are taken beside our own: `[[auth.oidc]]`.

use quiver_auth::ExternalIssuer;
use serde::Deserialize;
use serde_json::{Value, json};

use super::Span;
use super::values::SettingValue;
use crate::issuers::issuer_fault;

/// An issuer of OpenID Connect whose access tokens are accepted.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OidcIssuer {
    /// Its address, as `iss` in its tokens says it.
    pub issuer: String,
    /// One of these must be in `aud`.
    pub audiences: Vec<String>,
    /// Where a token says which client it was given to; used as the name of callers who have no other.
    #[serde(default = "client_id_claim")]
    pub client_id_claim: String,
    /// Where roles stand: a dotted path.
    #[serde(default = "roles_claim")]
    pub roles_claim: String,
    /// Where the name of who calls stands.
    #[serde(default = "username_claim")]
    pub username_claim: String,
    /// How often its keys are fetched anew.
    #[serde(default = "jwks_refresh")]
    pub jwks_refresh: Span,
}

fn client_id_claim() -> String {
    "azp".to_owned()
}

fn roles_claim() -> String {
    "realm_access.roles".to_owned()
}

fn username_claim() -> String {
    "preferred_username".to_owned()
}

fn jwks_refresh() -> Span {
    Span(Some(std::time::Duration::from_mins(5)))
}

impl OidcIssuer {
    fn fault(&self) -> Option<String> {
        let of = |what: &str| Some(format!("`auth.oidc` of `{}`: {what}", self.issuer));
        if let Some(fault) = issuer_fault(&self.issuer) {
            return of(&format!("the issuer cannot be used, {fault}"));
        }
        if self.audiences.is_empty() || self.audiences.iter().any(String::is_empty) {
            return of("`audiences` must name at least one, else a token for any other service would be good here");
        }
        let claims = [&self.client_id_claim, &self.roles_claim, &self.username_claim];
        if claims.iter().any(|claim| claim.is_empty()) {
            return of("names of claims must not be empty");
        }
        let often = self.jwks_refresh.0.is_none_or(|span| span.as_secs() < 10);
        if often { of("`jwks_refresh` must be at least 10s") } else { None }
    }

    /// As the token service takes it.
    pub fn external(&self) -> ExternalIssuer {
        let refresh = self.jwks_refresh.0.unwrap_or_default();
        ExternalIssuer {
            issuer: self.issuer.clone(),
            audiences: self.audiences.clone(),
            client_id_claim: self.client_id_claim.clone(),
            roles_claim: self.roles_claim.clone(),
            username_claim: self.username_claim.clone(),
            jwks_refresh_ms: i64::try_from(refresh.as_millis()).unwrap_or(i64::MAX),
        }
    }
}

/// Says what is wrong with a list of issuers.
pub(super) fn fault(issuers: &[OidcIssuer]) -> Option<String> {
    let twice = |(i, one): (usize, &OidcIssuer)| issuers[..i].iter().any(|other| other.issuer == one.issuer);
    if let Some((_, one)) = issuers.iter().enumerate().find(|one| twice(*one)) {
        return Some(format!("`auth.oidc` names `{}` twice", one.issuer));
    }
    issuers.iter().find_map(OidcIssuer::fault)
}

impl SettingValue for Vec<OidcIssuer> {
    fn shown(&self) -> Value {
        let one = |o: &OidcIssuer| {
            json!({
                "issuer": o.issuer, "audiences": o.audiences, "client_id_claim": o.client_id_claim,
                "roles_claim": o.roles_claim, "username_claim": o.username_claim, "jwks_refresh": o.jwks_refresh.shown(),
            })
        };
        self.iter().map(one).collect()
    }
}

#[cfg(test)]
mod tests {
    use crate::settings::{LoadedSettings, SettingsError};

    fn load(text: &str) -> Result<LoadedSettings, SettingsError> {
        let environment = [("QUIVER_AUTH__OIDC".to_owned(), text.to_owned())];
        LoadedSettings::load(None, environment.into_iter(), &[])
    }

    #[test]
    fn issuers() {
        let loaded =
            load(r#"[{issuer = "https://id.example/realms/x", audiences = ["quiver"], roles_claim = "groups"}]"#);
        let external = loaded.unwrap().settings.auth.oidc[0].external();
        assert_eq!((external.roles_claim.as_str(), external.username_claim.as_str()), ("groups", "preferred_username"));
        assert_eq!((external.client_id_claim.as_str(), external.jwks_refresh_ms), ("azp", 300_000));
        let file = tempfile::NamedTempFile::new().unwrap();
        let section = "[[auth.oidc]]\nissuer = \"http://127.0.0.1:1\"\naudiences = [\"a\"]\njwks_refresh = \"1m\"\n";
        std::fs::write(file.path(), section.repeat(2).replacen(":1", ":2", 1)).unwrap();
        let loaded = LoadedSettings::load(Some(file.path()), std::iter::empty(), &[]).unwrap();
        assert_eq!(loaded.settings.auth.oidc.len(), 2);
        assert_eq!(loaded.settings.auth.oidc[0].external().jwks_refresh_ms, 60_000);
    }

    #[test]
    fn refusals() {
        let check = |text: &str, part: &str| {
            let said = load(text).unwrap_err().to_string();
            assert!(said.contains(part), "{text}: {said}");
        };
        let issuer = |more: &str| format!("[{{issuer = \"https://id.example\"{more}}}]");
        check(&issuer(""), "audiences");
        check(&issuer(", audiences = []"), "at least one");
        check(&issuer(", audiences = [\"a\"], jwks_refresh = \"1s\""), "jwks_refresh");
        check(&issuer(", audiences = [\"a\"], rolesclaim = \"x\""), "rolesclaim");
        check(&issuer(", audiences = [\"a\"]").replace("https", "http"), "loopback only");
        check(&issuer(", audiences = [\"a\"]").replace("id.example", "169.254.169.254"), "link-local");
        let one = "{issuer = \"https://id.example\", audiences = [\"a\"]}";
        check(&format!("[{one}, {one}]"), "twice");
    }

    /// What is listed says all of an issuer, so that it can be given again.
    #[test]
    fn listed_and_given_again() {
        let given = r#"[{issuer = "https://id.example", audiences = ["a", "b"], client_id_claim = "cid", jwks_refresh = "90s"}]"#;
        let listed = |loaded: &LoadedSettings| {
            let all = loaded.settings.listed();
            all.into_iter().find(|(section, key, _)| (*section, *key) == ("auth", "oidc")).unwrap().2
        };
        let first = listed(&load(given).unwrap());
        let expected = serde_json::json!([{
            "issuer": "https://id.example", "audiences": ["a", "b"], "client_id_claim": "cid",
            "roles_claim": "realm_access.roles", "username_claim": "preferred_username", "jwks_refresh": "90s",
        }]);
        assert_eq!(first, expected);
        let pairs = first[0].as_object().unwrap().iter().map(|(name, value)| format!("{name} = {value}"));
        let again = format!("[{{{}}}]", pairs.collect::<Vec<_>>().join(", "));
        assert_eq!(listed(&load(&again).unwrap()), expected, "{again}");
    }

    #[test]
    fn refusals_of_claims_and_times() {
        let check = |more: &str, part: &str| {
            let text = format!("[{{issuer = \"https://id.example\", audiences = [\"a\"], {more}}}]");
            let said = load(&text).err().map(|e| e.to_string()).unwrap_or_default();
            assert!(said.contains(part) && said.is_empty() == part.is_empty(), "{more}: {said}");
        };
        for claim in ["client_id_claim", "roles_claim", "username_claim"] {
            check(&format!("{claim} = \"x\""), "");
            check(&format!("{claim} = \"\""), "`auth.oidc` of `https://id.example`: names of claims must not be empty");
        }
        for (span, is_fine) in [("10s", true), ("9s", false), ("9999ms", false), ("none", false), ("1d", true)] {
            check(
                &format!("jwks_refresh = \"{span}\""),
                if is_fine { "" } else { "`jwks_refresh` must be at least 10s" },
            );
        }
        assert!(
            load("[{issuer = \"https://id.example\", audiences = [\"a\", \"\"]}]")
                .unwrap_err()
                .to_string()
                .contains("at least one")
        );
        assert!(load("[]").unwrap().settings.auth.oidc.is_empty());
    }
}
