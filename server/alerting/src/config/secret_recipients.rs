//! Lists the recipients of each secret in a configuration. A user who may not read a secret must not be able to redirect
//! it to another recipient by editing the configuration around it.

use std::collections::{BTreeMap, BTreeSet};

use quiver_yaml::problem::Problems;
use quiver_yaml::{self as yaml, Node, NodeKind, pointer};
use serde_json::{Value, json};

use super::{Config, Globals, Receiver};
use crate::options::{OptionValue, Options, SECRET, Schema, Shape};
use crate::receivers::{self, GLOBAL, KINDS};

/// Where the globals are in a configuration.
const GLOBALS: &str = "/global";
/// Addresses whose shape is that of any text.
const ADDRESSES: [&str; 2] = ["token_url", "api_url"];
/// Files of addresses, and what says which server is the right one.
const NAMES: [&str; 7] = ["url_file", "webhook_url_file", "api_url_file", "server_name", "ca", "ca_file", "ca_ref"];

/// A secret, the place that states it, and who gets it.
struct SecretFlow {
    path: String,
    secret: String,
    recipients: BTreeSet<String>,
}

/// What options say.
#[derive(Default)]
struct OptionContents {
    /// Places of secrets with these, and who gets each if not all recipients do.
    secrets: Vec<(String, String, Option<BTreeSet<String>>)>,
    /// Addresses by their places, and whatever lets others than these listen.
    recipients: BTreeSet<String>,
}

impl OptionContents {
    fn add(&mut self, options: &Options, schema: &Schema, path: &str) {
        for field in schema.fields {
            let (name, at) = (field.name, pointer(path, field.name));
            match (field.shape, options.value(name)) {
                // Private keys of TLS are sent to nobody; the other is the API's address where it is used.
                (Shape::Secret | Shape::Url, _) if matches!(name, "key" | "app_url") => {}
                (Shape::Object(within) | Shape::TextOr(_, within), Some(OptionValue::Object(inner))) => {
                    self.add(inner, within, &at);
                }
                (Shape::Objects(within), Some(OptionValue::Objects(items))) => {
                    for (n, item) in items.iter().enumerate() {
                        self.add(item, within, &pointer(&at, n));
                    }
                }
                (Shape::ObjectMap(within), Some(OptionValue::ObjectMap(items))) => {
                    for (key, item) in items {
                        self.add(item, within, &pointer(&at, key));
                    }
                }
                // The values of headers.
                (Shape::Texts, Some(OptionValue::Texts(items))) if name == "secrets" => {
                    let each = items.iter().enumerate().map(|(n, item)| (pointer(&at, n), item.clone(), None));
                    self.secrets.extend(each);
                }
                // The headers that only a proxy gets.
                (Shape::SecretLists, Some(OptionValue::Any(Value::Object(lists)))) => {
                    let proxies = proxies(options, path);
                    for (key, list) in lists {
                        for (n, item) in list.as_array().into_iter().flatten().enumerate() {
                            let place = pointer(&pointer(&at, key), n);
                            let text = item.as_str().unwrap_or_default().to_owned();
                            self.secrets.push((place, text, Some(proxies.clone())));
                        }
                    }
                }
                (Shape::Truth, _) => {
                    let widens = match name {
                        "insecure_skip_verify" | "proxy_from_environment" => options.truth(name),
                        "require_tls" => !options.truth(name),
                        _ => false,
                    };
                    self.recipients.extend(widens.then_some(at));
                }
                (shape, Some(OptionValue::Text(text))) if !text.is_empty() => self.add_text(name, at, shape, text),
                _ => {}
            }
        }
    }

    fn add_text(&mut self, name: &str, at: String, shape: Shape, text: &str) {
        let is_address = match shape {
            Shape::Url | Shape::SecretUrl | Shape::TemplateUrl | Shape::ProxyUrl | Shape::HostPort => true,
            Shape::Text => ADDRESSES.contains(&name),
            _ => false,
        };
        if is_address {
            self.recipients.insert(format!("{at} {}", host_of(text)));
        } else if matches!(shape, Shape::Text) && NAMES.contains(&name) {
            self.recipients.insert(format!("{at} {text}"));
        }
        // What the address of a proxy hides goes with it.
        if matches!(shape, Shape::Secret | Shape::SecretUrl | Shape::TemplateUrl) {
            self.secrets.push((at, text.to_owned(), None));
        }
    }
}

fn proxies(options: &Options, path: &str) -> BTreeSet<String> {
    let environment = "proxy_from_environment";
    let own = options.has("proxy_url").then(|| format!("{path}/proxy_url {}", host_of(options.text("proxy_url"))));
    own.into_iter().chain(options.truth(environment).then(|| pointer(path, environment))).collect()
}

/// Gives scheme, host and port of an address; all of it where these cannot be told for sure: with a template among them,
/// or characters that not all clients read alike.
fn host_of(address: &str) -> String {
    let Some((scheme, rest)) = address.split_once("://") else { return address.to_owned() };
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    let is_plain = |c: char| c.is_alphanumeric() || "-._~%!$&'()*+,;=:@[]".contains(c);
    let is_scheme = scheme.chars().all(|c| c.is_ascii_alphanumeric());
    if host.is_empty() || !is_scheme || !authority.chars().all(is_plain) {
        return address.to_owned();
    }
    let (scheme, host) = (scheme.to_ascii_lowercase(), host.to_ascii_lowercase());
    let port = match scheme.as_str() {
        "http" => ":80",
        "https" => ":443",
        _ => "",
    };
    format!("{scheme}://{}", host.strip_suffix(port).unwrap_or(&host))
}

fn flows_of(options: &Options, schema: &Schema, path: &str) -> Vec<SecretFlow> {
    let mut found = OptionContents::default();
    found.add(options, schema, "");
    let OptionContents { secrets, recipients } = found;
    let flow = |(at, secret, only): (String, String, Option<BTreeSet<String>>)| SecretFlow {
        path: format!("{path}{at}"),
        secret,
        recipients: only.unwrap_or_else(|| recipients.clone()),
    };
    secrets.into_iter().map(flow).collect()
}

/// Who gets which secret by globals alone, and by each integration.
fn flows(global: &Options, receivers: &[Receiver]) -> Vec<SecretFlow> {
    let own = flows_of(global, &GLOBAL, GLOBALS);
    let stated: BTreeMap<&str, &str> = own.iter().map(|flow| (flow.secret.as_str(), flow.path.as_str())).collect();
    let mut all = Vec::new();
    for kind in KINDS {
        for flow in flows_of(&kind.inherited(global), kind.schema, "") {
            if let Some(path) = stated.get(flow.secret.as_str()) {
                all.push(SecretFlow { path: (*path).to_owned(), ..flow });
            }
        }
    }
    for (n, receiver) in receivers.iter().enumerate() {
        for one in &receiver.integrations {
            let path = pointer(&pointer(&pointer("/receivers", n), one.kind.field), one.idx);
            all.extend(flows_of(&one.options, one.kind.schema, &path));
        }
    }
    all
}

/// The places of kept secrets that others get than before; of one of the globals that place alone, if they move it.
fn moved(former: &[SecretFlow], now: &[SecretFlow], kept: &BTreeSet<String>) -> BTreeSet<String> {
    let mut known: BTreeMap<&str, BTreeSet<&BTreeSet<String>>> = BTreeMap::new();
    for flow in former {
        known.entry(flow.secret.as_str()).or_default().insert(&flow.recipients);
    }
    // To fewer than before it may be sent.
    let is_moved = |flow: &&SecretFlow| {
        let before = known.get(flow.secret.as_str());
        let is_new = before.is_none_or(|sets| sets.iter().all(|set| !flow.recipients.is_subset(set)));
        is_new && flow.secret != SECRET && kept.contains(&flow.secret)
    };
    let moved: Vec<&SecretFlow> = now.iter().filter(is_moved).collect();
    let is_global = |flow: &SecretFlow| flow.path.starts_with(GLOBALS);
    let by_globals: BTreeSet<&str> = moved.iter().filter(|f| is_global(f)).map(|f| f.secret.as_str()).collect();
    let told = moved.iter().filter(|f| is_global(f) || !by_globals.contains(f.secret.as_str()));
    told.map(|flow| flow.path.clone()).collect()
}

fn section<'n>(node: Option<&'n Node>, name: &str) -> Option<&'n Node> {
    node?.get(name).filter(|section| !section.is_null())
}

/// Reads globals and receivers of a configuration that need not be valid.
fn sections(config: &Value) -> (Options, Vec<Receiver>) {
    let text = yaml::write(&json!({"global": config.get("global"), "receivers": config.get("receivers")}));
    let node = yaml::read_first(&text).ok().flatten();
    let mut problems = Problems::default();
    let global = receivers::global(section(node.as_ref(), "global"), GLOBALS, &mut problems);
    let (mut receivers, mut globals) = (Vec::new(), Globals::new(&global));
    if let Some(NodeKind::List(items)) = section(node.as_ref(), "receivers").map(|list| &list.kind) {
        for (n, item) in items.iter().enumerate() {
            receivers.extend(Receiver::read(item, &pointer("/receivers", n), &mut globals, &mut problems));
        }
    }
    (global, receivers)
}

/// Finds the secrets, of those that are `kept`, that a configuration sends to others than the one before it did: the
/// places that state them or inherit them, as JSON pointers. Both are as JSON, with their secrets; `after` is valid.
pub fn moved_secrets(before: &Value, after: &Value, kept: &BTreeSet<String>) -> BTreeSet<String> {
    let ((former_global, former), (global, receivers)) = (sections(before), sections(after));
    moved(&flows(&former_global, &former), &flows(&global, &receivers), kept)
}

/// Finds where receivers that are tried would send secrets of the live globals, which they inherit, to others than these
/// are sent to; those in `given` are known to who tries.
pub fn borrowed_secrets(live: &Config, tried: &Config, given: &BTreeSet<String>) -> BTreeSet<String> {
    let own = flows_of(&live.global, &GLOBAL, GLOBALS).into_iter().map(|flow| flow.secret);
    let kept = own.filter(|secret| !given.contains(secret)).collect();
    moved(&flows(&live.global, &live.receivers), &flows(&tried.global, &tried.receivers), &kept)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Configurations as `globals | receivers` in YAML, and the places of secrets that move, of those that begin with
    /// `s3c`.
    fn check(before: &str, after: &str, expected: &[&str]) {
        let read = |text: &str| {
            let (global, integrations) = text.split_once(" | ").expect("two parts");
            let text = format!("global: {{{global}}}\nreceivers: [{{name: r, {integrations}}}]");
            super::super::config_json(&text).unwrap_or_else(|| panic!("{text}"))
        };
        let kept = ["s3c1", "s3c2", "http://h/?s3c3"].map(str::to_owned).into();
        let found = moved_secrets(&read(before), &read(after), &kept);
        assert_eq!(found.iter().map(String::as_str).collect::<Vec<_>>(), expected, "{before} -> {after}");
    }

    #[test]
    fn addresses_of_an_integration() {
        let hook = |more: &str| {
            format!("resolve_timeout: 1m | webhook_configs: [{{http_config: {{bearer_token: s3c1}}, {more}}}]")
        };
        let token = "/receivers/0/webhook_configs/0/http_config/bearer_token";
        let known = hook("url: 'http://h/a?b'");
        for same in ["http://h/a?b", "http://h:80/other", "HTTP://u:p@H", "http://h/{{ .x }}"] {
            check(&known, &hook(&format!("url: '{same}'")), &[]);
        }
        for other in ["https://h/a?b", "http://h:81/a?b", "http://other/a?b", "http://other\\@h", "http://{{ .x }}h/"] {
            check(&known, &hook(&format!("url: '{other}'")), &[token]);
        }
        check(&known, &hook("url_file: f"), &[token]);
        // Who gives a secret may send it anywhere.
        check(&known, &known.replace("s3c1", "own").replace("//h", "//other"), &[]);
        check(&known, &known.replace("bearer_token: s3c1", ""), &[]);
        let with = |more: &str| known.replace("bearer_token: s3c1", &format!("bearer_token: s3c1, {more}"));
        for more in [
            "proxy_url: 'http://p'",
            "proxy_from_environment: true",
            "tls_config: {insecure_skip_verify: true}",
            "tls_config: {server_name: other}",
            "tls_config: {ca: x}",
        ] {
            check(&known, &with(more), &[token]);
            check(&with(more), &known, &[]);
        }
        check(&known, &with("follow_redirects: true, enable_http2: false"), &[]);
    }

    #[test]
    fn secrets_with_addresses_of_their_own() {
        let check = |before: &str, after: &str, places: &[&str]| {
            let of = |text: &str| format!("resolve_timeout: 1m | {text}");
            let places: Vec<String> = places.iter().map(|at| format!("/receivers/0{at}")).collect();
            check(&of(before), &of(after), &places.iter().map(String::as_str).collect::<Vec<_>>());
        };
        let oauth = |url: &str, more: &str| {
            let all = format!("{{client_id: i, client_secret: s3c1, token_url: '{url}'{more}}}");
            format!("webhook_configs: [{{url: 'http://h', http_config: {{oauth2: {all}}}}}]")
        };
        let place = "/webhook_configs/0/http_config/oauth2/client_secret";
        check(&oauth("http://t/a", ""), &oauth("http://t/b", ""), &[]);
        check(&oauth("http://t/a", ""), &oauth("http://u/a", ""), &[place]);
        check(&oauth("http://t/a", ""), &oauth("http://t/a", ", proxy_url: 'http://p'"), &[place]);
        // An address that is secret is its own recipient.
        let secret = "webhook_configs: [{url: 'http://h/?s3c3'}]";
        check(secret, &secret.replace("?s3c3'", "?s3c3', max_alerts: 1"), &[]);
        let proxied = secret.replace("?s3c3'", "?s3c3', http_config: {proxy_url: 'http://p'}");
        check(secret, &proxied, &["/webhook_configs/0/url"]);
        check("webhook_configs: []", "webhook_configs: [{url: 'http://new/?own'}]", &[]);
        // A proxy's headers are not sent to whom it calls.
        let proxied = |url: &str, proxy: &str| {
            let http = format!("{{proxy_url: '{proxy}', proxy_connect_header: {{X: [s3c1]}}}}");
            format!("webhook_configs: [{{url: '{url}', http_config: {http}}}]")
        };
        let place = "/webhook_configs/0/http_config/proxy_connect_header/X/0";
        check(&proxied("http://h", "http://p"), &proxied("http://other", "http://p"), &[]);
        check(&proxied("http://h", "http://p"), &proxied("http://h", "http://q"), &[place]);
        let header = |url: &str| {
            format!("webhook_configs: [{{url: '{url}', http_config: {{http_headers: {{X: {{secrets: [s3c1]}}}}}}}}]")
        };
        check(&header("http://h"), &header("http://g"), &["/webhook_configs/0/http_config/http_headers/X/secrets/0"]);
        let mail = |more: &str| format!("email_configs: [{{to: a, from: b, auth_password: s3c1, {more}}}]");
        let place = "/email_configs/0/auth_password";
        check(&mail("smarthost: 'h:25'"), &mail("smarthost: 'h:25', hello: x"), &[]);
        check(&mail("smarthost: 'h:25'"), &mail("smarthost: 'g:25'"), &[place]);
        check(&mail("smarthost: 'h:25'"), &mail("smarthost: 'h:25', require_tls: false"), &[place]);
        // The second of two may have what the first had.
        let two = |a: &str, b: &str| format!("opsgenie_configs: [{{api_key: {a}}}, {{api_key: {b}}}]");
        check(&two("s3c1", "s3c2"), &two("s3c2", "s3c1"), &[]);
    }

    #[test]
    fn what_globals_say() {
        let mail = |host: &str, own: &str| {
            let globals = format!("smtp_smarthost: '{host}', smtp_auth_password: s3c1");
            format!("{globals} | email_configs: [{{to: a, from: b{own}}}]")
        };
        let known = mail("h:25", "");
        check(&known, &mail("g:25", ""), &["/global/smtp_auth_password"]);
        // A secret that nobody inherits yet could be sent there after the next change.
        check(
            &mail("h:25", ", auth_password: x"),
            &mail("g:25", ", auth_password: x"),
            &["/global/smtp_auth_password"],
        );
        check(&known, &mail("h:25", ", smarthost: 'g:25'"), &["/receivers/0/email_configs/0/auth_password"]);
        check(&known, &mail("h:25", ", smarthost: 'g:25', auth_password: x"), &[]);
        check(&known, &mail("h:25", "}, {to: c, from: b"), &[]);
        check("smtp_smarthost: 'h:25', smtp_auth_password: s3c1 | labels: {}", &known, &[]);
        // A receiver's own secret goes to the address that it inherits.
        let pager = |url: &str| format!("opsgenie_api_url: '{url}' | opsgenie_configs: [{{api_key: s3c2}}]");
        check(&pager("http://h/"), &pager("http://h/x/"), &[]);
        check(&pager("http://h/"), &pager("http://g/"), &["/receivers/0/opsgenie_configs/0/api_key"]);
        // Credentials for all are not for a webhook that is new.
        let hook =
            |more: &str| format!("http_config: {{bearer_token: s3c1}} | webhook_configs: [{{url: 'http://h'}}{more}]");
        check(&hook(""), &hook(", {url: 'http://h/b'}"), &[]);
        let place = "/receivers/0/webhook_configs/1/http_config/bearer_token";
        check(&hook(""), &hook(", {url: 'http://g'}"), &[place]);
        check(&hook(""), &hook(", {url: 'http://g', http_config: {}}"), &[]);
        // The address of an API where a token is used instead of a secret address is no secret.
        let chat = |more: &str| format!("resolve_timeout: 1m | slack_configs: [{{app_token: s3c1, channel: c}}{more}]");
        check(&chat(""), &chat(", {app_token: own, channel: d}"), &[]);
    }

    #[test]
    fn tried_receivers_borrow_nothing() {
        let config = |integrations: &str| {
            let globals = "global: {smtp_smarthost: 'h:25', smtp_from: f@h, smtp_auth_password: s3c1}";
            let text = format!("{globals}\nroute: {{receiver: r}}\nreceivers: [{{name: r, {integrations}}}]");
            Config::load(&text).unwrap_or_else(|e| panic!("{text}: {e:?}"))
        };
        let live = config("email_configs: [{to: a@h}]");
        let found = |tried: &str, given: &[&str]| {
            let given = given.iter().map(|text| (*text).to_owned()).collect();
            borrowed_secrets(&live, &config(tried), &given).into_iter().collect::<Vec<_>>()
        };
        let none: [&str; 0] = [];
        assert_eq!(found("email_configs: [{to: b@h}]", &[]), none);
        let other = "email_configs: [{to: b@h, smarthost: 'g:25'}]";
        assert_eq!(found(other, &[]), ["/receivers/0/email_configs/0/auth_password"]);
        assert_eq!(found(other, &["s3c1"]), none);
    }

    #[test]
    fn hosts_are_told_for_sure() {
        for (address, expected) in [
            ("http://h", "http://h"),
            ("HTTPS://H:443/x", "https://h"),
            ("https://h:80", "https://h:80"),
            ("http://u:p@h:1?x@y", "http://h:1"),
            ("http://[::1]:80/", "http://[::1]"),
            ("socks5://h:80", "socks5://h:80"),
            ("h:25", "h:25"),
            ("http:///h/x", "http:///h/x"),
            ("http://a\\@h/x", "http://a\\@h/x"),
            ("http://{{ .x }}/y", "http://{{ .x }}/y"),
            ("{{ .x }}://h/y", "{{ .x }}://h/y"),
            ("http://h/{{ .x }}", "http://h"),
        ] {
            assert_eq!(host_of(address), expected, "{address}");
        }
    }
}
