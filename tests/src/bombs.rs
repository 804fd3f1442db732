//! Bodies that are small on the wire and large when decompressed.

use std::io::Write;

use quiver_ingest::Encoding;

/// Compresses the same bytes again and again, without holding them.
pub fn packed(encoding: Encoding, piece: &[u8], times: usize) -> Vec<u8> {
    match encoding {
        Encoding::Zstd => {
            let mut e = zstd::stream::Encoder::new(Vec::new(), 1).expect("an encoder");
            (0..times).for_each(|_| e.write_all(piece).expect("memory"));
            e.finish().expect("an end")
        }
        Encoding::Gzip => {
            let mut e = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
            (0..times).for_each(|_| e.write_all(piece).expect("memory"));
            e.finish().expect("an end")
        }
        _ => {
            let mut e = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::best());
            (0..times).for_each(|_| e.write_all(piece).expect("memory"));
            e.finish().expect("an end")
        }
    }
}
