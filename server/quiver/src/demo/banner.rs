//! What the demo prints: how to sign in, and what to try.

use std::fmt::Write;
use std::path::PathBuf;

use crate::server::Addresses;

/// What a user needs to sign in.
#[derive(Debug)]
pub(super) struct LogIn {
    /// File with the demo's API key.
    pub(super) key: PathBuf,
    /// File with the first password of `admin`, until it is changed.
    pub(super) first_password: Option<PathBuf>,
}

impl LogIn {
    /// A shell line that makes a header of the key, and where the password of `admin` is.
    fn line(&self) -> String {
        let admin = match &self.first_password {
            Some(file) => format!("the user admin has the password in {}", file.display()),
            None => "the user admin has the password that you gave it".to_owned(),
        };
        format!("  Log in:   A=\"Authorization: Bearer $(cat '{}')\"   # {admin}\n", self.key.display())
    }
}

/// Prints addresses, and how to sign in.
pub(super) fn print(base: &str, addresses: &Addresses, log_in: Option<&LogIn>) {
    let mut text = text(base, addresses, log_in);
    text.push('\n');
    let _ = std::io::Write::write_all(&mut std::io::stdout(), text.as_bytes());
}

fn text(base: &str, addresses: &Addresses, log_in: Option<&LogIn>) -> String {
    let curl = if log_in.is_some() { "curl -sH \"$A\"" } else { "curl -s" };
    let measure = r#"{"query":{"measures":["Spans.count","Spans.durationP95"],"dimensions":["Spans.service"]}}"#;
    let scheme = base.split("://").next().unwrap_or("http");
    let mut out = "\n  Quiver runs with demo telemetry flowing in.\n\n".to_owned();
    out.push_str(&log_in.map(LogIn::line).unwrap_or_default());
    let basic = if log_in.is_some() { ", basic authentication: any user, the key as password" } else { "" };
    let _ = write!(
        out,
        "  Try:      {curl} '{base}/metrics-api/api/v1/query' --data-urlencode 'query=sum by (job) (rate(http_requests_total[5m]))'\n\
         \x20 Grafana:  add a Prometheus data source with the URL {base}/metrics-api{basic}\n\
         \x20 Write:    remote_write to {base}/metrics-api/api/v1/write"
    );
    for (name, address) in [("OTLP/HTTP", addresses.otlp_http), ("OTLP/gRPC", addresses.otlp_grpc)] {
        if let Some(address) = address {
            let _ = write!(out, ", {name} to {scheme}://{address}");
        }
    }
    let _ = write!(
        out,
        "\n  Traces:   {curl} '{base}/traces?service=checkout&error=true&limit=3'; Jaeger and Zipkin data sources: {base}\n\
         \x20 Logs:     {curl} '{base}/logs-api/select/logsql/query' --data-urlencode 'query=level:error' -d limit=3\n\
         \x20 Measure:  {curl} '{base}/olap-api/v1/load' -H 'content-type: application/json' -d '{measure}'\n\
         \x20 Together: {base}/traces/<id>/logs, {base}/traces/<id>/exemplars\n\
         \x20 Look:     {base}/metrics (own metrics), {base}/health/ready\n\
         \x20 Explain:  add explain=analyze to any query\n\n  Ctrl-C stops it; the data stays in the data directory.\n"
    );
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_says_how_to_come_in() {
        let at = "127.0.0.1:1".parse().unwrap();
        let addresses = Addresses { http: at, otlp_http: Some(at), otlp_grpc: None, zipkin: None, postgres: None };
        let said = text("http://127.0.0.1:1", &addresses, None);
        assert!(
            !said.contains("Log in") && said.contains("curl -s '") && said.contains("OTLP/HTTP to http://"),
            "{said}"
        );
        let log_in = LogIn { key: "d/demo-key".into(), first_password: Some("d/first".into()) };
        let said = text("https://127.0.0.1:1", &addresses, Some(&log_in));
        let lines: Vec<&str> = said.lines().filter(|line| line.contains("Log in:")).collect();
        assert_eq!(lines.len(), 1, "{said}");
        assert!(lines[0].contains("$(cat 'd/demo-key')") && lines[0].contains("admin") && lines[0].contains("d/first"));
        assert!(said.contains("curl -sH \"$A\"") && said.contains("OTLP/HTTP to https://"), "{said}");
    }
}
