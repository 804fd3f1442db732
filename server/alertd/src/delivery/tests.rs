use std::sync::Mutex;
use std::sync::atomic::Ordering::Relaxed;

use quiver_alerting::config::Config;
use quiver_alerting::dispatch::{Alert, ReceiverData};
use quiver_alerting::template::default_templates;
use quiver_types::{LabelSet, Network};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use super::*;

const S: i64 = 1_000_000_000;

/// A message about alerts `High` of instances; `true`: fires.
pub(crate) fn told(instances: &[(&str, bool)]) -> Message {
    let alert = |(instance, fires): &(&str, bool)| Alert {
        labels: LabelSet::from_pairs([("alertname", "High"), ("instance", instance)]),
        annotations: Arc::new([("summary".to_owned(), "high".to_owned())].into()),
        starts_at: 10 * S,
        ends_at: if *fires { 1000 * S } else { 50 * S },
        is_timeout: false,
        updated_at: 20 * S,
        generator_url: format!("http://g/{instance}").into(),
    };
    Message {
        receiver: "team.x".to_owned(),
        group_key: "{}:{alertname=\"High\"}".to_owned(),
        group_labels: LabelSet::from_pairs([("alertname", "High")]),
        route_labels: [("tier".to_owned(), "1".to_owned())].into(),
        reason: "first notification".to_owned(),
        alerts: instances.iter().map(alert).collect(),
        now: 60 * S,
        external_url: "http://quiver.example".to_owned(),
        instance: "me".to_owned(),
        templates: default_templates(),
        said: ReceiverData::new(),
    }
}

/// Reads one entry of `<kind>_configs`.
pub(crate) fn integration(kind: &str, yaml: &str) -> Integration {
    let text = format!("route: {{receiver: a}}\nreceivers:\n- name: a\n  {kind}_configs:\n  - {yaml}\n");
    let config = Config::load(&text).unwrap_or_else(|e| panic!("{e}: {text}"));
    config.receivers[0].integrations[0].clone()
}

/// Answers each connection with the next of some answers, the last one again and again; keeps what came.
async fn sink(answers: &'static [&'static str]) -> (String, Arc<Mutex<Vec<String>>>) {
    let socket = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = socket.local_addr().unwrap();
    let seen = Arc::<Mutex<Vec<String>>>::default();
    let kept = Arc::clone(&seen);
    tokio::spawn(async move {
        for i in 0.. {
            let Ok((mut peer, _)) = socket.accept().await else { return };
            let (mut text, mut buffer) = (String::new(), [0; 4096]);
            loop {
                let n = peer.read(&mut buffer).await.unwrap_or(0);
                text.push_str(&String::from_utf8_lossy(&buffer[..n]));
                let length = text
                    .to_lowercase()
                    .split("content-length: ")
                    .nth(1)
                    .and_then(|t| t.split("\r\n").next().and_then(|t| t.parse::<usize>().ok()));
                let body = text.split_once("\r\n\r\n").map(|(_, body)| body.len());
                if n == 0 || body.is_some_and(|len| len >= length.unwrap_or(0)) {
                    break;
                }
            }
            kept.lock().unwrap().push(text);
            let answer = answers[answers.len().min(i + 1) - 1];
            let text = format!("HTTP/1.1 {answer}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
            let _ = peer.write_all(text.as_bytes()).await;
        }
    });
    (format!("http://{address}/hook"), seen)
}

fn sender(allow: &[&str]) -> Sender {
    let allow = allow.iter().map(|t| Network::parse(t).unwrap()).collect();
    let (egress, proxies) = (Egress { allow, ..Egress::default() }, ProxyEnvironment::default());
    Sender::new(egress, proxies, 1 << 20, Arc::new(quiver_types::SystemClock), Arc::default())
}

async fn tell(sender: &Sender, yaml: &str, budget_ms: u64) -> Result<Option<u16>, Failure> {
    let message = told(&[("a", true)]);
    let budget = Duration::from_millis(budget_ms);
    sender.tell(&message, &integration("webhook", yaml), &Files::default(), budget).await.map(|taken| taken.status)
}

async fn attempt(sender: &Sender, yaml: &str) -> Result<DeliveryReceipt, Failure> {
    sender.attempt(&told(&[("a", true)]), &integration("webhook", yaml), &Files::default()).await
}

#[tokio::test]
async fn proxies_and_where_they_may_go() {
    let (proxy, seen) = sink(&["200 OK", "200 OK", "403 x"]).await;
    let proxy = proxy.replace("/hook", "");
    let proxies = ProxyEnvironment { http: proxy.clone(), ..ProxyEnvironment::default() };
    let allow = vec![Network::parse("127.0.0.0/8").unwrap(), Network::parse("8.8.8.8").unwrap()];
    let egress = Egress { allow, ..Egress::default() };
    let sender = Sender::new(egress, proxies, 1 << 20, Arc::new(quiver_types::SystemClock), Arc::default());
    let by_environment =
        "{url: 'http://8.8.8.8/x', http_config: {proxy_from_environment: true, proxy_connect_header: {X-Own: [own]}}}";
    assert_eq!(tell(&sender, by_environment, 60_000).await, Ok(Some(200)));
    let by_url = format!("proxy_url: '{proxy}', proxy_connect_header: {{X-Own: [own]}}");
    let url = "http://8.8.8.8/y";
    assert_eq!(tell(&sender, &format!("{{url: '{url}', http_config: {{{by_url}}}}}"), 60_000).await, Ok(Some(200)));
    // A tunnel is asked for with the headers that are meant for the proxy.
    let tunnelled = format!("{{url: 'https://8.8.8.8/z', http_config: {{{by_url}}}}}");
    attempt(&sender, &tunnelled).await.unwrap_err();
    // What the proxy may not be asked for it is not asked for: an address that is closed, a name that could be any.
    let unknown = format!("http://{}.example/", "x".repeat(70));
    for (closed, why) in [("http://169.254.169.254/", "metadata"), ("http://[::1]/", "loopback"), (&*unknown, "nobody")]
    {
        let yaml = format!("{{url: '{closed}', http_config: {{{by_url}}}}}");
        let failure = attempt(&sender, &yaml).await.unwrap_err();
        assert!(failure.text.contains(why), "{closed}: {failure:?}");
    }
    let seen = seen.lock().unwrap().clone();
    let is_told = |text: &str| text.to_lowercase().contains("x-own: own");
    assert!(seen[0].starts_with("POST http://8.8.8.8/x HTTP/1.1") && !is_told(&seen[0]), "{seen:?}");
    assert!(seen[1].starts_with("POST http://8.8.8.8/y HTTP/1.1") && !is_told(&seen[1]), "{seen:?}");
    assert!(seen[2].starts_with("CONNECT 8.8.8.8:443 ") && is_told(&seen[2]), "{seen:?}");
    assert_eq!(seen.len(), 3, "{seen:?}");
}

#[tokio::test]
async fn another_name_in_tls() {
    let socket = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://localhost:{}/", socket.local_addr().unwrap().port());
    let greeted = tokio::spawn(async move {
        let (mut peer, _) = socket.accept().await.unwrap();
        let (mut hello, mut buffer) = (Vec::new(), [0; 4096]);
        while !hello.windows(13).any(|part| part == b"other.example") {
            let n = peer.read(&mut buffer).await.unwrap();
            assert!(n > 0, "{}", String::from_utf8_lossy(&hello));
            hello.extend_from_slice(&buffer[..n]);
        }
        String::from_utf8_lossy(&hello).into_owned()
    });
    let yaml = format!("{{url: '{url}', http_config: {{tls_config: {{server_name: other.example}}}}}}");
    attempt(&sender(&["127.0.0.0/8", "::1/128"]), &yaml).await.unwrap_err();
    assert!(!greeted.await.unwrap().contains("localhost"));
}

#[tokio::test]
async fn again_until_it_is_taken() {
    let (url, seen) = sink(&["500 x", "429 x\r\nretry-after: 0", "200 OK"]).await;
    let sender = sender(&["127.0.0.0/8"]);
    assert_eq!(tell(&sender, &format!("{{url: '{url}'}}"), 20_000).await, Ok(Some(200)));
    let seen = seen.lock().unwrap();
    assert_eq!(seen.len(), 3);
    let head = seen[0].to_lowercase();
    assert!(head.starts_with("post /hook http/1.1") && head.contains("user-agent: quiver/"), "{head}");
    assert!(head.contains("content-type: application/json") && head.contains("x-quiver-instance: me"), "{head}");
    let mut out = String::new();
    sender.metrics.write(&mut out);
    assert!(out.contains("quiver_notifications_total{integration=\"webhook\"} 1"), "{out}");
    assert!(out.contains("latency_seconds_count{integration=\"webhook\"} 3"), "{out}");
    assert_eq!(sender.metrics.queue.load(Relaxed), 0);
}

#[tokio::test]
async fn what_trying_again_does_not_mend() {
    let (url, seen) = sink(&["404 x"]).await;
    let open = sender(&["127.0.0.0/8"]);
    let failure = tell(&open, &format!("{{url: '{url}'}}"), 20_000).await.unwrap_err();
    assert_eq!((failure.reason, failure.status, seen.lock().unwrap().len()), ("clientError", Some(404), 1));
    // Not a byte goes where the guard is against it, by address or by name.
    let closed = sender(&[]);
    for url in [url.clone(), url.replace("127.0.0.1", "localhost")] {
        let failure = tell(&closed, &format!("{{url: '{url}'}}"), 20_000).await.unwrap_err();
        assert!(failure.text.contains("loopback") && !failure.may_retry, "{failure:?}");
    }
    assert_eq!(seen.lock().unwrap().len(), 1);
}

/// What stands for a secret that is lost with its key is no secret.
#[tokio::test]
async fn marks_of_secrets_are_not_sent() {
    let (url, seen) = sink(&["200 OK"]).await;
    let sender = sender(&["127.0.0.0/8"]);
    for http in ["{authorization: {credentials: <secret>}}", "{http_headers: {X-Key: {secrets: [<secret>]}}}"] {
        let failure = tell(&sender, &format!("{{url: '{url}', http_config: {http}}}"), 20_000).await.unwrap_err();
        assert!(failure.text.contains("has to be given again") && !failure.may_retry, "{failure:?}");
    }
    assert!(seen.lock().unwrap().is_empty());
}

/// A receiver that wants to be left alone for longer than a clock holds is not told again in this flush.
#[tokio::test]
async fn waits_beyond_all_time() {
    let (url, seen) = sink(&["429 x\r\nretry-after: 18446744073709551615"]).await;
    let failure = tell(&sender(&["127.0.0.0/8"]), &format!("{{url: '{url}'}}"), 20_000).await.unwrap_err();
    assert_eq!((failure.status, failure.may_retry, seen.lock().unwrap().len()), (Some(429), true, 1));
}

#[tokio::test]
async fn tokens_of_oauth2() {
    let socket = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let proxy = format!("http://{}", socket.local_addr().unwrap());
    let asked = tokio::spawn(async move {
        let mut asked = Vec::new();
        for (last, status, body) in
            [("grant_type=client_credentials", "401 x", ""), ("client_secret=", "200 OK", r#"{"access_token":"t0k"}"#)]
        {
            let (mut peer, _) = socket.accept().await.unwrap();
            let (mut text, mut buffer) = (String::new(), [0; 4096]);
            while !text.contains(last) {
                let n = peer.read(&mut buffer).await.unwrap();
                assert!(n > 0, "{text}");
                text.push_str(&String::from_utf8_lossy(&buffer[..n]));
            }
            let length = body.len();
            let answer = format!("HTTP/1.1 {status}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}");
            peer.write_all(answer.as_bytes()).await.unwrap();
            asked.push(text);
        }
        asked
    });
    let (url, seen) = sink(&["200 OK"]).await;
    let issuer = "http://127.0.0.1:1/token";
    let oauth2 = format!("{{client_id: 'a b', client_secret: 'c+d', token_url: '{issuer}', proxy_url: '{proxy}'}}");
    let yaml = format!("{{url: '{url}', http_config: {{oauth2: {oauth2}}}}}");
    assert_eq!(tell(&sender(&["127.0.0.0/8"]), &yaml, 5000).await, Ok(Some(200)));
    // RFC 6749 section 2.3.1: `a+b:c%2Bd`.
    let asked = asked.await.unwrap();
    assert!(asked[0].starts_with(&format!("POST {issuer} ")) && asked[0].contains("Basic YStiOmMlMkJk"), "{asked:?}");
    // Some take id and secret nowhere but in the form.
    assert!(asked[1].contains("&client_id=a+b&client_secret=c%2Bd") && !asked[1].contains("Basic"), "{asked:?}");
    assert!(seen.lock().unwrap()[0].contains("Bearer t0k"));
}

#[tokio::test]
async fn redirects_and_time() {
    let (target, seen) = sink(&["200 OK"]).await;
    let answer = format!("307 x\r\nlocation: {target}").leak();
    let (url, _) = sink(std::slice::from_ref(Box::leak(Box::new(&*answer)))).await;
    let open = sender(&["127.0.0.0/8"]);
    let failure = tell(&open, &format!("{{url: '{url}'}}"), 5000).await.unwrap_err();
    assert_eq!((failure.status, seen.lock().unwrap().len()), (Some(307), 0), "not unless it is set");
    let http = "http_config: {follow_redirects: true, basic_auth: {username: u, password: p}}";
    assert_eq!(tell(&open, &format!("{{url: '{url}', {http}}}"), 5000).await, Ok(Some(200)));
    assert!(!seen.lock().unwrap()[0].to_lowercase().contains("authorization"), "no credentials across hosts");
    assert_eq!(tell(&open, &format!("{{url: '{target}', {http}}}"), 5000).await, Ok(Some(200)));
    assert!(seen.lock().unwrap()[1].contains("Basic dTpw"), "credentials where they belong");
    let base = url.replace("hook", "");
    let opsgenie = format!("{{api_key: k3y, api_url: '{base}', http_config: {{follow_redirects: true}}}}");
    let opsgenie = integration("opsgenie", &opsgenie);
    let budget = Duration::from_secs(5);
    let taken = open.tell(&told(&[("a", true)]), &opsgenie, &Files::default(), budget).await;
    assert_eq!(taken, Ok(DeliveryReceipt { status: Some(200), said: ReceiverData::new() }));
    let last = seen.lock().unwrap()[2].to_lowercase();
    assert!(last.contains("high") && !last.contains("k3y"), "no key of a kind across hosts: {last}");
    // A receiver that hangs costs its budget, and `timeout` bounds each attempt.
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", silent.local_addr().unwrap());
    let failure = tell(&open, &format!("{{url: '{url}'}}"), 300).await.unwrap_err();
    assert_eq!(failure.reason, "contextDeadlineExceeded");
    let failure = tell(&open, &format!("{{url: '{url}', timeout: 100ms}}"), 1000).await.unwrap_err();
    assert!(failure.text.contains("timeout"), "{failure:?}");
}

/// A receiver that does not answer holds its messages; who finds no room fails, and says so.
#[tokio::test]
async fn messages_without_room_wait_and_are_not_lost_silently() {
    let (url, seen) = sink(&["200 OK"]).await;
    let sender = sender(&["127.0.0.0/8"]);
    let held = sender.room.take("slow", 1 << 20).await;
    let yaml = format!("{{url: '{url}'}}");
    let failure = tell(&sender, &yaml, 50).await.unwrap_err();
    assert_eq!(failure.reason, "contextDeadlineExceeded");
    assert!(failure.text.contains("no room for the message within 50ms") && failure.text.contains("1048576 bytes"));
    assert!(seen.lock().unwrap().is_empty());
    drop(held);
    assert_eq!(tell(&sender, &yaml, 20_000).await, Ok(Some(200)));
    assert_eq!((seen.lock().unwrap().len(), sender.room.held_bytes()), (1, 0), "what was taken is given back");
    let mut out = String::new();
    sender.metrics.write(&mut out);
    assert!(out.contains("quiver_notification_room_waits_total 1\n"), "{out}");
    assert!(out.contains("quiver_notification_messages_bytes 0\n"), "{out}");
}

/// Templates may make much of little: what they made counts, not what they were made of.
#[tokio::test]
async fn large_messages_count_as_they_were_rendered() {
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", silent.local_addr().unwrap());
    let sender = Arc::new(sender(&["127.0.0.0/8"]));
    let text = "x".repeat(100_000);
    let yaml = format!("{{url: '{url}', payload: {{text: '{text}'}}}}");
    let telling = tokio::spawn({
        let sender = Arc::clone(&sender);
        async move { tell(&sender, &yaml, 60_000).await }
    });
    // It has connected, so it was rendered.
    let _peer = silent.accept().await.unwrap();
    assert!((200_000..210_000).contains(&sender.room.held_bytes()), "{}", sender.room.held_bytes());
    telling.abort();
    telling.await.unwrap_err();
    assert_eq!(sender.room.held_bytes(), 0);
}

#[test]
fn the_end_of_the_budget_names_what_failed_before() {
    let alone = Failure::out_of_time(Duration::from_millis(1500), None);
    assert_eq!((alone.text.as_str(), alone.may_retry), ("no answer within 1.5s", false));
    let earlier = Failure { status: Some(503), ..Failure::passing("answered 503") };
    let failure = Failure::out_of_time(Duration::from_secs(5), Some(&earlier));
    assert_eq!((failure.reason, failure.status), ("contextDeadlineExceeded", None), "no status of another attempt");
    assert_eq!(failure.text, "no answer within 5s; the attempt before: answered 503");
}
