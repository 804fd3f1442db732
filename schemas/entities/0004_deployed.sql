-- Entities as they were deployed last, of families whose changes wait for that; rows are those of `entity`.
CREATE TABLE deployed (
    family TEXT NOT NULL,
    id TEXT NOT NULL,
    owner TEXT NOT NULL,
    version INTEGER NOT NULL,
    created_ms INTEGER NOT NULL,
    updated_ms INTEGER NOT NULL,
    created_by TEXT NOT NULL,
    updated_by TEXT NOT NULL,
    managed_by TEXT NOT NULL,
    body TEXT NOT NULL,
    sealed TEXT NOT NULL,
    PRIMARY KEY (family, id)
) STRICT;
