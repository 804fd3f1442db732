//! Alerting in the binary: where rules and policy come from, and the engine that evaluates rules.

pub(crate) mod engine;
mod history;

use std::collections::{BTreeMap, HashSet};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use quiver_alertd::delivery::{Files, ProxyEnvironment};
use quiver_alertd::egress::Egress;
use quiver_alertd::origin::ConfigOrigin;
use quiver_alertd::policy::Policy;
use quiver_alertd::router::{PolicySources, RouterSettings};
use quiver_alertd::rules::{RuleSettings, Source};
use quiver_alertd::{Alertd, Settings as AlertdSettings};
use quiver_alerting::config::is_pattern;
use quiver_alerting::rules::{EvaluationSettings, Language, Room, read};
use quiver_api::alerting::stored_policy::TemplateFiles;
use quiver_api::expression_checks::Languages;
use quiver_files::{TEXT_BYTES_MAX, read_text};
use quiver_types::label::METRIC_NAME;
use quiver_types::{Clock, Error, Network, Result};

pub use engine::StoreEngines;
pub use history::StoredHistory;

use crate::memory::memory_limit_bytes;
use crate::rules::files;
use crate::settings::{Settings, Span};

/// The alerting database, next to the catalog.
pub(crate) const DATABASE: &str = "alerts.db";

/// A duration in milliseconds; 0 if it is not set.
pub(crate) fn millis(span: Span) -> i64 {
    span.0.map_or(0, |d| i64::try_from(d.as_millis()).unwrap_or(i64::MAX))
}

/// Reads the rule files in the settings.
///
/// # Errors
/// Invalid: a file cannot be read or is not valid; the text says where.
pub fn read_rules(settings: &Settings) -> Result<Vec<Source>> {
    let mut out: Vec<Source> = Vec::new();
    let mut seen = HashSet::new();
    for pattern in &settings.alerting.rules {
        if !is_pattern(pattern) {
            return Err(Error::invalid(format!("syntax error in pattern `{pattern}` (`alerting.rules`)")));
        }
        let found = files::matching(Path::new(pattern));
        if found.is_empty() && !pattern.contains(['*', '?', '[']) {
            return Err(Error::invalid(format!("cannot read `{pattern}` (`alerting.rules`): there is no such file")));
        }
        for path in files::unseen(found, &mut seen) {
            let shown = path.display().to_string();
            let text = read_text(&path, TEXT_BYTES_MAX)
                .map_err(|e| Error::invalid(format!("cannot read `{shown}` (`alerting.rules`): {e}")))?;
            let file = read(&text, &Languages).map_err(|problems| {
                let lines: Vec<String> = problems.iter().map(|p| format!("{shown}: {p}")).collect();
                Error::invalid(lines.join("\n"))
            })?;
            file.warnings.iter().for_each(|warning| tracing::warn!(file = shown, "{warning}"));
            for group in file.groups {
                // They change the result of a query, so a rule must not run without them.
                let heeded = |name: &str| name == "extra_label" && group.language == Language::Promql;
                if let Some(name) = group.params.keys().find(|name| !heeded(name)) {
                    let text =
                        format!("{shown}: group `{}`: `params` (`{name}`) is not supported by the server", group.name);
                    return Err(Error::invalid(text));
                }
                let file = group.namespace.clone().unwrap_or_else(|| shown.clone());
                if out.iter().any(|s| s.file == file && s.group.name == group.name) {
                    let text = format!("{shown}: group `{}` is given more than once in `{file}`", group.name);
                    return Err(Error::invalid(text));
                }
                out.push(Source::of_file(file, group));
            }
        }
    }
    Ok(out)
}

fn files_dir(settings: &Settings) -> Option<PathBuf> {
    Some(settings.alerting.files_dir.clone()).filter(|dir| !dir.is_empty()).map(PathBuf::from)
}

/// The template files that match a pattern of a policy, all below `alerting.files_dir`.
fn template_files(dir: Option<&Path>, pattern: &str) -> std::result::Result<Vec<(String, String)>, String> {
    let Some(dir) = dir else {
        return Err(format!("templates `{pattern}` are not read: `alerting.files_dir` is not set"));
    };
    let readable = Files::below(Some(dir.to_owned()));
    let paths = files::matching(&dir.join(pattern));
    let read = |path: PathBuf| {
        let name = path.display().to_string();
        let path = readable.path(&name)?;
        let text = read_text(&path, TEXT_BYTES_MAX).map_err(|e| format!("cannot read `{name}`: {e}"))?;
        Ok((name, text))
    };
    paths.into_iter().map(read).collect()
}

/// Reads template files for the stored policy.
pub fn template_reader(settings: &Settings) -> Box<TemplateFiles> {
    let dir = files_dir(settings);
    Box::new(move |pattern| template_files(dir.as_deref(), pattern))
}

/// Reads the policy file in the settings, if there is one.
///
/// # Errors
/// Invalid: the file cannot be read or is not valid; the text says where.
pub fn read_policy(settings: &Settings) -> Result<Option<Policy>> {
    let path = &settings.alerting.policy;
    if path.is_empty() {
        return Ok(None);
    }
    let text = read_text(Path::new(path), TEXT_BYTES_MAX)
        .map_err(|e| Error::invalid(format!("cannot read `{path}` (`alerting.policy`): {e}")))?;
    let dir = files_dir(settings);
    let policy = Policy::load(&text, &|pattern| template_files(dir.as_deref(), pattern)).map_err(|errors| {
        Error::invalid(errors.iter().map(|e| format!("{path}: {e}")).collect::<Vec<_>>().join("\n"))
    })?;
    policy.config.warnings.iter().for_each(|warning| tracing::warn!(file = path, "{warning}"));
    Ok(Some(policy))
}

fn external_labels(settings: &Settings) -> Result<BTreeMap<String, String>> {
    let mut labels = BTreeMap::new();
    for text in &settings.alerting.external_labels {
        let refused = |why: &str| Error::invalid(format!("`alerting.external_labels` holds `{text}`; {why}"));
        let pair = text.split_once('=').filter(|(name, _)| !name.is_empty());
        let (name, value) = pair.ok_or_else(|| refused("`name=value` is wanted"))?;
        if name == METRIC_NAME || name.trim() != name {
            return Err(refused(&format!("`{name}` is no name of a label of alerts")));
        }
        if labels.insert(name.to_owned(), value.to_owned()).is_some() {
            return Err(refused(&format!("there is another `{name}`")));
        }
    }
    Ok(labels)
}

fn external_url(settings: &Settings, address: Option<SocketAddr>) -> String {
    let given = [&settings.alerting.external_url, &settings.auth.public_url].into_iter().find(|url| !url.is_empty());
    let listen = || settings.http.listen.parse().ok();
    let shown = |at: SocketAddr| {
        if at.ip().is_unspecified() { format!("http://127.0.0.1:{}", at.port()) } else { format!("http://{at}") }
    };
    let url = given.cloned().or_else(|| address.or_else(listen).map(shown)).unwrap_or_default();
    url.trim_end_matches('/').to_owned()
}

fn egress(settings: &Settings) -> Result<Egress> {
    let networks = |name: &str, texts: &[String]| -> Result<Vec<Network>> {
        texts.iter().map(|t| Network::parse(t).map_err(|e| Error::invalid(format!("`egress.{name}`: {e}")))).collect()
    };
    Ok(Egress {
        allow: networks("allow", &settings.egress.allow)?,
        deny: networks("deny", &settings.egress.deny)?,
        allow_private: settings.egress.allow_private,
    })
}

/// Checks everything about alerting that would make a start fail: settings, rule files, the policy.
///
/// # Errors
/// Invalid, with the place.
pub fn check(settings: &Settings) -> Result<()> {
    external_labels(settings)?;
    egress(settings)?;
    read_rules(settings)?;
    read_policy(settings).map(|_| ())
}

/// Opens alerting with its rules and its policy.
///
/// # Errors
/// Invalid: a setting, a rule file or the policy. Unavailable: the database cannot be used.
pub async fn open(
    settings: &Settings,
    address: Option<SocketAddr>,
    (engines, stored): (StoreEngines, Policy),
    clock: Arc<dyn Clock>,
) -> Result<Arc<Alertd>> {
    let (s, url) = (&settings.alerting, external_url(settings, address));
    let own = AlertdSettings {
        rules: RuleSettings {
            interval_ms: millis(s.evaluation_interval),
            resend_delay_ms: millis(s.resend_delay),
            error_hold_ms: millis(s.error_hold),
            concurrent_max: s.concurrent_max,
            setting: EvaluationSettings {
                external_labels: external_labels(settings)?,
                external_url: url.clone(),
                room: Room::new((memory_limit_bytes(settings) / 5) as usize),
            },
        },
        router: RouterSettings {
            external_url: url,
            files_dir: files_dir(settings),
            alerts_max: s.alerts_max,
            alert_bytes_max: (memory_limit_bytes(settings) / 16) as usize,
            service_labels: settings.ingest.service_labels.clone(),
        },
        egress: egress(settings)?,
        proxies: ProxyEnvironment::read(|name| std::env::var(name).ok()),
        memory_bytes: memory_limit_bytes(settings),
    };
    let (rules, policy) = (read_rules(settings)?, read_policy(settings)?);
    let file = Path::new(&settings.store.data).join(DATABASE);
    let given = PolicySources { file: policy, stored: Some(stored) };
    let alertd = Alertd::open(&file, own, given, Arc::new(engines), clock).await?;
    alertd.rules.set(ConfigOrigin::Files, rules);
    Ok(alertd)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::LoadedSettings;

    fn settings(flags: &[(&str, &str)]) -> Settings {
        let flags: Vec<_> = flags.iter().map(|(k, v)| (*k, (*v).to_owned())).collect();
        LoadedSettings::load(None, std::iter::empty(), &flags).unwrap().settings
    }

    #[test]
    fn rules_and_policy_of_files() {
        let dir = tempfile::tempdir().unwrap();
        let put = |name: &str, text: &str| {
            std::fs::write(dir.path().join(name), text).unwrap();
            dir.path().join(name).display().to_string()
        };
        let rules = put("a.yml", "groups: [{name: g, rules: [{alert: A, expr: up == 0}]}]\n");
        put("b.yml", "namespace: n\ngroups: [{name: g}]\n");
        let all = format!("[\"{}/*.yml\"]", dir.path().display());
        let found = read_rules(&settings(&[("alerting.rules", &all)])).unwrap();
        let names: Vec<&str> = found.iter().map(|s| s.file.as_str()).collect();
        assert_eq!(names, [rules.as_str(), "n"]);
        let twice = format!("[\"{rules}\", \"{}/*.yml\"]", dir.path().display());
        assert_eq!(read_rules(&settings(&[("alerting.rules", &twice)])).unwrap().len(), 2);
        let told = |flags: &[(&str, &str)]| read_rules(&settings(flags)).unwrap_err().message;
        assert!(told(&[("alerting.rules", "[\"/none\"]")]).contains("/none"));
        assert!(told(&[("alerting.rules", "[\"/none/[a\"]")]).contains("syntax error in pattern"));
        let bad = put("c.yml", "groups: [{name: g, rules: [{alert: A, expr: 'up =='}]}]\n");
        assert!(told(&[("alerting.rules", &format!("[\"{bad}\"]"))]).contains("c.yml: 1:"));
        let narrow = put("c.yml", "groups: [{name: g, params: {extra_label: a=b}}]\n");
        let narrow = read_rules(&settings(&[("alerting.rules", &format!("[\"{narrow}\"]"))])).unwrap();
        assert_eq!(narrow[0].group.extra_labels(), [("a".to_owned(), "b".to_owned())]);
        for group in ["params: {nocache: '1'}", "type: vlogs, params: {extra_label: a=b}"] {
            let file = put("c.yml", &format!("groups: [{{name: g, {group}}}]\n"));
            assert!(told(&[("alerting.rules", &format!("[\"{file}\"]"))]).contains("`params`"), "{group}");
        }
        put("c.yml", "namespace: n\ngroups: [{name: g}]\n");
        assert!(told(&[("alerting.rules", &all)]).contains("given more than once"));

        put("t.tmpl", "{{ define \"mine\" }}x{{ end }}");
        let file = put("policy", "route: {receiver: a}\nreceivers: [{name: a}]\ntemplates: ['*.tmpl']\n");
        let refused = read_policy(&settings(&[("alerting.policy", &file)])).unwrap_err().message;
        assert!(refused.contains("files_dir"), "{refused}");
        let here = dir.path().display().to_string();
        let policy = read_policy(&settings(&[("alerting.policy", &file), ("alerting.files_dir", &here)])).unwrap();
        assert!(policy.unwrap().templates.names().any(|name| name == "mine"));
        assert!(read_policy(&settings(&[])).unwrap().is_none());
    }

    #[test]
    fn addresses_and_labels() {
        let check = |flags: &[(&str, &str)], expected: &str| {
            let at = Some("0.0.0.0:81".parse().unwrap());
            assert_eq!(external_url(&settings(flags), at), expected);
        };
        check(&[], "http://127.0.0.1:81");
        check(&[("auth.public_url", "https://q.example")], "https://q.example");
        check(
            &[("alerting.external_url", "https://a.example/q/"), ("auth.public_url", "https://q")],
            "https://a.example/q",
        );
        let labels = |text: &str| external_labels(&settings(&[("alerting.external_labels", text)]));
        assert_eq!(labels("[\"dc=a=b\"]").unwrap()["dc"], "a=b");
        assert!(labels("[\"dc\"]").is_err());
        assert!(
            egress(&settings(&[("egress.allow", "[\"10.0.0.0/99\"]")])).unwrap_err().message.contains("egress.allow")
        );
    }

    #[test]
    fn where_the_service_is_seen() {
        let at = |text: &str| Some(text.parse::<SocketAddr>().unwrap());
        for (flags, address, expected) in [
            (&[][..], at("127.0.0.1:1"), "http://127.0.0.1:1"),
            (&[][..], at("0.0.0.0:2"), "http://127.0.0.1:2"),
            (&[][..], at("[::]:3"), "http://127.0.0.1:3"),
            (&[][..], at("[::1]:4"), "http://[::1]:4"),
            (&[("http.listen", "10.0.0.1:5")][..], None, "http://10.0.0.1:5"),
            (&[("http.listen", "10.0.0.1:5")][..], at("10.0.0.1:6"), "http://10.0.0.1:6"),
            (&[("alerting.external_url", "https://a.example//")][..], at("127.0.0.1:1"), "https://a.example"),
        ] {
            assert_eq!(external_url(&settings(flags), address), expected, "{flags:?}");
        }
    }

    #[test]
    fn spans_as_milliseconds() {
        let span = |duration| Span(Some(duration));
        for (span, expected) in [
            (Span(None), 0),
            (span(std::time::Duration::ZERO), 0),
            (span(std::time::Duration::from_micros(1999)), 1),
            (span(std::time::Duration::from_secs(90)), 90_000),
            (span(std::time::Duration::MAX), i64::MAX),
        ] {
            assert_eq!(millis(span), expected, "{span:?}");
        }
    }

    /// Templates are only read from the one directory.
    #[test]
    fn template_files_of_a_policy() {
        let dir = tempfile::tempdir().unwrap();
        let inner = dir.path().join("inner");
        std::fs::create_dir(&inner).unwrap();
        for (name, text) in [("inner/b.tmpl", "B"), ("inner/a.tmpl", "A"), ("outside.tmpl", "X")] {
            std::fs::write(dir.path().join(name), text).unwrap();
        }
        std::os::unix::fs::symlink(dir.path().join("outside.tmpl"), inner.join("link.md")).unwrap();
        let read = |pattern: &str| {
            let found = template_files(Some(&inner), pattern)?;
            Ok::<_, String>(found.into_iter().map(|(_, text)| text).collect::<String>())
        };
        assert_eq!(read("*.tmpl").as_deref(), Ok("AB"));
        assert_eq!(read("a.tmpl").as_deref(), Ok("A"));
        assert_eq!(read("none*").as_deref(), Ok(""));
        for outside in ["../outside.tmpl", "*.md", &dir.path().join("outside.tmpl").display().to_string()] {
            let told = read(outside).unwrap_err();
            assert!(told.contains("not below"), "{outside}: {told}");
        }
        let told = template_files(None, "*.tmpl").unwrap_err();
        assert_eq!(told, "templates `*.tmpl` are not read: `alerting.files_dir` is not set");
    }

    #[test]
    fn labels_of_the_service() {
        let labels = |texts: &str| external_labels(&settings(&[("alerting.external_labels", texts)]));
        let shown = |texts: &str| {
            let pairs = labels(texts).unwrap().into_iter().map(|(name, value)| format!("{name}={value};"));
            pairs.collect::<Vec<_>>().concat()
        };
        for (texts, expected) in [
            ("[\"b=2\", \"a=1\"]", "a=1;b=2;"),
            ("[\"a=\"]", "a=;"),
            ("[\"a==b\"]", "a==b;"),
            ("[\"größe.x=1\", \"x y= 2\"]", "größe.x=1;x y= 2;"),
        ] {
            assert_eq!(shown(texts), expected, "{texts}");
        }
        for (texts, told) in [
            ("[\"=1\"]", "`name=value` is wanted"),
            ("[\"a\"]", "`name=value` is wanted"),
            ("[\"\"]", "`name=value` is wanted"),
            ("[\"__name__=a\"]", "`__name__` is no name"),
            ("[\" a=1\"]", "` a` is no name"),
            ("[\"a =1\"]", "`a ` is no name"),
            ("[\"a=1\", \"b=1\", \"a=1\"]", "there is another `a`"),
        ] {
            assert!(labels(texts).unwrap_err().message.contains(told), "{texts}");
        }
    }
}
