//! E-mail.

use std::collections::BTreeSet;

use super::kind::IntegrationKind;
use crate::options::http::TLS;
use crate::options::{Options, Schema, Shape, field, sound, text};

pub(super) static KIND: IntegrationKind = IntegrationKind {
    name: "email",
    field: "email_configs",
    sends_resolved: false,
    is_delivered: true,
    may_be_empty: false,
    schema: &SCHEMA,
    inherit,
};

static THREADING: Schema =
    Schema { fields: &[field("enabled", Shape::Truth), field("thread_by_date", Shape::Text)], check: sound };

static SCHEMA: Schema = Schema {
    fields: &[
        field("send_resolved", Shape::Truth),
        field("to", Shape::Text),
        field("from", Shape::Text),
        field("hello", Shape::Text),
        field("smarthost", Shape::HostPort),
        field("auth_username", Shape::Text),
        field("auth_password", Shape::Secret),
        field("auth_password_file", Shape::Text),
        field("auth_secret", Shape::Secret),
        field("auth_secret_file", Shape::Text),
        field("auth_identity", Shape::Text),
        field("headers", Shape::TextMap),
        text("html", r#"{{ template "email.default.html" . }}"#),
        field("text", Shape::Text),
        field("require_tls", Shape::Truth),
        field("tls_config", Shape::Object(&TLS)),
        field("force_implicit_tls", Shape::Truth),
        field("threading", Shape::Object(&THREADING)),
    ],
    check: |o| {
        if !o.has("to") {
            return Err("missing to address in email config".to_owned());
        }
        let mut names = BTreeSet::new();
        for name in o.text_map("headers").into_iter().flatten().map(|(name, _)| canonical(name)) {
            if !names.insert(name.clone()) {
                return Err(format!("duplicate header \"{name}\" in email config"));
            }
        }
        let Some(threading) = o.object("threading").filter(|t| t.truth("enabled")) else { return Ok(()) };
        for name in ["References", "In-Reply-To"] {
            if names.contains(name) {
                let reason = "threading.enabled conflicts with custom";
                return Err(format!("conflicting configuration: {reason} {name} header"));
            }
        }
        if !matches!(threading.text("thread_by_date"), "none" | "daily") {
            return Err("threading.thread_by_date must be either 'none' or 'daily'".to_owned());
        }
        Ok(())
    },
};

/// The canonical form of a header name, as in Go: the first letter of each part in upper case.
pub fn canonical(name: &str) -> String {
    if !name.bytes().all(|b| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b)) {
        return name.to_owned();
    }
    let part = |part: &str| {
        let (first, rest) = part.split_at(part.len().min(1));
        first.to_ascii_uppercase() + &rest.to_ascii_lowercase()
    };
    name.split('-').map(part).collect::<Vec<_>>().join("-")
}

fn inherit(options: &mut Options, global: &Options) -> Result<(), String> {
    options.inherit_value("tls_config", global, "smtp_tls_config");
    options.inherit("smarthost", global, "smtp_smarthost");
    if !options.has("smarthost") {
        return Err("no global SMTP smarthost set".to_owned());
    }
    options.inherit("from", global, "smtp_from");
    options.inherit("hello", global, "smtp_hello");
    options.inherit("auth_username", global, "smtp_auth_username");
    if !options.has("auth_password") && !options.has("auth_password_file") {
        options.inherit("auth_password", global, "smtp_auth_password");
        options.inherit("auth_password_file", global, "smtp_auth_password_file");
    }
    if !options.has("auth_secret") && !options.has("auth_secret_file") {
        options.inherit("auth_secret", global, "smtp_auth_secret");
        options.inherit("auth_secret_file", global, "smtp_auth_secret_file");
    }
    options.inherit("auth_identity", global, "smtp_auth_identity");
    options.inherit_value("require_tls", global, "smtp_require_tls");
    options.inherit_value("force_implicit_tls", global, "smtp_force_implicit_tls");
    if !options.has("from") {
        return Err("no global SMTP from set".to_owned());
    }
    Ok(())
}
