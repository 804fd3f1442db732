//! Where calls may go (`identity-and-access` section 7): a name is resolved, each address is checked, and the
//! connection goes to a checked address. Redirects, proxies and repeated look-ups cannot bypass this: the target of a
//! call through a proxy is checked, too.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use quiver_types::Network;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};

/// Where calls may go.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Egress {
    /// Networks that are open, private ones too.
    pub allow: Vec<Network>,
    /// Networks that are closed, those of `allow` too.
    pub deny: Vec<Network>,
    /// Whether private networks are open.
    pub allow_private: bool,
}

/// An address that calls may not go to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ForbiddenAddress(&'static str);

impl fmt::Display for ForbiddenAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "egress refused: the address is {}", self.0)
    }
}

impl std::error::Error for ForbiddenAddress {}

fn refused(why: ForbiddenAddress) -> std::io::Error {
    std::io::Error::new(std::io::ErrorKind::PermissionDenied, why)
}

/// Gives the address that one spelling stands for: IPv4 in IPv6 counts as IPv4.
fn plain(address: IpAddr) -> IpAddr {
    let IpAddr::V6(v6) = address else { return address };
    let s = v6.segments();
    let low = Ipv4Addr::from(((u32::from(s[6])) << 16) | u32::from(s[7]));
    let embeds = match s {
        // Mapped, translated (RFC 2765), NAT64 by the prefix of all and by those of one's own (RFC 8215).
        [0, 0, 0, 0, 0, 0xffff, ..]
        | [0, 0, 0, 0, 0xffff, 0, ..]
        | [0x64, 0xff9b, 0, 0, 0, 0, ..]
        | [0x64, 0xff9b, 1, ..] => true,
        // Compatible, but for `::` and `::1`.
        [0, 0, 0, 0, 0, 0, ..] => u32::from(low) > 1,
        // 6to4 holds it behind its prefix.
        [0x2002, a, b, ..] => return IpAddr::V4(Ipv4Addr::from((u32::from(a) << 16) | u32::from(b))),
        _ => false,
    };
    if embeds { IpAddr::V4(low) } else { address }
}

fn is_metadata(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => matches!(
            v4.octets(),
            [169, 254, 169, 254]
                | [169, 254, 170, 2 | 23]
                | [100, 100, 100, 200]
                | [168, 63, 129, 16]
                | [192, 0, 0, 192]
        ),
        IpAddr::V6(v6) => [
            Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254),
            Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x23),
            Ipv6Addr::new(0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254),
        ]
        .contains(&v6),
    }
}

fn special(address: IpAddr) -> Option<&'static str> {
    match address {
        IpAddr::V4(v4) => {
            let o = v4.octets();
            match () {
                () if o[0] == 127 => Some("on loopback"),
                () if o[0] == 0 => Some("unspecified"),
                () if v4.is_link_local() => Some("link-local"),
                () if v4.is_multicast() || o[0] >= 240 => Some("multicast or reserved"),
                () => None,
            }
        }
        IpAddr::V6(v6) => match v6.segments()[0] {
            _ if v6.is_loopback() => Some("on loopback"),
            _ if v6.is_unspecified() => Some("unspecified"),
            first if first & 0xffc0 == 0xfe80 => Some("link-local"),
            first if first & 0xff00 == 0xff00 => Some("multicast or reserved"),
            _ => None,
        },
    }
}

fn is_private(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => v4.is_private() || matches!(v4.octets(), [100, 64..=127, ..]),
        // Unique local, and site-local, as they were called before.
        IpAddr::V6(v6) => v6.segments()[0] & 0xfe00 == 0xfc00 || v6.segments()[0] & 0xffc0 == 0xfec0,
    }
}

impl Egress {
    /// Checks whether an address may be called.
    ///
    /// # Errors
    /// Why calls may not go there.
    pub fn check(&self, address: IpAddr) -> Result<(), ForbiddenAddress> {
        let address = plain(address);
        if self.deny.iter().any(|n| n.contains(address)) {
            return Err(ForbiddenAddress("denied by `egress.deny`"));
        }
        if is_metadata(address) {
            let named = self.allow.iter().any(|n| n.is_one() && n.contains(address));
            return if named { Ok(()) } else { Err(ForbiddenAddress("one of cloud metadata")) };
        }
        if self.allow.iter().any(|n| n.contains(address)) {
            return Ok(());
        }
        if let Some(what) = special(address) {
            return Err(ForbiddenAddress(what));
        }
        if is_private(address) && !self.allow_private {
            return Err(ForbiddenAddress("private, and `egress.allow_private` is off"));
        }
        Ok(())
    }

    /// Judges the host of a URL where it is an address; names are judged when they are resolved.
    ///
    /// # Errors
    /// Why calls may not go there.
    pub fn check_url(&self, url: &url::Url) -> Result<(), ForbiddenAddress> {
        match url.host() {
            Some(url::Host::Ipv4(v4)) => self.check(v4.into()),
            Some(url::Host::Ipv6(v6)) => self.check(v6.into()),
            Some(url::Host::Domain(_)) => Ok(()),
            None => Err(ForbiddenAddress("missing")),
        }
    }

    /// Resolves `host:port` to addresses that calls may go to.
    ///
    /// # Errors
    /// The name is not known, or all its addresses are refused.
    pub async fn resolve(&self, host: &str, port: u16) -> std::io::Result<Vec<SocketAddr>> {
        let mut closed = None;
        let mut open = Vec::new();
        for address in tokio::net::lookup_host((host, port)).await? {
            match self.check(address.ip()) {
                Ok(()) => open.push(address),
                Err(e) => closed = Some(e),
            }
        }
        match (open.is_empty(), closed) {
            (false, _) => Ok(open),
            (true, Some(e)) => Err(refused(e)),
            (true, None) => Err(std::io::Error::new(std::io::ErrorKind::NotFound, "the name has no address")),
        }
    }

    /// Judges where a call leads when a proxy looks its name up: all that it stands for here must be open. A name that
    /// nobody knows here could be anything, so that all must be open.
    ///
    /// # Errors
    /// An address is refused; the name is not known.
    pub async fn check_beyond(&self, url: &url::Url) -> std::io::Result<()> {
        let Some(url::Host::Domain(name)) = url.host() else {
            return self.check_url(url).map_err(refused);
        };
        match tokio::net::lookup_host((name, 0)).await {
            Ok(mut addresses) => addresses.try_for_each(|address| self.check(address.ip())).map_err(refused),
            Err(_) if self.allow.iter().any(Network::is_all) => Ok(()),
            Err(e) => Err(e),
        }
    }
}

/// Resolves names for the HTTP client, which then connects to nothing else.
#[derive(Debug, Clone)]
pub struct Resolver {
    /// Says to which of the addresses of a name calls may go.
    pub egress: Arc<Egress>,
    /// What is looked up instead, whatever name is asked for.
    pub host: Option<String>,
}

impl Resolve for Resolver {
    fn resolve(&self, name: Name) -> Resolving {
        let (egress, host) = (Arc::clone(&self.egress), self.host.clone());
        Box::pin(async move {
            // The client puts the port of its URL in.
            let addresses = egress.resolve(host.as_deref().unwrap_or(name.as_str()), 0).await?;
            Ok(Box::new(addresses.into_iter()) as Addrs)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nets(texts: &[&str]) -> Vec<Network> {
        texts.iter().map(|t| Network::parse(t).expect(t)).collect()
    }

    #[test]
    fn addresses() {
        let base = Egress { allow_private: true, ..Egress::default() };
        let closed = Egress::default();
        let local = Egress { allow: nets(&["127.0.0.0/8"]), allow_private: true, ..Egress::default() };
        let check = |egress: &Egress, address: &str, open: bool| {
            assert_eq!(egress.check(address.parse().expect(address)).is_ok(), open, "{address} {egress:?}");
        };
        for address in [
            "127.0.0.1",
            "127.8.9.1",
            "0.0.0.0",
            "0.1.2.3",
            "169.254.169.254",
            "169.254.1.1",
            "224.0.0.1",
            "255.255.255.255",
            "::1",
            "::",
            "fe80::1",
            "ff02::1",
            "::ffff:127.0.0.1",
            "::127.0.0.1",
            "::ffff:0:7f00:1",
            "64:ff9b::7f00:1",
            "64:ff9b:1::a9fe:a9fe",
            "64:ff9b:1:fffe::7f00:1",
            "2002:7f00:1::",
            "100.100.100.200",
            "168.63.129.16",
            "192.0.0.192",
            "fd00:ec2::254",
            "fd00:ec2::23",
            "fd20:ce::254",
        ] {
            check(&base, address, false);
        }
        for a in [
            "8.8.8.8",
            "10.0.0.1",
            "192.168.1.1",
            "2606:4700::1",
            "fd12::1",
            "fd20:ce::255",
            "::ffff:8.8.8.8",
            "64:ff9b::808:808",
        ] {
            check(&base, a, true);
        }
        for a in ["10.0.0.1", "172.16.3.4", "192.168.1.1", "100.64.0.1", "fd12::1", "fec0::1", "::ffff:10.0.0.1"] {
            check(&closed, a, false);
        }
        check(&local, "127.0.0.1", true);
        check(&local, "::ffff:127.0.0.1", true);
        check(&local, "::1", false);
        // A metadata address must be named alone, and what is denied is denied.
        check(&Egress { allow: nets(&["169.254.0.0/16"]), ..Egress::default() }, "169.254.169.254", false);
        check(&Egress { allow: nets(&["169.254.169.254"]), ..Egress::default() }, "169.254.169.254", true);
        check(
            &Egress { allow: nets(&["10.0.0.0/8"]), deny: nets(&["10.1.0.0/16"]), ..base.clone() },
            "10.1.2.3",
            false,
        );
    }

    #[tokio::test]
    async fn names_are_judged_by_their_addresses() {
        let base = Egress::default();
        let told = base.resolve("localhost", 80).await.expect_err("on loopback");
        assert!(told.to_string().contains("loopback"), "{told}");
        let open = Egress { allow: nets(&["127.0.0.0/8", "::1/128"]), ..base.clone() };
        assert!(open.resolve("localhost", 80).await.is_ok());
        // A proxy may be sent to no name but one that leads to nothing that is closed.
        let beyond = |text: &str| url::Url::parse(text).expect(text);
        let told = base.check_beyond(&beyond("http://localhost/")).await.expect_err("on loopback");
        assert_eq!(told.kind(), std::io::ErrorKind::PermissionDenied);
        assert!(base.check_beyond(&beyond("http://127.0.0.1/")).await.is_err());
        assert!(open.check_beyond(&beyond("http://localhost/")).await.is_ok());
        let unknown = beyond(&format!("http://{}.example/", "x".repeat(70)));
        assert!(open.check_beyond(&unknown).await.is_err(), "nobody knows where it leads");
        let all = Egress { allow: nets(&["0.0.0.0/0"]), ..base.clone() };
        assert!(all.check_beyond(&unknown).await.is_ok());
        // Whatever spelling a URL has, its host is an address by then.
        for text in ["http://127.1/", "http://0x7f000001/", "http://2130706433/", "http://[::ffff:7f00:1]/"] {
            let url = url::Url::parse(text).expect(text);
            assert!(base.check_url(&url).is_err(), "{text}");
        }
    }
}
