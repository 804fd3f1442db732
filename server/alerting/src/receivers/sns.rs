//! Amazon SNS.

use super::kind::{IntegrationKind, inherit_http};
use crate::options::http::HTTP;
use crate::options::{Schema, Shape, field, text};

pub(super) static KIND: IntegrationKind = IntegrationKind {
    name: "sns",
    field: "sns_configs",
    sends_resolved: true,
    is_delivered: false,
    may_be_empty: false,
    schema: &SCHEMA,
    inherit: inherit_http,
};

static SIGV4: Schema = Schema {
    fields: &[
        field("region", Shape::Text),
        field("access_key", Shape::Text),
        field("secret_key", Shape::Secret),
        field("profile", Shape::Text),
        field("role_arn", Shape::Text),
        field("external_id", Shape::Text),
        field("use_fips_sts_endpoint", Shape::Truth),
        field("service_name", Shape::Text),
    ],
    check: |o| match (o.has("access_key") == o.has("secret_key"), o.has("external_id") && !o.has("role_arn")) {
        (false, _) => {
            Err("must provide a AWS SigV4 Access key and Secret Key if credentials are specified in the SigV4 config"
                .to_owned())
        }
        (true, true) => Err("external_id can only be used with role_arn".to_owned()),
        (true, false) => Ok(()),
    },
};

static SCHEMA: Schema = Schema {
    fields: &[
        field("send_resolved", Shape::Truth),
        field("http_config", Shape::Object(&HTTP)),
        field("api_url", Shape::Text),
        field("sigv4", Shape::Object(&SIGV4)),
        field("topic_arn", Shape::Text),
        field("phone_number", Shape::Text),
        field("target_arn", Shape::Text),
        text("subject", r#"{{ template "sns.default.subject" . }}"#),
        text("message", r#"{{ template "sns.default.message" . }}"#),
        field("attributes", Shape::TextMap),
        field("use_aws_http_client", Shape::Truth),
    ],
    check: |o| {
        // As in Alertmanager: one of them, or all three.
        let missing = |name: &str| !o.has(name);
        if (missing("target_arn") != missing("topic_arn")) != missing("phone_number") {
            let all = "a Target ARN, Topic ARN, or Phone Number";
            return Err(format!("must provide either {all} for SNS config"));
        }
        Ok(())
    },
};
