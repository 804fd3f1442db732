//! Chooses the proxy for an HTTP request, if any, by the rules of Alertmanager (Go's `httpproxy`).

use std::net::IpAddr;

use quiver_alerting::options::Options;
use quiver_types::Network;
use url::{Host, Url};

/// What the environment says of proxies, for `proxy_from_environment`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ProxyEnvironment {
    /// `HTTP_PROXY`: the proxy of calls over HTTP.
    pub http: String,
    /// `HTTPS_PROXY`: that of calls over HTTPS.
    pub https: String,
    /// `NO_PROXY`: hosts that are called without one.
    pub except: String,
}

impl ProxyEnvironment {
    /// Reads it; names in capitals win over those in small letters, as in Go.
    pub fn read(variable: impl Fn(&str) -> Option<String>) -> Self {
        let either = |name: &str| {
            let small = name.to_ascii_lowercase();
            [name, small.as_str()].into_iter().find_map(|n| variable(n).filter(|v| !v.is_empty())).unwrap_or_default()
        };
        Self { http: either("HTTP_PROXY"), https: either("HTTPS_PROXY"), except: either("NO_PROXY") }
    }
}

/// The proxies of a client.
#[derive(Debug, Default)]
pub(super) struct Proxies {
    http: Option<Url>,
    https: Option<Url>,
    /// What is called without one; absent: nothing, not even this machine.
    except: Option<Vec<NoProxyEntry>>,
}

/// An entry of `no_proxy`.
#[derive(Debug, Clone, PartialEq, Eq)]
enum NoProxyEntry {
    All,
    Network(Network),
    /// An address, at a port or at any.
    Address(IpAddr, String),
    /// All names with an end that begins with a dot, and the name behind that dot or not; at a port or at any.
    Domain {
        end: String,
        itself: bool,
        port: String,
    },
}

/// Reads the address of a proxy, over HTTP where it does not say over what; the error says what is wrong about it.
pub(super) fn proxy(text: &str) -> Result<Option<Url>, String> {
    if text.is_empty() {
        return Ok(None);
    }
    let whole = Url::parse(text).ok().filter(Url::has_host);
    match whole.or_else(|| Url::parse(&format!("http://{text}")).ok()) {
        Some(url) if matches!(url.scheme(), "http" | "https") => Ok(Some(url)),
        Some(url) => Err(format!("over {}", url.scheme())),
        None => Err("that is no URL".to_owned()),
    }
}

impl Proxies {
    /// Gives those of some options.
    ///
    /// # Errors
    /// What is wrong about an address.
    pub(super) fn of(options: &Options, environment: &ProxyEnvironment) -> Result<Self, String> {
        let unusable = |why: String| format!("a proxy {why} is not supported");
        if options.truth("proxy_from_environment") {
            let [http, https] = [&environment.http, &environment.https].map(|text| proxy(text).map_err(unusable));
            return Ok(Self { http: http?, https: https?, except: Some(excepted(&environment.except)) });
        }
        let one = proxy(options.text("proxy_url")).map_err(unusable)?;
        let except = options.text("no_proxy");
        Ok(Self { http: one.clone(), https: one, except: (!except.is_empty()).then(|| excepted(except)) })
    }

    /// Gives the one of a call.
    pub(super) fn of_call(&self, url: &Url) -> Option<&Url> {
        let proxy = if url.scheme() == "https" { self.https.as_ref() } else { self.http.as_ref() }?;
        let is_direct = self.except.as_deref().is_some_and(|except| is_direct(url, except));
        (!is_direct).then_some(proxy)
    }
}

fn is_direct(url: &Url, except: &[NoProxyEntry]) -> bool {
    let (name, address) = match url.host() {
        Some(Host::Domain(name)) => (name, None),
        Some(Host::Ipv4(v4)) => ("", Some(IpAddr::V4(v4))),
        Some(Host::Ipv6(v6)) => ("", Some(IpAddr::V6(v6))),
        None => return false,
    };
    if name == "localhost" || address.is_some_and(|a| a.is_loopback()) {
        return true;
    }
    let port = url.port_or_known_default().map(|port| port.to_string()).unwrap_or_default();
    let is_at = |wanted: &str| wanted.is_empty() || wanted == port;
    except.iter().any(|entry| match entry {
        NoProxyEntry::All => true,
        NoProxyEntry::Network(network) => address.is_some_and(|a| network.contains(a)),
        NoProxyEntry::Address(own, at) => address == Some(*own) && is_at(at),
        NoProxyEntry::Domain { end, itself, port } => {
            (name.ends_with(end) || (*itself && name == &end[1..])) && !name.is_empty() && is_at(port)
        }
    })
}

/// Reads a list of hosts, parted by commas.
fn excepted(text: &str) -> Vec<NoProxyEntry> {
    text.split(',').filter_map(|entry| except(&entry.trim().to_lowercase())).collect()
}

fn except(text: &str) -> Option<NoProxyEntry> {
    if text == "*" {
        return Some(NoProxyEntry::All);
    }
    if text.contains('/')
        && let Ok(network) = Network::parse(text)
    {
        return Some(NoProxyEntry::Network(network));
    }
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) if !host.contains(':') || host.ends_with(']') => (host, port),
        _ => (text, ""),
    };
    let host = host.trim_start_matches('[').trim_end_matches(']');
    if let Ok(address) = host.parse() {
        return Some(NoProxyEntry::Address(address, port.to_owned()));
    }
    let host = host.strip_prefix('*').filter(|rest| rest.starts_with('.')).unwrap_or(host);
    let (itself, bare) = host.strip_prefix('.').map_or((true, host), |bare| (false, bare));
    // As names stand in URLs.
    let bare = Host::parse(bare).map_or_else(|_| bare.to_owned(), |host| host.to_string());
    (!bare.is_empty()).then(|| NoProxyEntry::Domain { end: format!(".{bare}"), itself, port: port.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_that_are_called_without_one() {
        let check = |except: &str, url: &str, proxied: bool| {
            let http = proxy("http://proxy:3128").unwrap();
            let proxies = Proxies { https: http.clone(), http, except: Some(excepted(except)) };
            assert_eq!(proxies.of_call(&Url::parse(url).unwrap()).is_some(), proxied, "{except} {url}");
        };
        let list = "foo.com:8080, .bar.org, *.baz.net,10.0.0.0/8,1.2.3.4:81,[fd00::1]:443,2001:db8::2,müll.de,";
        for url in [
            "http://foo.com:8080/",
            "http://a.foo.com:8080/",
            "https://x.bar.org/",
            "http://a.b.baz.net/",
            "http://10.200.1.1/",
            "http://1.2.3.4:81/",
            "https://[fd00::1]/",
            "http://[2001:db8::2]:9/",
            "http://x.MÜLL.de/",
            "http://localhost:9/",
            "http://127.1.2.3/",
            "http://[::1]/",
        ] {
            check(list, url, false);
            check("*", url, false);
        }
        for url in [
            "http://foo.com/",
            "http://xfoo.com:8080/",
            "http://bar.org/",
            "http://baz.net/",
            "http://11.0.0.1/",
            "http://1.2.3.4/",
            "http://[fd00::1]/",
            "http://[2001:db8::3]/",
            "http://example.com/",
        ] {
            check(list, url, true);
            check("", url, true);
        }
    }

    #[test]
    fn of_options_and_of_the_environment() {
        let environment = ProxyEnvironment::read(|name| match name {
            "HTTP_PROXY" => Some(String::new()),
            "http_proxy" => Some("plain:1".to_owned()),
            "HTTPS_PROXY" => Some("https://u:p@tls:2".to_owned()),
            "https_proxy" => Some("http://not-this".to_owned()),
            "no_proxy" => Some("near.example".to_owned()),
            _ => None,
        });
        let of = |yaml: &str, environment: &ProxyEnvironment| {
            let entry = format!("{{url: 'http://h', http_config: {yaml}}}");
            let integration = crate::delivery::tests::integration("webhook", &entry);
            Proxies::of(integration.options.object("http_config").unwrap(), environment)
        };
        let chosen = |proxies: &Proxies, url: &str| {
            proxies.of_call(&Url::parse(url).unwrap()).map(|proxy| proxy.as_str().to_owned())
        };
        let check = |yaml: &str, url: &str, expected: Option<&str>| {
            assert_eq!(chosen(&of(yaml, &environment).unwrap(), url).as_deref(), expected, "{yaml} {url}");
        };
        let by_environment = "{proxy_from_environment: true}";
        check(by_environment, "http://far.example/", Some("http://plain:1/"));
        check(by_environment, "https://far.example/", Some("https://u:p@tls:2/"));
        check(by_environment, "https://near.example/", None);
        check("{}", "https://far.example/", None);
        check("{proxy_url: 'http://own:3'}", "https://near.example/", Some("http://own:3/"));
        check("{proxy_url: 'http://own:3'}", "http://localhost/", Some("http://own:3/"));
        check("{proxy_url: 'own:3', no_proxy: far.example}", "http://a.far.example/", None);
        check("{proxy_url: 'own:3', no_proxy: far.example}", "http://localhost/", None);
        check("{proxy_url: 'own:3', no_proxy: far.example}", "http://near.example/", Some("http://own:3/"));
        let told = of(by_environment, &ProxyEnvironment { http: "socks5://h:1".to_owned(), ..environment.clone() });
        assert_eq!(told.err().as_deref(), Some("a proxy over socks5 is not supported"));
    }

    #[test]
    fn addresses_of_proxies() {
        for (text, expected) in [
            ("", Ok(None)),
            ("http://p:3128", Ok(Some("http://p:3128/"))),
            ("https://u:p@p", Ok(Some("https://u:p@p/"))),
            ("p:3128", Ok(Some("http://p:3128/"))),
            ("p", Ok(Some("http://p/"))),
            ("10.0.0.1:1", Ok(Some("http://10.0.0.1:1/"))),
            ("[::1]:1", Ok(Some("http://[::1]:1/"))),
            ("socks5://p:1", Err("over socks5".to_owned())),
            ("ftp://p", Err("over ftp".to_owned())),
            ("p:x", Err("that is no URL".to_owned())),
        ] {
            let got = proxy(text);
            let shown = got.as_ref().map(|url| url.as_ref().map(Url::as_str)).map_err(Clone::clone);
            assert_eq!(shown, expected, "{text}");
        }
    }

    #[test]
    fn entries_of_hosts() {
        let domain = |end: &str, itself, port: &str| {
            Some(NoProxyEntry::Domain { end: end.to_owned(), itself, port: port.to_owned() })
        };
        let address = |text: &str, port: &str| Some(NoProxyEntry::Address(text.parse().unwrap(), port.to_owned()));
        for (text, expected) in [
            ("", None),
            (".", None),
            ("*", Some(NoProxyEntry::All)),
            ("a.b", domain(".a.b", true, "")),
            (".a.b", domain(".a.b", false, "")),
            ("*.a.b", domain(".a.b", false, "")),
            ("a.b:8080", domain(".a.b", true, "8080")),
            ("10.0.0.0/8", Network::parse("10.0.0.0/8").ok().map(NoProxyEntry::Network)),
            ("10.0.0.1", address("10.0.0.1", "")),
            ("10.0.0.1:80", address("10.0.0.1", "80")),
            ("::1", address("::1", "")),
            ("[::1]:80", address("::1", "80")),
        ] {
            assert_eq!(except(text), expected, "{text}");
        }
        assert_eq!(excepted(" A.b , ,*,").len(), 2);
    }
}
