//! HTTP clients configured by `http_config`. They are cached while they are in use, and all of them resolve names through
//! `egress`.
//!
//! If `tls_config.server_name` is set, the client is given that name as its URL's host, because it takes the TLS server
//! name from there. Its resolver then looks up the host of the original URL, and the `Host` header names that host.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use quiver_alerting::dispatch::ReceiverData;
use quiver_alerting::options::{OptionValue, Options};
use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, HOST, HeaderMap, HeaderName, HeaderValue, LOCATION, RETRY_AFTER};
use reqwest::{Certificate, Client, ClientBuilder, Identity, Method, Proxy, RequestBuilder, Response, redirect};
use serde_json::Value as Json;
use url::{Host, Position, Url};

use super::files::Files;
use super::http_call::{Answer, Call, judge_status};
use super::message::Failure;
use super::proxies::{Proxies, ProxyEnvironment};
use crate::egress::{Egress, Resolver};

/// Most bytes of an answer that are read.
const ANSWER_MAX: usize = 1 << 20;
/// Most redirects that are followed.
const REDIRECTS_MAX: usize = 3;
/// Clients that are kept.
const CLIENTS_MAX: usize = 64;
/// How long a connection may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// What there is to do about names that only a proxy knows.
const UNKNOWN: &str = "for names that only the proxy knows all must be open (`egress.allow = [\"0.0.0.0/0\"]`)";

/// What tells clients apart: options, the contents of the files that they name, and the host that `server_name` stands for.
type Key = (Option<Options>, Vec<String>, Option<String>);

/// A client, and the proxies that it goes through.
#[derive(Debug, Clone)]
struct ProxiedClient {
    client: Client,
    proxies: Arc<Proxies>,
}

/// HTTP clients by options, kept from one message to the next with their connections.
#[derive(Debug)]
pub(super) struct Clients {
    egress: Arc<Egress>,
    environment: ProxyEnvironment,
    kept: Mutex<Vec<(Key, ProxiedClient)>>,
}

fn lasting(e: impl std::fmt::Display) -> Failure {
    Failure::lasting(e.to_string())
}

impl Clients {
    pub(super) fn new(egress: Egress, environment: ProxyEnvironment) -> Self {
        Self { egress: Arc::new(egress), environment, kept: Mutex::default() }
    }

    pub(super) fn egress(&self) -> &Egress {
        &self.egress
    }

    /// Gives the client for some options; the youngest stands last.
    fn way(&self, options: Option<&Options>, files: &Files, host: Option<String>) -> Result<ProxiedClient, Failure> {
        let tls = options.and_then(|o| o.object("tls_config"));
        let named = ["ca", "cert", "key"].map(|field| tls.map_or(Ok(String::new()), |o| files.secret(o, field)));
        let texts: Vec<String> = named.into_iter().collect::<Result<_, _>>().map_err(lasting)?;
        let key: Key = (options.cloned(), texts, host);
        if let Some((_, way)) = self.kept.lock().iter().find(|(k, _)| *k == key) {
            return Ok(way.clone());
        }
        let proxies = options.map_or_else(|| Ok(Proxies::default()), |o| Proxies::of(o, &self.environment));
        let proxies = Arc::new(proxies.map_err(lasting)?);
        let way = ProxiedClient { client: build(&key, &self.egress, &proxies)?, proxies };
        let mut kept = self.kept.lock();
        if kept.len() >= CLIENTS_MAX {
            kept.remove(0);
        }
        kept.push((key, way.clone()));
        Ok(way)
    }

    /// Begins a call, if it may go to where its URL and its proxy lead.
    async fn call(
        &self,
        (method, url): (Method, &Url),
        options: Option<&Options>,
        files: &Files,
    ) -> Result<RequestBuilder, Failure> {
        self.egress.check_url(url).map_err(lasting)?;
        let named = options.and_then(|o| o.object("tls_config")).map(|tls| tls.text("server_name"));
        let named = named.filter(|name| !name.is_empty() && url.scheme() == "https");
        let way = self.way(options, files, named.and_then(|_| host_of(url)))?;
        if let Some(proxy) = way.proxies.of_call(url) {
            self.egress.check_url(proxy).map_err(lasting)?;
            self.egress.check_beyond(url).await.map_err(|e| match e.kind() {
                std::io::ErrorKind::PermissionDenied => lasting(e),
                _ => Failure::passing(format!("nobody here knows where the proxy would go: {e}; {UNKNOWN}")),
            })?;
        }
        let Some(name) = named else { return Ok(way.client.request(method, url.clone())) };
        let mut greeted = url.clone();
        greeted.set_host(Some(name)).map_err(|e| Failure::lasting(format!("`tls_config.server_name`: {e}")))?;
        Ok(way.client.request(method, greeted).header(HOST, &url[Position::BeforeHost..Position::AfterPort]))
    }

    /// Sends a call; gives the status of its answer, and what that says of the message.
    pub(super) async fn send(
        &self,
        call: &Call,
        options: Option<&Options>,
        files: &Files,
    ) -> Result<(u16, ReceiverData), Failure> {
        let headers = headers(options, files)?;
        let authorization = match options.and_then(|o| o.object("oauth2")) {
            Some(oauth2) => Some(self.token(oauth2, files).await?),
            None => authorization(options, files)?,
        };
        let follow = options.is_some_and(|o| o.is_given("follow_redirects") && o.truth("follow_redirects"));
        let mut url = Url::parse(&call.url).map_err(|e| Failure::lasting(format!("invalid URL: {e}")))?;
        let first = url.origin();
        for _ in 0..=REDIRECTS_MAX {
            let method = call.method.parse().map_err(lasting)?;
            let mut request = self.call((method, &url), options, files).await?;
            request = request.header(CONTENT_TYPE, call.content_type).body(call.body.clone());
            // No credentials across hosts, keys and tokens of a kind neither.
            let is_first = url.origin() == first;
            for (name, value) in call.headers.iter().filter(|(name, _)| is_first || *name != AUTHORIZATION.as_str()) {
                request = request.header(*name, value);
            }
            if is_first {
                for (name, value) in &headers {
                    request = request.header(name, value);
                }
                if let Some(value) = &authorization {
                    request = request.header(AUTHORIZATION, value);
                }
            }
            let answer = request.send().await.map_err(|e| broken(&e))?;
            match redirected(&answer, &url).filter(|_| follow) {
                Some(next) => url = next,
                None => return judged(call, answer).await,
            }
        }
        Err(Failure::lasting(format!("more than {REDIRECTS_MAX} redirects")))
    }

    /// Asks for a token by client credentials (RFC 6749 section 4.4), over the proxy and TLS of `oauth2` itself: with id and
    /// secret in a header, and where that is refused in the form, as Go does.
    async fn token(&self, oauth2: &Options, files: &Files) -> Result<HeaderValue, Failure> {
        let mut form = vec![("grant_type".to_owned(), "client_credentials".to_owned())];
        if let Some(OptionValue::Texts(scopes)) = oauth2.value("scopes") {
            form.push(("scope".to_owned(), scopes.join(" ")));
        }
        form.extend(oauth2.text_map("endpoint_params").into_iter().flatten().map(|(k, v)| (k.clone(), v.clone())));
        let (id, secret) = (oauth2.text("client_id"), files.secret(oauth2, "client_secret").map_err(lasting)?);
        let first = self.ask_token(oauth2, files, &form, Some((id, secret.as_str()))).await;
        match first {
            Err(refused) if refused.status.is_some() => {
                form.extend([("client_id".to_owned(), id.to_owned()), ("client_secret".to_owned(), secret)]);
                self.ask_token(oauth2, files, &form, None).await
            }
            outcome => outcome,
        }
    }

    async fn ask_token(
        &self,
        oauth2: &Options,
        files: &Files,
        form: &[(String, String)],
        basic: Option<(&str, &str)>,
    ) -> Result<HeaderValue, Failure> {
        let url =
            Url::parse(oauth2.text("token_url")).map_err(|e| Failure::lasting(format!("oauth2 token_url: {e}")))?;
        let mut request = self.call((Method::POST, &url), Some(oauth2), files).await?;
        if let Some((id, secret)) = basic {
            request = request.basic_auth(escaped(id), Some(escaped(secret)));
        }
        let body = url::form_urlencoded::Serializer::new(String::new()).extend_pairs(form).finish();
        let request = request.header(CONTENT_TYPE, "application/x-www-form-urlencoded").body(body);
        let answer = request.send().await.map_err(|e| broken(&e))?;
        judge_status(answer.status().as_u16(), None, &[])
            .map_err(|f| Failure { text: format!("oauth2: {}", f.text), ..f })?;
        let body = read(answer).await?;
        let token = serde_json::from_slice::<Json>(&body)
            .ok()
            .and_then(|v| Some(format!("Bearer {}", v.get("access_token")?.as_str()?)))
            .ok_or_else(|| Failure::lasting("oauth2: the answer holds no token"))?;
        secret_header(&token)
    }
}

/// Escapes an id or secret as it stands in a header of the grant (RFC 6749 section 2.3.1).
fn escaped(text: &str) -> String {
    url::form_urlencoded::byte_serialize(text.as_bytes()).collect()
}

fn secret_header(text: &str) -> Result<HeaderValue, Failure> {
    let mut value = HeaderValue::from_str(text).map_err(|_| Failure::lasting("a secret is no value of a header"))?;
    value.set_sensitive(true);
    Ok(value)
}

/// Gives the host of a URL as it is looked up.
fn host_of(url: &Url) -> Option<String> {
    Some(match url.host()? {
        Host::Domain(name) => name.to_owned(),
        Host::Ipv4(v4) => v4.to_string(),
        Host::Ipv6(v6) => v6.to_string(),
    })
}

fn build((options, tls, host): &Key, egress: &Arc<Egress>, proxies: &Arc<Proxies>) -> Result<Client, Failure> {
    let resolver = Resolver { egress: Arc::clone(egress), host: host.clone() };
    let mut builder = Client::builder()
        .no_proxy()
        .redirect(redirect::Policy::none())
        .dns_resolver(Arc::new(resolver))
        .connect_timeout(CONNECT_TIMEOUT)
        .user_agent(concat!("Quiver/", env!("CARGO_PKG_VERSION")));
    let Some(options) = options else { return builder.build().map_err(lasting) };
    // Headers for the proxy stand where it is asked for a tunnel, not in calls that it reads.
    for (scheme, headers) in [("https", connect_headers(options)?), ("http", HeaderMap::new())] {
        let proxies = Arc::clone(proxies);
        let chosen = move |url: &Url| proxies.of_call(url).filter(|_| url.scheme() == scheme).cloned();
        builder = builder.proxy(Proxy::custom(chosen).headers(headers));
    }
    // With HTTP/2 the other side would be asked for the host of the URL, not for that of the header.
    if !options.truth("enable_http2") || host.is_some() {
        builder = builder.http1_only();
    }
    let Some(config) = options.object("tls_config") else { return builder.build().map_err(lasting) };
    with_tls(builder, config, tls)?.build().map_err(lasting)
}

/// Sets TLS up; `texts` are those of CA, certificate and key.
fn with_tls(mut builder: ClientBuilder, config: &Options, texts: &[String]) -> Result<ClientBuilder, Failure> {
    let [ca, cert, key] = texts else { return Ok(builder) };
    if !ca.is_empty() {
        builder = builder.tls_built_in_root_certs(false);
        for certificate in Certificate::from_pem_bundle(ca.as_bytes()).map_err(lasting)? {
            builder = builder.add_root_certificate(certificate);
        }
    }
    if !cert.is_empty() {
        builder = builder.identity(Identity::from_pem(format!("{key}\n{cert}").as_bytes()).map_err(lasting)?);
    }
    // Older versions are not spoken, so that they bound nothing from below.
    if config.text("min_version") == "TLS13" {
        builder = builder.min_tls_version(reqwest::tls::Version::TLS_1_3);
    }
    if config.text("max_version") == "TLS12" {
        builder = builder.max_tls_version(reqwest::tls::Version::TLS_1_2);
    }
    Ok(builder.danger_accept_invalid_certs(config.truth("insecure_skip_verify")))
}

/// Reads `proxy_connect_header`: headers for the proxy alone.
fn connect_headers(options: &Options) -> Result<HeaderMap, Failure> {
    let mut out = HeaderMap::new();
    let Some(OptionValue::Any(Json::Object(map))) = options.value("proxy_connect_header") else { return Ok(out) };
    for (name, values) in map {
        let name = header_name(name)?;
        for value in values.as_array().into_iter().flatten().filter_map(Json::as_str) {
            out.append(name.clone(), secret_header(value)?);
        }
    }
    Ok(out)
}

fn header_name(name: &str) -> Result<HeaderName, Failure> {
    name.parse().map_err(|_| Failure::lasting(format!("`{name}` is no name of a header")))
}

/// Gives `Authorization` where it does not take a call to make.
fn authorization(options: Option<&Options>, files: &Files) -> Result<Option<HeaderValue>, Failure> {
    let Some(options) = options else { return Ok(None) };
    if let Some(basic) = options.object("basic_auth") {
        let user = files.secret(basic, "username").map_err(lasting)?;
        let password = files.secret(basic, "password").map_err(lasting)?;
        let credentials = base64::Engine::encode(&base64::prelude::BASE64_STANDARD, format!("{user}:{password}"));
        return secret_header(&format!("Basic {credentials}")).map(Some);
    }
    let (kind, credentials) = match options.object("authorization") {
        Some(own) => (own.text("type").trim().to_owned(), files.secret(own, "credentials").map_err(lasting)?),
        None => ("Bearer".to_owned(), files.secret(options, "bearer_token").map_err(lasting)?),
    };
    if credentials.is_empty() {
        return Ok(None);
    }
    secret_header(&format!("{kind} {credentials}")).map(Some)
}

fn headers(options: Option<&Options>, files: &Files) -> Result<Vec<(HeaderName, HeaderValue)>, Failure> {
    let Some(OptionValue::ObjectMap(map)) = options.and_then(|o| o.value("http_headers")) else {
        return Ok(Vec::new());
    };
    let mut out = Vec::new();
    for (name, header) in map {
        let name = header_name(name)?;
        let list = |field: &str| match header.value(field) {
            Some(OptionValue::Texts(texts)) => texts.clone(),
            _ => Vec::new(),
        };
        let mut values = list("values");
        values.extend(list("secrets"));
        for file in list("files") {
            values.push(files.read(&file).map_err(lasting)?);
        }
        for value in values {
            out.push((name.clone(), secret_header(&value)?));
        }
    }
    Ok(out)
}

/// Tells what a connection met, without the address, which is a secret.
fn broken(error: &reqwest::Error) -> Failure {
    let mut cause: Option<&dyn std::error::Error> = std::error::Error::source(error);
    let mut last = None;
    while let Some(e) = cause {
        if let Some(io) = e.downcast_ref::<std::io::Error>()
            && io.kind() == std::io::ErrorKind::PermissionDenied
        {
            return Failure::lasting(io.to_string());
        }
        last = Some(e.to_string());
        cause = e.source();
    }
    let what = if error.is_connect() { "cannot connect" } else { "the connection broke" };
    Failure::passing(last.map_or_else(|| what.to_owned(), |why| format!("{what}: {why}")))
}

fn redirected(answer: &Response, from: &Url) -> Option<Url> {
    let to = answer.headers().get(LOCATION)?.to_str().ok()?;
    let next = from.join(to).ok()?;
    // A call with a body is repeated as it is only where the status says so.
    matches!(answer.status().as_u16(), 307 | 308).then_some(next)
}

async fn read(mut answer: Response) -> Result<Vec<u8>, Failure> {
    let mut body = Vec::new();
    while let Some(chunk) = answer.chunk().await.map_err(|e| broken(&e))? {
        let room = ANSWER_MAX - body.len();
        body.extend_from_slice(&chunk[..chunk.len().min(room)]);
        if body.len() == ANSWER_MAX {
            break;
        }
    }
    Ok(body)
}

async fn judged(call: &Call, answer: Response) -> Result<(u16, ReceiverData), Failure> {
    let status = answer.status().as_u16();
    let seconds = answer.headers().get(RETRY_AFTER).and_then(|v| v.to_str().ok()).and_then(|v| v.trim().parse().ok());
    judge_status(status, seconds.map(Duration::from_secs), call.retried_statuses)?;
    let is_json = answer.headers().get(CONTENT_TYPE).is_some_and(|v| v.as_bytes().starts_with(b"application/json"));
    let body = read(answer).await?;
    let said = (call.judge)(&Answer { status, is_json, body: &body })?;
    Ok((status, said))
}
