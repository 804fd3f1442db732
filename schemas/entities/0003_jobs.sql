-- Long operations: what they are, how far they are, and what a restart goes on from.
CREATE TABLE job (
    id TEXT NOT NULL PRIMARY KEY,
    kind TEXT NOT NULL,
    domain TEXT NOT NULL,
    state TEXT NOT NULL,
    subject TEXT NOT NULL,
    created_by TEXT NOT NULL,
    created_ms INTEGER NOT NULL,
    started_ms INTEGER,
    finished_ms INTEGER,
    progress_ppm INTEGER NOT NULL,
    counters TEXT NOT NULL,
    error TEXT,
    params TEXT NOT NULL,
    checkpoint TEXT NOT NULL
) STRICT;
CREATE INDEX job_state ON job (state, created_ms);
