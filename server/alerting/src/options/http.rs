//! Options of `http_config` and `tls_config`.

use serde_json::Value;

use super::{FieldDef, OptionValue, Options, Schema, Shape, field, sound};

const TLS_VERSIONS: &[&str] = &["TLS10", "TLS11", "TLS12", "TLS13"];

/// Fields of `tls_config`, as Prometheus' `common/config` has them.
pub(crate) static TLS: Schema = Schema {
    fields: &[
        field("ca", Shape::Text),
        field("cert", Shape::Text),
        field("key", Shape::Secret),
        field("ca_file", Shape::Text),
        field("cert_file", Shape::Text),
        field("key_file", Shape::Text),
        field("ca_ref", Shape::Text),
        field("cert_ref", Shape::Text),
        field("key_ref", Shape::Text),
        field("server_name", Shape::Text),
        field("insecure_skip_verify", Shape::Truth),
        field("min_version", Shape::Word(TLS_VERSIONS)),
        field("max_version", Shape::Word(TLS_VERSIONS)),
    ],
    check: |o| {
        o.at_most_one(&["ca", "ca_file", "ca_ref"])?;
        o.at_most_one(&["cert", "cert_file", "cert_ref"])?;
        o.at_most_one(&["key", "key_file", "key_ref"])?;
        let place = |name: &str| TLS_VERSIONS.iter().position(|version| *version == o.text(name));
        if let (Some(least), Some(most)) = (place("min_version"), place("max_version"))
            && most < least
        {
            return Err("max_version must be greater than or equal to min_version if both are specified".into());
        }
        let any = |names: [&str; 3]| names.iter().any(|name| o.has(name));
        match (any(["cert", "cert_file", "cert_ref"]), any(["key", "key_file", "key_ref"])) {
            (true, false) => {
                Err("exactly one of key or key_file must be configured when a client certificate is configured".into())
            }
            (false, true) => {
                Err("exactly one of cert or cert_file must be configured when a client key is configured".into())
            }
            _ => Ok(()),
        }
    },
};

static BASIC_AUTH: Schema = Schema {
    fields: &[
        field("username", Shape::Text),
        field("username_file", Shape::Text),
        field("username_ref", Shape::Text),
        field("password", Shape::Secret),
        field("password_file", Shape::Text),
        field("password_ref", Shape::Text),
    ],
    check: |o| {
        o.at_most_one(&["username", "username_file", "username_ref"]).map_err(|_| {
            "at most one of basic_auth username, username_file & username_ref must be configured".to_owned()
        })?;
        o.at_most_one(&["password", "password_file", "password_ref"]).map_err(|_| {
            "at most one of basic_auth password, password_file & password_ref must be configured".to_owned()
        })
    },
};

static AUTHORIZATION: Schema = Schema {
    fields: &[
        FieldDef { name: "type", shape: Shape::Text, default: "Bearer" },
        field("credentials", Shape::Secret),
        field("credentials_file", Shape::Text),
        field("credentials_ref", Shape::Text),
    ],
    check: |o| {
        o.at_most_one(&["credentials", "credentials_file", "credentials_ref"])
            .map_err(|_| "at most one of authorization credentials & credentials_file must be configured".to_owned())?;
        if o.text("type").trim().eq_ignore_ascii_case("basic") {
            return Err("authorization type cannot be set to \"basic\", use \"basic_auth\" instead".into());
        }
        Ok(())
    },
};

/// The grant type of RFC 7523 (JWT bearer) for OAuth 2.
pub const BY_JWT: &str = "urn:ietf:params:oauth:grant-type:jwt-bearer";

static OAUTH2: Schema = Schema {
    fields: &[
        field("client_id", Shape::Text),
        field("client_secret", Shape::Secret),
        field("client_secret_file", Shape::Text),
        field("client_secret_ref", Shape::Text),
        field("client_certificate_key_id", Shape::Text),
        field("client_certificate_key", Shape::Secret),
        field("client_certificate_key_file", Shape::Text),
        field("client_certificate_key_ref", Shape::Text),
        field("grant_type", Shape::Text),
        field("signature_algorithm", Shape::Text),
        field("iss", Shape::Text),
        field("audience", Shape::Text),
        field("claims", Shape::Any),
        field("scopes", Shape::Texts),
        field("token_url", Shape::Text),
        field("endpoint_params", Shape::TextMap),
        field("tls_config", Shape::Object(&TLS)),
        field("proxy_url", Shape::ProxyUrl),
        field("no_proxy", Shape::Text),
        field("proxy_from_environment", Shape::Truth),
        field("proxy_connect_header", Shape::SecretLists),
    ],
    check: |o| {
        for name in ["client_id", "token_url"] {
            if !o.has(name) {
                return Err(format!("oauth2 {name} must be configured"));
            }
        }
        if o.text("grant_type") == BY_JWT {
            o.at_most_one(&["client_certificate_key", "client_certificate_key_file", "client_certificate_key_ref"])?;
            if !matches!(o.text("signature_algorithm"), "" | "RS256" | "RS384" | "RS512") {
                return Err("valid signature algorithms are RS256, RS384 and RS512".into());
            }
        } else {
            o.at_most_one(&["client_secret", "client_secret_file", "client_secret_ref"])?;
        }
        check_proxy(o)
    },
};

static HEADER: Schema = Schema {
    fields: &[field("values", Shape::Texts), field("secrets", Shape::Texts), field("files", Shape::Texts)],
    check: sound,
};

/// Headers that an HTTP client sets itself.
const RESERVED: [&str; 17] = [
    "authorization",
    "host",
    "content-encoding",
    "content-length",
    "content-type",
    "user-agent",
    "connection",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "www-authenticate",
    "accept-encoding",
    "x-prometheus-remote-write-version",
    "x-prometheus-remote-read-version",
    "x-prometheus-scrape-timeout-seconds",
    "x-amz-date",
    "x-amz-security-token",
];

fn check_proxy(o: &Options) -> Result<(), String> {
    let (from_environment, url) = (o.truth("proxy_from_environment"), o.has("proxy_url"));
    let has_header =
        matches!(o.value("proxy_connect_header"), Some(OptionValue::Any(Value::Object(h))) if !h.is_empty());
    if has_header && !from_environment && !url {
        let both = "proxy_url or proxy_from_environment must also be configured";
        return Err(format!("if proxy_connect_header is configured, {both}"));
    }
    if from_environment && url {
        return Err("if proxy_from_environment is configured, proxy_url must not be configured".into());
    }
    if from_environment && o.has("no_proxy") {
        return Err("if proxy_from_environment is configured, no_proxy must not be configured".into());
    }
    if !url && o.has("no_proxy") {
        return Err("if no_proxy is configured, proxy_url must also be configured".into());
    }
    Ok(())
}

/// Fields of `http_config`, as Prometheus' `common/config` has them.
pub(crate) static HTTP: Schema = Schema {
    fields: &[
        field("basic_auth", Shape::Object(&BASIC_AUTH)),
        field("authorization", Shape::Object(&AUTHORIZATION)),
        field("oauth2", Shape::Object(&OAUTH2)),
        field("bearer_token", Shape::Secret),
        field("bearer_token_file", Shape::Text),
        field("tls_config", Shape::Object(&TLS)),
        FieldDef { name: "follow_redirects", shape: Shape::Truth, default: "true" },
        FieldDef { name: "enable_http2", shape: Shape::Truth, default: "true" },
        field("proxy_url", Shape::ProxyUrl),
        field("no_proxy", Shape::Text),
        field("proxy_from_environment", Shape::Truth),
        field("proxy_connect_header", Shape::SecretLists),
        field("http_headers", Shape::ObjectMap(&HEADER)),
    ],
    check: |o| {
        o.at_most_one(&["bearer_token", "bearer_token_file"])?;
        let (basic, oauth2) = (o.object("basic_auth").is_some(), o.object("oauth2").is_some());
        let (bearer, authorization) =
            (o.has("bearer_token") || o.has("bearer_token_file"), o.object("authorization").is_some());
        if (basic || oauth2) && bearer {
            return Err("at most one of basic_auth, oauth2, bearer_token & bearer_token_file must be configured".into());
        }
        if authorization && bearer {
            return Err("authorization is not compatible with bearer_token & bearer_token_file".into());
        }
        if usize::from(authorization) + usize::from(basic) + usize::from(oauth2) > 1 {
            return Err("at most one of basic_auth, oauth2 & authorization must be configured".into());
        }
        check_proxy(o)?;
        if let Some(OptionValue::ObjectMap(headers)) = o.value("http_headers")
            && let Some(name) = headers.keys().find(|name| RESERVED.contains(&name.to_ascii_lowercase().as_str()))
        {
            return Err(format!("setting header \"{name}\" is not allowed"));
        }
        Ok(())
    },
};

#[cfg(test)]
mod tests {
    use quiver_yaml::problem::Problems;

    use super::*;

    fn read(schema: &'static Schema, text: &str) -> (Options, String) {
        let node = quiver_yaml::read(text).expect(text).remove(0);
        let mut problems = Problems::default();
        let options = schema.read(&node, "", &mut problems);
        (options, problems.iter().map(|p| format!("{} {}", p.path, p.message)).collect::<Vec<_>>().join("; "))
    }

    fn check(schema: &'static Schema, cases: &[(&str, &str)]) {
        for (text, expected) in cases {
            assert_eq!(read(schema, text).1, *expected, "{text}");
        }
    }

    #[test]
    fn defaults() {
        let (options, told) = read(&HTTP, "{authorization: {credentials: x}}");
        assert_eq!(told, "");
        assert!(options.truth("follow_redirects") && options.truth("enable_http2"));
        assert_eq!(options.object("authorization").map(|a| a.text("type")), Some("Bearer"));
        assert!(!read(&HTTP, "{follow_redirects: false}").0.truth("follow_redirects"));
    }

    #[test]
    fn certificates() {
        let key = "exactly one of key or key_file must be configured when a client certificate is configured";
        let cert = "exactly one of cert or cert_file must be configured when a client key is configured";
        let versions = "max_version must be greater than or equal to min_version if both are specified";
        check(
            &TLS,
            &[
                ("{}", ""),
                ("{ca: a, server_name: s, insecure_skip_verify: true}", ""),
                ("{cert: a, key_file: b}", ""),
                ("{cert_ref: a, key_ref: b}", ""),
                ("{ca: a, ca_file: b}", " at most one of ca & ca_file & ca_ref must be configured"),
                ("{cert: a, cert_ref: b, key: c}", " at most one of cert & cert_file & cert_ref must be configured"),
                ("{cert: a, key: b, key_file: c}", " at most one of key & key_file & key_ref must be configured"),
                ("{cert: a}", &format!(" {key}")),
                ("{cert_file: a, key: ''}", &format!(" {key}")),
                ("{key_ref: a}", &format!(" {cert}")),
                ("{min_version: TLS12, max_version: TLS12}", ""),
                ("{min_version: TLS13}", ""),
                ("{max_version: TLS10}", ""),
                ("{min_version: TLS13, max_version: TLS12}", &format!(" {versions}")),
                ("{min_version: SSL3}", "/min_version `SSL3` is none of TLS10, TLS11, TLS12, TLS13"),
            ],
        );
        // Below another object the error names the place.
        check(&HTTP, &[("{tls_config: {key: a}}", &format!("/tls_config {cert}"))]);
    }

    #[test]
    fn who_asks() {
        let bearer = " at most one of basic_auth, oauth2, bearer_token & bearer_token_file must be configured";
        let one = " at most one of basic_auth, oauth2 & authorization must be configured";
        let user = "at most one of basic_auth username, username_file & username_ref must be configured";
        let password = "at most one of basic_auth password, password_file & password_ref must be configured";
        let oauth2 = "oauth2: {client_id: i, token_url: 'http://t'}";
        check(
            &HTTP,
            &[
                ("{}", ""),
                ("{basic_auth: {username: u, password: p}}", ""),
                ("{bearer_token: t}", ""),
                ("{bearer_token_file: f}", ""),
                (&format!("{{{oauth2}}}"), ""),
                (
                    "{bearer_token: t, bearer_token_file: f}",
                    " at most one of bearer_token & bearer_token_file must be configured",
                ),
                ("{basic_auth: {}, bearer_token: t}", bearer),
                (&format!("{{{oauth2}, bearer_token_file: f}}"), bearer),
                (
                    "{authorization: {}, bearer_token: t}",
                    " authorization is not compatible with bearer_token & bearer_token_file",
                ),
                ("{authorization: {}, basic_auth: {}}", one),
                (&format!("{{{oauth2}, basic_auth: {{}}}}"), one),
                ("{basic_auth: {username: u, username_ref: r}}", &format!("/basic_auth {user}")),
                ("{basic_auth: {password: p, password_file: f}}", &format!("/basic_auth {password}")),
                (
                    "{authorization: {credentials: c, credentials_file: f}}",
                    "/authorization at most one of authorization credentials & credentials_file must be configured",
                ),
                (
                    "{authorization: {type: ' BaSiC '}}",
                    "/authorization authorization type cannot be set to \"basic\", use \"basic_auth\" instead",
                ),
                ("{authorization: {type: Token, credentials: c}}", ""),
            ],
        );
    }

    #[test]
    fn tokens_by_oauth2() {
        let by_jwt = |rest: &str| format!("{{client_id: i, token_url: t, grant_type: '{BY_JWT}'{rest}}}");
        let key = "client_certificate_key";
        check(
            &OAUTH2,
            &[
                ("{}", " oauth2 client_id must be configured"),
                ("{token_url: t}", " oauth2 client_id must be configured"),
                ("{client_id: i, token_url: ''}", " oauth2 token_url must be configured"),
                ("{client_id: i, token_url: t, scopes: [a], endpoint_params: {b: c}, claims: {d: [1]}}", ""),
                (
                    "{client_id: i, token_url: t, client_secret: s, client_secret_ref: r}",
                    " at most one of client_secret & client_secret_file & client_secret_ref must be configured",
                ),
                (&by_jwt(""), ""),
                (&by_jwt(", client_secret: s, client_secret_ref: r"), ""),
                (&by_jwt(", signature_algorithm: RS384"), ""),
                (&by_jwt(", signature_algorithm: HS256"), " valid signature algorithms are RS256, RS384 and RS512"),
                (
                    &by_jwt(", client_certificate_key: k, client_certificate_key_file: f"),
                    &format!(" at most one of {key} & {key}_file & {key}_ref must be configured"),
                ),
                ("{client_id: i, token_url: t, signature_algorithm: HS256}", ""),
                (
                    "{client_id: i, token_url: t, no_proxy: h}",
                    " if no_proxy is configured, proxy_url must also be configured",
                ),
            ],
        );
    }

    #[test]
    fn proxies() {
        let header =
            " if proxy_connect_header is configured, proxy_url or proxy_from_environment must also be configured";
        check(
            &HTTP,
            &[
                ("{proxy_url: 'http://p', no_proxy: h}", ""),
                ("{proxy_from_environment: true}", ""),
                ("{proxy_from_environment: true, proxy_connect_header: {A: [b]}}", ""),
                ("{proxy_connect_header: {A: [b]}}", header),
                (
                    "{proxy_from_environment: true, proxy_url: 'http://p'}",
                    " if proxy_from_environment is configured, proxy_url must not be configured",
                ),
                (
                    "{proxy_from_environment: true, no_proxy: h}",
                    " if proxy_from_environment is configured, no_proxy must not be configured",
                ),
                ("{no_proxy: h}", " if no_proxy is configured, proxy_url must also be configured"),
                ("{proxy_from_environment: false, proxy_url: 'http://p'}", ""),
            ],
        );
    }

    /// Headers set by the client are refused; all others are allowed.
    #[test]
    fn headers() {
        for name in RESERVED {
            for name in [name.to_owned(), name.to_ascii_uppercase()] {
                let told = read(&HTTP, &format!("{{http_headers: {{{name}: {{values: [a]}}}}}}")).1;
                assert_eq!(told, format!(" setting header \"{name}\" is not allowed"));
            }
        }
        check(
            &HTTP,
            &[
                ("{http_headers: {X-Scope-OrgID: {values: [a, b], secrets: [c], files: [d]}}}", ""),
                ("{http_headers: {X: {value: a}}}", "/http_headers/X/value unknown field `value`"),
                ("{http_headers: {X: {values: a}}}", "/http_headers/X/values wanted a list, got `a`"),
                ("{http_headers: {X: a}}", "/http_headers/X wanted a mapping, got a scalar"),
            ],
        );
    }
}
