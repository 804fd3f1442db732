//! Hostile LogsQL queries over a server with little memory: each gets a result or a clear error, memory stays bounded,
//! and the server keeps running.

use std::time::{Duration, Instant};

use quiver_tests::server::{Answer, Options, Server};
use quiver_tests::time_limits::within;

use crate::logs::query::{API, ask, send, values};

/// What the process may have at most: its limit of 512 MiB and 15 %.
const RSS_MAX: u64 = (512 << 20) * 115 / 100;
const FORM: (&str, &str) = ("content-type", "application/x-www-form-urlencoded");

/// A server with rows that have short and long values, lists, objects.
async fn start() -> (Server, tempfile::TempDir) {
    let dir = tempfile::tempdir().expect("a folder");
    let options = Options::default().env("QUIVER_MEMORY__LIMIT", "512MiB").env("QUIVER_LOG__FILTER", "error");
    let server = Server::start(dir.path(), &options).await;
    let list = format!("[{}]", vec!["1"; 5000].join(","));
    for part in 0..4 {
        let line = |n: usize| {
            format!(
                "{{\"_msg\":\"word{n} {}\",\"n\":{n},\"app\":\"a{}\",\"list\":\"{}\"}}\n",
                "lorem ipsum dolor ".repeat(10),
                n % 5,
                if n.is_multiple_of(10) { &list } else { "[1,2]" }
            )
        };
        send(&server, "app", (0..5000).map(|n| line(part * 5000 + n)).collect()).await;
        if part == 1 {
            server.compact().await;
        }
    }
    (server, dir)
}

/// Asks; `None`: the answer broke off behind its first rows, as it does when a query fails there.
async fn post(server: &Server, query: &str) -> Option<Answer> {
    let body: String = [("query", query), ("timeout", "3s")]
        .iter()
        .map(|(name, value)| {
            let value: String = value
                .bytes()
                .map(|b| match b {
                    b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' => char::from(b).to_string(),
                    _ => format!("%{b:02X}"),
                })
                .collect();
            format!("{name}={value}")
        })
        .collect::<Vec<_>>()
        .join("&");
    server.try_post(&format!("{API}/query"), &[FORM], body.into_bytes()).await.ok()
}

/// Asks; the answer must be one of the statuses, and the server must be well.
async fn survives(server: &Server, query: &str, statuses: &[u16]) {
    let shown: String = query.chars().take(120).collect();
    let began = Instant::now();
    let answer = loop {
        let Some(answer) = post(server, query).await else {
            assert!(statuses.contains(&422), "{shown}: the answer broke off");
            assert_eq!(server.get("/health/ready").await.status, 200, "{shown}");
            return;
        };
        // The ones before may still hold the memory.
        if !answer.has_no_room() || statuses.contains(&503) || began.elapsed() > Duration::from_secs(30) {
            break answer;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    };
    let text: String = answer.text().chars().take(300).collect();
    // The end of its time bounds a query too, and how far it gets until then is the machine's affair.
    let late = answer.status == 503 && text.contains("timed out") && statuses != [400];
    assert!(late || statuses.contains(&answer.status), "{shown}: {} {text}", answer.status);
    if answer.status != 200 {
        assert!(!text.contains("fault of ours"), "{shown}: {text}");
    }
    let peak = server.peak_held_bytes();
    assert!(peak < RSS_MAX, "{shown}: {} MiB", peak >> 20);
}

#[tokio::test(flavor = "multi_thread")]
async fn values_and_rows_that_grow() {
    let (server, _dir) = start().await;
    let twice = " | format '<_msg><_msg>' as _msg".repeat(40);
    survives(&server, &format!("*{twice} | stats max(_msg) m | len(m) as l | fields l"), &[422]).await;
    let packed = " | pack_json as x".repeat(40);
    survives(&server, &format!("*{packed} | len(x) as l | stats max(l)"), &[422, 503]).await;
    let replaced = format!(
        "* | replace ('o', '{}') | replace ('o', '{}') | stats sum_len(_msg) m",
        "o".repeat(5000),
        "o".repeat(5000)
    );
    survives(&server, &replaced, &[422]).await;
    let replaced = format!(
        "* | replace_regexp ('o', '{}') | replace_regexp ('o', '{}') | stats sum_len(_msg) m",
        "o".repeat(5000),
        "o".repeat(5000)
    );
    survives(&server, &replaced, &[422]).await;
    survives(&server, &format!("* | format '{}' as x | sort by (x) | stats sum_len(x) l", "x".repeat(300_000)), &[422])
        .await;
    survives(&server, "* | unroll by (list) | copy list l2 | unroll by (list) | stats count() n", &[200, 422]).await;
    survives(&server, "* | split '1' from list as list | unroll by (list) | stats count() n", &[200, 422]).await;
    survives(&server, "* | join by (none) (*) | stats count() n", &[422, 503]).await;
    survives(&server, "* | join by (app) (* | join by (app) (*)) | stats count() n", &[422, 503]).await;
    survives(&server, "* | fields n | join by (app) (* | fields app) | stats count() n", &[200, 503]).await;
    survives(&server, "* | generate_sequence 18446744073709551615 | stats count_uniq(_msg) n", &[422, 503]).await;
    survives(&server, "* | generate_sequence 100000000 | sort by (_msg) | stats count() n", &[200, 422, 503]).await;
    survives(&server, "* | generate_sequence 100000000 | stats values(_msg) v | len(v) as l", &[422, 503]).await;
    let many = "* | generate_sequence 100000000";
    survives(&server, &format!("{many} | sort by (_msg) partition by (_msg) limit 1 | stats count() n"), &[422, 503])
        .await;
    survives(&server, &format!("{many} | running_stats by (_msg) count() c | stats count() n"), &[422, 503]).await;
    let long = "x".repeat(300_000);
    survives(
        &server,
        &format!("* | format '{long}' as x | running_stats last(x) offset 1000 as l | stats max(l) m"),
        &[422],
    )
    .await;
    survives(&server, "* | running_stats by (n) last(_msg) offset 1000 as l | stats count() n", &[200]).await;
    survives(&server, "* | sort by (n) limit 18446744073709551615 | stats count() n", &[200]).await;
    survives(&server, "* | top 18446744073709551615 by (n) | stats count() n", &[200]).await;
    survives(&server, "* | stats by (_time:1ns, n:0.000001) count() c | stats count() n", &[200]).await;
    survives(
        &server,
        "* | facets 1000000000 max_values_per_field 1000000000 max_value_len 1000000000 | stats count() n",
        &[200, 422],
    )
    .await;
    survives(
        &server,
        "n:<10 | stream_context before 1000000000 after 1000000000 time_window 10y | stats count() n",
        &[200, 422],
    )
    .await;
    let answer = ask(&server, "query", &[("query", "* | stats count() n")]).await;
    assert_eq!(values(&answer, "n"), ["20000"]);
}

/// Queries that grow as fast as they can, in all the ways there are.
fn bombs() -> Vec<String> {
    let long = "x".repeat(200_000);
    let twice = " | format '<_msg><_msg>' as _msg".repeat(30);
    let packed = " | pack_json as x | pack_logfmt as y".repeat(12);
    let many = "* | generate_sequence 50000000";
    let words: Vec<String> = (0..90_000).map(|n| format!("w{n}")).collect();
    vec![
        format!("*{twice} | len(_msg) as l | stats max(l)"),
        format!("*{packed} | len(x) as l | stats max(l)"),
        format!("* | format '{long}' as x | stats values(x) v | len(v) as l | fields l"),
        format!("* | format '{long}<n>' as x | stats uniq_values(x) v | len(v) as l | fields l"),
        format!("* | format '{long}<n>' as x | stats json_values(x, _msg) v | len(v) as l | fields l"),
        format!("* | format '{long}<n>' as x | stats by (n) row_any(x, n) v | stats count()"),
        format!("* | format '{long}<n>' as x | uniq by (x) | stats count()"),
        format!("* | format '{long}<n>' as x | top 5 by (x) | len(x) as l | fields l"),
        format!("* | format '{long}<n>' as x | sort by (x) limit 3000 | len(x) as l | stats max(l)"),
        format!("* | format '{long}' as x | split 'x' from x as y | unroll y | stats count()"),
        format!(
            "* | split '' from list as l | json_array_concat '{}' from l as l | len(l) as n | stats max(n)",
            &long[..5000]
        ),
        format!("* | extract '<a> <b>' | format '{long}<a>' as c | unpack_words from c as d | stats count_uniq(d)"),
        format!(
            "* | format '{{\"a\":\"{long}<n>\"}}' as x | unpack_json from x | stats by (a) count() | stats count()"
        ),
        format!("* | replace_regexp ('.', '{}') | stats sum_len(_msg)", &long[..20_000]),
        format!("{many} | stats values(_msg) v | len(v) as l"),
        format!("{many} | stats uniq_values(_msg) v | len(v) as l"),
        format!("{many} | stats by (_msg) row_any(_msg) v | stats count()"),
        format!("{many} | uniq by (_msg) | stats count()"),
        format!("{many} | stats json_values(_msg) v | len(v) as l"),
        format!("{many} | stats quantile(0.5, _msg) q, count_uniq(_msg) c"),
        format!("{many} | facets"),
        format!("{many} | field_values _msg | stats count()"),
        format!("{many} | running_stats last(_msg) l | stats count()"),
        format!("n:in({many} | fields _msg) | stats count()"),
        format!("{many} | join by (_msg) ({many}) | stats count()"),
        format!("{many} | union ({many}) | sort by (_msg) limit 10000000 | stats count()"),
        format!("{} | stats count()", words.join(" or ")),
        format!("n:in({}) | stats count()", words.join(",")),
    ]
}

/// Four bombs at once, and lists of them beside: memory stays within the limit, and each is answered or refused.
#[tokio::test(flavor = "multi_thread")]
async fn four_bombs_at_once() {
    let (server, _dir) = start().await;
    let all = bombs();
    for four in all.chunks(4) {
        let asked = four.iter().map(|query| survives(&server, query, &[200, 422, 503]));
        futures::future::join_all(asked).await;
    }
    // What is answered in lists.
    for (endpoint, params) in [
        ("field_values", [("query", "* | generate_sequence 1"), ("field", "_msg")]),
        ("hits", [("query", "*"), ("field", "_msg")]),
        ("facets", [("query", "*"), ("max_value_len", "100000")]),
        ("stats_query_range", [("query", "* | stats by (_msg, n) count() c"), ("step", "1ns")]),
    ] {
        let asked = (0..4).map(|_| ask(&server, endpoint, &params));
        for answer in futures::future::join_all(asked).await {
            assert!(matches!(answer.status, 200 | 422 | 503), "{endpoint}: {} {}", answer.status, answer.text());
        }
        let peak = server.peak_held_bytes();
        assert!(peak < RSS_MAX, "{endpoint}: {} MiB", peak >> 20);
    }
    let answer = ask(&server, "query", &[("query", "* | stats count() n")]).await;
    assert_eq!(values(&answer, "n"), ["20000"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn wide_deep_and_heavy() {
    let (server, _dir) = start().await;
    let numbers = |count: usize, prefix: &str| (0..count).map(|i| format!("{prefix}{i}")).collect::<Vec<_>>().join(",");
    for deep in [
        format!("{}a{}", "(".repeat(100_000), ")".repeat(100_000)),
        "!".repeat(200_000),
        format!("*{}", " | limit 5".repeat(50_000)),
        format!("* | math a{} as b", "+1".repeat(100_000)),
        vec!["~\"[a-z]{100}x\""; 20_000].join(" or "),
        "~\"((x{1000}){1000}){1000}\"".to_owned(),
        "{app=~\"(.{1000}){1000}\"}".to_owned(),
    ] {
        survives(&server, &deep, &[400]).await;
    }
    // As deep as is allowed.
    let pipes = [
        "| filter n:>5 ",
        "| format '<n>' as x ",
        "| sort by (n) ",
        "| unroll by (list) ",
        "| union (n:3) ",
        "| stats by (n) count() m ",
    ];
    for pipe in pipes {
        survives(&server, &format!("n:<50 {}", pipe.repeat(250)), &[200, 422, 503]).await;
    }
    let unions = (0..60).fold("n:1".to_owned(), |inner, _| format!("n:1 | union ({inner})"));
    survives(&server, &unions, &[200]).await;
    let lists = (0..12).fold("n:1".to_owned(), |inner, _| format!("n:in({inner} | fields n)"));
    survives(&server, &lists, &[200]).await;
    survives(&server, &format!("* | math a{} as b | stats max(b)", "+1".repeat(1000)), &[200]).await;
    // As wide as is allowed.
    survives(&server, &format!("n:in({}) | stats count() n", numbers(120_000, "")), &[200]).await;
    survives(&server, &format!("n:contains_any({}) | stats count() n", numbers(50_000, "w")), &[200, 422, 503]).await;
    survives(&server, &vec!["a:b"; 100_000].join(" or "), &[200, 503]).await;
    for (count, statuses) in [(1000, &[200, 422, 503][..]), (50_000, &[400])] {
        let fields = numbers(count, "f");
        let largest =
            (0..count).map(|i| format!("max(f{i}) m{i}")).take(count.div_ceil(2)).collect::<Vec<_>>().join(",");
        for wide in [
            format!("* | fields {fields}"),
            format!("* | delete {fields} | limit 5"),
            format!("* | stats {largest}"),
            format!("* | stats by ({fields}) count() n"),
            format!("* | unpack_json from _msg fields ({fields}) | limit 3"),
        ] {
            survives(&server, &wide, statuses).await;
        }
    }
    // Keys that no row has take next to nothing.
    let fields = numbers(1000, "f");
    for many in
        ["sort by (F, n) | fields n", "sort by (F, n) limit 3", "stats by (F) count() n", "uniq by (F) with hits"]
    {
        survives(&server, &format!("* | {}", many.replace('F', &fields)), &[200]).await;
    }
    for heavy in [
        "~\"(a*)*$\"",
        "~\"(.*)*x\"",
        "~\"(lorem|ipsum|dolor|\\\\s)+$\"",
        "~\"[a-z]{50}.*[0-9]{50}\"",
        "i(\"LOREM IPSUM\")",
    ] {
        survives(&server, &format!("{heavy} | stats count() n"), &[200]).await;
    }
    let filters: Vec<(&str, String)> = (0..200).map(|i| ("extra_filters", format!("n:!={i}"))).collect();
    let params: Vec<(&str, &str)> =
        filters.iter().map(|(name, text)| (*name, text.as_str())).chain([("query", "* | stats count() n")]).collect();
    assert_eq!(values(&ask(&server, "query", &params).await, "n"), ["19800"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_with_very_many_names() {
    let dir = tempfile::tempdir().expect("a folder");
    let options = Options::default().env("QUIVER_MEMORY__LIMIT", "512MiB").env("QUIVER_LOG__FILTER", "error");
    let server = Server::start(dir.path(), &options).await;
    // A million names in rows of many fields each.
    for part in 0..10 {
        let row = |r: usize| {
            let fields: Vec<String> =
                (0..500).map(|f| format!("\"name{}\":\"v\"", (part * 200 + r) * 500 + f)).collect();
            format!("{{\"_msg\":\"m\",{}}}\n", fields.join(","))
        };
        send(&server, "app", (0..200).map(row).collect()).await;
    }
    for state in ["live", "flushed", "compacted"] {
        match state {
            "flushed" => server.flush().await,
            "compacted" => server.compact().await,
            _ => {}
        }
        for query in [
            "* | stats count() n",
            "name777:v",
            "name*:v | stats count() n",
            "* | fields name12*",
            "* | limit 10",
            "* | field_names | limit 5",
            "* | facets",
            "* | rename name* as x* | limit 5",
            "* | pack_json as p | unpack_json from p result_prefix q | limit 50 | stats count() n",
            "* | uniq by (name5)",
            "* | sort by (name5) limit 3",
            "* | stats row_any(*) r | len(r)",
            "* | sort | limit 3",
        ] {
            survives(&server, query, &[200, 422, 503]).await;
        }
        assert_eq!(values(&ask(&server, "query", &[("query", "* | stats count() n")]).await, "n"), ["2000"]);
        assert_eq!(ask(&server, "query", &[("query", "name777:v")]).await.text().lines().count(), 1, "{state}");
    }
    let answer = ask(&server, "field_names", &[("query", "*"), ("limit", "3")]).await;
    assert!(matches!(answer.status, 200 | 422), "{}", answer.text());
}

#[tokio::test(flavor = "multi_thread")]
async fn regexes_over_long_messages_answer_or_end_with_their_query() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(dir.path(), &Options::default().env("QUIVER_LOG__FILTER", "error")).await;
    let mut state = 7_u64;
    let mut letter = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        if state >> 63 == 0 { 'a' } else { 'b' }
    };
    let texts: Vec<String> = (0..5).map(|_| (0..200_000).map(|_| letter()).collect()).collect();
    let lines = texts.iter().map(|text| format!("{{\"_msg\":\"{text}\",\"app\":\"a\"}}\n")).collect();
    send(&server, "app", lines).await;
    for flushed in [false, true] {
        if flushed {
            server.flush().await;
        }
        // Those that come to rest over whatever letters.
        for pattern in ["(?:[ab]{1,50}){1,40}[xz]", "(?i)(?:.{0,30}[ab]){20}[xz]", "(?:[ab]{1,50}){1,40}$"] {
            let query = format!("_msg:~\"{pattern}\" | stats count() n");
            let answer = ask(&server, "query", &[("query", &query), ("timeout", "20s")]).await;
            assert_eq!(values(&answer, "n"), [if pattern.ends_with('$') { "5" } else { "0" }], "{pattern}");
        }
        // One that never does ends with its query, within the row that it is at, and leaves no work behind.
        let query = "_msg:~\"[ab]*a[ab]{900}z\" | stats count() n";
        within("processor time after the query ended", Duration::from_millis(310), async || {
            let answer = ask(&server, "query", &[("query", query), ("timeout", "1s")]).await;
            assert!(answer.status == 503 || answer.status == 422, "{}: {}", answer.status, answer.text());
            tokio::time::sleep(Duration::from_millis(300)).await;
            let before = server.cpu();
            tokio::time::sleep(Duration::from_secs(1)).await;
            server.cpu().saturating_sub(before)
        })
        .await;
    }
}
