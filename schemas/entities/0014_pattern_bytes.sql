-- What the regular expressions of all entities of a family take in memory: a limit is checked at each that comes, and
-- compiling all of them takes the longer the more there are. A family that is missing is measured with its next change.
CREATE TABLE pattern_bytes (family TEXT NOT NULL PRIMARY KEY, number INTEGER NOT NULL) STRICT;
