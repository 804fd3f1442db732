//! Writes alerting history to the tables in `tables::history`.

use std::sync::Arc;

use arrow::array::{
    ArrayRef, Float64Array, Int64Array, ListArray, RecordBatch, StringArray, StringBuilder, TimestampMillisecondArray,
};
use arrow::buffer::OffsetBuffer;
use arrow::datatypes::{DataType, SchemaRef};
use futures::future::BoxFuture;
use quiver_alertd::history::{Action, Attempt, Evaluation, Event, HistoryStore, Record, RuleRef, episode};
use quiver_alerting::labels::{fingerprint, fingerprint_text};
use quiver_query::tables::TextMaps;
use quiver_store::Store;
use quiver_types::tables::TableDef;
use quiver_types::tables::history::{
    ALERT_ACTIONS, ALERT_EVENTS, NOTIFICATIONS, RULE_EVALUATIONS, TableRows, services_text,
};
use quiver_types::{Error, LabelSet, Millis, Result};

/// Writes history records into the store.
#[derive(Debug)]
pub struct StoredHistory {
    /// The store with the history tables.
    pub store: Arc<Store>,
    /// Labels that name the service of an alert.
    pub service_labels: Vec<String>,
}

impl HistoryStore for StoredHistory {
    fn write(&self, records: Arc<Vec<Record>>) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move { self.store.write_rows(rows(&records, &self.service_labels)?).await })
    }
}

/// The columns of one table, filled in the order of its schema.
struct Columns {
    table: &'static TableDef,
    schema: SchemaRef,
    filled: Vec<ArrayRef>,
}

impl Columns {
    fn of(table: &'static TableDef) -> Self {
        Self { table, schema: table.columns(), filled: Vec::new() }
    }

    fn texts<T: AsRef<str>>(&mut self, values: impl Iterator<Item = T>) {
        self.filled.push(Arc::new(StringArray::from_iter_values(values)));
    }

    /// 0 stands for NULL.
    fn times(&mut self, values: impl Iterator<Item = Millis>) {
        self.filled.push(Arc::new(TimestampMillisecondArray::from_iter_values(values).with_timezone("UTC")));
    }

    fn numbers(&mut self, values: impl Iterator<Item = i64>) {
        self.filled.push(Arc::new(Int64Array::from_iter_values(values)));
    }

    /// NaN stands for NULL.
    fn floats(&mut self, values: impl Iterator<Item = f64>) {
        self.filled.push(Arc::new(Float64Array::from_iter_values(values)));
    }

    fn maps<'a, I: Iterator<Item = (&'a str, &'a str)>>(&mut self, values: impl Iterator<Item = I>) -> Result<()> {
        let mut maps = TextMaps::default();
        for pairs in values {
            pairs.for_each(|(key, value)| maps.push(key, value));
            maps.end();
        }
        self.filled.push(Arc::new(maps.finish()?));
        Ok(())
    }

    fn lists<I: Iterator<Item = String>>(&mut self, values: impl Iterator<Item = I>) -> Result<()> {
        let (mut texts, mut lengths) = (StringBuilder::new(), Vec::new());
        for list in values {
            let mut length = 0;
            list.for_each(|text| {
                texts.append_value(text);
                length += 1;
            });
            lengths.push(length);
        }
        let place = self.filled.len();
        let DataType::List(item) = self.schema.field(place).data_type().clone() else {
            return Err(Error::internal("a list is no list"));
        };
        let ends = OffsetBuffer::from_lengths(lengths);
        let list = ListArray::try_new(item, ends, Arc::new(texts.finish()), None);
        self.filled.push(Arc::new(list.map_err(|e| Error::internal("cannot build a list").with_source(e))?));
        Ok(())
    }

    fn finish(self) -> Result<TableRows> {
        let rows = RecordBatch::try_new(self.schema, self.filled);
        let unfit = |e| Error::internal(format!("records do not fit `{}`", self.table.name)).with_source(e);
        Ok(TableRows { table: self.table, rows: rows.map_err(unfit)? })
    }
}

fn id_of(labels: &LabelSet) -> String {
    fingerprint_text(fingerprint(labels))
}

/// The distinct service names of a row, joined.
fn each_once<'a>(services: impl Iterator<Item = &'a str>) -> String {
    services_text(services.collect::<std::collections::BTreeSet<_>>())
}

fn rule_columns<'a>(out: &mut Columns, rules: impl Iterator<Item = &'a RuleRef> + Clone) {
    out.texts(rules.clone().map(|r| &r.id));
    out.texts(rules.clone().map(|r| &r.name));
    out.texts(rules.clone().map(|r| &r.namespace));
    out.texts(rules.map(|r| &r.group));
}

fn events(all: &[&Event], services: &[String]) -> Result<TableRows> {
    let mut out = Columns::of(&ALERT_EVENTS);
    let each = || all.iter().copied();
    out.times(each().map(|e| e.at));
    out.texts(each().map(Event::episode));
    out.texts(each().map(|e| id_of(&e.labels)));
    out.texts(each().map(|e| e.from));
    out.texts(each().map(|e| e.to));
    out.times(each().map(|e| e.starts_at));
    out.times(each().map(|e| e.ends_at.unwrap_or(0)));
    out.floats(each().map(|e| e.value.unwrap_or(f64::NAN)));
    out.texts(each().map(|e| e.source));
    rule_columns(&mut out, each().map(|e| &e.rule));
    out.texts(each().map(|e| &e.generator_url));
    out.maps(each().map(|e| e.labels.iter()))?;
    out.maps(each().map(|e| e.annotations.iter().map(|(n, v)| (n.as_str(), v.as_str()))))?;
    out.texts(each().map(|e| services_text([e.labels.service(services)])));
    out.finish()
}

fn actions(all: &[&Action], services: &[String]) -> Result<TableRows> {
    let mut out = Columns::of(&ALERT_ACTIONS);
    let each = || all.iter().copied();
    let of_alert = |a: &Action, text: fn(&Action) -> String| if a.starts_at == 0 { String::new() } else { text(a) };
    out.times(each().map(|a| a.at));
    out.texts(each().map(|a| of_alert(a, |a| episode(&a.labels, a.starts_at))));
    out.texts(each().map(|a| of_alert(a, |a| id_of(&a.labels))));
    out.texts(each().map(|a| a.action));
    out.texts(each().map(|a| &a.actor));
    out.texts(each().map(|a| if a.actor.is_empty() { "service" } else { "user" }));
    out.texts(each().map(|_| "ok"));
    out.texts(each().map(|a| &a.subject));
    out.texts(each().map(|a| &a.comment));
    out.times(each().map(|a| a.starts_at));
    out.maps(each().map(|a| a.labels.iter()))?;
    out.texts(each().map(|a| match a.starts_at {
        0 => each_once(a.services.iter().map(String::as_str)),
        _ => services_text([a.labels.service(services)]),
    }));
    out.texts(each().map(|a| each_once(a.services.iter().map(String::as_str))));
    out.finish()
}

fn evaluations(all: &[&Evaluation], services: &[String]) -> Result<TableRows> {
    let mut out = Columns::of(&RULE_EVALUATIONS);
    let each = || all.iter().copied();
    let service = |e: &Evaluation| {
        let pairs = e.labels.iter().map(|(n, v)| (n.as_str(), v.as_str()));
        services_text([LabelSet::from_pairs(pairs).service(services)])
    };
    out.times(each().map(|e| e.scheduled_at));
    out.times(each().map(|e| e.scheduled_at));
    out.times(each().map(|e| e.started_at));
    rule_columns(&mut out, each().map(|e| &e.rule));
    out.texts(each().map(|e| e.language));
    out.texts(each().map(|e| e.outcome));
    out.texts(each().map(|e| &e.error));
    out.floats(each().map(|e| if e.outcome == "missed" { f64::NAN } else { e.took.as_secs_f64() * 1000.0 }));
    out.numbers(each().map(|e| e.results as i64));
    out.floats(each().map(|e| e.scanned_bytes.map_or(f64::NAN, |bytes| bytes as f64)));
    out.texts(each().map(service));
    out.finish()
}

/// The route in the key of a group, which is followed by the labels. Both may contain quoted values.
fn route_of(group_key: &str) -> &str {
    let (mut in_text, mut escaped) = (false, false);
    for (at, byte) in group_key.bytes().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_text => escaped = true,
            b'"' => in_text = !in_text,
            b':' if !in_text && group_key[at..].starts_with(":{") => return &group_key[..at],
            _ => {}
        }
    }
    ""
}

fn attempts(all: &[&Attempt], services: &[String]) -> Result<TableRows> {
    let mut out = Columns::of(&NOTIFICATIONS);
    let each = || all.iter().copied();
    let failed = |a: &Attempt| a.failure.clone().unwrap_or_default();
    out.times(each().map(|a| a.at));
    out.texts(each().map(|a| &a.id));
    out.texts(each().map(|a| &a.receiver));
    out.texts(each().map(|a| a.integration));
    out.numbers(each().map(|a| a.index as i64));
    out.texts(each().map(|a| route_of(&a.group_key)));
    out.texts(each().map(|a| &a.group_key));
    out.texts(each().map(|a| &a.reason));
    out.texts(each().map(|a| if a.failure.is_some() { "failed" } else { "sent" }));
    out.texts(each().map(|a| failed(a).0));
    out.texts(each().map(|a| failed(a).1));
    out.numbers(each().map(|a| i64::from(a.status)));
    out.texts(each().map(|a| a.alert_status));
    out.numbers(each().map(|a| i64::from(a.attempt)));
    out.times(each().map(|a| if a.failure.is_some() { 0 } else { a.at + a.took.as_millis() as i64 }));
    out.times(each().map(|a| a.first_alert_at));
    out.floats(each().map(|a| a.took.as_secs_f64() * 1000.0));
    out.numbers(each().map(|a| a.alerts.len() as i64));
    out.lists(each().map(|a| a.alerts.iter().map(id_of)))?;
    out.texts(each().map(|a| each_once(a.alerts.iter().map(|labels| labels.service(services)))));
    out.finish()
}

/// Converts records to rows, one batch for each table that has any.
fn rows(records: &[Record], services: &[String]) -> Result<Vec<TableRows>> {
    let (mut of_events, mut of_actions, mut of_evaluations, mut of_attempts) =
        (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for record in records {
        match record {
            Record::Event(one) => of_events.push(one),
            Record::Action(one) => of_actions.push(one),
            Record::Evaluation(one) => of_evaluations.push(one),
            Record::Attempt(one) => of_attempts.push(one),
        }
    }
    let all = [
        events(&of_events, services)?,
        actions(&of_actions, services)?,
        evaluations(&of_evaluations, services)?,
        attempts(&of_attempts, services)?,
    ];
    Ok(all.into_iter().filter(|rows| rows.rows.num_rows() > 0).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_fit_their_tables() {
        let labels = LabelSet::from_pairs([("alertname", "A"), ("service", "cart")]);
        let rule = RuleRef { name: "A".to_owned(), ..RuleRef::default() };
        let event = Event {
            at: 2000,
            labels: labels.clone(),
            annotations: vec![("summary".to_owned(), "x".to_owned())],
            from: "pending",
            to: "firing",
            starts_at: 1000,
            ends_at: None,
            value: Some(1.5),
            source: "rule",
            rule,
            generator_url: String::new(),
        };
        let attempt = Attempt {
            at: 5,
            id: "i".to_owned(),
            receiver: "r".to_owned(),
            integration: "webhook",
            index: 0,
            group_key: "{}/{a=\"b\"}:{x=\"y\"}".to_owned(),
            reason: String::new(),
            attempt: 1,
            failure: None,
            status: 200,
            alert_status: "firing",
            took: std::time::Duration::from_millis(3),
            first_alert_at: 1,
            alerts: vec![labels.clone(), LabelSet::from_pairs([("service", "pay")])],
        };
        let made = rows(&[Record::Event(event), Record::Attempt(attempt)], &["service".to_owned()]).unwrap();
        assert_eq!(made.iter().map(|r| r.table.name).collect::<Vec<_>>(), ["alert_events", "notifications"]);
        let cell = |n: usize, name: &str| {
            let column = made[n].rows.column_by_name(name).unwrap();
            arrow::util::display::array_value_to_string(column, 0).unwrap()
        };
        assert_eq!(cell(0, "episode_id"), format!("{}-1000", id_of(&labels)));
        assert_eq!((cell(0, "__q_service"), cell(1, "__q_service")), ("cart".to_owned(), "cart\npay".to_owned()));
        assert_eq!(cell(1, "route_path"), "{}/{a=\"b\"}");
        // A name stays one name, whatever it contains.
        assert_eq!(each_once(["cart\npay", "cart", "cart"].into_iter()), "cart\ncart\\npay");
    }

    /// Would fail if a value of a label were taken for the beginning of the labels.
    #[test]
    fn routes_of_groups() {
        for (key, expected) in [
            ("{}:{}", "{}"),
            ("{}/{a=\"b\"}:{x=\"y\"}", "{}/{a=\"b\"}"),
            ("{}:{json=\"{\\\"a\\\":{}}\"}", "{}"),
            ("{}:{x=\"a:{b\"}", "{}"),
            ("{}/{a=\":{\"}:{x=\"y\"}", "{}/{a=\":{\"}"),
            ("{}/{a=\"\\\"\"}:{x=\":{\"}", "{}/{a=\"\\\"\"}"),
            ("{}/{a=\"\\\\\"}:{x=\"y\"}", "{}/{a=\"\\\\\"}"),
            ("{}/{\"é:{\"=\"b\"}:{}", "{}/{\"é:{\"=\"b\"}"),
            ("{}/{job:x=\"b\"}:{}", "{}/{job:x=\"b\"}"),
            ("nothing of the kind", ""),
            ("", ""),
        ] {
            assert_eq!(route_of(key), expected, "{key}");
        }
    }

    fn cell(rows: &TableRows, name: &str, row: usize) -> String {
        let column = rows.rows.column_by_name(name).unwrap();
        arrow::util::display::array_value_to_string(column, row).unwrap()
    }

    fn made(records: &[Record]) -> TableRows {
        let labels = ["team".to_owned(), "service".to_owned()];
        let mut all = rows(records, &labels).unwrap();
        assert_eq!(all.len(), 1);
        all.remove(0)
    }

    fn action(actor: &str, labels: &[(&str, &str)], starts_at: Millis) -> Record {
        Record::Action(Action {
            at: 5,
            labels: LabelSet::from_pairs(labels.iter().copied()),
            starts_at,
            action: "silence",
            actor: actor.to_owned(),
            subject: "s".to_owned(),
            comment: "".into(),
            services: vec!["pay".to_owned(), "cart".to_owned(), "pay".to_owned()],
        })
    }

    /// An action without an alert has no episode, but it names the services that it was about.
    #[test]
    fn actions_of_people_and_of_the_service() {
        let labels = [("alertname", "A"), ("service", "web")];
        let rows = made(&[action("me", &labels, 7), action("", &labels, 7), action("me", &[], 0)]);
        let of = |name: &str| [0, 1, 2].map(|row| cell(&rows, name, row));
        let id = id_of(&LabelSet::from_pairs(labels));
        assert_eq!(of("actor_type"), ["user", "service", "user"]);
        assert_eq!(of("fingerprint"), [id.as_str(), id.as_str(), ""]);
        assert_eq!(of("episode_id"), [format!("{id}-7").as_str(), format!("{id}-7").as_str(), ""]);
        assert_eq!(of("__q_service"), ["web", "web", "cart\npay"]);
        assert_eq!(of("__q_silence_services"), ["cart\npay"; 3], "be there an alert or not");
        assert_eq!(of("outcome"), ["ok", "ok", "ok"]);
    }

    #[test]
    fn evaluations_that_ran_and_that_were_missed() {
        let one = |outcome: &'static str, scanned_bytes, labels: &[(&str, &str)]| {
            Record::Evaluation(Evaluation {
                scheduled_at: 1000,
                started_at: 1500,
                rule: RuleRef {
                    id: "i".to_owned(),
                    name: "n".to_owned(),
                    namespace: "f".to_owned(),
                    group: "g".to_owned(),
                },
                labels: labels.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect(),
                language: "promql",
                outcome,
                error: String::new(),
                took: std::time::Duration::from_micros(2500),
                results: 3,
                scanned_bytes,
            })
        };
        let rows = made(&[
            one("ok", Some(17), &[("service", "web"), ("team", "a")]),
            one("missed", None, &[("service", "web")]),
            one("error", Some(0), &[]),
        ]);
        let of = |name: &str| [0, 1, 2].map(|row| cell(&rows, name, row));
        assert_eq!(of("duration_ms"), ["2.5", "NaN", "2.5"]);
        assert_eq!(of("scanned_bytes"), ["17.0", "NaN", "0.0"]);
        assert_eq!(of("result_series"), ["3", "3", "3"]);
        // The first non-empty service label counts.
        assert_eq!(of("__q_service"), ["a", "web", ""]);
        assert_eq!(
            ["rule_id", "rule_name", "namespace", "rule_group"].map(|name| cell(&rows, name, 0)),
            ["i", "n", "f", "g"]
        );
        assert_eq!(of("time"), of("scheduled_at"));
    }

    #[test]
    fn attempts_that_failed_were_not_sent() {
        let one = |failure: Option<(&'static str, &str)>| {
            Record::Attempt(Attempt {
                at: 1000,
                id: "i".to_owned(),
                receiver: "r".to_owned(),
                integration: "email",
                index: 2,
                group_key: "{}:{}".to_owned(),
                reason: "first notification".to_owned(),
                attempt: 3,
                failure: failure.map(|(class, text)| (class, text.to_owned())),
                status: 0,
                alert_status: "resolved",
                took: std::time::Duration::from_millis(250),
                first_alert_at: 1,
                alerts: Vec::new(),
            })
        };
        let rows = made(&[one(None), one(Some(("timeout", "too slow")))]);
        let of = |name: &str| [0, 1].map(|row| cell(&rows, name, row));
        assert_eq!(of("outcome"), ["sent", "failed"]);
        assert_eq!(
            (of("error_class"), of("error")),
            (["", "timeout"].map(str::to_owned), ["", "too slow"].map(str::to_owned))
        );
        let sent = rows.rows.column_by_name("sent_at").unwrap();
        let sent = sent.as_any().downcast_ref::<TimestampMillisecondArray>().unwrap();
        assert_eq!(sent.values()[..], [1250, 0]);
        assert_eq!(
            (of("alert_count"), of("integration_index")),
            (["0", "0"].map(str::to_owned), ["2", "2"].map(str::to_owned))
        );
        assert_eq!(of("__q_service"), ["", ""]);
    }

    #[test]
    fn tables_without_records_get_no_rows() {
        assert!(rows(&[], &[]).unwrap().is_empty());
        let both = rows(&[action("me", &[], 0), action("me", &[], 0)], &[]).unwrap();
        assert_eq!(both.iter().map(|r| (r.table.name, r.rows.num_rows())).collect::<Vec<_>>(), [("alert_actions", 2)]);
    }
}
