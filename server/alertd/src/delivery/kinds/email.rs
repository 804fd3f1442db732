//! E-mail: headers and bodies as Alertmanager writes them.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use chrono::DateTime;
use lettre::transport::smtp::extension::ClientId;
use quiver_alerting::options::Options;
use quiver_alerting::receivers::Integration;
use quiver_alerting::receivers::email::canonical;

use super::super::addresses::addresses;
use super::super::message::{Failure, Message};
use super::super::message_text::Texts;
use super::super::mime::{header_value, quoted_printable};
use super::message_fields::{key_hash, text_hash};

/// A mail as it goes to the server.
#[derive(Debug)]
pub(in super::super) struct Mail {
    pub(in super::super) from: String,
    pub(in super::super) to: Vec<String>,
    pub(in super::super) data: Vec<u8>,
}

/// The subject where the headers have none.
const SUBJECT: &str = "{{ template \"email.default.subject\" . }}";

/// Makes the mail.
///
/// # Errors
/// A template fails, or yields no addresses.
pub(in super::super) fn mail(message: &Message, integration: &Integration) -> Result<Mail, Failure> {
    let options = &integration.options;
    let texts = Texts::new(message, 0);
    let listed = |field: &str| {
        let list = texts.text(options.text(field))?;
        addresses(&list).map_err(|e| Failure::lasting(format!("parse '{field}' addresses: {e}")))
    };
    let (from, to) = (listed("from")?, listed("to")?);
    let [from] = <[String; 1]>::try_from(from)
        .map_err(|all| Failure::lasting(format!("must be exactly one 'from' address (got: {})", all.len())))?;
    let boundary = format!("{}{:016x}", &key_hash(message)[..44], message.now);
    let mut out = headers(message, options, &texts, &boundary)?.into_bytes();
    let bodies = [("text/plain", options.text("text")), ("text/html", options.text("html"))];
    let mut first = true;
    // What mail readers prefer stands last (RFC 2046 section 5.1.4).
    for (kind, template) in bodies.into_iter().filter(|(_, template)| !template.is_empty()) {
        let body = if kind == "text/html" { texts.html(template)? } else { texts.text(template)? };
        let edge = if std::mem::take(&mut first) { "" } else { "\r\n" };
        let head = format!("{edge}--{boundary}\r\nContent-Transfer-Encoding: quoted-printable\r\n");
        out.extend_from_slice(head.as_bytes());
        out.extend_from_slice(format!("Content-Type: {kind}; charset=UTF-8\r\n\r\n").as_bytes());
        out.extend_from_slice(&quoted_printable(&body));
    }
    out.extend_from_slice(format!("\r\n--{boundary}--\r\n").as_bytes());
    Ok(Mail { from, to, data: out })
}

fn headers(message: &Message, options: &Options, texts: &Texts<'_>, boundary: &str) -> Result<String, Failure> {
    let given = options.text_map("headers").into_iter().flatten();
    let mut all: BTreeMap<String, &str> = given.map(|(name, text)| (canonical(name), text.as_str())).collect();
    for (name, text) in [("Subject", SUBJECT), ("To", options.text("to")), ("From", options.text("from"))] {
        all.entry(name.to_owned()).or_insert(text);
    }
    let mut out = String::new();
    for (name, text) in &all {
        if !name.bytes().all(|b| matches!(b, b'!'..=b'~') && b != b':') {
            return Err(Failure::lasting(format!("{name:?} is no name of a header")));
        }
        let _ = write!(out, "{name}: {}\r\n", header_value(&texts.text(text)?));
    }
    let at = DateTime::from_timestamp_nanos(message.now);
    if !all.contains_key("Message-Id") {
        // The same in each attempt of a flush, so that a mail that was taken though its answer got lost is known again.
        let told = &text_hash(&format!("{}\u{0}{}", message.group_key, options.text("to")))[..16];
        let host = ClientId::default().to_string();
        let _ = write!(out, "Message-Id: <{}.{told}@{}>\r\n", message.now, host.trim_matches(['[', ']']));
    }
    if let Some(threading) = options.object("threading").filter(|t| t.truth("enabled")) {
        // No mail has this id: readers make the thread of those that refer to it.
        let day = if threading.text("thread_by_date") == "none" { String::new() } else { at.format("%F").to_string() };
        let root = format!("<alert-{}-{day}@alertmanager>", &key_hash(message)[..16]);
        let _ = write!(out, "References: {root}\r\nIn-Reply-To: {root}\r\n");
    }
    let _ = write!(out, "Date: {}\r\n", at.format("%a, %d %b %Y %H:%M:%S %z"));
    let _ = write!(out, "Content-Type: multipart/alternative;  boundary={boundary}\r\nMIME-Version: 1.0\r\n\r\n");
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::super::super::tests::{integration, told};
    use super::*;

    fn data(yaml: &str) -> String {
        let mail = mail(&told(&[("a", true)]), &integration("email", yaml)).unwrap();
        String::from_utf8(mail.data).unwrap()
    }

    #[test]
    fn headers_and_bodies() {
        let shown = data(
            "{to: 'Ops <a@b.example>, c@d.example', from: q@b.example, smarthost: 's:25', text: 'x={{ .Status }}'}",
        );
        let (head, body) = shown.split_once("\r\n\r\n").unwrap();
        let lines: Vec<&str> = head.split("\r\n").collect();
        assert_eq!(lines[0], "From: q@b.example");
        assert!(lines[1].starts_with("Subject: [FIRING:1] High"), "{head}");
        assert_eq!(lines[2], "To: Ops <a@b.example>, c@d.example");
        assert!(lines[3].starts_with("Message-Id: <") && lines[3].ends_with('>'), "{head}");
        assert_eq!(lines[4], "Date: Thu, 01 Jan 1970 00:01:00 +0000");
        let boundary = lines[5].strip_prefix("Content-Type: multipart/alternative;  boundary=").unwrap();
        let parts: Vec<&str> = body.split(&format!("--{boundary}")).collect();
        assert_eq!((parts.len(), parts[3]), (4, "--\r\n"));
        assert!(parts[1].ends_with("text/plain; charset=UTF-8\r\n\r\nx=3Dfiring\r\n"), "{}", parts[1]);
        let (head_of_html, html) = parts[2].split_once("\r\n\r\n").unwrap();
        assert!(head_of_html.ends_with("text/html; charset=UTF-8"), "{head_of_html}");
        assert!(html.trim_start().starts_with("<!DOCTYPE html"), "{}", &html[..200]);
        assert!(shown.split("\r\n").all(|line| line.len() <= 76 || head.contains(line)));
    }

    #[test]
    fn own_headers_and_threads() {
        let shown = data(
            "{to: a@b.example, from: q@b.example, smarthost: 's:25', headers: {subject: 'ü {{ .Status }}', x-team: t}, \
             threading: {enabled: true, thread_by_date: daily}}",
        );
        assert!(shown.contains("Subject: =?utf-8?q?=C3=BC_firing?=\r\n") && shown.contains("X-Team: t\r\n"), "{shown}");
        let root = shown.split("References: ").nth(1).unwrap().split("\r\n").next().unwrap();
        assert!(root.starts_with("<alert-") && root.ends_with("-1970-01-01@alertmanager>"), "{root}");
        assert!(shown.contains(&format!("In-Reply-To: {root}\r\n")));
    }

    #[test]
    fn what_is_no_mail() {
        let fails = |yaml: &str| mail(&told(&[("a", true)]), &integration("email", yaml)).unwrap_err().text;
        let told = fails("{to: a@b.example, from: 'a@b.example, c@d.example', smarthost: 's:25'}");
        assert!(told.contains("exactly one 'from'"), "{told}");
        let told = fails("{to: 'nobody', from: a@b.example, smarthost: 's:25'}");
        assert!(told.contains("'to' addresses"), "{told}");
        let told = fails("{to: '{{ template \"none\" . }}', from: a@b.example, smarthost: 's:25'}");
        assert!(told.contains("template"), "{told}");
    }
}
