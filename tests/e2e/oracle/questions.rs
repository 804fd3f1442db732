//! The requests: fixed ones for every endpoint that reads telemetry, and random queries of each language.

use std::fmt;
use std::fmt::Write as _;

use quiver_tests::server::{Answer, Server};
use rand::RngExt;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use serde_json::{Value, json};

use super::SERVICES;
use super::data::{LENGTH_MS, START_MS};
use super::grammar::{Grammar, Kind};
use super::logsql_query::{filter, query};

/// A question.
#[derive(Debug, Clone)]
pub(super) struct Case {
    pub(super) path: String,
    parameters: Vec<(String, String)>,
    body: Option<Value>,
    /// Whether the order of an answer counts.
    pub(super) ordered: bool,
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {:?}", self.path, self.parameters)?;
        self.body.as_ref().map_or(Ok(()), |body| write!(f, " {body}"))
    }
}

pub(super) fn case<const N: usize>(path: impl Into<String>, parameters: [(&str, String); N]) -> Case {
    let parameters = parameters.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
    Case { path: path.into(), parameters, body: None, ordered: false }
}

impl Case {
    /// Asks a server.
    pub(super) async fn ask(&self, server: &Server, who: Option<&str>) -> Answer {
        let query = url(&self.parameters);
        let path = if query.is_empty() { self.path.clone() } else { format!("{}?{query}", self.path) };
        let mut headers = vec![("content-type", "application/json")];
        headers.extend(who.map(|who| ("authorization", who)));
        match &self.body {
            Some(body) => server.send("POST", &path, &headers, body.to_string().into_bytes()).await,
            None => server.send("GET", &path, &headers, vec![]).await,
        }
    }
}

fn url(parameters: &[(String, String)]) -> String {
    let mut out = String::new();
    for (name, value) in parameters {
        let encode = |text: &str| -> String {
            text.bytes()
                .map(|b| if b.is_ascii_alphanumeric() { char::from(b).to_string() } else { format!("%{b:02X}") })
                .collect()
        };
        let separator = if out.is_empty() { "" } else { "&" };
        let _ = write!(out, "{separator}{}={}", encode(name), encode(value));
    }
    out
}

fn start() -> String {
    (START_MS / 1000).to_string()
}

fn end() -> String {
    ((START_MS + LENGTH_MS) / 1000).to_string()
}

const METRICS: &str = "/metrics-api/api/v1/";
const LOGS: &str = "/logs-api/select/logsql/";

/// Each endpoint that reads telemetry, and answers that must not tell of others.
pub(super) fn fixed() -> Vec<Case> {
    [metrics(), logs(), traces()].concat()
}

fn metrics() -> Vec<Case> {
    let mut all = Vec::new();
    let everything = || "{__name__=~\".+\"}".to_owned();
    let at = || (START_MS / 1000 + 1500).to_string();
    for (path, parameter) in [
        ("series", "match[]"),
        ("labels", "match[]"),
        ("label/job/values", "match[]"),
        ("label/__name__/values", "match[]"),
        ("label/instance/values", "match[]"),
        ("query_exemplars", "query"),
    ] {
        all.push(case(format!("{METRICS}{path}"), [(parameter, everything()), ("start", start()), ("end", end())]));
        all.push(case(
            format!("{METRICS}{path}"),
            [(parameter, everything()), ("start", start()), ("end", end()), ("limit", "2".into())],
        ));
    }
    for path in ["labels", "label/job/values", "metadata", "status/tsdb"] {
        all.push(case(format!("{METRICS}{path}"), []));
    }
    all.push(case("/metrics-api/federate", [("match[]", everything())]));
    for text in [
        "count({__name__=~\".+\"})",
        "count by (__name__) ({__name__=~\".+\"})",
        "absent(lonely)",
        "topk(3, gauge)",
        "gauge",
        "scalar(sum(gauge))",
    ] {
        all.push(case(format!("{METRICS}query"), [("query", text.into()), ("time", at())]));
        all.push(case(format!("{METRICS}query"), [("query", text.into()), ("time", at()), ("limit", "1".into())]));
        all.push(case(
            format!("{METRICS}query_range"),
            [
                ("query", text.into()),
                ("start", start()),
                ("end", end()),
                ("step", "600".into()),
                ("stats", "all".into()),
            ],
        ));
    }
    all
}

fn logs() -> Vec<Case> {
    let mut all = Vec::new();
    for (path, more) in [
        ("query", ""),
        ("query", " | sort by (n) limit 3"),
        ("hits", ""),
        ("field_names", ""),
        ("facets", ""),
        ("streams", ""),
        ("stream_ids", ""),
        ("stream_field_names", ""),
        ("stats_query", " | stats by (app) count() n"),
        ("stats_query_range", " | stats by (app) count() n"),
    ] {
        all.push(case(
            format!("{LOGS}{path}"),
            [("query", format!("*{more}")), ("start", start()), ("end", end()), ("step", "10m".into())],
        ));
    }
    for field in ["app", "n", "only_a", "only_c"] {
        all.push(case(format!("{LOGS}field_values"), [("query", "*".into()), ("field", field.into())]));
        all.push(case(format!("{LOGS}stream_field_values"), [("query", "*".into()), ("field", field.into())]));
        all.push(case(
            format!("{LOGS}hits"),
            [("query", "*".into()), ("field", field.into()), ("start", start()), ("end", end()), ("step", "1h".into())],
        ));
    }
    all
}

fn traces() -> Vec<Case> {
    let mut all = Vec::new();
    for path in [
        "",
        "/services",
        "/operations",
        "/instances",
        "/tags",
        "/tags/only_a/values",
        "/tags/only_c/values",
        "/tags/code/values",
        "/histogram",
        "/statistics",
    ] {
        let mut asked = case(format!("/traces{path}"), [("from", start()), ("to", end())]);
        if path == "/histogram" {
            asked.parameters.push(("step".to_owned(), "10m".to_owned()));
        }
        all.push(asked);
    }
    for n in 1..=15 {
        let trace = format!("{n:032x}");
        for path in [
            "/api/traces/ID",
            "/api/v3/traces/ID",
            "/api/v2/trace/ID",
            "/tempo/api/traces/ID",
            "/tempo/api/v2/traces/ID",
            "/traces/ID",
            "/traces/ID/summary",
            "/traces/ID/statistics",
            "/traces/ID/critical-path",
            "/traces/ID/similar",
            "/traces/ID/logs",
            "/traces/ID/exemplars",
            "/platform-api/traces/ID/otlp",
            "/platform-api/traces/ID/spanarray",
            "/platform-api/traces/ID/traceobject",
        ] {
            all.push(case(path.replace("ID", &trace), []));
        }
    }
    // Of all traces, so that some are among them of which nothing may be seen.
    for n in 1..45 {
        let trace = format!("{n:032x}");
        for made in ["summary", "statistics", "critical-path", "similar", "logs", "exemplars"] {
            all.push(case(format!("/traces/{trace}/{made}"), []));
        }
        let sides = [("left", trace), ("right", format!("{:032x}", n + 1))];
        all.push(case("/traces/compare", sides));
    }
    let micros = |s: String| s + "000000";
    all.push(case("/api/services", [("start", micros(start())), ("end", micros(end()))]));
    all.push(case("/api/v2/services", [("endTs", end() + "000"), ("lookback", LENGTH_MS.to_string())]));
    for path in
        ["search/tags", "search/tag/only_c/values", "search/tag/service.name/values", "v2/search/tag/.code/values"]
    {
        all.push(case(format!("/tempo/api/{path}"), [("start", start()), ("end", end())]));
    }
    let times = || [("start", start()), ("end", end())];
    for query in [
        "{ nestedSetLeft > 1 } | select(nestedSetParent, nestedSetLeft, nestedSetRight)",
        "{ span:childCount > 1 }",
        "{ resource.service.name = `c` } >> { }",
        "{ rootServiceName = `c` || traceDuration > 200ms }",
        "{ } !> { status = error } | by(resource.service.name) | count() > 1",
        "{ } | avg(duration) > 2 * min(duration)",
    ] {
        let [start, end] = times();
        all.push(case("/tempo/api/search", [("q", query.to_owned()), start, end, ("limit", "1000".into())]));
    }
    for query in [
        "{ } | rate() by (rootServiceName, rootName)",
        "{ } | count_over_time() by (span:childCount)",
        "{ resource.service.name = `c` } >> { } | rate()",
        "{ traceDuration > 200ms } | quantile_over_time(duration, .5, .9) by (resource.service.name)",
        "{ } | compare({ status = error }, 100)",
        "{ } | compare({ rootServiceName = `c` }, 100)",
    ] {
        let [start, end] = times();
        // Which span is the first of its step is as it comes.
        let none = ("exemplars", "0".into());
        let asked = [("q", query.to_owned()), start, end, ("step", "10m".into()), none];
        all.push(case("/tempo/api/metrics/query_range", asked));
    }
    all
}

/// Draws questions of all languages in turn.
pub(super) struct Maker {
    random: StdRng,
}

impl Maker {
    pub(super) fn new(random: StdRng) -> Self {
        Self { random }
    }

    fn pick<'a>(&mut self, list: &[&'a str]) -> &'a str {
        list.choose(&mut self.random).expect("there are some")
    }

    /// Case number `n`.
    pub(super) fn case(&mut self, n: usize) -> Case {
        match n % 5 {
            0 => self.promql(n / 5),
            1 => self.logsql(),
            2 => self.traces(),
            3 => self.sql(),
            _ => self.olap(),
        }
    }

    fn promql(&mut self, n: usize) -> Case {
        let kind = if n.is_multiple_of(8) { Kind::OnGrid } else { Kind::OffGrid };
        let text = Grammar::new(&mut self.random, kind).expression(n);
        if self.random.random_bool(0.5) {
            let at = START_MS + self.random.random_range(1..LENGTH_MS / 15_000) * 15_000;
            let at = if kind == Kind::OnGrid { (at / 1000).to_string() } else { format!("{}.5", at / 1000) };
            return case(format!("{METRICS}query"), [("query", text), ("time", at)]);
        }
        let half = if kind == Kind::OnGrid { "" } else { ".5" };
        let (from, to) = (format!("{}{half}", START_MS / 1000 + 600), format!("{}{half}", START_MS / 1000 + 2400));
        case(format!("{METRICS}query_range"), [("query", text), ("start", from), ("end", to), ("step", "300".into())])
    }

    fn logsql(&mut self) -> Case {
        let (filter, query) = (filter(&mut self.random, 2), query(&mut self.random));
        let window = || [("start", start()), ("end", end())];
        let [from, to] = window();
        match self.random.random_range(0..12) {
            0 => case(
                format!("{LOGS}hits"),
                [("query", filter), from, to, ("step", "20m".into()), ("field", "app".into())],
            ),
            1 => case(format!("{LOGS}field_names"), [("query", filter), from, to]),
            2 => case(
                format!("{LOGS}field_values"),
                [("query", filter), from, to, ("field", self.pick(&["a", "app", "dur"]).into())],
            ),
            3 => case(format!("{LOGS}streams"), [("query", filter), from, to]),
            4 => case(format!("{LOGS}facets"), [("query", filter), from, to]),
            _ => case(format!("{LOGS}query"), [("query", query), from, to]),
        }
    }

    fn spanset(&mut self) -> String {
        let service = self.pick(&SERVICES);
        let condition = |maker: &mut Self| match maker.random.random_range(0..8) {
            0 => format!("resource.service.name = \"{service}\""),
            1 => format!("span.code >= {}", maker.random.random_range(199..207)),
            2 => format!("duration > {}ms", maker.random.random_range(1..400)),
            3 => "status = error".to_owned(),
            4 => format!("name = \"{}\"", maker.pick(&["GET /", "query"])),
            5 => format!("span.only_{service} = \"{service}\""),
            6 => format!("kind = {}", maker.pick(&["server", "client", "internal"])),
            _ => format!("span.user != \"u{}\"", maker.random.random_range(0..5)),
        };
        let first = condition(self);
        match self.random.random_range(0..3) {
            0 => format!("{{ {first} }}"),
            _ => format!("{{ {first} {} {} }}", self.pick(&["&&", "||"]), condition(self)),
        }
    }

    fn traces(&mut self) -> Case {
        let window = [("start", start()), ("end", end())];
        match self.random.random_range(0..12) {
            0 => {
                let trace = format!("{:032x}", self.random.random_range(1..45));
                let path = self.pick(&["/api/traces/", "/api/v2/trace/", "/tempo/api/traces/"]);
                case(format!("{path}{trace}"), [])
            }
            1 => {
                let service = self.pick(&SERVICES).to_owned();
                let [from, to] = [start() + "000000", end() + "000000"];
                case("/api/traces", [("service", service), ("start", from), ("end", to), ("limit", "1000".into())])
            }
            2 => {
                let path = self.pick(&[
                    "/traces/services",
                    "/traces/operations",
                    "/traces/tags",
                    "/traces/statistics",
                    "/traces/instances",
                ]);
                case(path, [("from", start()), ("to", end())])
            }
            3 => self.zipkin(),
            4 => self.jaeger(),
            5 => {
                let figure = self.pick(&[
                    "rate()",
                    "count_over_time() by (resource.service.name)",
                    "quantile_over_time(duration, .9)",
                    "max_over_time(duration) by (name)",
                ]);
                let (text, [from, to]) = (format!("{} | {figure}", self.spanset()), window);
                case("/tempo/api/metrics/query_range", [("q", text), from, to, ("step", "300s".into())])
            }
            6 => {
                let (text, by) = (self.spanset(), self.pick(&["service", "operation", "status", "tag:only_a"]));
                let path = self.pick(&["", "/facets", "/histogram", "/statistics", "/operations"]);
                let mut asked = case(format!("/traces{path}"), [("q", text), ("from", start()), ("to", end())]);
                let more = match path {
                    "/histogram" => vec![("by", by), ("step", "20m")],
                    "" => vec![("limit", "500")],
                    _ => Vec::new(),
                };
                asked.parameters.extend(more.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())));
                asked
            }
            _ => {
                let (a, b) = (self.spanset(), self.spanset());
                let text = match self.random.random_range(0..6) {
                    0 => format!("{a} {} {b}", self.pick(&[">>", ">", "<<", "~", "&&", "||", "!>>"])),
                    1 => format!("{a} | count() > {}", self.random.random_range(0..3)),
                    2 => format!("{a} | avg(duration) > 50ms"),
                    3 => format!("{a} | by(resource.service.name)"),
                    _ => a,
                };
                let [from, to] = window;
                case("/tempo/api/search", [("q", text), ("limit", "1000".into()), ("spss", "100".into()), from, to])
            }
        }
    }

    /// A search as Zipkin asks.
    fn zipkin(&mut self) -> Case {
        let window = [("endTs", end() + "000"), ("lookback", LENGTH_MS.to_string()), ("limit", "1000".to_owned())];
        let mut asked = case("/api/v2/traces", window);
        let mut more = |name: &str, value: String| asked.parameters.push((name.to_owned(), value));
        let service = self.pick(&SERVICES);
        if self.random.random_bool(0.7) {
            more("serviceName", service.to_owned());
        }
        if self.random.random_bool(0.4) {
            let annotation = self.pick(&["error", "code=201", "user"]).to_owned();
            more("annotationQuery", if self.random.random_bool(0.3) { format!("only_{service}") } else { annotation });
        }
        if self.random.random_bool(0.3) {
            more("minDuration", self.random.random_range(1_000..400_000).to_string());
        }
        asked
    }

    /// A search as Jaeger asks.
    fn jaeger(&mut self) -> Case {
        let [from, to] = [start() + "000000", end() + "000000"];
        let service = self.pick(&SERVICES);
        let mut asked = case(
            "/api/traces",
            [("service", service.to_owned()), ("start", from), ("end", to), ("limit", "1000".into())],
        );
        let mut more = |name: &str, value: String| asked.parameters.push((name.to_owned(), value));
        if self.random.random_bool(0.4) {
            more("operation", self.pick(&["GET /", "POST /", "query"]).to_owned());
        }
        if self.random.random_bool(0.4) {
            let other = self.pick(&SERVICES);
            more("tags", json!({format!("only_{other}"): other}).to_string());
        }
        if self.random.random_bool(0.3) {
            more("minDuration", format!("{}ms", self.random.random_range(1..400)));
        }
        asked
    }

    fn sql(&mut self) -> Case {
        let service = self.pick(&SERVICES);
        let text = match self.random.random_range(0..10) {
            0 => format!(
                "select {} k, count(*), max(n) from logs where app {} '{service}' group by k",
                self.pick(&["app", "a", "level"]),
                self.pick(&["=", "<>"])
            ),
            1 => format!(
                "select n, app, message from logs where n between {} and {} order by n limit {}",
                self.random.random_range(0..200),
                self.random.random_range(200..600),
                self.random.random_range(1..40)
            ),
            2 => format!(
                "select service_name, name, count(*), max(duration) from spans where kind {} 'SERVER' group by 1, 2",
                self.pick(&["=", "<>"])
            ),
            3 => format!(
                "select trace_id, span_id, parent_span_id from spans where \"attributes.code\" {} {}",
                self.pick(&["=", ">", "<"]),
                self.random.random_range(200..206)
            ),
            4 => "select trace_id, root_service, spans, services from traces".to_owned(),
            5 => format!(
                "select name, count(*), sum(value) from metric_samples where \"labels.job\" {} '{service}' group by name",
                self.pick(&["=", "<>"])
            ),
            6 => format!(
                "select name, service_name from metric_series where name like '{}%' order by 1, 2",
                self.pick(&["g", "l", "lonely", "c"])
            ),
            7 => format!("select count(*) from logsql('{}')", filter(&mut self.random, 1).replace('\'', "''")),
            8 => format!(
                "select * from promql_instant('{}', '2026-03-01T22:25:00Z')",
                self.pick(&["sum by (job) (gauge)", "count(gauge)", "topk(2, gauge)", "lonely"])
            ),
            _ => format!(
                "select s.service_name, count(*) from spans s {} join logs l on l.app = s.service_name group by 1",
                self.pick(&["", "left", "full"])
            ),
        };
        case("/sql-api/v1/query", [("query", text)])
    }

    fn olap(&mut self) -> Case {
        let models: [(&str, &[&str], &[&str]); 9] = [
            (
                "Spans",
                &["count", "errorCount", "durationMax"],
                &["service", "name", "kind", "statusCode", "host", "isRoot"],
            ),
            ("Logs", &["count"], &["service"]),
            ("SpanEvents", &["count"], &["name"]),
            ("SpanLinks", &["count"], &["service"]),
            ("Traces", &["count", "spanCountMax"], &["services"]),
            ("Services", &["count"], &["service"]),
            ("Operations", &["count"], &["service"]),
            ("Errors", &["count"], &["service"]),
            ("MetricSeries", &["count"], &["service"]),
        ];
        let (model, measures, dimensions) = models[self.random.random_range(0..models.len())];
        let member = |name: &str| format!("{model}.{name}");
        let measure = member(self.pick(measures));
        let mut body = json!({"measures": [measure], "limit": 1000});
        if self.random.random_bool(0.8) {
            body["dimensions"] = json!([member(self.pick(dimensions))]);
        }
        if self.random.random_bool(0.4) {
            let operator = self.pick(&["equals", "notEquals", "contains"]);
            let values = [self.pick(&["a", "c", "GET /", "SERVER", "ERROR"])];
            body["filters"] = json!([{"member": member(dimensions[0]), "operator": operator, "values": values}]);
        }
        if model == "Spans" && self.random.random_bool(0.3) {
            body["timeDimensions"] = json!([{"dimension": "Spans.startTime", "granularity": "hour"}]);
        }
        Case { body: Some(json!({"query": body})), ..case("/olap-api/v1/load", []) }
    }

    /// The questions of a kind must have answers: what is only refused shows nothing.
    pub(super) async fn must_have_asked_well(&mut self, server: &Server) {
        let (mut good, all) = ([0; 5], 20);
        for n in 0..all * 5 {
            let answer = self.case(n).ask(server, None).await;
            good[n % 5] += usize::from(answer.status == 200);
        }
        assert!(
            good.iter().all(|n| *n * 4 > all * 2),
            "PromQL, LogsQL, traces, SQL, analytics: {good:?} of {all} answered"
        );
        for statement in super::statements::all() {
            let answer = statement.ask(server, None).await;
            assert_eq!(answer.status, 200, "{statement}: {}", answer.text());
        }
    }
}
