//! Hashes of texts and bytes: `md5` returns hexadecimal digits, the SHA-2 family bytes.

use std::sync::Arc;

use arrow::array::{Array as _, ArrayRef, AsArray, BinaryBuilder, BinaryViewArray, StringViewBuilder};
use arrow::compute::cast;
use arrow::datatypes::DataType;
use datafusion::common::{exec_err, plan_err};
use datafusion::error::Result;
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility};
use md5::Digest as _;
use quiver_types::write_hex;
use ring::digest::{SHA256, SHA384, SHA512, digest};
use sha2::Sha224;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum DigestAlgorithm {
    Md5,
    Sha224,
    Sha256,
    Sha384,
    Sha512,
}

impl DigestAlgorithm {
    const ALL: [Self; 5] = [Self::Md5, Self::Sha224, Self::Sha256, Self::Sha384, Self::Sha512];

    fn name(self) -> &'static str {
        match self {
            Self::Md5 => "md5",
            Self::Sha224 => "sha224",
            Self::Sha256 => "sha256",
            Self::Sha384 => "sha384",
            Self::Sha512 => "sha512",
        }
    }

    /// The hashes of bytes.
    fn of(self, bytes: &BinaryViewArray) -> ArrayRef {
        let algorithm = match self {
            Self::Md5 => return in_digits(bytes),
            // Ring has all but this.
            Self::Sha224 => return in_bytes(bytes, Sha224::output_size(), |bytes| Sha224::digest(bytes)),
            Self::Sha256 => &SHA256,
            Self::Sha384 => &SHA384,
            Self::Sha512 => &SHA512,
        };
        in_bytes(bytes, algorithm.output_len(), |bytes| digest(algorithm, bytes))
    }
}

/// The hashes of bytes, of `length` bytes each.
fn in_bytes<H: AsRef<[u8]>>(bytes: &BinaryViewArray, length: usize, hash: impl Fn(&[u8]) -> H) -> ArrayRef {
    let mut out = BinaryBuilder::with_capacity(bytes.len(), bytes.len() * length);
    for bytes in bytes {
        out.append_option(bytes.map(&hash));
    }
    Arc::new(out.finish())
}

/// The MD5 hashes of bytes, as hexadecimal digits.
fn in_digits(bytes: &BinaryViewArray) -> ArrayRef {
    let mut out = StringViewBuilder::with_capacity(bytes.len());
    let mut digits = String::with_capacity(32);
    for bytes in bytes {
        let Some(bytes) = bytes else {
            out.append_null();
            continue;
        };
        digits.clear();
        write_hex(&md5::Md5::digest(bytes), &mut digits);
        out.append_value(&digits);
    }
    Arc::new(out.finish())
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct DigestFunction {
    kind: DigestAlgorithm,
    signature: Signature,
}

pub(super) fn functions() -> impl Iterator<Item = Arc<ScalarUDF>> {
    DigestAlgorithm::ALL.into_iter().map(|kind| {
        Arc::new(ScalarUDF::from(DigestFunction { kind, signature: Signature::user_defined(Volatility::Immutable) }))
    })
}

impl ScalarUDFImpl for DigestFunction {
    fn name(&self) -> &'static str {
        self.kind.name()
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        match types {
            [kind] if kind.is_string() || kind.is_binary() || kind.is_null() => Ok(vec![DataType::BinaryView]),
            _ => plan_err!("`{}` takes a text or bytes", self.name()),
        }
    }

    fn return_type(&self, _types: &[DataType]) -> Result<DataType> {
        Ok(if self.kind == DigestAlgorithm::Md5 { DataType::Utf8View } else { DataType::Binary })
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [bytes] = args.args.as_slice() else { return exec_err!("`{}` takes a text or bytes", self.name()) };
        let bytes = cast(&bytes.to_array(args.number_rows)?, &DataType::BinaryView)?;
        Ok(ColumnarValue::Array(self.kind.of(bytes.as_binary_view())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_are_those_of_postgresql() {
        let bytes = BinaryViewArray::from(vec![Some(b"".as_slice()), Some(b"abc".as_slice()), None]);
        let md5 = DigestAlgorithm::Md5.of(&bytes);
        let md5: Vec<Option<&str>> = md5.as_string_view().iter().collect();
        assert_eq!(md5, [Some("d41d8cd98f00b204e9800998ecf8427e"), Some("900150983cd24fb0d6963f7d28e17f72"), None]);
        for (kind, expected) in [
            (DigestAlgorithm::Sha224, "23097d223405d8228642a477bda255b32aadbce4bda0b3f7e36c9da7"),
            (DigestAlgorithm::Sha256, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"),
            (
                DigestAlgorithm::Sha384,
                "cb00753f45a35e8bb5a03d699ac65007272c32ab0eded163\
                 1a8b605a43ff5bed8086072ba1e7cc2358baeca134c825a7",
            ),
            (
                DigestAlgorithm::Sha512,
                "ddaf35a193617abacc417349ae20413112e6fa4e89a97ea20a9eeee64b55d39a\
                 2192992a274fc1a836ba3c23a3feebbd454d4423643ce80e2a9ac94fa54ca49f",
            ),
        ] {
            let hashes = kind.of(&bytes);
            let hashes = hashes.as_binary::<i32>();
            let mut digits = String::new();
            write_hex(hashes.value(1), &mut digits);
            assert_eq!(digits, expected, "{kind:?}");
            assert_eq!(hashes.iter().nth(2), Some(None));
        }
    }
}
