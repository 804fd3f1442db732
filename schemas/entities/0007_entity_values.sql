-- What fields of entities hold, as texts that order as the values do: lists are filtered and sorted by it without reading
-- the whole family. Rows follow from the entities; `entity_value_of` says for which fields of a family they are complete,
-- and where a build knows others the next start makes them anew.
CREATE TABLE entity_value (
    family TEXT NOT NULL,
    owner TEXT NOT NULL,
    field TEXT NOT NULL,
    value TEXT NOT NULL,
    id TEXT NOT NULL,
    PRIMARY KEY (family, owner, field, value, id)
) STRICT, WITHOUT ROWID;
CREATE TABLE entity_value_of (family TEXT NOT NULL PRIMARY KEY, fields TEXT NOT NULL) STRICT;
