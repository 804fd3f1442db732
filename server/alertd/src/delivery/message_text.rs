//! Renders the texts of messages from templates, and truncates them to the limits of each receiver.

use std::collections::BTreeMap;

use quiver_alerting::config::json_of;
use quiver_alerting::dispatch::MessageData;
use quiver_alerting::template::{Budget, Options, RouteLabels, TemplateEnvironment, Value};
use quiver_types::brief_text;
use serde_json::{Map, Value as Json};

use super::message::{Failure, Message};

/// Most texts of one message that are rendered: a template within a list multiplies.
const TEXTS_MAX: usize = 2000;
/// What all of them may come to in bytes, beside twice what a single one may: large mails have two large texts.
const BYTES_MAX: usize = 1 << 20;
/// How much memory what texts read as may take, in multiples of what they may come to: a list of digits takes a value for
/// each two bytes, and only what is repeated by its name takes more.
const DECODED_FACTOR: usize = 32;

/// What a template yields.
#[derive(Clone, Copy)]
enum Form {
    Text,
    /// HTML.
    Page,
}

/// Renders the texts of one message.
pub(super) struct Texts<'a> {
    message: &'a Message,
    data: Value,
    count: std::cell::Cell<usize>,
    /// Bytes of the texts that were rendered.
    bytes: std::cell::Cell<usize>,
    /// Memory of the values that were decoded from texts.
    decoded_bytes: std::cell::Cell<usize>,
}

/// The approximate memory of a value, in bytes.
fn memory_of(value: &Json) -> usize {
    let parts = match value {
        Json::String(text) => text.len(),
        Json::Array(items) => items.iter().map(memory_of).sum(),
        Json::Object(map) => map.iter().map(|(key, v)| size_of::<String>() + key.len() + memory_of(v)).sum(),
        _ => 0,
    };
    size_of::<Json>() + parts
}

impl<'a> Texts<'a> {
    /// Makes the data that templates see, of the first alerts only where `max` is above 0.
    pub(super) fn new(message: &'a Message, max: usize) -> Self {
        let alerts = &message.alerts;
        let shown = if max > 0 { &alerts[..alerts.len().min(max)] } else { &alerts[..] };
        let data = MessageData {
            receiver: &message.receiver,
            alerts: shown,
            group_labels: &message.group_labels,
            route_labels: &message.route_labels,
            reason: &message.reason,
            external_url: &message.external_url,
            now_ns: message.now,
        };
        let zero = std::cell::Cell::<usize>::default;
        Self { message, data: data.to_value(), count: zero(), bytes: zero(), decoded_bytes: zero() }
    }

    /// The data as templates see it.
    pub(super) fn data(&self) -> &Value {
        &self.data
    }

    fn run(&self, template: &str, form: Form) -> Result<String, Failure> {
        if !template.contains("{{") {
            return Ok(template.to_owned());
        }
        self.count.set(self.count.get() + 1);
        if self.count.get() > TEXTS_MAX {
            return Err(Failure::lasting(format!("a message has more than {TEXTS_MAX} templates")));
        }
        // It tells the pipeline that failed, which may be as long as the configuration.
        let failed = |e: String| Failure::lasting(format!("a template failed: {}", brief_text(e)));
        let mut templates = self.message.templates.clone();
        templates.add("", template).map_err(|e| failed(e.to_string()))?;
        let host = TemplateEnvironment {
            query: None,
            now_ns: i128::from(self.message.now),
            external_url: &self.message.external_url,
            route_labels: Some(RouteLabels::Texts(&self.message.route_labels)),
        };
        let budget = Budget::of_message(self.message.alerts.len());
        let bytes_max = BYTES_MAX + 2 * budget.output_max;
        let options = Options { host, budget, ..Options::default() };
        let out = match form {
            Form::Text => templates.run("", &self.data, &options),
            Form::Page => templates.run_html("", &self.data, &options),
        };
        let out = out.map_err(|e| failed(e.to_string()))?;
        self.bytes.set(self.bytes.get() + out.len());
        if self.bytes.get() > bytes_max {
            return Err(Failure::lasting(format!("the texts of a message have more than {bytes_max} bytes")));
        }
        Ok(out)
    }

    /// Renders a text.
    pub(super) fn text(&self, template: &str) -> Result<String, Failure> {
        self.run(template, Form::Text)
    }

    /// Renders a page.
    pub(super) fn html(&self, template: &str) -> Result<String, Failure> {
        self.run(template, Form::Page)
    }

    /// Renders the values of a mapping.
    pub(super) fn map(&self, map: Option<&BTreeMap<String, String>>) -> Result<BTreeMap<String, String>, Failure> {
        map.into_iter().flatten().map(|(name, text)| Ok((name.clone(), self.text(text)?))).collect()
    }

    /// Accounts for the memory of what a text reads as.
    fn count_decoded(&self, value: &Json) -> Result<(), Failure> {
        self.decoded_bytes.set(self.decoded_bytes.get() + memory_of(value));
        let texts_max = BYTES_MAX + 2 * Budget::of_message(self.message.alerts.len()).output_max;
        if self.decoded_bytes.get() > DECODED_FACTOR * texts_max {
            return Err(Failure::lasting("the values of a message take too much memory".to_owned()));
        }
        Ok(())
    }

    /// Renders all texts within a value; what they yield is a value again where it reads as one of YAML.
    pub(super) fn value(&self, value: &Json) -> Result<Json, Failure> {
        Ok(match value {
            Json::String(text) => {
                let shown = self.text(text)?;
                let Some(value) = json_of(&shown) else { return Ok(Json::String(shown)) };
                self.count_decoded(&value)?;
                whole(value)
            }
            Json::Array(items) => Json::Array(items.iter().map(|v| self.value(v)).collect::<Result<_, _>>()?),
            Json::Object(map) => {
                let pair = |(key, v): (&String, &Json)| Ok::<_, Failure>((self.text(key)?, self.value(v)?));
                Json::Object(map.iter().map(pair).collect::<Result<Map<_, _>, _>>()?)
            }
            other => whole(other.clone()),
        })
    }
}

/// Writes numbers without a fraction as whole ones, as Go does.
fn whole(value: Json) -> Json {
    match value {
        Json::Number(number) if number.is_f64() => {
            let float = number.as_f64().filter(|f| f.fract() == 0.0 && f.abs() < 1e18);
            float.map_or(Json::Number(number), |f| Json::from(f as i64))
        }
        Json::Array(items) => items.into_iter().map(whole).collect(),
        Json::Object(map) => map.into_iter().map(|(key, value)| (key, whole(value))).collect(),
        other => other,
    }
}

/// Cuts a text to so many characters; where it is cut it ends in `…`.
pub(super) fn cut_chars(text: &str, max: usize) -> String {
    if text.chars().count() <= max {
        return text.to_owned();
    }
    if max <= 3 {
        return text.chars().take(max).collect();
    }
    text.chars().take(max - 1).chain(['…']).collect()
}

#[cfg(test)]
mod tests {
    use super::super::tests::told;
    use super::*;

    #[test]
    fn failures_are_told_in_short() {
        let message = told(&[("a", true)]);
        let long = format!("{{{{ index .Alerts 5 {:?} }}}}", "x".repeat(100_000));
        let failure = Texts::new(&message, 0).text(&long).expect_err("there is one alert");
        assert!(failure.text.starts_with("a template failed: ") && failure.text.len() < 5000, "{}", failure.text.len());
    }

    /// What a text repeats by its name is copied when it is read.
    #[test]
    fn values_that_repeat_themselves_have_bounds() {
        let ten = |item: &str| [item; 10].join(",");
        let (zeros, ones, twos, threes) = (ten("0"), ten("*a"), ten("*b"), ten("*c"));
        let yaml = format!("a: &a [{zeros}]\nb: &b [{ones}]\nc: &c [{twos}]\nd: [{threes}]\n");
        let payload = |count: usize| Json::from(vec![format!("{{{{ {yaml:?} }}}}"); count]);
        let message = told(&[("a", true)]);
        let shown = Texts::new(&message, 0).value(&payload(2)).expect("a few");
        assert_eq!((&shown[1]["d"][9][9][9][9], memory_of(&shown) > 500_000), (&Json::from(0), true));
        let refused = Texts::new(&message, 0).value(&payload(200)).err().map(|failure| failure.text);
        assert!(refused.is_some_and(|text| text.contains("too much memory")));
        let dense = Json::from(vec![format!("[{}]", vec!["1"; 30_000].join(",")); 30]);
        assert!(Texts::new(&message, 0).value(&dense).is_ok(), "what repeats nothing is bounded by its texts");
    }

    #[test]
    fn large_groups_are_told() {
        let names: Vec<String> = (0..500).map(|n| format!("host-{n}.example")).collect();
        let message = told(&names.iter().map(|name| (name.as_str(), true)).collect::<Vec<_>>());
        let page = Texts::new(&message, 0).html("{{ template \"email.default.html\" . }}").unwrap();
        assert!(page.len() > 64 << 10 && page.contains("host-499.example"), "{}", page.len());
        let small = Texts::new(&told(&[("a", true)]), 0).text("{{ range 9 }}{{ printf \"%9000d\" . }}{{ end }}");
        let small = small.unwrap_err();
        assert!(small.text.contains("output exceeds"), "{}", small.text);
    }

    #[test]
    fn cut() {
        assert_eq!([cut_chars("abcdef", 6), cut_chars("abcdef", 5), cut_chars("äöü!", 3)], ["abcdef", "abcd…", "äöü"]);
    }

    #[test]
    fn rendered() {
        let message = told(&[("a", true), ("b", false)]);
        let texts = Texts::new(&message, 0);
        assert_eq!(texts.text("{{ .Status }} {{ len .Alerts }}").as_deref(), Ok("firing 2"));
        assert_eq!(Texts::new(&message, 1).text("{{ len .Alerts }}").as_deref(), Ok("1"));
        assert_eq!(texts.html("<p>{{ \"<b>\" }}</p>").as_deref(), Ok("<p>&lt;b&gt;</p>"));
        let value = serde_json::json!({"{{ .Status }}": ["{{ len .Alerts }}", "x: {{ .Status }}", 1, "a #b", ""]});
        let expected = serde_json::json!({"firing": [2, {"x": "firing"}, 1, "a #b", null]});
        assert_eq!(texts.value(&value).unwrap(), expected);
        let failure = texts.text("{{ template \"none\" . }}").unwrap_err();
        assert!(failure.reason == "other" && !failure.may_retry, "{failure:?}");
    }

    #[test]
    fn cut_at_characters() {
        for (text, max, expected) in [
            ("", 0, ""),
            ("abc", 3, "abc"),
            ("abcd", 3, "abc"),
            ("abcd", 0, ""),
            ("abcde", 4, "abc…"),
            ("äöüß€", 4, "äöü…"),
            ("🙂🙂🙂🙂🙂🙂", 5, "🙂🙂🙂🙂…"),
        ] {
            assert_eq!(cut_chars(text, max), expected, "{text} {max}");
        }
    }

    /// Go's JSON has no fraction where there is none.
    #[test]
    fn whole_numbers() {
        let check = |given: Json, expected: &str| assert_eq!(whole(given).to_string(), expected);
        check(serde_json::json!([1.0, -2.0, 0.0, 1.5, 1e17]), "[1,-2,0,1.5,100000000000000000]");
        check(serde_json::json!({"a": {"b": [3.0, "4.0", null, true]}}), "{\"a\":{\"b\":[3,\"4.0\",null,true]}}");
        check(serde_json::json!(u64::MAX), "18446744073709551615");
        assert_eq!(whole(serde_json::json!(1e300)), serde_json::json!(1e300));
    }

    /// Each of two thousand templates may write what a mail does.
    #[test]
    fn texts_of_one_message_are_bounded_together() {
        let message = told(&[("a", true)]);
        let large = "{{ range 6 }}{{ printf \"%9000d\" . }}{{ end }}";
        let texts = Texts::new(&message, 0);
        let told = (0..TEXTS_MAX).find_map(|n| texts.text(large).err().map(|failure| (n, failure.text)));
        let expected = (BYTES_MAX + 2 * (64 << 10)) / 54_000;
        assert_eq!(told, Some((expected, "the texts of a message have more than 1179648 bytes".to_owned())));
    }

    /// Texts without templates cost nothing; of the others a message has so many and no more.
    #[test]
    fn texts_of_one_message_are_counted() {
        let message = told(&[("a", true)]);
        let list = |count: usize| Json::Array(vec![Json::from("{{ 1 }}"); count]);
        assert_eq!(Texts::new(&message, 0).value(&list(3)), Ok(serde_json::json!([1, 1, 1])));
        let counted = Texts::new(&message, 0);
        counted.count.set(TEXTS_MAX - 1);
        assert_eq!(counted.text("{{ 1 }}").as_deref(), Ok("1"));
        let told = counted.text("{{ 1 }}").unwrap_err();
        assert_eq!(told.text, "a message has more than 2000 templates");
        assert_eq!(counted.text("plain").as_deref(), Ok("plain"));
        let map = BTreeMap::from([("a".to_owned(), "{{ .Status }}".to_owned()), ("b".to_owned(), "x".to_owned())]);
        let shown = Texts::new(&message, 0).map(Some(&map)).unwrap();
        assert_eq!((shown["a"].as_str(), shown["b"].as_str()), ("firing", "x"));
        assert!(Texts::new(&message, 0).map(None).unwrap().is_empty());
    }
}
