//! Fetches the documents of other issuers over HTTP: discovery and keys (`identity-and-access` 1.5).
//!
//! A name is resolved, each address is checked, and the connection goes to a checked address. TLS only, except to this
//! machine; no redirects, no proxies; limited in time and size.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use quiver_auth::Fetch;
use quiver_types::{Error, Result};
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use url::{Host, Url};

/// Time limit for a document.
const WITHIN: Duration = Duration::from_secs(10);
/// Largest document, in bytes.
const BYTES_MAX: usize = 1 << 20;

/// Fetches documents of issuers.
#[derive(Debug)]
pub struct IssuerClient {
    client: reqwest::Client,
}

/// What is wrong with the URL of an issuer, if anything.
pub fn issuer_fault(issuer: &str) -> Option<&'static str> {
    let Ok(url) = Url::parse(issuer) else { return Some("it is no URL") };
    if url.query().is_some() || url.fragment().is_some() {
        return Some("it has a query or a fragment");
    }
    url_fault(&url)
}

fn url_fault(url: &Url) -> Option<&'static str> {
    let local = is_local(url);
    if url.scheme() != "https" && !(url.scheme() == "http" && local) {
        return Some("it must begin with `https://`; `http://` is for loopback only");
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Some("it holds credentials");
    }
    match url.host() {
        Some(Host::Ipv4(ip)) => address_fault(ip.into()),
        Some(Host::Ipv6(ip)) => address_fault(ip.into()),
        Some(Host::Domain(_)) => None,
        None => Some("it has no host"),
    }
}

/// Whether the host of a URL is literally this machine.
fn is_local(url: &Url) -> bool {
    match url.host() {
        Some(Host::Ipv4(ip)) => ip.is_loopback(),
        Some(Host::Ipv6(ip)) => ip.is_loopback(),
        Some(Host::Domain(name)) => name.eq_ignore_ascii_case("localhost"),
        None => false,
    }
}

/// Why an address is not allowed for an issuer, whatever name leads to it: it is only meant for machines of this
/// network.
fn address_fault(ip: IpAddr) -> Option<&'static str> {
    match ip.to_canonical() {
        IpAddr::V4(ip) if ip.is_link_local() || ip.octets() == [100, 100, 100, 200] => {
            Some("its address is link-local")
        }
        IpAddr::V4(ip) if ip.is_multicast() || ip.octets()[0] == 0 || ip.octets()[0] >= 240 => {
            Some("its address is none of one machine")
        }
        IpAddr::V6(ip) if ip.segments()[0] & 0xffc0 == 0xfe80 || ip.segments()[..2] == [0xfd00, 0x0ec2] => {
            Some("its address is link-local")
        }
        IpAddr::V6(ip) if ip.is_multicast() || ip.is_unspecified() => Some("its address is none of one machine"),
        _ => None,
    }
}

/// Resolves names to allowed addresses. Only the name `localhost` may lead to this machine.
#[derive(Debug)]
struct IssuerResolver;

impl Resolve for IssuerResolver {
    fn resolve(&self, name: Name) -> Resolving {
        Box::pin(async move {
            let local = name.as_str().eq_ignore_ascii_case("localhost");
            let found = tokio::net::lookup_host((name.as_str(), 0)).await?;
            let may =
                |at: &SocketAddr| address_fault(at.ip()).is_none() && at.ip().to_canonical().is_loopback() == local;
            let open: Vec<SocketAddr> = found.filter(may).collect();
            if open.is_empty() {
                return Err("none of the addresses of this name may be connected to".into());
            }
            Ok(Box::new(open.into_iter()) as Addrs)
        })
    }
}

impl IssuerClient {
    /// Makes the client.
    ///
    /// # Errors
    /// Internal: TLS cannot be set up.
    pub fn new() -> Result<Arc<Self>> {
        let client = reqwest::Client::builder()
            .timeout(WITHIN)
            .redirect(reqwest::redirect::Policy::none())
            .no_proxy()
            .dns_resolver(Arc::new(IssuerResolver))
            .build()
            .map_err(|e| Error::internal("the client for issuers cannot be made").with_source(e))?;
        Ok(Arc::new(Self { client }))
    }

    async fn read(&self, url: Url) -> std::result::Result<Vec<u8>, String> {
        let mut response = self.client.get(url).send().await.map_err(|e| e.without_url().to_string())?;
        if response.status() != reqwest::StatusCode::OK {
            return Err(format!("it answers {}", response.status()));
        }
        let mut document = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(|e| e.without_url().to_string())? {
            if document.len() + chunk.len() > BYTES_MAX {
                return Err(format!("it is larger than {BYTES_MAX} bytes"));
            }
            document.extend_from_slice(&chunk);
        }
        Ok(document)
    }
}

#[async_trait]
impl Fetch for IssuerClient {
    async fn get(&self, url: &str) -> Option<Vec<u8>> {
        let parsed = Url::parse(url).map_err(|e| e.to_string());
        let read = match parsed {
            Ok(parsed) => match url_fault(&parsed) {
                Some(fault) => Err(fault.to_owned()),
                None => self.read(parsed).await,
            },
            Err(error) => Err(error),
        };
        read.map_err(|cause| tracing::warn!(url, cause, "a document of an issuer cannot be had")).ok()
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    #[test]
    fn addresses_of_issuers() {
        let check = |issuer: &str, good: bool| assert_eq!(issuer_fault(issuer).is_none(), good, "{issuer}");
        for good in [
            "https://id.example/realms/x",
            "https://10.1.2.3:8443",
            "http://127.0.0.1:8080/realms/x",
            "http://localhost:1",
            "http://[::1]:2",
            "https://127.0.0.1",
        ] {
            check(good, true);
        }
        for bad in [
            "http://id.example",
            "http://10.1.2.3",
            "id.example",
            "ftp://127.0.0.1",
            "https://u:p@id.example",
            "https://id.example?x",
            "https://id.example#x",
            "https://169.254.169.254",
            "https://0xa9fea9fe",
            "https://[::ffff:169.254.169.254]",
            "https://[fe80::1]",
            "https://[fd00:ec2::254]",
            "https://0.0.0.0",
            "https://224.0.0.1",
            "https://[ff02::1]",
            "https://255.255.255.255",
            "https://100.100.100.200",
            "",
        ] {
            check(bad, false);
        }
    }

    /// Starts a server that answers each connection with these bytes; returns its URL.
    async fn answering(answer: Vec<u8>) -> String {
        let socket = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let at = socket.local_addr().expect("an address");
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = socket.accept().await {
                let _ = stream.read(&mut [0; 1024]).await;
                let _ = stream.write_all(&answer).await;
            }
        });
        format!("http://{at}/keys")
    }

    #[tokio::test]
    async fn documents() {
        let client = IssuerClient::new().expect("a client");
        let get = async |answer: Vec<u8>| client.get(&answering(answer).await).await;
        let good = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{}".to_vec();
        assert_eq!(get(good.clone()).await.as_deref(), Some(&b"{}"[..]));
        // Redirects are not followed.
        let elsewhere = answering(good).await;
        let moved =
            format!("HTTP/1.1 302 Found\r\nlocation: {elsewhere}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
        assert_eq!(get(moved.into_bytes()).await, None);
        let mut large = b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n".to_vec();
        large.resize(BYTES_MAX + 100, b' ');
        assert_eq!(get(large).await, None);
        assert_eq!(client.get("http://id.example/keys").await, None);
        assert_eq!(client.get("file:///etc/passwd").await, None);
    }

    /// Addresses of the own network are refused, in whichever notation.
    #[test]
    fn addresses_that_names_lead_to() {
        let (near, many) = (Some("its address is link-local"), Some("its address is none of one machine"));
        for (address, expected) in [
            ("8.8.8.8", None),
            ("10.0.0.1", None),
            ("127.0.0.1", None),
            ("169.254.0.1", near),
            ("169.255.0.1", None),
            ("100.100.100.200", near),
            ("100.100.100.201", None),
            ("0.0.0.0", many),
            ("0.1.2.3", many),
            ("1.0.0.0", None),
            ("223.255.255.255", None),
            ("224.0.0.1", many),
            ("239.255.255.255", many),
            ("240.0.0.1", many),
            ("255.255.255.255", many),
            ("::1", None),
            ("::", many),
            ("fe80::1", near),
            ("febf::1", near),
            ("fec0::1", None),
            ("fd00:ec2::254", near),
            ("fd00:ec3::254", None),
            ("ff02::1", many),
            ("2606:4700::1", None),
            ("::ffff:169.254.169.254", near),
            ("::ffff:255.255.255.255", many),
            ("::ffff:10.0.0.1", None),
        ] {
            assert_eq!(address_fault(address.parse().expect(address)), expected, "{address}");
        }
    }

    #[test]
    fn what_is_wrong_is_told() {
        let open = Some("it must begin with `https://`; `http://` is for loopback only");
        for (issuer, expected) in [
            ("x", Some("it is no URL")),
            ("https://id.example?", Some("it has a query or a fragment")),
            ("https://id.example#", Some("it has a query or a fragment")),
            ("https://me@id.example", Some("it holds credentials")),
            ("https://:p@id.example", Some("it holds credentials")),
            ("http://id.example", open),
            ("http://localhost.example", open),
            ("http://[::ffff:127.0.0.1]", open),
            ("ws://localhost", open),
            ("HTTP://LOCALHOST:1/x", None),
            ("http://127.8.9.1", None),
            ("https://id.example:8443/realms/x", None),
        ] {
            assert_eq!(issuer_fault(issuer), expected, "{issuer}");
        }
    }
}
