//! Options of a policy that are valid in Alertmanager but not supported here. A deploy with one of them is refused and
//! the option named; if such a policy is stored all the same, its messages fail.

use quiver_alerting::options::http::BY_JWT;
use quiver_alerting::options::{Options, SECRET};
use quiver_alerting::receivers::Integration;
use url::Host;

use super::kinds::{EMAIL, names};
use super::proxies::proxy;

/// Says why an integration cannot be told, whatever it is told; nothing where it can.
pub(crate) fn unsupported(integration: &Integration) -> Vec<String> {
    let (kind, options) = (integration.kind, &integration.options);
    if !names().any(|known| known == kind.name) {
        return vec![format!("{} is not supported", kind.field)];
    }
    let mut found = Vec::new();
    if kind.name == EMAIL {
        of_tls(options, "", &["TLS10", "TLS11", "TLS12"], &mut found);
    } else if let Some(http) = options.object("http_config") {
        of_http(http, &mut found);
    }
    found.into_iter().map(|what| format!("{}/{}: {what} is not supported", kind.field, integration.idx)).collect()
}

fn of_http(http: &Options, found: &mut Vec<String>) {
    if let Some(basic) = http.object("basic_auth") {
        references(basic, "http_config.basic_auth.", &["username_ref", "password_ref"], found);
    }
    if let Some(authorization) = http.object("authorization") {
        references(authorization, "http_config.authorization.", &["credentials_ref"], found);
    }
    of_way(http, "http_config.", found);
    let Some(oauth2) = http.object("oauth2") else { return };
    let at = "http_config.oauth2.";
    references(oauth2, at, &["client_secret_ref"], found);
    if oauth2.text("grant_type") == BY_JWT {
        found.push(format!("`{at}grant_type` {BY_JWT}"));
    }
    of_way(oauth2, at, found);
}

/// Proxy and TLS of calls.
fn of_way(options: &Options, at: &str, found: &mut Vec<String>) {
    let url = options.text("proxy_url");
    if url != SECRET
        && let Err(why) = proxy(url)
    {
        found.push(format!("`{at}proxy_url` {why}"));
    }
    of_tls(options, at, &["TLS10", "TLS11"], found);
    let name = options.object("tls_config").map_or("", |tls| tls.text("server_name"));
    if name.is_empty() {
        return;
    }
    if options.has("proxy_url") || options.truth("proxy_from_environment") {
        found.push(format!("`{at}tls_config.server_name` through a proxy"));
    }
    if !matches!(Host::parse(name), Ok(Host::Domain(_))) {
        found.push(format!("`{at}tls_config.server_name` that is no name of a domain"));
    }
}

/// TLS; `closed` are the versions that cannot be the latest.
fn of_tls(options: &Options, at: &str, closed: &[&str], found: &mut Vec<String>) {
    let Some(tls) = options.object("tls_config") else { return };
    references(tls, &format!("{at}tls_config."), &["ca_ref", "cert_ref", "key_ref"], found);
    let latest = tls.text("max_version");
    if closed.contains(&latest) {
        found.push(format!("`{at}tls_config.max_version` {latest}"));
    }
}

/// Names of secrets that a keeper of secrets would know.
fn references(options: &Options, at: &str, names: &[&str], found: &mut Vec<String>) {
    found.extend(names.iter().filter(|name| options.has(name)).map(|name| format!("`{at}{name}`")));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::delivery::tests::integration;

    #[test]
    fn options_that_no_message_can_go_by() {
        let of =
            |http: &str| unsupported(&integration("webhook", &format!("{{url: 'http://h', http_config: {http}}}")));
        let check = |http: &str, expected: &[&str]| {
            let told = of(http);
            assert_eq!(told.len(), expected.len(), "{http}: {told:?}");
            for (told, expected) in told.iter().zip(expected) {
                assert_eq!(told, &format!("webhook_configs/0: {expected} is not supported"), "{http}");
            }
        };
        for fine in [
            "{}",
            "{proxy_from_environment: true, proxy_connect_header: {A: [b]}}",
            "{proxy_url: 'http://u:p@proxy:1', no_proxy: a.b}",
            "{proxy_url: <secret>}",
            "{tls_config: {server_name: a.example, min_version: TLS10, max_version: TLS13, ca_file: x}}",
            "{oauth2: {client_id: i, token_url: 'http://t', grant_type: client_credentials, claims: {a: 1}}}",
            "{basic_auth: {username_file: u, password_file: p}, http_headers: {A: {files: [f]}}}",
        ] {
            check(fine, &[]);
        }
        check("{basic_auth: {username: u, password_ref: p}}", &["`http_config.basic_auth.password_ref`"]);
        check("{authorization: {credentials_ref: c}}", &["`http_config.authorization.credentials_ref`"]);
        check("{proxy_url: 'socks5://h:1'}", &["`http_config.proxy_url` over socks5"]);
        check(
            "{tls_config: {ca_ref: c, max_version: TLS11}}",
            &["`http_config.tls_config.ca_ref`", "`http_config.tls_config.max_version` TLS11"],
        );
        check(
            "{tls_config: {server_name: 1.2.3.4}}",
            &["`http_config.tls_config.server_name` that is no name of a domain"],
        );
        check(
            "{proxy_url: 'http://h', tls_config: {server_name: a.example}}",
            &["`http_config.tls_config.server_name` through a proxy"],
        );
        check(
            &format!(
                "{{oauth2: {{client_id: i, token_url: 'http://t', grant_type: '{BY_JWT}', proxy_url: 'ftp://h'}}}}"
            ),
            &[&*format!("`http_config.oauth2.grant_type` {BY_JWT}"), "`http_config.oauth2.proxy_url` over ftp"],
        );
        let mail = integration(
            EMAIL,
            "{to: a@b, from: c@d, smarthost: 'h:25', tls_config: {key_ref: k, cert: c, max_version: TLS12}}",
        );
        assert_eq!(
            unsupported(&mail),
            [
                "email_configs/0: `tls_config.key_ref` is not supported",
                "email_configs/0: `tls_config.max_version` TLS12 is not supported",
            ]
        );
    }
}
