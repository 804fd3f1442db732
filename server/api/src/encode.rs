//! Encoders of results: the only place where columns become text.

pub(crate) mod body_pieces;
pub(crate) mod escaping;
pub(crate) mod federation;
pub(crate) mod federation_proto;
pub(crate) mod indented;
pub(crate) mod json;
pub(crate) mod list;
pub(crate) mod ndjson;
pub(crate) mod packed_chunks;
pub(crate) mod problem;
pub(crate) mod prometheus;
pub(crate) mod protobuf;
pub(crate) mod query_result;
pub(crate) mod remote_read;
pub(crate) mod stats;
