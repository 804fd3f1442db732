-- What people look for in entities, in lower case: names and descriptions. A list with `q` goes through these rows instead
-- of the bodies. They follow from the entities, and are made anew together with those of `entity_value`.
CREATE TABLE entity_text (
    family TEXT NOT NULL,
    owner TEXT NOT NULL,
    id TEXT NOT NULL,
    words TEXT NOT NULL,
    PRIMARY KEY (family, owner, id)
) STRICT, WITHOUT ROWID;
