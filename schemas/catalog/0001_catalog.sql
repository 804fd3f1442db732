-- The catalog: which parts exist. Written by one connection; see docs/formats/catalog.md.

-- One row: who this catalog belongs to.
CREATE TABLE installation (
    only_row   INTEGER PRIMARY KEY CHECK (only_row = 1),
    id         TEXT    NOT NULL,           -- UUID, also in `_quiver.json` in the store
    format     INTEGER NOT NULL,           -- version of the formats in the store
    created_ms INTEGER NOT NULL
) STRICT;

-- Parts: live ones, and removed ones whose files are not deleted yet.
CREATE TABLE part (
    id       TEXT    NOT NULL PRIMARY KEY, -- UUIDv7
    tbl      TEXT    NOT NULL,
    day      INTEGER NOT NULL,             -- UTC days since 1970-01-01
    level    INTEGER NOT NULL,             -- 0 flushed, 1 window, 2 day
    place    TEXT    NOT NULL CHECK (place IN ('spool', 'store')),
    spooled  INTEGER NOT NULL,             -- 1 = its files (still) lie in the spool
    min_ts   INTEGER NOT NULL,
    max_ts   INTEGER NOT NULL,
    rows     INTEGER NOT NULL,
    bytes    INTEGER NOT NULL,
    writer   TEXT,                         -- of flushed parts
    added    INTEGER NOT NULL,             -- commit that added it
    removed  INTEGER,                      -- commit that removed it
    meta     TEXT    NOT NULL              -- all of it, as it stands in commit objects
) STRICT;
CREATE INDEX part_added ON part (added);
CREATE INDEX part_removed ON part (removed) WHERE removed IS NOT NULL;
CREATE INDEX part_spooled ON part (spooled) WHERE spooled = 1;

-- Keys that a running flush or compaction may be writing.
CREATE TABLE pending (
    key   TEXT    NOT NULL PRIMARY KEY,
    job   TEXT    NOT NULL,                -- flush id or compaction id
    stale INTEGER NOT NULL DEFAULT 0       -- 1 = its file is being deleted, no commit may take it
) STRICT;
CREATE INDEX pending_job ON pending (job);

-- Writers and the first generation of each that is not in parts.
CREATE TABLE writer (
    id           TEXT    NOT NULL PRIMARY KEY,
    floor        INTEGER NOT NULL,
    address      TEXT,
    heartbeat_ms INTEGER NOT NULL
) STRICT;

-- Changes of what exists, in order. Rows go when their objects do.
CREATE TABLE "commit" (
    number       INTEGER NOT NULL PRIMARY KEY,
    job          TEXT,                     -- flush id or compaction id
    committed_ms INTEGER NOT NULL
) STRICT;
CREATE UNIQUE INDEX commit_job ON "commit" (job) WHERE job IS NOT NULL;

-- Commits whose objects are not in the store yet.
CREATE TABLE outbox (
    number  INTEGER NOT NULL PRIMARY KEY,
    writers TEXT    NOT NULL               -- JSON: the floors to tell
) STRICT;
