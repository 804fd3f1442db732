-- How many entities a family has: a limit is checked at each new one, and counting all of them takes the longer the more
-- there are.
CREATE TABLE entity_count (family TEXT NOT NULL PRIMARY KEY, number INTEGER NOT NULL) STRICT;
INSERT INTO entity_count (family, number) SELECT family, count(*) FROM entity GROUP BY family;
