//! The rights that each endpoint needs: the table of `identity-and-access` section 3 as data. Checked before a body is
//! read.
//!
//! Rows are found by the route that the router has matched, not by the path as sent, so the check always concerns the
//! handler that will run. A route without a row refuses everyone (and a test walks all routes).

use http::Method;
use quiver_types::{Domain, Right, Rights, Services, Triple};

/// The right that a request needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RequiredRight {
    /// None: no authentication needed.
    Public,
    /// Authentication only.
    Anyone,
    /// The right in the domain, for at least one service.
    Has(Right, Domain),
    /// The right in the domain, for all services.
    Everywhere(Right, Domain),
    /// The right in any domain.
    Somewhere(Right),
    /// Own metrics: `view` in `system` for all services, or a client on this machine.
    OwnMetrics,
    /// `Public` or `Anyone`, depending on a setting.
    Docs,
}

/// HTTP methods that a row applies to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum MethodClass {
    Any,
    /// GET and HEAD.
    Get,
    /// All but GET and HEAD.
    Other,
}

/// A row: methods, a route (`…/**`: with all below it), the right that it needs.
#[derive(Debug)]
pub(crate) struct Row(MethodClass, &'static str, pub(crate) RequiredRight);

const METRICS: RequiredRight = RequiredRight::Has(Right::View, Domain::Metrics);
const LOGS: RequiredRight = RequiredRight::Has(Right::View, Domain::Logs);
const TRACES: RequiredRight = RequiredRight::Has(Right::View, Domain::Traces);
const RULES: RequiredRight = RequiredRight::Has(Right::View, Domain::Alerting);
const EDIT_RULES: RequiredRight = RequiredRight::Has(Right::Edit, Domain::Alerting);
// The services of the records are checked one by one while they are decoded (`forbidden_records`).
const IN_METRICS: RequiredRight = RequiredRight::Has(Right::Ingest, Domain::Metrics);
const IN_LOGS: RequiredRight = RequiredRight::Has(Right::Ingest, Domain::Logs);
const IN_TRACES: RequiredRight = RequiredRight::Has(Right::Ingest, Domain::Traces);
const IN_ALERTS: RequiredRight = RequiredRight::Has(Right::Ingest, Domain::Alerts);
const ALERTS: RequiredRight = RequiredRight::Has(Right::View, Domain::Alerts);
const SILENCING: RequiredRight = RequiredRight::Has(Right::Operate, Domain::Alerts);
const POLICY: RequiredRight = RequiredRight::Everywhere(Right::View, Domain::Alerting);
const EDIT_POLICY: RequiredRight = RequiredRight::Everywhere(Right::Edit, Domain::Alerting);
const TRY_RECEIVERS: RequiredRight = RequiredRight::Everywhere(Right::Operate, Domain::Alerting);
const SYSTEM: RequiredRight = RequiredRight::Everywhere(Right::Admin, Domain::System);
const RBAC_READ: RequiredRight = RequiredRight::Everywhere(Right::View, Domain::Rbac);
const RBAC_WRITE: RequiredRight = RequiredRight::Everywhere(Right::Admin, Domain::Rbac);
const AUDIT: RequiredRight = RequiredRight::Everywhere(Right::View, Domain::Audit);

const VIEW_TRANSACTIONS: RequiredRight = RequiredRight::Has(Right::View, Domain::Transactions);
const OPERATE_TRANSACTIONS: RequiredRight = RequiredRight::Has(Right::Operate, Domain::Transactions);
const EDIT_TRANSACTIONS: RequiredRight = RequiredRight::Has(Right::Edit, Domain::Transactions);
const VIEW_RESOURCES: RequiredRight = RequiredRight::Has(Right::View, Domain::Resources);
const EDIT_RESOURCES: RequiredRight = RequiredRight::Has(Right::Edit, Domain::Resources);
const EDIT_TYPES: RequiredRight = RequiredRight::Everywhere(Right::Edit, Domain::Resources);

/// All rows; the first that matches counts.
pub(crate) const ROWS: &[Row] = &[
    // The token service; its handlers authenticate callers where needed.
    Row(MethodClass::Any, "/realms/platform/protocol/openid-connect/userinfo", RequiredRight::Anyone),
    Row(MethodClass::Any, "/realms/**", RequiredRight::Public),
    // Metrics.
    Row(MethodClass::Any, "/metrics-api/-/**", RequiredRight::Public),
    Row(MethodClass::Any, "/metrics-api/api/v1/write", IN_METRICS),
    Row(MethodClass::Any, "/metrics-api/api/v1/import/**", IN_METRICS),
    Row(MethodClass::Any, "/metrics-api/api/v1/otlp/**", IN_METRICS),
    Row(MethodClass::Any, "/insert/opentelemetry/v1/metrics", IN_METRICS),
    Row(MethodClass::Any, "/v1/metrics", IN_METRICS),
    Row(MethodClass::Any, "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export", IN_METRICS),
    Row(MethodClass::Get, "/metrics-api/api/v1/rules", RULES),
    Row(MethodClass::Get, "/metrics-api/api/v1/alerts", RULES),
    Row(MethodClass::Any, "/metrics-api/**", METRICS),
    // Logs.
    Row(MethodClass::Any, "/insert/ready", RequiredRight::Public),
    Row(MethodClass::Any, "/logs-api/insert/ready", RequiredRight::Public),
    Row(MethodClass::Any, "/logs-api/health", RequiredRight::Public),
    Row(MethodClass::Any, "/insert/opentelemetry/v1/traces", IN_TRACES),
    Row(MethodClass::Any, "/insert/**", IN_LOGS),
    Row(MethodClass::Any, "/logs-api/insert/**", IN_LOGS),
    Row(MethodClass::Any, "/loki/api/v1/push", IN_LOGS),
    Row(MethodClass::Any, "/api/v2/logs", IN_LOGS),
    Row(MethodClass::Any, "/api/v1/validate", IN_LOGS),
    Row(MethodClass::Any, "/services/collector", IN_LOGS),
    Row(MethodClass::Any, "/services/collector/**", IN_LOGS),
    Row(MethodClass::Any, "/v1/logs", IN_LOGS),
    Row(MethodClass::Any, "/opentelemetry.proto.collector.logs.v1.LogsService/Export", IN_LOGS),
    Row(MethodClass::Any, "/logs-api/select/**", LOGS),
    Row(MethodClass::Any, "/select/**", LOGS),
    // Traces.
    Row(MethodClass::Any, "/v1/traces", IN_TRACES),
    Row(MethodClass::Any, "/opentelemetry.proto.collector.trace.v1.TraceService/Export", IN_TRACES),
    Row(MethodClass::Other, "/api/v2/spans", IN_TRACES),
    Row(MethodClass::Other, "/zipkin/api/v2/spans", IN_TRACES),
    Row(MethodClass::Other, "/api/traces", IN_TRACES),
    Row(MethodClass::Other, "/jaeger/api/traces", IN_TRACES),
    Row(MethodClass::Any, "/traces", TRACES),
    Row(MethodClass::Any, "/traces/**", TRACES),
    Row(MethodClass::Any, "/platform-api/traces/**", TRACES),
    // The description of the API.
    Row(MethodClass::Any, "/platform-api/openapi.json", RequiredRight::Anyone),
    Row(MethodClass::Any, "/platform-api/openapi.yaml", RequiredRight::Anyone),
    Row(MethodClass::Any, "/rulesapi/swagger", RequiredRight::Docs),
    Row(MethodClass::Any, "/rulesapi/swagger/**", RequiredRight::Docs),
    // Rules and policy.
    Row(MethodClass::Any, "/rulesapi/rules/test", RULES),
    Row(MethodClass::Any, "/rulesapi/rules/unit-test", RULES),
    Row(MethodClass::Any, "/rulesapi/rulepolicy/routes/test", POLICY),
    Row(MethodClass::Any, "/rulesapi/rulepolicy/templates/test", POLICY),
    Row(MethodClass::Any, "/rulesapi/rulepolicy/receivers/test", TRY_RECEIVERS),
    Row(MethodClass::Any, "/rulesapi/rulepolicy/receivers/{id}/test", TRY_RECEIVERS),
    Row(MethodClass::Get, "/rulesapi/rulepolicy/**", POLICY),
    Row(MethodClass::Any, "/rulesapi/rulepolicy/**", EDIT_POLICY),
    Row(MethodClass::Get, "/rulesapi/rules", RULES),
    Row(MethodClass::Get, "/rulesapi/rules/**", RULES),
    Row(MethodClass::Any, "/rulesapi/rules", EDIT_RULES),
    Row(MethodClass::Any, "/rulesapi/rules/**", EDIT_RULES),
    Row(MethodClass::Get, "/rulesapi/groups", RULES),
    Row(MethodClass::Get, "/rulesapi/groups/**", RULES),
    Row(MethodClass::Any, "/rulesapi/groups", EDIT_RULES),
    Row(MethodClass::Any, "/rulesapi/groups/**", EDIT_RULES),
    Row(MethodClass::Any, "/rulesapi/silences/preview", ALERTS),
    Row(MethodClass::Get, "/rulesapi/silences", ALERTS),
    Row(MethodClass::Get, "/rulesapi/silences/**", ALERTS),
    Row(MethodClass::Any, "/rulesapi/silences", SILENCING),
    Row(MethodClass::Any, "/rulesapi/silences/**", SILENCING),
    Row(MethodClass::Get, "/rulesapi/settings", POLICY),
    Row(MethodClass::Any, "/rulesapi/settings", EDIT_POLICY),
    Row(MethodClass::Get, "/rulesapi/deploy", RULES),
    Row(MethodClass::Any, "/rulesapi/deploy", EDIT_RULES),
    // Alerts, on paths next to those of traces.
    Row(MethodClass::Get, "/api/v2/alerts", ALERTS),
    Row(MethodClass::Other, "/api/v2/alerts", IN_ALERTS),
    Row(MethodClass::Any, "/api/v2/alertprocess", IN_ALERTS),
    Row(MethodClass::Any, "/api/v2/alerts/groups", ALERTS),
    Row(MethodClass::Get, "/api/v2/silences", ALERTS),
    Row(MethodClass::Other, "/api/v2/silences", SILENCING),
    Row(MethodClass::Get, "/api/v2/silence/{id}", ALERTS),
    Row(MethodClass::Other, "/api/v2/silence/{id}", SILENCING),
    Row(MethodClass::Any, "/api/v2/status", RULES),
    Row(MethodClass::Any, "/api/v2/receivers", RULES),
    Row(MethodClass::Any, "/api/**", TRACES),
    Row(MethodClass::Any, "/jaeger/api/**", TRACES),
    Row(MethodClass::Any, "/zipkin/api/**", TRACES),
    Row(MethodClass::Any, "/tempo/api/**", TRACES),
    Row(MethodClass::Any, "/tempopb.StreamingQuerier/**", TRACES),
    // SQL: each table shows rows by the rights in its own domain; without any, it cannot be named.
    Row(MethodClass::Any, "/sql-api/**", RequiredRight::Somewhere(Right::View)),
    // Analytics needs no right, contrary to the specification's table: a caller without rights sees no models and no
    // rows (`olap-api.md` 12.1, case olap-276).
    Row(MethodClass::Any, "/olap-api/**", RequiredRight::Anyone),
    // Access.
    Row(MethodClass::Any, "/platform-api/rbac/me", RequiredRight::Anyone),
    // The handler checks name and password itself, since a temporary password gives no token.
    Row(MethodClass::Any, "/platform-api/rbac/me/password", RequiredRight::Public),
    Row(MethodClass::Any, "/platform-api/rbac/permissions", RBAC_READ),
    // Asking about others needs a right, which the handler checks.
    Row(MethodClass::Any, "/platform-api/rbac/permissions/check", RequiredRight::Anyone),
    Row(MethodClass::Any, "/platform-api/rbac/keys/rotate", SYSTEM),
    Row(MethodClass::Any, "/platform-api/rbac/audit", AUDIT),
    Row(MethodClass::Any, "/platform-api/rbac/audit/**", AUDIT),
    // A caller's own keys need no right; the handlers check whose they are.
    Row(MethodClass::Any, "/platform-api/rbac/users/{id}/keys", RequiredRight::Anyone),
    Row(MethodClass::Any, "/platform-api/rbac/users/{id}/keys/**", RequiredRight::Anyone),
    Row(MethodClass::Any, "/platform-api/rbac/users/{id}/effective-permissions", RequiredRight::Anyone),
    Row(MethodClass::Any, "/platform-api/rbac/service-accounts/{id}/keys", RequiredRight::Anyone),
    Row(MethodClass::Any, "/platform-api/rbac/service-accounts/{id}/keys/**", RequiredRight::Anyone),
    Row(MethodClass::Any, "/platform-api/rbac/service-accounts/{id}/effective-permissions", RequiredRight::Anyone),
    Row(MethodClass::Get, "/platform-api/rbac/**", RBAC_READ),
    Row(MethodClass::Other, "/platform-api/rbac/**", RBAC_WRITE),
    // Business transactions; the handler of a test checks the right to the stored spans that it reads.
    Row(MethodClass::Any, "/bt-detection-rules/test", OPERATE_TRANSACTIONS),
    Row(MethodClass::Any, "/bt-detection-rules/test-pattern", OPERATE_TRANSACTIONS),
    Row(MethodClass::Any, "/bt-detection-rules/apply-to-all", OPERATE_TRANSACTIONS),
    Row(MethodClass::Any, "/bt-detection-rules/{id}/apply-to-all", OPERATE_TRANSACTIONS),
    Row(MethodClass::Any, "/rum-bt-detection-rules/test", OPERATE_TRANSACTIONS),
    Row(MethodClass::Any, "/rum-bt-detection-rules/test-pattern", OPERATE_TRANSACTIONS),
    Row(MethodClass::Any, "/rum-bt-detection-rules/apply-to-all", OPERATE_TRANSACTIONS),
    Row(MethodClass::Any, "/rum-bt-detection-rules/{id}/apply-to-all", OPERATE_TRANSACTIONS),
    // The handler checks whose job it is.
    Row(MethodClass::Any, "/platform-api/jobs/{id}", RequiredRight::Anyone),
    Row(MethodClass::Get, "/bt-detection-rules", VIEW_TRANSACTIONS),
    Row(MethodClass::Get, "/bt-detection-rules/**", VIEW_TRANSACTIONS),
    Row(MethodClass::Any, "/bt-detection-rules", EDIT_TRANSACTIONS),
    Row(MethodClass::Any, "/bt-detection-rules/**", EDIT_TRANSACTIONS),
    Row(MethodClass::Get, "/rum-bt-detection-rules", VIEW_TRANSACTIONS),
    Row(MethodClass::Get, "/rum-bt-detection-rules/**", VIEW_TRANSACTIONS),
    Row(MethodClass::Any, "/rum-bt-detection-rules", EDIT_TRANSACTIONS),
    Row(MethodClass::Any, "/rum-bt-detection-rules/**", EDIT_TRANSACTIONS),
    Row(MethodClass::Get, "/transactions", VIEW_TRANSACTIONS),
    Row(MethodClass::Get, "/transactions/**", VIEW_TRANSACTIONS),
    Row(MethodClass::Any, "/transactions", EDIT_TRANSACTIONS),
    Row(MethodClass::Any, "/transactions/**", EDIT_TRANSACTIONS),
    Row(MethodClass::Get, "/rum-key-business-transactions", VIEW_TRANSACTIONS),
    Row(MethodClass::Get, "/rum-key-business-transactions/**", VIEW_TRANSACTIONS),
    Row(MethodClass::Any, "/rum-key-business-transactions", EDIT_TRANSACTIONS),
    Row(MethodClass::Any, "/rum-key-business-transactions/**", EDIT_TRANSACTIONS),
    Row(MethodClass::Get, "/business-processes", RequiredRight::Has(Right::View, Domain::Processes)),
    Row(MethodClass::Get, "/business-processes/**", RequiredRight::Has(Right::View, Domain::Processes)),
    Row(MethodClass::Any, "/business-processes/test", RequiredRight::Has(Right::View, Domain::Processes)),
    Row(MethodClass::Any, "/business-processes", RequiredRight::Has(Right::Edit, Domain::Processes)),
    Row(MethodClass::Any, "/business-processes/**", RequiredRight::Has(Right::Edit, Domain::Processes)),
    // A caller's own private segments need no more; the handlers check whose they are.
    Row(MethodClass::Any, "/platform-api/segments", RequiredRight::Somewhere(Right::View)),
    Row(MethodClass::Any, "/platform-api/segments/**", RequiredRight::Somewhere(Right::View)),
    // Anyone who knows the id of a view may read it; only its owner may write it.
    Row(MethodClass::Any, "/platform-api/saved-views", RequiredRight::Somewhere(Right::View)),
    Row(MethodClass::Any, "/platform-api/saved-views/**", RequiredRight::Somewhere(Right::View)),
    Row(MethodClass::Get, "/platform-api/apdex-thresholds", RequiredRight::Has(Right::View, Domain::Apdex)),
    Row(MethodClass::Get, "/platform-api/apdex-thresholds/**", RequiredRight::Has(Right::View, Domain::Apdex)),
    Row(MethodClass::Any, "/platform-api/apdex-thresholds", RequiredRight::Has(Right::Edit, Domain::Apdex)),
    Row(MethodClass::Any, "/platform-api/apdex-thresholds/**", RequiredRight::Has(Right::Edit, Domain::Apdex)),
    Row(
        MethodClass::Any,
        "/platform-api/data-extraction-rules/test",
        RequiredRight::Has(Right::Operate, Domain::Extraction),
    ),
    Row(MethodClass::Get, "/platform-api/data-extraction-rules", RequiredRight::Has(Right::View, Domain::Extraction)),
    Row(
        MethodClass::Get,
        "/platform-api/data-extraction-rules/**",
        RequiredRight::Has(Right::View, Domain::Extraction),
    ),
    Row(MethodClass::Any, "/platform-api/data-extraction-rules", RequiredRight::Has(Right::Edit, Domain::Extraction)),
    Row(
        MethodClass::Any,
        "/platform-api/data-extraction-rules/**",
        RequiredRight::Has(Right::Edit, Domain::Extraction),
    ),
    // Managed resources.
    Row(MethodClass::Any, "/platform-api/resources/dependency-graph", VIEW_RESOURCES),
    Row(MethodClass::Get, "/platform-api/resources", VIEW_RESOURCES),
    Row(MethodClass::Get, "/platform-api/resources/**", VIEW_RESOURCES),
    Row(MethodClass::Any, "/platform-api/resources", EDIT_RESOURCES),
    Row(MethodClass::Any, "/platform-api/resources/**", EDIT_RESOURCES),
    Row(MethodClass::Get, "/platform-api/resource-relationships", VIEW_RESOURCES),
    Row(MethodClass::Get, "/platform-api/resource-relationships/**", VIEW_RESOURCES),
    Row(MethodClass::Any, "/platform-api/resource-relationships", EDIT_RESOURCES),
    Row(MethodClass::Any, "/platform-api/resource-relationships/**", EDIT_RESOURCES),
    Row(MethodClass::Get, "/platform-api/resource-types", RequiredRight::Somewhere(Right::View)),
    Row(MethodClass::Get, "/platform-api/resource-types/**", RequiredRight::Somewhere(Right::View)),
    Row(MethodClass::Any, "/platform-api/resource-types", EDIT_TYPES),
    Row(MethodClass::Any, "/platform-api/resource-types/**", EDIT_TYPES),
    Row(MethodClass::Get, "/platform-api/relationship-types", RequiredRight::Somewhere(Right::View)),
    Row(MethodClass::Get, "/platform-api/relationship-types/**", RequiredRight::Somewhere(Right::View)),
    Row(MethodClass::Any, "/platform-api/relationship-types", EDIT_TYPES),
    Row(MethodClass::Any, "/platform-api/relationship-types/**", EDIT_TYPES),
    Row(MethodClass::Get, "/platform-api/ci-classes", RequiredRight::Somewhere(Right::View)),
    Row(MethodClass::Get, "/platform-api/ci-classes/**", RequiredRight::Somewhere(Right::View)),
    Row(MethodClass::Any, "/platform-api/ci-classes", EDIT_TYPES),
    Row(MethodClass::Any, "/platform-api/ci-classes/**", EDIT_TYPES),
    Row(MethodClass::Get, "/platform-api/ci-subclasses", RequiredRight::Somewhere(Right::View)),
    Row(MethodClass::Get, "/platform-api/ci-subclasses/**", RequiredRight::Somewhere(Right::View)),
    Row(MethodClass::Any, "/platform-api/ci-subclasses", EDIT_TYPES),
    Row(MethodClass::Any, "/platform-api/ci-subclasses/**", EDIT_TYPES),
    // The server.
    Row(MethodClass::Any, "/health/**", RequiredRight::Public),
    Row(MethodClass::Any, "/health", RequiredRight::Public),
    Row(MethodClass::Any, "/-/**", RequiredRight::Public),
    Row(MethodClass::Any, "/ready", RequiredRight::Public),
    Row(MethodClass::Any, "/metrics", RequiredRight::OwnMetrics),
    Row(MethodClass::Any, "/admin/**", SYSTEM),
];

impl Row {
    fn fits(&self, method: &Method, route: &str) -> bool {
        let reads = matches!(*method, Method::GET | Method::HEAD);
        let by = match self.0 {
            MethodClass::Any => true,
            MethodClass::Get => reads,
            MethodClass::Other => !reads,
        };
        let here = match self.1.strip_suffix("**") {
            Some(above) => route.starts_with(above),
            None => route == self.1,
        };
        by && here
    }
}

/// Gives the need of a route; `None`: there is no row.
pub(crate) fn need(method: &Method, route: &str) -> Option<RequiredRight> {
    ROWS.iter().find(|row| row.fits(method, route)).map(|row| row.2)
}

impl RequiredRight {
    /// Gives the missing triple, if any.
    pub(crate) fn missing(self, rights: &Rights) -> Option<Triple> {
        let all = |right, domain| Triple::new(right, domain, Services::all());
        match self {
            Self::Public | Self::Anyone | Self::Docs => None,
            Self::Has(right, domain) => (!rights.has_any(right, domain)).then(|| all(right, Some(domain))),
            Self::Everywhere(right, domain) => {
                let needed = all(right, Some(domain));
                (!rights.covers(&needed)).then_some(needed)
            }
            Self::Somewhere(right) => (!rights.has_in_some_domain(right)).then(|| all(right, None)),
            // The metrics cover all services.
            Self::OwnMetrics => Self::Everywhere(Right::View, Domain::System).missing(rights),
        }
    }

    /// Says whether the request sends telemetry.
    pub(crate) fn is_ingest(self) -> bool {
        matches!(self, Self::Has(Right::Ingest, _) | Self::Everywhere(Right::Ingest, _))
    }

    /// Says whether a 401 also offers Basic authentication, for clients that only know that.
    pub(crate) fn asks_for_basic(self, path: &str) -> bool {
        self.is_ingest() || path.starts_with("/metrics-api/") || path.starts_with("/logs-api/")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows() {
        let check =
            |method: Method, route: &str, expected| assert_eq!(need(&method, route), expected, "{method} {route}");
        check(Method::GET, "/metrics-api/api/v1/query", Some(METRICS));
        check(Method::POST, "/metrics-api/api/v1/query", Some(METRICS));
        check(Method::POST, "/metrics-api/api/v1/write", Some(IN_METRICS));
        check(Method::GET, "/api/v2/spans", Some(TRACES));
        check(Method::POST, "/api/v2/spans", Some(IN_TRACES));
        check(Method::POST, "/api/v2/logs", Some(IN_LOGS));
        check(Method::GET, "/api/v1/validate", Some(IN_LOGS));
        check(Method::POST, "/services/collector", Some(IN_LOGS));
        check(Method::POST, "/services/collector/event", Some(IN_LOGS));
        check(Method::GET, "/api/traces/{id}", Some(TRACES));
        check(Method::POST, "/tempopb.StreamingQuerier/Search", Some(TRACES));
        check(Method::POST, "/insert/{*path}", Some(IN_LOGS));
        check(Method::GET, "/platform-api/rbac/users", Some(RBAC_READ));
        check(Method::HEAD, "/platform-api/rbac/users", Some(RBAC_READ));
        check(Method::PATCH, "/platform-api/rbac/users/{id}", Some(RBAC_WRITE));
        check(Method::POST, "/api/v2/alerts", Some(IN_ALERTS));
        check(Method::GET, "/api/v2/alerts", Some(ALERTS));
        check(Method::DELETE, "/api/v2/silence/{id}", Some(SILENCING));
        check(Method::GET, "/what/comes", None);
        check(Method::GET, "/", None);
    }

    /// All paths of a router: its debug form lists them.
    fn paths_of(router: &impl std::fmt::Debug) -> Vec<String> {
        let text = format!("{router:?}");
        let quoted = text.split('"').skip(1).step_by(2);
        let mut paths: Vec<String> = quoted.filter(|t| t.starts_with('/')).map(str::to_owned).collect();
        paths.sort_unstable();
        paths.dedup();
        paths
    }

    #[test]
    fn no_route_without_a_row() {
        let mut seen = 0;
        for router in crate::router::all_routes() {
            // The fallback shows itself as `/`.
            for path in paths_of(&router).iter().filter(|p| !p.contains("__private__axum") && *p != "/") {
                seen += 1;
                for method in [Method::GET, Method::HEAD, Method::POST, Method::PUT, Method::PATCH, Method::DELETE] {
                    assert!(need(&method, path).is_some(), "{method} {path} has no row");
                }
            }
        }
        assert!(seen > 150, "only {seen} routes found: does a router still show its paths?");
    }

    /// What lets somebody in where there is nothing says nothing now, and too much once there is something.
    #[test]
    fn no_row_without_a_route() {
        let routes: Vec<String> = crate::router::all_routes().iter().flat_map(paths_of).collect();
        for row in ROWS {
            let of_path = Row(MethodClass::Any, row.1, row.2);
            assert!(routes.iter().any(|route| of_path.fits(&Method::GET, route)), "{row:?} is of no route");
        }
    }

    /// What is open to everybody is listed here once more, so that nothing becomes so by a slip.
    #[test]
    fn what_is_public() {
        let mut public: Vec<String> = Vec::new();
        for router in crate::router::all_routes() {
            for path in paths_of(&router) {
                if [Method::GET, Method::POST].iter().any(|m| need(m, &path) == Some(RequiredRight::Public)) {
                    public.push(path);
                }
            }
        }
        public.sort_unstable();
        public.dedup();
        let oidc = |path: &str| format!("/realms/platform/protocol/openid-connect/{path}");
        let mut expected = vec![
            "/-/healthy".to_owned(),
            "/-/ready".to_owned(),
            "/health".to_owned(),
            "/health/live".to_owned(),
            "/health/ready".to_owned(),
            "/insert/ready".to_owned(),
            "/logs-api/health".to_owned(),
            "/logs-api/insert/ready".to_owned(),
            "/metrics-api/-/healthy".to_owned(),
            "/metrics-api/-/ready".to_owned(),
            "/platform-api/rbac/me/password".to_owned(),
            "/ready".to_owned(),
            "/realms/platform".to_owned(),
            "/realms/platform/.well-known/openid-configuration".to_owned(),
        ];
        expected.extend(["certs", "logout", "revoke", "token", "token/introspect"].map(oidc));
        expected.sort_unstable();
        assert_eq!(public, expected);
    }

    #[test]
    fn what_is_missing() {
        let rights = |text: &str| -> Rights {
            [Triple::of_json(&serde_json::json!(text)).expect("a triple")].into_iter().collect()
        };
        let check = |need: RequiredRight, held: &str, missing: Option<&str>| {
            let found = need.missing(&rights(held)).map(|t| t.to_string());
            assert_eq!(found.as_deref(), missing, "{need:?} {held}");
        };
        check(LOGS, "{view, logs, cart}", None);
        check(LOGS, "{edit, logs, cart}", None);
        check(LOGS, "{ingest, logs, *}", Some("{view, logs, *}"));
        check(LOGS, "{view, metrics, *}", Some("{view, logs, *}"));
        check(IN_LOGS, "{view, logs, *}", Some("{ingest, logs, *}"));
        check(RBAC_READ, "{view, rbac, cart}", Some("{view, rbac, *}"));
        check(RBAC_WRITE, "{edit, *, *}", Some("{admin, rbac, *}"));
        check(RequiredRight::OwnMetrics, "{view, *, cart}", Some("{view, system, *}"));
        check(RequiredRight::OwnMetrics, "{view, system, *}", None);
        for need in [LOGS, IN_METRICS, RBAC_WRITE, SYSTEM, AUDIT, RequiredRight::OwnMetrics] {
            check(need, "{admin, *, *}", None);
        }
    }

    /// A page of another site may not bring about what changes something (`guard`), and what does is told by its family:
    /// so each route that asks for more than to see must be in a family that writes.
    #[test]
    fn what_asks_for_more_than_to_see_may_change_something() {
        use crate::request_families::{FAMILIES, changes, family_of};
        let acts = |need: Option<RequiredRight>| match need {
            Some(
                RequiredRight::Has(right, _) | RequiredRight::Everywhere(right, _) | RequiredRight::Somewhere(right),
            ) => right != Right::View,
            _ => false,
        };
        let mut seen = 0;
        for router in crate::router::all_routes() {
            for path in paths_of(&router) {
                // These take nothing: they only say which formats are taken elsewhere.
                if matches!(path.as_str(), "/api/traces" | "/jaeger/api/traces") {
                    continue;
                }
                for method in [Method::POST, Method::PUT, Method::PATCH, Method::DELETE] {
                    if acts(need(&method, &path)) {
                        seen += 1;
                        let family = family_of(&path);
                        assert!(changes(family, &method), "{method} {path} is of family {}", FAMILIES[family].name);
                    }
                }
            }
        }
        assert!(seen > 100, "only {seen} found");
    }

    #[test]
    fn rows_of_what_is_special() {
        let check =
            |method: Method, route: &str, expected| assert_eq!(need(&method, route), expected, "{method} {route}");
        check(Method::POST, "/insert/opentelemetry/v1/metrics", Some(IN_METRICS));
        check(Method::POST, "/insert/opentelemetry/v1/traces", Some(IN_TRACES));
        check(Method::POST, "/insert/opentelemetry/v1/logs", Some(IN_LOGS));
        check(Method::GET, "/insert/ready", Some(RequiredRight::Public));
        check(Method::GET, "/metrics-api/api/v1/rules", Some(RULES));
        check(Method::POST, "/metrics-api/api/v1/rules", Some(METRICS));
        check(Method::HEAD, "/api/v2/alerts", Some(ALERTS));
        check(Method::OPTIONS, "/api/v2/alerts", Some(IN_ALERTS));
        check(Method::POST, "/rulesapi/rules/test", Some(RULES));
        check(Method::POST, "/rulesapi/rules", Some(EDIT_RULES));
        check(Method::PUT, "/rulesapi/rules/{id}", Some(EDIT_RULES));
        check(Method::POST, "/rulesapi/rulepolicy/receivers/{id}/test", Some(TRY_RECEIVERS));
        check(Method::GET, "/rulesapi/rulepolicy/receivers/{id}", Some(POLICY));
        check(Method::DELETE, "/rulesapi/rulepolicy/receivers/{id}", Some(EDIT_POLICY));
        check(Method::POST, "/rulesapi/silences/preview", Some(ALERTS));
        check(Method::POST, "/rulesapi/silences", Some(SILENCING));
        check(Method::POST, "/platform-api/rbac/users/{id}/keys", Some(RequiredRight::Anyone));
        check(Method::DELETE, "/platform-api/rbac/users/{id}/keys/{key}", Some(RequiredRight::Anyone));
        check(Method::DELETE, "/platform-api/rbac/users/{id}", Some(RBAC_WRITE));
        check(Method::GET, "/platform-api/rbac/audit", Some(AUDIT));
        check(Method::POST, "/platform-api/rbac/keys/rotate", Some(SYSTEM));
        check(Method::POST, "/bt-detection-rules/{id}/apply-to-all", Some(OPERATE_TRANSACTIONS));
        check(Method::POST, "/bt-detection-rules", Some(EDIT_TRANSACTIONS));
        check(Method::GET, "/platform-api/resource-types/{id}", Some(RequiredRight::Somewhere(Right::View)));
        check(Method::PATCH, "/platform-api/resource-types/{id}", Some(EDIT_TYPES));
        check(Method::GET, "/metrics", Some(RequiredRight::OwnMetrics));
        check(Method::POST, "/admin/flush", Some(SYSTEM));
        // A row without `**` is of that route alone.
        check(Method::GET, "/health", Some(RequiredRight::Public));
        check(Method::GET, "/healthy", None);
        check(Method::GET, "/ready", Some(RequiredRight::Public));
        check(Method::GET, "/readyz", None);
        check(Method::GET, "/metrics/x", None);
        check(Method::GET, "/tracesx", None);
        check(Method::POST, "/transactionsx", None);
    }

    #[test]
    fn who_is_asked_for_a_password() {
        for (need, path, expected) in [
            (IN_LOGS, "/insert/jsonline", true),
            (IN_METRICS, "/v1/metrics", true),
            (METRICS, "/metrics-api/api/v1/query", true),
            (LOGS, "/logs-api/select/logsql/query", true),
            (LOGS, "/select/logsql/query", false),
            (TRACES, "/traces/search", false),
            (SYSTEM, "/admin/flush", false),
            (RequiredRight::Anyone, "/platform-api/rbac/me", false),
        ] {
            assert_eq!(need.asks_for_basic(path), expected, "{path}");
            assert_eq!(need.is_ingest(), matches!(need, RequiredRight::Has(Right::Ingest, _)), "{path}");
        }
    }

    /// Breaks if a row comes after one that covers it completely, and so is never reached.
    #[test]
    fn each_row_counts_somewhere() {
        for (n, row) in ROWS.iter().enumerate() {
            let route = row.1.replace("**", "x/{id}");
            let counts = |method: &Method| ROWS.iter().position(|other| other.fits(method, &route)) == Some(n);
            assert!([Method::GET, Method::POST].iter().any(counts), "{row:?}");
        }
    }

    /// A row of all below a path is of no path that only begins alike, nor of the path itself.
    #[test]
    fn rows_end_at_their_path() {
        for (route, expected) in [
            ("/metrics", Some(RequiredRight::OwnMetrics)),
            ("/metrics/", None),
            ("/metricsx", None),
            ("/admin", None),
            ("/admin/flush", Some(SYSTEM)),
            ("/administrator", None),
            ("/traces", Some(TRACES)),
            ("/tracesx", None),
            ("/traces/{id}", Some(TRACES)),
            ("/health", Some(RequiredRight::Public)),
            ("/healthy", None),
            ("/health/live", Some(RequiredRight::Public)),
            ("/Metrics", None),
            ("", None),
        ] {
            assert_eq!(need(&Method::GET, route), expected, "{route}");
        }
        // Unknown methods do not count as reading.
        let odd = Method::from_bytes(b"SEARCH").expect("a method");
        assert_eq!(need(&odd, "/api/v2/silences"), Some(SILENCING));
        assert_eq!(need(&odd, "/rulesapi/settings"), Some(EDIT_POLICY));
    }
}
