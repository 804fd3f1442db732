//! Resource attributes in the labels of series: hosts without a service name stay separate, and names that collide.

use quiver_types::LabelSet;

use super::*;

/// A receiver with some names of the default list.
fn receiver() -> Receiver {
    let list = ["service.name", "service.namespace", "host.name", "host.id", "cloud.region", "mysql.*", "server.port"];
    let options = OtlpOptions { promoted: PromotedAttributes::of(&list.map(str::to_owned)), ..OtlpOptions::default() };
    Receiver { options, ..Receiver::default() }
}

fn gauge() -> Metric {
    metric("g", "", Data::Gauge(Gauge { data_points: vec![number(5, 1.0)] }))
}

/// Puts several requests into one.
fn together(requests: Vec<ExportMetricsServiceRequest>) -> ExportMetricsServiceRequest {
    ExportMetricsServiceRequest { resource_metrics: requests.into_iter().flat_map(|r| r.resource_metrics).collect() }
}

#[test]
fn hosts_without_a_service_stay_apart() {
    let delta = |value: f64, seconds: u64| {
        let value = NumberDataPoint { start_time_unix_nano: (seconds - 1) * S, ..number(seconds, value) };
        metric("d", "", sum(DELTA, true, vec![value]))
    };
    let quantile_values = vec![ValueAtQuantile { quantile: 0.5, value: 1.0 }];
    let summary = SummaryDataPoint { time_unix_nano: 5 * S, quantile_values, ..SummaryDataPoint::default() };
    let of_host = |host: &str, value: f64| {
        let metrics = vec![
            gauge(),
            metric("c", "", sum(CUMULATIVE, true, vec![number(5, value)])),
            delta(value, 5),
            histogram(DELTA, vec![histogram_point(5, &[1, 2], &[1.0])]),
            exponential(DELTA, vec![exponential_point(5, 1, 0, &[1])]),
            metric("s", "", Data::Summary(Summary { data_points: vec![summary.clone()] })),
            delta(value, 6),
        ];
        request(&[("host.name", host), ("os.description", "Linux")], metrics)
    };
    let r = receiver();
    let hosts = ["a", "b", "c"];
    let all = r.decode(&together(hosts.iter().zip([1.0, 10.0, 100.0]).map(|(h, v)| of_host(h, v)).collect()));
    assert_eq!(all.rejected, []);
    let found = rows(&all);
    for (host, value) in hosts.iter().zip([1, 10, 100]) {
        let own: Vec<&String> = found.iter().filter(|row| row.contains(&format!("host_name={host}"))).collect();
        let label = format!("host_name={host}");
        let expected = [
            format!("g{{{label}}} 1 5000"),
            format!("c_total{{{label}}} {value} 5000"),
            format!("d_total{{{label}}} {value} 5000"),
            format!("lat_milliseconds_sum{{{label}}} 10 5000"),
            format!("lat_milliseconds_count{{{label}}} 3 5000"),
            format!("lat_milliseconds_bucket{{{label},le=1}} 1 5000"),
            format!("lat_milliseconds_bucket{{{label},le=+Inf}} 3 5000"),
            format!("s_sum{{{label}}} 0 5000"),
            format!("s_count{{{label}}} 0 5000"),
            format!("s{{{label},quantile=0.5}} 1 5000"),
            format!("d_total{{{label}}} {} 6000", 2 * value),
            format!("target_info{{{label},os_description=Linux}} 1 6000"),
        ];
        assert_eq!(own, expected.iter().collect::<Vec<_>>());
    }
    let natives: Vec<String> = all.batch.histograms.iter().map(|h| name_of(all.batch.labels(h.series))).collect();
    assert_eq!(natives, hosts.map(|h| format!("lat_seconds{{host_name={h}}}")));
    assert_eq!(r.delta.lock().unwrap().len(), 9, "three sums of each host");
}

#[test]
fn names_that_meet() {
    let r = receiver();
    let check = |resource: &[(&str, &str)], own: &[(&str, &str)], series: &str, info: Option<&str>| {
        let attributes = own.iter().map(|(k, v)| attribute(k, v)).collect();
        let point = NumberDataPoint { attributes, ..number(5, 1.0) };
        let metrics = vec![metric("g", "", Data::Gauge(Gauge { data_points: vec![point] }))];
        // Once as it is decoded, once as it is known.
        for _ in 0..2 {
            let decoded = r.decode(&request(resource, metrics.clone()));
            let expected: Vec<String> = [Some(format!("g{{{series}}} 1 5000"))]
                .into_iter()
                .chain([info.map(|info| format!("target_info{{{info}}} 1 5000"))])
                .flatten()
                .collect();
            assert_eq!(rows(&decoded), expected, "{resource:?} {own:?}");
        }
    };
    let shop = ("service.name", "shop");
    check(&[], &[("a", "b")], "a=b", None);
    check(&[shop], &[], "job=shop,service_name=shop", None);
    check(
        &[shop, ("service.namespace", "ns"), ("service.instance.id", "i"), ("x", "y")],
        &[],
        "instance=i,job=ns/shop,service_name=shop,service_namespace=ns",
        Some("instance=i,job=ns/shop,service_name=shop,service_namespace=ns,x=y"),
    );
    // `job` and `instance` win, then the point, then the resource.
    check(
        &[shop, ("host.name", "h")],
        &[("job", "mine"), ("host.name", "p"), ("service.name", "q")],
        "host_name=p,job=shop,service_name=q",
        Some("host_name=h,job=shop,service_name=shop"),
    );
    check(&[("host.name", "h")], &[("job", "mine")], "host_name=h,job=mine", Some("host_name=h"));
    check(&[("job", "r"), shop], &[], "job=shop,service_name=shop", Some("job=shop,service_name=shop"));
    check(&[("job", "r"), ("host.id", "7")], &[], "host_id=7", Some("host_id=7,job=r"));
    // What is empty is not there, on either side.
    check(&[("host.name", "h")], &[("host.name", "")], "host_name=h", Some("host_name=h"));
    check(&[("host.name", ""), ("x", "")], &[("host_name", "p")], "host_name=p", Some(""));
    check(&[("service.name", ""), ("host.name", "h")], &[("job", "p")], "host_name=h,job=p", Some("host_name=h"));
    // Keys that become one name: joined in key order; of equal keys the last one counts.
    check(
        &[("mysql.a_b", "3"), ("mysql.a.b", "2"), ("mysql.a-b", "1"), ("other", "x"), ("mysql.c", "")],
        &[],
        "mysql_a_b=1;2;3",
        Some("mysql_a_b=1;2;3,other=x"),
    );
    check(&[("host.name", "1"), ("host.name", "2")], &[], "host_name=2", Some("host_name=2"));
    check(&[("host.name", "h")], &[("host_name", "u"), ("host.name", "d")], "host_name=d;u", Some("host_name=h"));
    check(&[("mysql..", "x")], &[], "mysql__=x", Some("mysql__=x"));
}

#[test]
fn values_that_are_no_texts() {
    let value = |value| Some(AnyValue { value: Some(value) });
    let list = any_value::Value::ArrayValue(opentelemetry_proto::tonic::common::v1::ArrayValue {
        values: vec![AnyValue { value: Some(any_value::Value::IntValue(1)) }],
    });
    let mut request = request(&[("host.name", "h")], vec![gauge()]);
    let resource = request.resource_metrics[0].resource.as_mut().unwrap();
    for (key, value) in [
        ("server.port", value(any_value::Value::IntValue(8080))),
        ("mysql.on", value(any_value::Value::BoolValue(true))),
        ("mysql.share", value(any_value::Value::DoubleValue(0.5))),
        ("mysql.list", value(list)),
        ("mysql.none", None),
    ] {
        resource.attributes.push(KeyValue { key: key.into(), value, ..KeyValue::default() });
    }
    let labels = "host_name=h,mysql_list=[1],mysql_on=true,mysql_share=0.5,server_port=8080";
    let expected = [format!("g{{{labels}}} 1 5000"), format!("target_info{{{labels}}} 1 5000")];
    assert_eq!(rows(&receiver().decode(&request)), expected);
}

#[test]
fn scopes_win_over_all() {
    let r = receiver();
    let r = Receiver { options: OtlpOptions { scope_labels: true, ..r.options }, ..Receiver::default() };
    let mut point = number(5, 1.0);
    point.attributes = vec![attribute("otel.scope.name", "mine"), attribute("k", "p")];
    let metrics = vec![metric("g", "", Data::Gauge(Gauge { data_points: vec![point] }))];
    let decoded = r.decode(&request(&[("host.name", "h")], metrics));
    let scope = "otel_scope_k_x=v,otel_scope_name=lib,otel_scope_schema_url=url,otel_scope_version=1.2";
    assert_eq!(
        rows(&decoded),
        [format!("g{{host_name=h,k=p,{scope}}} 1 5000"), "target_info{host_name=h} 1 5000".to_owned()]
    );
    // An attribute is never taken for a field, whether the field is there or not.
    let mut request = request(&[], vec![gauge()]);
    let of_scope = &mut request.resource_metrics[0].scope_metrics[0];
    of_scope.schema_url.clear();
    let scope = of_scope.scope.as_mut().expect("a scope");
    scope.version.clear();
    scope.attributes.extend(["name", "version", "schema.url"].map(|key| attribute(key, "x")));
    assert_eq!(rows(&r.decode(&request))[0], "g{otel_scope_k_x=v,otel_scope_name=lib} 1 5000");
}

/// A series has the service of its resource, as spans and logs have.
#[test]
fn the_service_of_a_series_is_that_of_its_resource() {
    let resource = [SERVICE[0], SERVICE[1], ("host.name", "h")];
    let decoded =
        receiver().decode(&request(&resource, vec![gauge(), histogram(DELTA, vec![histogram_point(5, &[1], &[])])]));
    let labels = ["service_name", "service", "job"].map(str::to_owned);
    assert!(decoded.batch.series.len() > 3);
    for series in 0..decoded.batch.series.len() as u32 {
        let set = LabelSet::from_canonical(decoded.batch.labels(series));
        assert_eq!((set.service(&labels), set.get("job")), ("shop", "ns/shop"), "{}", set.metric());
    }
}

#[test]
fn resources_that_cannot_be_labels() {
    let r = receiver();
    let check = |resource: &[(&str, &str)], reason: Reason| {
        let decoded = r.decode(&request(resource, vec![gauge(), gauge()]));
        assert_eq!((decoded.samples, decoded.rejected[0].reason, decoded.rejected[0].count), (0, reason, 2));
    };
    let long = "x".repeat(crate::labels::TEXT_MAX_BYTES + 1);
    check(&[("host.name", &long)], Reason::LongLabel);
    let half = &long[..=crate::labels::TEXT_MAX_BYTES / 2];
    check(&[("host.name", half), ("host.id", half)], Reason::LongLabel);
    let names: Vec<String> = (0..=crate::labels::LABELS_MAX).map(|n| format!("mysql.{n}")).collect();
    let many: Vec<(&str, &str)> = names.iter().map(|n| (n.as_str(), "x")).collect();
    check(&many, Reason::TooManyLabels);
    // What is in `target_info` alone costs that alone.
    let decoded = r.decode(&request(&[("host.name", "h"), ("notes", &long)], vec![gauge()]));
    assert_eq!(rows(&decoded), ["g{host_name=h} 1 5000"]);
}
