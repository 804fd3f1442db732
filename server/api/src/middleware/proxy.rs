//! Requests forwarded by a proxy: the client that they come from, and the URL under which it reaches this server.
//! Only proxies named in the settings are trusted; the headers of anybody else are ignored.

use std::net::{IpAddr, SocketAddr};

use http::{HeaderMap, HeaderName, HeaderValue};
use quiver_auth::base_url_is_sane;
use quiver_types::Network;

const FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
const HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
/// Most hops that are looked at.
const HOPS_MAX: usize = 32;

/// Which proxies are trusted.
#[derive(Debug, Clone, Default)]
pub struct Proxies {
    /// Networks of trusted proxies.
    pub trusted: Vec<Network>,
    /// Whether proxies may tell under which URL clients reach this server; not if the settings state it
    /// (`auth.public_url`).
    pub name_us: bool,
}

/// What a trusted proxy says about a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ForwardedInfo {
    /// The address of the client.
    pub(crate) client: IpAddr,
    /// Whether the client connected to the proxy with TLS.
    pub(crate) encrypted: bool,
    /// The part of the URL before `/realms`, as the client sees it.
    pub(crate) base_url: Option<String>,
}

impl Proxies {
    fn trusts(&self, peer: IpAddr) -> bool {
        self.trusted.iter().any(|network| network.contains(peer))
    }

    /// Reads the headers of a proxy. `None` if the request did not come from a trusted one, or that one set none.
    pub(super) fn passed(&self, peer: Option<SocketAddr>, headers: &HeaderMap) -> Option<ForwardedInfo> {
        let peer = peer?.ip().to_canonical();
        if !self.trusts(peer) || ![FOR, PROTO, HOST].iter().any(|name| headers.contains_key(name)) {
            return None;
        }
        let proto = last(headers, &PROTO).filter(|p| matches!(*p, "http" | "https"));
        let base_url = proto.zip(last(headers, &HOST)).map(|(proto, host)| format!("{proto}://{host}"));
        let base_url = base_url.filter(|url| self.name_us && url.len() <= 300 && base_url_is_sane(url) && is_bare(url));
        Some(ForwardedInfo { client: self.client(peer, headers), encrypted: proto == Some("https"), base_url })
    }

    /// Each proxy appends the address that it was asked by, so the last address that is not a trusted proxy is the
    /// client. The client may have written whatever precedes it.
    fn client(&self, peer: IpAddr, headers: &HeaderMap) -> IpAddr {
        let mut client = peer;
        // A client that sends bytes which are no text must not hide the address that the proxy appends to them.
        let lines: Vec<&[u8]> = headers.get_all(FOR).iter().map(HeaderValue::as_bytes).collect();
        let hops = lines.iter().rev().flat_map(|line| line.rsplit(|byte| *byte == b','));
        for hop in hops.take(HOPS_MAX) {
            let text = std::str::from_utf8(hop).unwrap_or_default();
            let Some(ip) = address(text.trim()) else { return client };
            client = ip;
            if !self.trusts(ip) {
                return client;
            }
        }
        client
    }
}

/// Parses `192.0.2.1`, `192.0.2.1:80`, `2001:db8::1` or `[2001:db8::1]:80`.
fn address(text: &str) -> Option<IpAddr> {
    let ip = text.parse::<IpAddr>().or_else(|_| text.parse::<SocketAddr>().map(|at| at.ip()));
    let ip = ip.or_else(|_| text.trim_start_matches('[').trim_end_matches(']').parse());
    ip.ok().map(|ip| ip.to_canonical())
}

/// The last element of a header's list: the one added by the proxy that sent the request.
fn last<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    let value = headers.get_all(name).iter().next_back()?.to_str().ok()?;
    value.rsplit(',').next().map(str::trim).filter(|word| !word.is_empty())
}

/// Whether a URL has only host and port after the scheme.
fn is_bare(url: &str) -> bool {
    let host = url.split("://").nth(1).unwrap_or_default();
    host.bytes().all(|b| b.is_ascii_alphanumeric() || b".-:[]_".contains(&b))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trusted(networks: &[&str]) -> Vec<Network> {
        networks.iter().map(|text| Network::parse(text).unwrap()).collect()
    }

    fn passed(peer: &str, headers: &[(HeaderName, &str)]) -> Option<ForwardedInfo> {
        let proxies = Proxies { trusted: trusted(&["10.0.0.0/8", "::1"]), name_us: true };
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(name.clone(), HeaderValue::from_str(value).unwrap());
        }
        proxies.passed(Some(SocketAddr::new(peer.parse().unwrap(), 1)), &map)
    }

    #[test]
    fn clients() {
        let check = |peer: &str, lines: &[&str], client: Option<&str>| {
            let headers: Vec<_> = lines.iter().map(|line| (FOR, *line)).collect();
            let found = passed(peer, &headers).map(|p| p.client.to_string());
            assert_eq!(found.as_deref(), client, "{peer} {lines:?}");
        };
        check("10.0.0.1", &["192.0.2.7"], Some("192.0.2.7"));
        check("::ffff:10.0.0.1", &["192.0.2.7:4711"], Some("192.0.2.7"));
        check("::1", &["[2001:db8::1]:80"], Some("2001:db8::1"));
        check("10.0.0.1", &["2001:db8::1"], Some("2001:db8::1"));
        // What the client wrote itself comes first, and is ignored.
        check("10.0.0.1", &["127.0.0.1, 192.0.2.7"], Some("192.0.2.7"));
        check("10.0.0.1", &["127.0.0.1", "192.0.2.7, 10.0.0.2"], Some("192.0.2.7"));
        check("10.0.0.1", &["10.0.0.9"], Some("10.0.0.9"));
        check("10.0.0.1", &["192.0.2.7, unknown, 10.0.0.2"], Some("10.0.0.2"));
        check("10.0.0.1", &["unknown"], Some("10.0.0.1"));
        // Others are not trusted.
        check("192.0.2.1", &["127.0.0.1"], None);
        check("10.0.0.1", &[], None);
    }

    /// Would fail if who sends such bytes were taken for the proxy, and let in where its network is.
    #[test]
    fn bytes_that_are_no_text_hide_nobody() {
        let proxies = Proxies { trusted: trusted(&["10.0.0.0/8"]), name_us: true };
        let peer = SocketAddr::new("10.0.0.1".parse().unwrap(), 1);
        for (line, client) in [(&b"\xff, 192.0.2.7"[..], "192.0.2.7"), (&b"192.0.2.7, \xff, 10.0.0.2"[..], "10.0.0.2")]
        {
            let headers = HeaderMap::from_iter([(FOR, HeaderValue::from_bytes(line).unwrap())]);
            assert_eq!(proxies.passed(Some(peer), &headers).unwrap().client.to_string(), client);
        }
    }

    #[test]
    fn addresses_of_ours() {
        let check = |proto: &str, host: &str, base: Option<&str>| {
            let found = passed("10.0.0.1", &[(PROTO, proto), (HOST, host)]).unwrap();
            assert_eq!(found.base_url.as_deref(), base, "{proto} {host}");
            assert_eq!(found.encrypted, proto.ends_with("https"), "{proto}");
        };
        check("https", "quiver.example", Some("https://quiver.example"));
        check("http", "quiver.example:8080", Some("http://quiver.example:8080"));
        check("http, https", "evil.example, quiver.example", Some("https://quiver.example"));
        check("gopher", "quiver.example", None);
        for host in ["", "a b", "evil.example/x", "u@evil.example", "x?y", "x#y", "\"", &"x".repeat(400)] {
            check("https", host, None);
        }
        assert_eq!(passed("192.0.2.1", &[(PROTO, "https"), (HOST, "quiver.example")]), None);
    }

    #[test]
    fn addresses_in_all_forms() {
        for (text, expected) in [
            ("192.0.2.1", Some("192.0.2.1")),
            ("192.0.2.1:80", Some("192.0.2.1")),
            ("2001:db8::1", Some("2001:db8::1")),
            ("[2001:db8::1]", Some("2001:db8::1")),
            ("[2001:db8::1]:80", Some("2001:db8::1")),
            ("::ffff:192.0.2.1", Some("192.0.2.1")),
            ("[::ffff:192.0.2.1]:80", Some("192.0.2.1")),
            ("", None),
            ("unknown", None),
            ("_hidden", None),
            ("192.0.2.1:", None),
            ("192.0.2.1:99999", None),
            ("192.0.2", None),
            ("192.0.2.256", None),
            ("for=192.0.2.1", None),
            ("\"192.0.2.1\"", None),
        ] {
            assert_eq!(address(text).map(|ip| ip.to_string()).as_deref(), expected, "{text}");
        }
    }

    /// A list longer than the limit is cut off, and ends at a trusted proxy.
    #[test]
    fn chains_are_bounded() {
        let chain = |ours: usize| format!("192.0.2.7{}", ", 10.0.0.2".repeat(ours));
        for (ours, expected) in [(0, "192.0.2.7"), (HOPS_MAX - 1, "192.0.2.7"), (HOPS_MAX, "10.0.0.2")] {
            let found = passed("10.0.0.1", &[(FOR, chain(ours).as_str())]).map(|p| p.client.to_string());
            assert_eq!(found.as_deref(), Some(expected), "{ours}");
        }
    }

    #[test]
    fn what_one_header_alone_says() {
        let encrypted = |headers: &[(HeaderName, &str)]| passed("10.0.0.1", headers).map(|p| (p.encrypted, p.base_url));
        assert_eq!(encrypted(&[(PROTO, "https")]), Some((true, None)));
        assert_eq!(encrypted(&[(PROTO, "HTTPS")]), Some((false, None)), "the word is known in small letters");
        assert_eq!(encrypted(&[(HOST, "quiver.example")]), Some((false, None)));
        assert_eq!(encrypted(&[(PROTO, "https"), (PROTO, "http")]), Some((false, None)), "the last line counts");
        let unnamed = Proxies { trusted: trusted(&["10.0.0.0/8"]), name_us: false };
        let mut headers = HeaderMap::new();
        headers.insert(PROTO, HeaderValue::from_static("https"));
        headers.insert(HOST, HeaderValue::from_static("quiver.example"));
        let peer = SocketAddr::new("10.0.0.1".parse().unwrap(), 1);
        let found = unnamed.passed(Some(peer), &headers).unwrap();
        assert_eq!((found.encrypted, found.base_url), (true, None), "the settings say how we are called");
        assert_eq!(unnamed.passed(None, &headers), None);
        assert_eq!(Proxies::default().passed(Some(peer), &headers), None, "nobody is believed");
    }
}
