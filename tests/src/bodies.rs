//! Builds request bodies: remote write 1.0, protobuf, base64.

/// A series to be written: labels, then samples (ms, value).
pub type Series<'a> = (Vec<(&'a str, &'a str)>, Vec<(i64, f64)>);

/// Encodes series as a snappy-compressed remote-write 1.0 body. Labels are sorted here.
pub fn remote_write(series: &[Series<'_>]) -> Vec<u8> {
    compress(&remote_write_raw(series))
}

/// The same before it is compressed.
pub fn remote_write_raw(series: &[Series<'_>]) -> Vec<u8> {
    let mut raw = Vec::new();
    for (labels, samples) in series {
        let mut one = Vec::new();
        let mut labels = labels.clone();
        labels.sort_unstable();
        for (name, value) in labels {
            let mut label = Vec::new();
            field(&mut label, 1, name.as_bytes());
            field(&mut label, 2, value.as_bytes());
            field(&mut one, 1, &label);
        }
        for (ts, value) in samples {
            let mut sample = vec![0x09];
            sample.extend_from_slice(&value.to_le_bytes());
            sample.push(0x10);
            varint(&mut sample, *ts as u64);
            field(&mut one, 2, &sample);
        }
        field(&mut raw, 1, &one);
    }
    raw
}

/// Compresses a body in snappy's block format.
pub fn compress(raw: &[u8]) -> Vec<u8> {
    snap::raw::Encoder::new().compress_vec(raw).expect("small enough")
}

/// Appends a length-delimited protobuf field.
pub fn field(out: &mut Vec<u8>, number: u64, bytes: &[u8]) {
    varint(out, number << 3 | 2);
    varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// Appends a varint.
pub fn varint(out: &mut Vec<u8>, mut n: u64) {
    while n >= 0x80 {
        out.push((n as u8 & 0x7f) | 0x80);
        n >>= 7;
    }
    out.push(n as u8);
}
