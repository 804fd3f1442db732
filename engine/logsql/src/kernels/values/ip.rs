//! Addresses.

use std::fmt::Write;
use std::net::{Ipv4Addr, Ipv6Addr};

/// Reads a whole text as an IPv4 address.
pub fn parse_ipv4(text: &str) -> Option<u32> {
    let bytes = text.as_bytes();
    if bytes.len() < 7 || bytes.len() > 15 || !bytes[0].is_ascii_digit() {
        return None;
    }
    let mut address: u32 = 0;
    let mut octet: u32 = 0;
    let (mut digits, mut dots) = (0, 0);
    for &b in bytes {
        match b {
            b'0'..=b'9' => {
                digits += 1;
                octet = octet * 10 + u32::from(b - b'0');
                if digits > 3 || octet > 255 {
                    return None;
                }
            }
            b'.' if digits > 0 && dots < 3 => {
                address = address << 8 | octet;
                (octet, digits) = (0, 0);
                dots += 1;
            }
            _ => return None,
        }
    }
    (dots == 3 && digits > 0).then_some(address << 8 | octet)
}

/// Writes an IPv4 address.
pub fn push_ipv4(out: &mut String, address: u32) {
    let [a, b, c, d] = address.to_be_bytes();
    // Writing to a text cannot fail.
    let _ = write!(out, "{a}.{b}.{c}.{d}");
}

/// Reads `/24` as the number of leading bits.
pub fn parse_ipv4_mask(text: &str) -> Option<u8> {
    let bits = text.strip_prefix('/')?;
    if bits.is_empty() || bits.len() > 2 || !bits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    bits.parse().ok().filter(|&n: &u8| n <= 32)
}

/// Reads a whole text as an IPv6 address; an IPv4 address is its mapped form `::ffff:a.b.c.d`.
pub fn parse_ipv6(text: &str) -> Option<u128> {
    let bytes = text.as_bytes();
    if bytes.len() < 2 || bytes.len() > 45 {
        return None;
    }
    if memchr::memchr(b':', bytes).is_none_or(|at| at >= 5) {
        // Zeros at the front of a number are for octal ones in some places: here they are of no address.
        return text.parse::<Ipv4Addr>().ok().map(|v4| 0xffff_0000_0000 | u128::from(u32::from(v4)));
    }
    text.parse::<Ipv6Addr>().ok().map(u128::from)
}
