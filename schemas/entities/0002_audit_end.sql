-- The number of the last audit row: one that is taken from the end shows, too.
CREATE TABLE audit_end (only_row INTEGER NOT NULL PRIMARY KEY CHECK (only_row = 1), number INTEGER NOT NULL) STRICT;
INSERT INTO audit_end (only_row, number) SELECT 1, coalesce(max(number), 0) FROM audit;
