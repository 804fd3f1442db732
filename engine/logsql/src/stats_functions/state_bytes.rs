//! Bytes in which a state travels: little-endian numbers, texts with their length.

use datafusion::common::{Result, exec_datafusion_err};

pub(super) fn put_u64(out: &mut Vec<u8>, n: u64) {
    out.extend_from_slice(&n.to_le_bytes());
}

pub(super) fn put_u128(out: &mut Vec<u8>, n: u128) {
    out.extend_from_slice(&n.to_le_bytes());
}

pub(super) fn put_text(out: &mut Vec<u8>, text: &str) {
    put_bytes(out, text.as_bytes());
}

pub(super) fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
    out.extend_from_slice(bytes);
}

/// Reads what the functions above wrote.
pub(super) struct Reader<'a>(pub(super) &'a [u8]);

impl<'a> Reader<'a> {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8]> {
        let (head, tail) =
            self.0.split_at_checked(length).ok_or_else(|| exec_datafusion_err!("a state of `stats` is cut off"))?;
        self.0 = tail;
        Ok(head)
    }

    pub(super) fn u64(&mut self) -> Result<u64> {
        Ok(u64::from_le_bytes(self.take(8)?.try_into().expect("eight bytes")))
    }

    /// Numbers behind their count.
    pub(super) fn u64s(&mut self) -> Result<impl Iterator<Item = u64> + use<'a>> {
        let length = self.u64()?.saturating_mul(8);
        let bytes = self.take(usize::try_from(length).unwrap_or(usize::MAX))?;
        Ok(bytes.chunks_exact(8).map(|b| u64::from_le_bytes(b.try_into().expect("eight bytes"))))
    }

    /// Like [`Self::u64s`], for numbers of 128 bits.
    pub(super) fn u128s(&mut self) -> Result<impl ExactSizeIterator<Item = u128> + use<'a>> {
        let length = self.u64()?.saturating_mul(16);
        let bytes = self.take(usize::try_from(length).unwrap_or(usize::MAX))?;
        Ok(bytes.chunks_exact(16).map(|b| u128::from_le_bytes(b.try_into().expect("sixteen bytes"))))
    }

    pub(super) fn bytes(&mut self) -> Result<&'a [u8]> {
        let length = u32::from_le_bytes(self.take(4)?.try_into().expect("four bytes"));
        self.take(length as usize)
    }

    pub(super) fn text(&mut self) -> Result<&'a str> {
        std::str::from_utf8(self.bytes()?).map_err(|_| exec_datafusion_err!("a state of `stats` holds no text"))
    }
}
