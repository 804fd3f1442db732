-- Wrong passwords and secrets of the last minutes, of which servers that share the database tell each other.
-- A row without a server is a success: what came before it is forgotten.
CREATE TABLE failure (
    place TEXT NOT NULL,
    server TEXT NOT NULL,
    number INTEGER NOT NULL,
    first_ms INTEGER NOT NULL,
    last_ms INTEGER NOT NULL,
    PRIMARY KEY (place, server)
) STRICT;
CREATE INDEX failure_last ON failure (last_ms);
