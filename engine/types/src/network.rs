//! Networks of addresses as settings and configuration write them: `10.0.0.0/8`, `2001:db8::/32`, `192.0.2.1`. One reader
//! serves them all, so that a network which one place accepts means the same in every other.

use std::net::IpAddr;

/// A network: an address, and how many of its first bits count. What stands behind those bits is not looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Network {
    address: IpAddr,
    bits: u8,
}

fn width_bits(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

impl Network {
    /// Reads an address with a prefix length, or an address alone. IPv4 written as IPv6 (`::ffff:10.0.0.0/104`) is IPv4.
    ///
    /// # Errors
    /// The text of what is wrong.
    pub fn parse(text: &str) -> Result<Self, String> {
        Self::read(text).ok_or_else(|| format!("`{text}` is not a network such as `10.0.0.0/8`"))
    }

    fn read(text: &str) -> Option<Self> {
        let (address, bits) = text.split_once('/').map_or((text, None), |(address, bits)| (address, Some(bits)));
        let written: IpAddr = address.parse().ok()?;
        let width = width_bits(written);
        let bits = match bits {
            None => width,
            // As a number, `+8` would be one, too.
            Some(bits) if bits.len() > 3 || !bits.bytes().all(|b| b.is_ascii_digit()) => return None,
            Some(bits) => bits.parse::<u8>().ok().filter(|bits| *bits <= width)?,
        };
        let address = written.to_canonical();
        // A prefix that ends before the IPv4 address begins would hold more than IPv4.
        let bits = bits.checked_sub(width - width_bits(address))?;
        Some(Self { address, bits })
    }

    /// Says whether an address is in the network; IPv4 in IPv6 (`::ffff:10.1.2.3`) counts as IPv4.
    pub fn contains(&self, address: IpAddr) -> bool {
        let differ = match (self.address, address.to_canonical()) {
            (IpAddr::V4(a), IpAddr::V4(b)) => u128::from(u32::from(a) ^ u32::from(b)) << 96,
            (IpAddr::V6(a), IpAddr::V6(b)) => u128::from(a) ^ u128::from(b),
            _ => return false,
        };
        u32::from(self.bits) <= differ.leading_zeros()
    }

    /// Says whether it is one address alone.
    pub fn is_one(&self) -> bool {
        self.bits == width_bits(self.address)
    }

    /// Says whether it holds every address of its kind.
    pub fn is_all(&self) -> bool {
        self.bits == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_a_network() {
        for (text, expected) in [
            ("10.0.0.0/8", true),
            ("10.1.2.3/8", true),
            ("10.1.2.3/32", true),
            ("0.0.0.0/0", true),
            ("192.0.2.1", true),
            ("::1", true),
            ("::/128", true),
            ("::/0", true),
            ("::ffff:10.0.0.0/104", true),
            ("::ffff:0.0.0.0/96", true),
            ("::ffff:10.0.0.0/95", false),
            ("10.0.0.0/33", false),
            ("::/129", false),
            ("10.0.0.0/999", false),
            ("10.0.0.0/0008", false),
            ("10.0.0.0/ 8", false),
            ("10.0.0.0/+8", false),
            ("10.0.0.0/-8", false),
            ("10.0.0.0/", false),
            ("10.0.0.0/8/8", false),
            ("/8", false),
            (" 10.0.0.0/8", false),
            ("10.0.0.0 / 8", false),
            ("10.0.0/8", false),
            // To some readers these are octal.
            ("010.0.0.0/8", false),
            ("fe80::1%eth0", false),
            ("x", false),
            ("", false),
        ] {
            assert_eq!(Network::parse(text).is_ok(), expected, "{text}");
        }
        assert_eq!(
            Network::parse("10.0.0.0/33"),
            Err("`10.0.0.0/33` is not a network such as `10.0.0.0/8`".to_owned())
        );
    }

    #[test]
    fn what_is_in_a_network() {
        for (network, address, expected) in [
            ("10.1.2.3", "10.1.2.3", true),
            ("10.1.2.3", "10.1.2.2", false),
            ("10.1.2.3/31", "10.1.2.2", true),
            ("10.1.2.3/31", "10.1.2.4", false),
            ("10.0.0.0/9", "10.127.255.255", true),
            ("10.0.0.0/9", "10.128.0.0", false),
            ("10.0.0.0/8", "::ffff:10.1.2.3", true),
            ("10.0.0.0/8", "::ffff:11.1.2.3", false),
            ("0.0.0.0/0", "255.255.255.255", true),
            ("0.0.0.0/0", "::ffff:1.2.3.4", true),
            ("0.0.0.0/0", "::1", false),
            ("::/0", "::1", true),
            ("::/0", "1.2.3.4", false),
            ("::/0", "::ffff:1.2.3.4", false),
            ("::ffff:10.0.0.0/104", "10.1.2.3", true),
            ("::ffff:10.0.0.0/104", "::ffff:10.1.2.3", true),
            ("::ffff:10.0.0.0/104", "11.1.2.3", false),
            ("::ffff:10.1.2.3", "10.1.2.3", true),
            ("2001:db8::/32", "2001:db8::1", true),
            ("2001:db8::/32", "2001:db9::1", false),
            ("fd00::/8", "fdff::1", true),
            ("fd00::/8", "fe00::1", false),
            ("::1", "::1", true),
            ("::/127", "::1", true),
            ("::/127", "::2", false),
        ] {
            let found = Network::parse(network).unwrap().contains(address.parse().unwrap());
            assert_eq!(found, expected, "{network} {address}");
        }
    }

    #[test]
    fn sizes() {
        for (text, is_one, is_all) in [
            ("10.0.0.1", true, false),
            ("10.0.0.1/32", true, false),
            ("10.0.0.0/31", false, false),
            ("0.0.0.0/0", false, true),
            ("::1/128", true, false),
            ("::1/32", false, false),
            ("::/0", false, true),
            ("::ffff:10.0.0.1", true, false),
            ("::ffff:0.0.0.0/96", false, true),
        ] {
            let network = Network::parse(text).unwrap();
            assert_eq!((network.is_one(), network.is_all()), (is_one, is_all), "{text}");
        }
    }
}
