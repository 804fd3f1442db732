//! Reads the few fields of an X.509 certificate (RFC 5280) that rustls verifies but does not expose: common names and
//! the end of validity.
//!
//! Written by hand, since parser crates would bring in derive macros for these two fields.

use chrono::{DateTime, NaiveDateTime, Utc};

const INTEGER: u8 = 0x02;
const OBJECT_IDENTIFIER: u8 = 0x06;
const UTF8_STRING: u8 = 0x0c;
const PRINTABLE_STRING: u8 = 0x13;
const IA5_STRING: u8 = 0x16;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;
const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;
const VERSION: u8 = 0xa0;
/// Object identifier 2.5.4.3, `commonName`, in DER.
const COMMON_NAME: &[u8] = &[0x55, 0x04, 0x03];

/// A sequence of DER values.
#[derive(Debug, Clone, Copy)]
struct Der<'a>(&'a [u8]);

impl<'a> Der<'a> {
    /// Takes the next value: its tag and contents.
    fn next(&mut self) -> Option<(u8, &'a [u8])> {
        let (&tag, rest) = self.0.split_first()?;
        let (&first, rest) = rest.split_first()?;
        let (len, rest) = if first < 0x80 {
            (usize::from(first), rest)
        } else {
            // No certificate needs more than four bytes for a length.
            let (digits, rest) = rest.split_at_checked(usize::from(first & 0x7f)).filter(|(d, _)| d.len() <= 4)?;
            (digits.iter().fold(0, |len, b| len << 8 | usize::from(*b)), rest)
        };
        let (value, rest) = rest.split_at_checked(len)?;
        self.0 = rest;
        Some((tag, value))
    }

    /// Takes the next value if it has this tag.
    fn take(&mut self, tag: u8) -> Option<Der<'a>> {
        self.next().filter(|(found, _)| *found == tag).map(|(_, value)| Der(value))
    }
}

/// The fields of a certificate that are needed.
#[derive(Debug)]
pub(super) struct Certificate<'a> {
    validity: Der<'a>,
    subject: Der<'a>,
}

impl<'a> Certificate<'a> {
    /// Finds the fields. `None` if it is not a certificate.
    pub(super) fn read(der: &'a [u8]) -> Option<Self> {
        let mut fields = Der(der).take(SEQUENCE)?.take(SEQUENCE)?;
        if fields.0.first() == Some(&VERSION) {
            fields.next()?;
        }
        fields.take(INTEGER)?;
        let (_algorithm, _issuer) = (fields.take(SEQUENCE)?, fields.take(SEQUENCE)?);
        Some(Self { validity: fields.take(SEQUENCE)?, subject: fields.take(SEQUENCE)? })
    }

    /// The end of validity (`notAfter`).
    pub(super) fn ends(&self) -> Option<DateTime<Utc>> {
        let mut validity = self.validity;
        validity.next()?;
        let (tag, text) = validity.next()?;
        let text = std::str::from_utf8(text).ok()?;
        // Two digits stand for the years 1950 to 2049.
        let full = match tag {
            UTC_TIME => format!("{}{text}", if text.get(..2)? < "50" { "20" } else { "19" }),
            GENERALIZED_TIME => text.to_owned(),
            _ => return None,
        };
        NaiveDateTime::parse_from_str(&full, "%Y%m%d%H%M%SZ").ok().map(|time| time.and_utc())
    }

    /// The common names of the subject; `None` for one in a string type that is not supported.
    pub(super) fn common_names(&self) -> Vec<Option<&'a str>> {
        let (mut found, mut sets) = (Vec::new(), self.subject);
        while let Some(mut set) = sets.take(SET) {
            while let Some(mut pair) = set.take(SEQUENCE) {
                if pair.take(OBJECT_IDENTIFIER).is_some_and(|id| id.0 == COMMON_NAME) {
                    let value =
                        pair.next().filter(|(tag, _)| [UTF8_STRING, PRINTABLE_STRING, IA5_STRING].contains(tag));
                    found.push(value.and_then(|(_, text)| std::str::from_utf8(text).ok()));
                }
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use rustls::pki_types::CertificateDer;
    use rustls::pki_types::pem::PemObject;

    use super::*;

    fn der(pem: &[u8]) -> Vec<u8> {
        CertificateDer::from_pem_slice(pem).unwrap().to_vec()
    }

    #[test]
    fn fields() {
        let check = |pem: &[u8], names: &[Option<&str>], year: &str| {
            let der = der(pem);
            let certificate = Certificate::read(&der).unwrap();
            assert_eq!(certificate.common_names(), names);
            assert_eq!(certificate.ends().unwrap().format("%Y").to_string(), year);
        };
        check(include_bytes!("../../../../../tests/certificates/client.pem"), &[Some("edge-agent")], "2120");
        check(include_bytes!("../../../../../tests/certificates/server.pem"), &[Some("localhost")], "2120");
        check(include_bytes!("../../../../../tests/certificates/nameless.pem"), &[], "2120");
        check(
            include_bytes!("../../../../../tests/certificates/two-names.pem"),
            &[Some("edge-agent"), Some("admin")],
            "2120",
        );
        check(include_bytes!("../../../../../tests/certificates/ended.pem"), &[Some("localhost")], "2021");
    }

    #[test]
    fn what_is_cut_or_bent_is_no_danger() {
        let der = der(include_bytes!("../../../../../tests/certificates/client.pem"));
        for end in 0..der.len() {
            assert!(Certificate::read(&der[..end]).is_none(), "{end}");
        }
        for at in 0..der.len() {
            for byte in [0, 0x7f, 0x80, 0x84, 0xff] {
                let mut bent = der.clone();
                bent[at] = byte;
                if let Some(certificate) = Certificate::read(&bent) {
                    let _ = (certificate.ends(), certificate.common_names());
                }
            }
        }
    }

    /// Encodes a DER value from its parts.
    fn value(tag: u8, parts: &[&[u8]]) -> Vec<u8> {
        let body = parts.concat();
        let len = body.len() as u16;
        let head = if len < 0x80 { vec![tag, len as u8] } else { [&[tag, 0x82][..], &len.to_be_bytes()].concat() };
        [head, body].concat()
    }

    /// Makes a certificate with this end of validity, as tag and text, and this subject.
    fn made(is_first_version: bool, (tag, ends): (u8, &str), subject: &[&[u8]]) -> Vec<u8> {
        let version = if is_first_version { Vec::new() } else { value(VERSION, &[&value(INTEGER, &[&[2]])]) };
        let begins = value(UTC_TIME, &[b"200101000000Z"]);
        let validity = value(SEQUENCE, &[&begins, &value(tag, &[ends.as_bytes()])]);
        let (number, empty) = (value(INTEGER, &[&[1]]), value(SEQUENCE, &[]));
        let fields: [&[u8]; 6] = [&version, &number, &empty, &empty, &validity, &value(SEQUENCE, subject)];
        value(SEQUENCE, &[&value(SEQUENCE, &fields)])
    }

    #[test]
    fn times_of_both_forms() {
        for (tag, text, expected) in [
            (UTC_TIME, "491231235959Z", Some("2049-12-31 23:59:59 UTC")),
            (UTC_TIME, "500101000000Z", Some("1950-01-01 00:00:00 UTC")),
            (UTC_TIME, "000229120000Z", Some("2000-02-29 12:00:00 UTC")),
            (GENERALIZED_TIME, "20500101000000Z", Some("2050-01-01 00:00:00 UTC")),
            (GENERALIZED_TIME, "99991231235959Z", Some("9999-12-31 23:59:59 UTC")),
            (UTC_TIME, "010229120000Z", None),
            (UTC_TIME, "4912312359Z", None),
            (UTC_TIME, "491231235959+0000", None),
            (UTC_TIME, "é1231235959Z", None),
            (UTC_TIME, "4", None),
            (UTC_TIME, "", None),
            (GENERALIZED_TIME, "", None),
            (UTF8_STRING, "491231235959Z", None),
        ] {
            for is_first_version in [true, false] {
                let der = made(is_first_version, (tag, text), &[]);
                let ends = Certificate::read(&der).unwrap().ends().map(|time| time.to_string());
                assert_eq!(ends.as_deref(), expected, "{text}");
            }
        }
    }

    /// Would fail if another attribute were taken for the common name, or one of several were skipped.
    #[test]
    fn names_stand_anywhere_in_a_subject() {
        const UNIT: &[u8] = &[0x55, 0x04, 0x0b];
        const BMP_STRING: u8 = 0x1e;
        let pair = |id: &[u8], tag: u8, text: &[u8]| {
            value(SEQUENCE, &[&value(OBJECT_IDENTIFIER, &[id]), &value(tag, &[text])])
        };
        let (unit, common) = (pair(UNIT, UTF8_STRING, b"unit"), pair(COMMON_NAME, UTF8_STRING, "é".as_bytes()));
        let (printable, ascii) = (pair(COMMON_NAME, PRINTABLE_STRING, b"p"), pair(COMMON_NAME, IA5_STRING, b""));
        let (wide, bent) = (pair(COMMON_NAME, BMP_STRING, b"\0a"), pair(COMMON_NAME, UTF8_STRING, b"\xff"));
        let longer = pair(&[0x55, 0x04, 0x03, 0x01], UTF8_STRING, b"no");
        let set = |pairs: &[&[u8]]| value(SET, pairs);
        for (subject, expected) in [
            (vec![], vec![]),
            (vec![set(&[])], vec![]),
            (vec![set(&[&unit]), set(&[&longer])], vec![]),
            (vec![set(&[&unit]), set(&[&common])], vec![Some("é")]),
            (vec![set(&[&unit, &common, &unit])], vec![Some("é")]),
            (vec![set(&[&printable, &ascii]), set(&[&common])], vec![Some("p"), Some(""), Some("é")]),
            (vec![set(&[&wide]), set(&[&bent]), set(&[&common])], vec![None, None, Some("é")]),
        ] {
            let parts: Vec<&[u8]> = subject.iter().map(Vec::as_slice).collect();
            let der = made(false, (UTC_TIME, "491231235959Z"), &parts);
            assert_eq!(Certificate::read(&der).unwrap().common_names(), expected);
        }
        // The length of a name of more than 127 bytes takes several bytes.
        let long = "x".repeat(300);
        let der = made(false, (UTC_TIME, ""), &[&set(&[&pair(COMMON_NAME, UTF8_STRING, long.as_bytes())])]);
        assert_eq!(Certificate::read(&der).unwrap().common_names(), [Some(long.as_str())]);
    }

    #[test]
    fn lengths_in_several_bytes() {
        let next = |der: &[u8]| Der(der).next().map(|(tag, value)| (tag, value.to_vec()));
        for der in [&[4, 1, 7, 9][..], &[4, 0x81, 1, 7], &[4, 0x82, 0, 1, 7], &[4, 0x84, 0, 0, 0, 1, 7, 9]] {
            assert_eq!(next(der), Some((4, vec![7])), "{der:?}");
        }
        assert_eq!(next(&[4, 0]), Some((4, vec![])));
        for der in [
            &[][..],
            &[4],
            &[4, 1],
            &[4, 0x81],
            &[4, 0x82, 0],
            &[4, 0x84, 0xff, 0xff, 0xff, 0xff, 7],
            &[4, 0x85, 0, 0, 0, 0, 1, 7],
            &[4, 0xff, 7],
        ] {
            assert_eq!(next(der), None, "{der:?}");
        }
    }
}
