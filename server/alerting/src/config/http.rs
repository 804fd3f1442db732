//! `http_config` and `tls_config`.

use serde_json::Value;

use super::fields::{FieldDef, OptionValue, Options, Schema, Shape, field, sound};

const TLS_VERSIONS: &[&str] = &["TLS10", "TLS11", "TLS12", "TLS13"];

/// `tls_config`
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

/// The grant of OAuth 2 by RFC 7523.
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

/// Headers that a request has by itself.
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

/// `http_config`
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
