//! RSA keys: made here, since ring uses them only, and written in DER.

use std::convert::Infallible;

use crypto_bigint::rand_core::{TryCryptoRng, TryRng};
use crypto_bigint::{BoxedUint, ConcatenatingMul as _, Gcd as _, NonZero};
use crypto_primes::hazmat::{SetBits, SmallFactorsSieveFactory};
use crypto_primes::{Flavor, is_prime, sieve_and_find};
use quiver_types::{Random, random_bytes};
use zeroize::Zeroizing;

/// The public exponent of all keys made here, which is everybody's: 65537.
const EXPONENT: [u8; 3] = [1, 0, 1];

/// A key pair that was just made.
pub(crate) struct NewKey {
    /// Big-endian, without leading zeros.
    pub(crate) modulus: Vec<u8>,
    /// Big-endian, without leading zeros.
    pub(crate) exponent: Vec<u8>,
    /// All of it: PKCS#8 in DER.
    pub(crate) pkcs8: Zeroizing<Vec<u8>>,
}

impl NewKey {
    /// Makes a key whose modulus has `bits` bits (even, at least 512), as FIPS 186-5, A.1.3 has it. How long the search for
    /// primes takes is chance: parts of a second for 2048 bits. None: the random numbers are none.
    pub(crate) fn make(bits: u32, random: &dyn Random) -> Option<Self> {
        loop {
            let (p, q) = (prime(bits / 2, random)?, prime(bits / 2, random)?);
            // The greater one first: the coefficient is that of the smaller one.
            let (p, q) = if *p > *q { (p, q) } else { (q, p) };
            // Primes near each other are found from the root of the modulus. Chance gives none.
            if p.wrapping_sub(&*q).bit_width() <= bits / 2 - 100 {
                return None;
            }
            if let Some(key) = Self::of_primes(&p, &q) {
                return Some(key);
            }
        }
    }

    /// The key of two primes of one length, the greater one first; none: the public exponent has no inverse, as with one of
    /// some 30 000 pairs.
    fn of_primes(p: &BoxedUint, q: &BoxedUint) -> Option<Self> {
        let one = BoxedUint::one();
        let (p_less_one, q_less_one) = (divisor(p - &one)?, divisor(q - &one)?);
        let common = p_less_one.gcd(&**q_less_one);
        let multiple = divisor((&**p_less_one / &common).concatenating_mul(&**q_less_one))?;
        let inverse = BoxedUint::from_be_slice(&EXPONENT, multiple.bits_precision()).ok()?.invert_mod(&multiple);
        let inverse = Zeroizing::new(inverse.into_option()?);
        let p_exponent = Zeroizing::new(&*inverse % &*p_less_one);
        let q_exponent = Zeroizing::new(&*inverse % &*q_less_one);
        let coefficient = Zeroizing::new(q.invert_mod(&*divisor(p.clone())?).into_option()?);

        let modulus = p.concatenating_mul(q).to_be_bytes_trimmed_vartime().into_vec();
        let mut numbers = vec![integer(&[0]), integer(&modulus), integer(&EXPONENT)];
        for secret in [&*inverse, p, q, &*p_exponent, &*q_exponent, &*coefficient] {
            numbers.push(integer(&Zeroizing::new(secret.to_be_bytes_trimmed_vartime())));
        }
        let numbers = Zeroizing::new(numbers);
        let key = Zeroizing::new(der(0x04, &Zeroizing::new(der(0x30, &Zeroizing::new(numbers.concat())))));
        let pkcs8 = der(0x30, &Zeroizing::new([&integer(&[0])[..], &algorithm(), &key].concat()));
        Some(Self { modulus, exponent: EXPONENT.to_vec(), pkcs8: Zeroizing::new(pkcs8) })
    }
}

/// A number to divide by; none: it is 0.
fn divisor(number: BoxedUint) -> Option<Zeroizing<NonZero<BoxedUint>>> {
    NonZero::new(number).into_option().map(Zeroizing::new)
}

/// A random prime of so many bits whose two highest are set, so that a product of two has twice as many.
fn prime(bits: u32, random: &dyn Random) -> Option<Zeroizing<BoxedUint>> {
    let numbers = SmallFactorsSieveFactory::<BoxedUint>::new(Flavor::Any, bits, SetBits::TwoMsb).ok()?;
    let found = sieve_and_find(&mut Source(random), numbers, |_, number| is_prime(Flavor::Any, number));
    found.ok()?.map(Zeroizing::new)
}

/// Our random source for those who draw numbers of it.
struct Source<'a>(&'a dyn Random);

impl TryRng for Source<'_> {
    type Error = Infallible;

    fn try_next_u32(&mut self) -> Result<u32, Infallible> {
        Ok(u32::from_le_bytes(random_bytes(self.0)))
    }

    fn try_next_u64(&mut self) -> Result<u64, Infallible> {
        Ok(u64::from_le_bytes(random_bytes(self.0)))
    }

    fn try_fill_bytes(&mut self, bytes: &mut [u8]) -> Result<(), Infallible> {
        self.0.fill(bytes);
        Ok(())
    }
}

impl TryCryptoRng for Source<'_> {}

/// A public key as `SubjectPublicKeyInfo` in DER, of its modulus and exponent, big-endian without leading zeros.
pub(crate) fn public_key_info(modulus: &[u8], exponent: &[u8]) -> Vec<u8> {
    let key = der(0x30, &[integer(modulus), integer(exponent)].concat());
    let bits = der(0x03, &[vec![0], key].concat());
    der(0x30, &[algorithm(), bits].concat())
}

/// `rsaEncryption`, 1.2.840.113549.1.1.1, without parameters.
fn algorithm() -> Vec<u8> {
    der(0x30, &[0x06, 0x09, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x01, 0x05, 0x00])
}

/// A number of DER, of its bytes, big-endian without leading zeros; never negative.
fn integer(bytes: &[u8]) -> Vec<u8> {
    if bytes.first().is_some_and(|b| b & 0x80 != 0) {
        der(0x02, &Zeroizing::new([&[0], bytes].concat()))
    } else {
        der(0x02, bytes)
    }
}

/// Writes a value of DER.
fn der(tag: u8, contents: &[u8]) -> Vec<u8> {
    let length = contents.len();
    // Of its size from the start: one that grew would leave a copy of a secret behind.
    let mut out = Vec::with_capacity(2 + size_of::<usize>() + length);
    out.push(tag);
    if length < 0x80 {
        out.push(length as u8);
    } else {
        let bytes: Vec<u8> = length.to_be_bytes().into_iter().skip_while(|b| *b == 0).collect();
        out.push(0x80 | bytes.len() as u8);
        out.extend(bytes);
    }
    out.extend_from_slice(contents);
    out
}

#[cfg(test)]
mod tests {
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;
    use ring::signature::{RSA_PKCS1_2048_8192_SHA256, RSA_PKCS1_SHA256, RsaKeyPair, RsaPublicKeyComponents};

    use super::*;
    use crate::{OsRandom, sha256_hex};

    /// A key made by AWS-LC, with which keys were made once: such rest in databases.
    const STORED: &str = "\
        MIIEvAIBADANBgkqhkiG9w0BAQEFAASCBKYwggSiAgEAAoIBAQCmFsgCyLyYS7aMqHpVXdFr1Lmi0w7U3gnfh+rY9iI/1F+K21I+BMUVa6uHLv\
        hrrIpA/oDTZvcfH9JQvyZT5nKxPStdCpYGoYMuXHXUwsVUrz/536yEktXxhIYzTg3hBI4WSSicguCHQ4Bz4zxR7jz1G0sXShn+anlX1SDfJfHC\
        KBuFwGz6kKkgRJU1D8854pA7GJAPp4DReCqUjENNNaD2DNQsjAvGdqgaDIBzdW5BH87fTn1QZV12aovBX3RRTdMD9Yz6d7QANSf8hT4Zk15OqS\
        UDkJTneEUNt38RaDkpMN6fwxNb1954uu/W5wz4/tA5PPHxLaFoQMZSHRHo3uEzAgMBAAECggEAH+2YNITPUH2Zka+fmMKIzDBgIU9udfhbMIfp\
        2xxx2BBk74Ya6MY09tm0Zy/d3KEWEMl8DWepUOfmn9QnM5DE8pJ+QAwVbB/nXmWy1xw8H/vykf/wI6owi5W80KcMHvonsFwO/Qthy07sJhsEUQ\
        G54SqGhGsf1Rs1yW80uwEJ2RdaaKbUBbsuuBrae4B9YNEWqn2MJjEykw40ORMThOfFbIZy4XI/qDmKGzH8S1pAjRi6PIax0YqrYj8jbFE3vDUC\
        C2gMZsSAEuB87DGnqsIsWqsrB24RfmjfUelpvuUffFRblR55pp4uNZDsS58Kfl2RNBlINJrkr3TKJSf5BznuOQKBgQDTreYw588rQw0iSeEu90\
        sAoUIiZfda+DGWhYVriVPGYZOiIDy/5V4a/IpHXPBq5rt+FWEaJtArQyE04JYuco0o8v82vGwh8DHfK352kjt7Duc9QobyeM9wpzZd0VvNQtxB\
        pGbYTw3tTqMqw9AlXzV+kY7ToVOjnRSIz7wA9Jr6ywKBgQDI3TjmxOqW8XQnG6+uFOIVnnyM+ydRip832gGOyWSoBzuGze9s1BjroN/1dN++Sf\
        UjhWZgBKltEZh99D/zOw+U5Qn4REPcHu/APi7slXA6hrGVm+QTIw1L8ldRi1YakgQwXMhjTT82Kmzptd19EMSqEDyDkXPGx9dCrorCRYPeOQKB\
        gDBckbPosjdDGXQVBwKQ8yzQquhq/WlmPQYTuVjJRj+TuYQX82kwQSDPQ9RsEm2KC5oRzl6IMZVAwAxxpz4zY7bQVaiuwdG7K9m9+SWj4T0LOZ\
        +QXH53RYWKXmxu0ZeCyAmjQu/2l8r45WR22k4/g1xIayZEvHQsBi3/sAdT2zijAoGAAQYPmi16vJYyb1iWxp5YoJ+UJuvIwYOhWBmGVIH2P1z6\
        Eq/N/pH+JoVFXuzfjwq1cx7k7KxZaLLkQhASm1y7sZiROnCun9qQgjxO5OnGDqZNFWQb/3T4RmDPzRyWrb/8wXpXkxn7rnz83RwOKusA9ZTrmg\
        gNvP+buz1Ee8T67RECgYAu6ZWCI9tdy3ZclM6rN5Gm6oaEziQQu/9IFWxXJTHPULDEuoUiozY9ubaozXpjAnyGfnPbuQqZZM22Yxx7P2qYoP08\
        4/YeR8C73oyYpXa7CYTsv//3vxeJcx0lIWxSbPQCjzbVw6f01x7P74qLTDkrgRkXELeu6TZ0v/8TS+/OFg==";
    /// Where its primes are, and how long each is in bytes.
    const PRIMES: [usize; 2] = [26 + 533 + 4, 26 + 665 + 4];
    const PRIME_BYTES: usize = 128;

    fn signed(pkcs8: &[u8]) -> Vec<u8> {
        let pair = RsaKeyPair::from_pkcs8(pkcs8).unwrap();
        let mut signature = vec![0; pair.public().modulus_len()];
        pair.sign(&RSA_PKCS1_SHA256, &ring::rand::SystemRandom::new(), b"text", &mut signature).unwrap();
        signature
    }

    #[test]
    fn made_keys_sign() {
        let [one, two] = [2048, 2048].map(|bits| NewKey::make(bits, &OsRandom).unwrap());
        assert_ne!(one.modulus, two.modulus);
        for NewKey { modulus: n, exponent: e, pkcs8 } in [one, two] {
            assert_eq!((n.len(), &e[..]), (256, &[1, 0, 1][..]));
            let signature = signed(&pkcs8);
            let public = RsaPublicKeyComponents { n, e };
            public.verify(&RSA_PKCS1_2048_8192_SHA256, b"text", &signature).unwrap();
            assert!(public.verify(&RSA_PKCS1_2048_8192_SHA256, b"texts", &signature).is_err());
        }
    }

    #[test]
    fn keys_of_before_are_read_and_written_alike() {
        let stored = STANDARD.decode(STORED).unwrap();
        // What AWS-LC wrote and signed.
        let [info, signature] = [
            "a38b6694df055cf854daf67c57949e4b2192fcdd8d831666e38be8536f3e94d5",
            "33e1bcf0abf8c4b738b6707b560d9d2e4c9226ef50a00a814e6a84f75add9e6a",
        ];
        let [p, q] = PRIMES.map(|at| BoxedUint::from_be_slice_vartime(&stored[at..at + PRIME_BYTES]));
        let key = NewKey::of_primes(&p, &q).unwrap();
        assert_eq!(STANDARD.encode(&*key.pkcs8), STORED);
        assert_eq!(sha256_hex(&public_key_info(&key.modulus, &key.exponent)), info);
        assert_eq!(sha256_hex(&signed(&stored)), signature);
    }

    #[test]
    fn the_exponent_needs_an_inverse() {
        let [p, q] = [2_147_483_647_u64, 65_537].map(BoxedUint::from);
        assert!(NewKey::of_primes(&p, &q).is_some());
        // 65537 divides 917 518, a prime less one.
        let q = BoxedUint::from(917_519_u64);
        assert!(is_prime(Flavor::Any, &q));
        assert!(NewKey::of_primes(&p, &q).is_none());
    }

    #[test]
    fn nothing_is_made_without_chance() {
        #[derive(Debug)]
        struct Stuck;
        impl Random for Stuck {
            fn fill(&self, bytes: &mut [u8]) {
                bytes.fill(7);
            }
        }
        assert!(NewKey::make(512, &Stuck).is_none());
    }
}
