//! Converts OTLP names to Prometheus names: metrics with unit and type suffixes, labels, units. Sources:
//! OpenTelemetry's "Prometheus and OpenMetrics compatibility", and the tables of `prometheus/otlptranslator`.

/// The kind of a metric, which decides its suffix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NameKind {
    /// A gauge: unit `1` adds `ratio`.
    Gauge,
    /// A monotonic sum: adds `total`.
    Counter,
    /// Anything else: histograms, summaries, non-monotonic sums.
    Other,
}

const UNITS: &[(&str, &str)] = &[
    ("d", "days"),
    ("h", "hours"),
    ("min", "minutes"),
    ("s", "seconds"),
    ("ms", "milliseconds"),
    ("us", "microseconds"),
    ("ns", "nanoseconds"),
    ("By", "bytes"),
    ("KiBy", "kibibytes"),
    ("MiBy", "mebibytes"),
    ("GiBy", "gibibytes"),
    ("TiBy", "tebibytes"),
    ("KBy", "kilobytes"),
    ("MBy", "megabytes"),
    ("GBy", "gigabytes"),
    ("TBy", "terabytes"),
    ("m", "meters"),
    ("V", "volts"),
    ("A", "amperes"),
    ("J", "joules"),
    ("W", "watts"),
    ("g", "grams"),
    ("Cel", "celsius"),
    ("Hz", "hertz"),
    ("1", ""),
    ("%", "percent"),
];

const PER_UNITS: &[(&str, &str)] =
    &[("s", "second"), ("m", "minute"), ("h", "hour"), ("d", "day"), ("w", "week"), ("mo", "month"), ("y", "year")];

/// Looks up the name of a unit; units in braces are annotations, and have an empty name.
fn word<'a>(table: &[(&str, &'a str)], unit: &'a str) -> &'a str {
    let unit = unit.trim();
    if unit.contains(['{', '}']) {
        return "";
    }
    table.iter().find(|(known, _)| *known == unit).map_or(unit, |(_, word)| word)
}

/// Keeps letters, digits and `:`. Each run of other characters becomes one `_`, except at the ends.
fn clean(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for part in tokens(text) {
        if !out.is_empty() {
            out.push('_');
        }
        out.push_str(part);
    }
    out
}

fn tokens(name: &str) -> impl Iterator<Item = &str> {
    name.split(|c: char| !(c.is_ascii_alphanumeric() || c == ':')).filter(|t| !t.is_empty())
}

/// The suffixes for a unit: `bytes` and `per_second` for `By/s`; empty if there are none.
fn unit_words(unit: &str) -> (String, String) {
    let (main, per) = unit.split_once('/').map_or((unit, None), |(main, per)| (main, Some(per)));
    let main = clean(word(UNITS, main));
    let per = per.map(|per| clean(word(PER_UNITS, per))).filter(|per| !per.is_empty());
    (main, per.map_or(String::new(), |per| format!("per_{per}")))
}

/// The unit in metadata: `By/s` becomes `bytes_per_second`.
pub fn unit_name(unit: &str) -> String {
    let (main, per) = unit_words(unit);
    if main.is_empty() || per.is_empty() { main + &per } else { format!("{main}_{per}") }
}

/// The name of a metric; `None` if no character of it is valid.
pub fn metric_name(name: &str, unit: &str, kind: NameKind) -> Option<String> {
    let mut words: Vec<&str> = tokens(name).collect();
    let (main, per) = unit_words(unit);
    for unit_word in [main.as_str(), per.as_str()] {
        if !unit_word.is_empty() && !words.contains(&unit_word) {
            words.push(unit_word);
        }
    }
    let last = match kind {
        NameKind::Counter => Some("total"),
        NameKind::Gauge if unit == "1" => Some("ratio"),
        _ => None,
    };
    if let Some(last) = last {
        words.retain(|word| *word != last);
        words.push(last);
    }
    let first = words.first()?;
    let digit = first.starts_with(|c: char| c.is_ascii_digit());
    Some(if digit { format!("_{}", words.join("_")) } else { words.join("_") })
}

/// Appends the label name for an attribute key; `false` if it would consist of several underscores only (of one it is
/// `key_`). Runs of underscores are kept, like the default of Prometheus 3.8 and later.
pub fn push_label_name(key: &str, out: &mut String) -> bool {
    let first = key.bytes().next();
    if first.is_some_and(|b| b.is_ascii_digit()) {
        out.push_str("key_");
    }
    let start = out.len();
    out.extend(key.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }));
    let name = &out[start..];
    let ok = !name.is_empty() && (name == key || name == "_" || name.bytes().any(|b| b != b'_'));
    if name.starts_with('_') && !name.starts_with("__") {
        out.insert_str(start, "key");
    }
    ok
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics() {
        use NameKind::{Counter, Gauge, Other};
        let check = |name: &str, unit: &str, kind, expected: &str| {
            assert_eq!(metric_name(name, unit, kind).as_deref(), Some(expected), "{name} {unit}");
        };
        check("http.server.duration", "ms", Other, "http_server_duration_milliseconds");
        check("http.server.duration.seconds", "s", Other, "http_server_duration_seconds");
        check("system.disk.io", "By", Counter, "system_disk_io_bytes_total");
        check("requests_total", "", Counter, "requests_total");
        check("total.requests", "", Counter, "requests_total");
        check("requests", "{request}", Counter, "requests_total");
        check("up.down", "1", Other, "up_down");
        check("cpu.utilization", "1", Gauge, "cpu_utilization_ratio");
        check("cpu.utilization.ratio", "1", Gauge, "cpu_utilization_ratio");
        check("network.io", "By/s", Gauge, "network_io_bytes_per_second");
        check("network.io", "{packet}/s", Gauge, "network_io_per_second");
        check("speed", "m/{thing}", Gauge, "speed_meters");
        check("speed", "m/m", Gauge, "speed_meters_per_minute");
        // As in Prometheus' tables, which differ from UCUM.
        check("speed", "{x}/min", Gauge, "speed_per_min");
        check("mem", "kBy", Gauge, "mem_kBy");
        check("temp", "Cel", Gauge, "temp_celsius");
        check("temp", "%", Gauge, "temp_percent");
        check("mem", "MiBy", Gauge, "mem_mebibytes");
        check("odd", "a b", Gauge, "odd_a_b");
        check("a__b...c:d-é_", "", Gauge, "a_b_c:d");
        check("1st.metric", "", Gauge, "_1st_metric");
        check("plain", "", Gauge, "plain");
        assert_eq!(metric_name("...", "", Gauge), None);
        assert_eq!(unit_name("By/s"), "bytes_per_second");
        assert_eq!(
            (unit_name("1"), unit_name("{x}"), unit_name("{x}/s")),
            (String::new(), String::new(), "per_second".into())
        );
    }

    #[test]
    fn labels() {
        let check = |key: &str, expected: Option<&str>| {
            let mut out = "x".to_owned();
            let ok = push_label_name(key, &mut out);
            assert_eq!(ok.then(|| &out[1..]), expected, "{key}");
        };
        check("http.method", Some("http_method"));
        check("1st", Some("key_1st"));
        check("a..b", Some("a__b"));
        check("a:b", Some("a_b"));
        check("_private", Some("key_private"));
        check(".dot", Some("key_dot"));
        check("__reserved", Some("__reserved"));
        check("straße", Some("stra_e"));
        check("", None);
        check("..", None);
        check("é", Some("key_"));
        check("_", Some("key_"));
        check("éé", None);
        check("__", Some("__"));
    }
}
