-- Keys that sign tokens; the private part is encrypted under the master key.
CREATE TABLE signing_key (
    kid TEXT NOT NULL PRIMARY KEY,
    modulus TEXT NOT NULL,
    exponent TEXT NOT NULL,
    sealed BLOB NOT NULL,
    created_ms INTEGER NOT NULL,
    active_ms INTEGER NOT NULL,
    retired_ms INTEGER
) STRICT;

-- Sessions of users; refresh tokens follow from the secret and the generation.
CREATE TABLE session (
    id TEXT NOT NULL PRIMARY KEY,
    subject TEXT NOT NULL,
    client TEXT NOT NULL,
    scope TEXT NOT NULL,
    sealed BLOB NOT NULL,
    generation INTEGER NOT NULL,
    started_ms INTEGER NOT NULL,
    rotated_ms INTEGER NOT NULL,
    idle_ms INTEGER NOT NULL,
    end_ms INTEGER NOT NULL,
    ended_ms INTEGER
) STRICT;
CREATE INDEX session_subject ON session (subject);
CREATE INDEX session_end ON session (end_ms);
