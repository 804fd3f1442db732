-- Entities of configuration families, what names what, what they were, who changed them.
CREATE TABLE entity (
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
CREATE INDEX entity_owner ON entity (family, owner);

-- Values that only one entity of a family (and owner) may have.
CREATE TABLE entity_key (
    family TEXT NOT NULL,
    owner TEXT NOT NULL,
    fields TEXT NOT NULL,
    value TEXT NOT NULL,
    id TEXT NOT NULL,
    PRIMARY KEY (family, owner, fields, value)
) STRICT;
CREATE INDEX entity_key_id ON entity_key (family, id);

-- Which entity names which.
CREATE TABLE entity_link (
    family TEXT NOT NULL,
    id TEXT NOT NULL,
    to_family TEXT NOT NULL,
    to_id TEXT NOT NULL,
    on_delete TEXT NOT NULL,
    PRIMARY KEY (family, id, to_family, to_id)
) STRICT;
CREATE INDEX entity_link_to ON entity_link (to_family, to_id);

-- Without secrets: what was revoked or forgotten does not come back.
CREATE TABLE entity_version (
    family TEXT NOT NULL,
    id TEXT NOT NULL,
    version INTEGER NOT NULL,
    at_ms INTEGER NOT NULL,
    by_whom TEXT NOT NULL,
    action TEXT NOT NULL,
    owner TEXT NOT NULL,
    body TEXT NOT NULL,
    PRIMARY KEY (family, id, version)
) STRICT;

-- Each row holds the hash of the one before it, so that a missing one shows.
CREATE TABLE audit (
    number INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
    at_ms INTEGER NOT NULL,
    row TEXT NOT NULL,
    prev_hash TEXT NOT NULL,
    hash TEXT NOT NULL
) STRICT;
CREATE INDEX audit_time ON audit (at_ms);

-- Answers to requests that named themselves.
CREATE TABLE answered (
    subject TEXT NOT NULL,
    path TEXT NOT NULL,
    name TEXT NOT NULL,
    body_hash TEXT NOT NULL,
    answer BLOB,
    at_ms INTEGER NOT NULL,
    PRIMARY KEY (subject, path, name)
) STRICT;
CREATE INDEX answered_time ON answered (at_ms);

CREATE TABLE revision (only_row INTEGER NOT NULL PRIMARY KEY CHECK (only_row = 1), number INTEGER NOT NULL) STRICT;
INSERT INTO revision (only_row, number) VALUES (1, 0);
