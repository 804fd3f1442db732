-- Requests with `Idempotency-Key` that were answered, for ten minutes; those of flushed generations (those of live ones
-- stand in the WAL). See docs/formats/catalog.md.
CREATE TABLE answered_request (
    caller       TEXT    NOT NULL,
    path         TEXT    NOT NULL,
    key          TEXT    NOT NULL,         -- value of the header
    body_hash    BLOB    NOT NULL,         -- XXH3-128 of the decompressed body, big endian
    at_ms        INTEGER NOT NULL,         -- when it was answered
    status       INTEGER NOT NULL,
    content_type TEXT    NOT NULL,         -- empty: none
    answer       BLOB    NOT NULL,         -- the body, zstd; empty: none
    PRIMARY KEY (caller, path, key)
) STRICT, WITHOUT ROWID;
CREATE INDEX answered_request_at ON answered_request (at_ms);
