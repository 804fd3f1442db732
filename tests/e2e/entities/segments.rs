//! Segments below the scans of every language, for callers with all rights and with few.

use quiver_tests::server::Server;
use quiver_types::{Clock, SystemClock};
use serde_json::{Value, json};

use crate::identity::{bearer, login, user, with_password};
use crate::json_calls::call;

struct Shop {
    server: Server,
    admin: String,
    carol: String,
    now_s: i64,
    _dir: tempfile::TempDir,
}

/// Two services, `cart` of team a and `web` of team b, the latter also in the region eu.
async fn shop() -> Shop {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(dir.path(), &with_password()).await;
    let admin = bearer(&login(&server, "admin", crate::identity::PASSWORD).await);
    user(&server, &admin, "carol", "viewer", json!(["cart"])).await;
    let carol = bearer(&login(&server, "carol", crate::identity::PASSWORD).await);
    let now_s = SystemClock.now_ms() / 1000;
    let headers = |kind| [("content-type", kind), ("authorization", admin.as_str())];
    let samples = format!(
        "req{{service_name=\"cart\",team=\"a\",n=\"1\"}} 1 {at}\nreq{{service_name=\"cart\",team=\"a\",n=\"2\"}} 2 {at}\n\
         req{{service_name=\"web\",team=\"b\",region=\"eu\"}} 4 {at}\nreq{{service_name=\"web\",team=\"b\"}} 8 {at}\n",
        at = (now_s - 10) * 1000
    );
    let path = "/metrics-api/api/v1/import/prometheus";
    let taken = server.post(path, &headers("text/plain"), samples.into_bytes()).await;
    assert!(taken.status < 300, "{}", taken.text());
    let rows = "{\"_msg\":\"a\",\"service.name\":\"cart\",\"team\":\"a\"}\n{\"_msg\":\"b\",\"service.name\":\"web\",\"team\":\"b\"}\n";
    let path = "/insert/jsonline?_stream_fields=service.name";
    assert_eq!(server.post(path, &headers("application/stream+json"), rows.as_bytes().to_vec()).await.status, 200);
    let span = |id: u8| {
        json!({"traceId": format!("{id:032x}"), "spanId": format!("{id:016x}"), "name": "GET", "kind": 2,
            "startTimeUnixNano": format!("{}000000000", now_s - 10), "endTimeUnixNano": format!("{}500000000", now_s - 10)})
    };
    let of = |service: &str, ids: &[u8]| {
        json!({"resource": {"attributes": [{"key": "service.name", "value": {"stringValue": service}}]},
            "scopeSpans": [{"spans": ids.iter().map(|id| span(*id)).collect::<Vec<_>>()}]})
    };
    let body = json!({"resourceSpans": [of("cart", &[1, 2, 3]), of("web", &[4])]});
    assert_eq!(call(&server, &admin, "POST", "/v1/traces", &body).await.status, 200);
    let leaf = |field: &str, value: &str| json!({"field": field, "op": "eq", "value": value});
    let segments = [
        json!({"key": "a", "name": "a", "visibility": "shared", "conditions": {
            "metrics": {"any": [leaf("team", "a"), leaf("region", "eu")]},
            "logs": leaf("team", "a"), "spans": leaf("service.name", "cart")}}),
        json!({"key": "of", "name": "of", "visibility": "shared", "variables": [{"name": "service"}],
            "conditions": {"metrics": leaf("service.name", "$service"), "logs": leaf("service.name", "$service"),
                "spans": leaf("service.name", "$service")}}),
        json!({"key": "strict", "name": "strict", "visibility": "shared", "strict": true,
            "conditions": {"logs": leaf("team", "a")}}),
        json!({"key": "own", "name": "own", "visibility": "private", "conditions": {}}),
    ];
    for segment in segments {
        let made = call(&server, &admin, "POST", "/platform-api/segments", &segment).await;
        assert_eq!(made.status, 201, "{}", made.text());
    }
    Shop { server, admin, carol, now_s, _dir: dir }
}

impl Shop {
    async fn get(&self, who: &str, path: &str) -> Value {
        let answer = self.server.get_as(path, &[("authorization", who)]).await;
        assert_eq!(answer.status, 200, "{path}: {}", answer.text());
        answer.json()
    }

    async fn sum(&self, who: &str, segment: &str) -> Value {
        let path = format!("/metrics-api/api/v1/query?query=sum(req)&time={}{segment}", self.now_s);
        self.get(who, &path).await["data"]["result"][0]["value"][1].clone()
    }

    async fn sql(&self, who: &str, statement: &str, more: Value) -> Value {
        let mut body = json!({"query": statement});
        body.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
        let answer = call(&self.server, who, "POST", "/sql-api/v1/query", &body).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        answer.json()["rows"].clone()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn metrics() {
    let shop = shop().await;
    let (admin, carol) = (shop.admin.as_str(), shop.carol.as_str());
    assert_eq!(shop.sum(admin, "").await, "15");
    assert_eq!(shop.sum(admin, "&segment=a").await, "7");
    assert_eq!(shop.sum(admin, "&segment=a&segment=of&segment.service=web").await, "4");
    assert_eq!(shop.sum(admin, "&segment=strict").await, Value::Null);
    assert_eq!(shop.sum(carol, "&segment=a").await, "3", "rights hold within a segment");
    assert_eq!(shop.sum(carol, "&segment=of&segment.service=web").await, Value::Null);
    // Results are kept by segment.
    let range = format!("/metrics-api/api/v1/query_range?query=sum(req)&start={0}&end={0}&step=60", shop.now_s);
    for _ in 0..2 {
        for (segment, sum) in [("", "15"), ("&segment=a", "7"), ("&segment=of&segment.service=cart", "3")] {
            let answer = shop.get(admin, &format!("{range}{segment}")).await;
            assert_eq!(answer["data"]["result"][0]["values"][0][1], sum, "{segment}");
        }
    }
    let series = shop.get(admin, "/metrics-api/api/v1/series?match[]=req&segment=a").await;
    assert_eq!(series["data"].as_array().map(Vec::len), Some(3), "{series}");
    let labels = shop.get(admin, "/metrics-api/api/v1/labels?segment=of&segment.service=cart").await;
    assert_eq!(labels["data"], json!(["__name__", "n", "service_name", "team"]));
    let values = shop.get(admin, "/metrics-api/api/v1/label/team/values?segment=a").await;
    assert_eq!(values["data"], json!(["a", "b"]));
    let values = shop.get(carol, "/metrics-api/api/v1/label/team/values?segment=a").await;
    assert_eq!(values["data"], json!(["a"]));
    let federated =
        shop.server.get_as("/metrics-api/federate?match[]=req&segment=a", &[("authorization", admin)]).await.text();
    assert_eq!(federated.lines().filter(|line| line.starts_with("req")).count(), 3, "{federated}");
    // By a form, and what cannot be.
    let form = [("content-type", "application/x-www-form-urlencoded"), ("authorization", admin)];
    let body = format!("query=sum(req)&time={}&segment=a", shop.now_s).into_bytes();
    let answer = shop.server.post("/metrics-api/api/v1/query", &form, body).await.json();
    assert_eq!(answer["data"]["result"][0]["value"][1], "7");
    for wrong in ["segment=no", "segment=of&segment.x=1", "segment.service=1", "segment=of"] {
        let path = format!("/metrics-api/api/v1/query?query=req&{wrong}");
        assert_eq!(shop.server.get_as(&path, &[("authorization", admin)]).await.status, 400, "{wrong}");
    }
    let path = "/metrics-api/api/v1/query?query=req&segment=own";
    let hidden = shop.server.get_as(path, &[("authorization", carol)]).await;
    assert_eq!(hidden.status, 400, "a private segment of another");
    for path in ["/metrics-api/api/v1/metadata", "/metrics-api/api/v1/rules"] {
        let refused = shop.server.get_as(&format!("{path}?segment=a"), &[("authorization", admin)]).await;
        assert_eq!(refused.status, 400, "{path}: {}", refused.text());
    }
    // What is flushed is narrowed as what is live.
    shop.server.send("POST", "/admin/flush", &[("authorization", admin)], Vec::new()).await;
    assert_eq!(shop.sum(admin, "&segment=a").await, "7");
}

#[tokio::test(flavor = "multi_thread")]
async fn sql_and_analytics() {
    let shop = shop().await;
    let (admin, carol) = (shop.admin.as_str(), shop.carol.as_str());
    let count = |table: &str| format!("SELECT count(*) AS n FROM {table}");
    for (table, all, within, of_carol) in
        [("spans", 4, 3, 3), ("logs", 2, 1, 1), ("metric_series", 4, 3, 2), ("operations", 2, 1, 1)]
    {
        let n = async |who: &str, more: Value| shop.sql(who, &count(table), more).await[0][0].clone();
        assert_eq!(n(admin, json!({})).await, json!(all), "{table}");
        assert_eq!(n(admin, json!({"segment": "a"})).await, json!(within), "{table}");
        assert_eq!(n(carol, json!({"segment": ["a"]})).await, json!(of_carol), "{table}");
        let web = json!({"segment": ["a", "of"], "segment.service": "web"});
        let both = u8::from(table == "metric_series");
        assert_eq!(n(admin, web).await, json!(both), "{table}");
    }
    let path = "/sql-api/v1/query?query=SELECT%20count(*)%20AS%20n%20FROM%20spans&segment=a";
    assert_eq!(shop.get(admin, path).await["rows"][0][0], 3);
    let load = async |who: &str, segments: Value, url: &str| {
        let query = json!({"query": {"measures": ["Spans.count"], "segments": segments}});
        let answer = call(&shop.server, who, "POST", &format!("/olap-api/v1/load{url}"), &query).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        answer.json()["data"][0]["Spans.count"].clone()
    };
    for _ in 0..2 {
        assert_eq!(load(admin, json!([]), "").await, "4");
        assert_eq!(load(admin, json!(["platform.a"]), "").await, "3");
        assert_eq!(load(admin, json!([]), "?segment=of&segment.service=web").await, "1");
        assert_eq!(load(carol, json!(["platform.a"]), "").await, "3");
    }
    // Segments also narrow models that read all rows, for callers who see everything.
    let calling = |id: u8, service: &str| {
        let span = json!({"traceId": format!("{id:032x}"), "spanId": format!("{id:016x}"), "name": "call", "kind": 3,
            "startTimeUnixNano": format!("{}000000000", shop.now_s - 10),
            "endTimeUnixNano": format!("{}500000000", shop.now_s - 10)});
        json!({"resource": {"attributes": [{"key": "service.name", "value": {"stringValue": service}}]},
            "scopeSpans": [{"spans": [span]}]})
    };
    let body = json!({"resourceSpans": [calling(5, "cart"), calling(6, "web"), calling(7, "web")]});
    assert_eq!(call(&shop.server, admin, "POST", "/v1/traces", &body).await.status, 200);
    for (segments, count) in [(json!([]), "3"), (json!(["platform.a"]), "1")] {
        let query = json!({"query": {"measures": ["Calls.count"], "segments": segments}});
        let answer = call(&shop.server, admin, "POST", "/olap-api/v1/load", &query).await;
        assert_eq!(answer.json()["data"][0]["Calls.count"], count, "{query}: {}", answer.text());
    }
    let unknown = json!({"query": {"measures": ["Spans.count"], "segments": ["platform.no"]}});
    let answer = call(&shop.server, admin, "POST", "/olap-api/v1/load", &unknown).await;
    let body = answer.json();
    assert_eq!(
        (answer.status, &body["reason"], &body["pointer"]),
        (400, &json!("UNKNOWN_MEMBER"), &json!("/segments/0")),
        "{body}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn previews() {
    let shop = shop().await;
    let preview = async |who: &str, body: Value| {
        let answer = call(&shop.server, who, "POST", "/platform-api/segments/preview", &body).await;
        assert_eq!(answer.status, 200, "{body}: {}", answer.text());
        answer.json()["signals"].clone()
    };
    let signals = preview(&shop.admin, json!({"key": "a"})).await;
    assert_eq!(
        signals["metrics"],
        json!({"narrowed": true, "series": 3,
            "services": [{"service": "cart", "count": 2}, {"service": "web", "count": 1}]})
    );
    assert_eq!(signals["spans"], json!({"narrowed": true, "spans": 3, "services": [{"service": "cart", "count": 3}]}));
    assert_eq!(preview(&shop.carol, json!({"key": "a"})).await["metrics"]["series"], 2);
    // Times are texts or numbers, as in every body with a range.
    for end in [json!(1), json!("1"), json!("1970-01-01T00:00:01Z")] {
        let signals = preview(&shop.admin, json!({"key": "a", "start": 0, "end": end})).await;
        assert_eq!(signals["spans"], json!({"narrowed": true, "spans": 0, "services": []}), "{end}");
    }
    let backwards = json!({"key": "a", "start": 2, "end": 1});
    let refused = call(&shop.server, &shop.admin, "POST", "/platform-api/segments/preview", &backwards).await;
    assert_eq!(
        (refused.status, &refused.json()["errors"][0]["code"]),
        (422, &json!("OUT_OF_RANGE")),
        "{}",
        refused.text()
    );
    let web = json!({"segment": {"variables": [{"name": "s"}],
        "conditions": {"logs": {"field": "service.name", "op": "eq", "value": "$s"}}}, "variables": {"s": "web"}});
    let signals = preview(&shop.admin, web).await;
    assert_eq!(signals["logs"], json!({"narrowed": true, "rows": 1, "services": [{"service": "web", "count": 1}]}));
    assert_eq!(signals["metrics"]["narrowed"], false);
    let wrong = json!({"segment": {"conditions": {"logs": {"field": "a", "op": "is", "value": 1}}}});
    let refused = call(&shop.server, &shop.admin, "POST", "/platform-api/segments/preview", &wrong).await;
    assert_eq!(refused.status, 422, "{}", refused.text());
}
