-- A text that is encrypted under the master key: who starts with another key is told before anything is done with it. It
-- belongs to this database, and is not saved.
CREATE TABLE vault_check (only_row INTEGER NOT NULL PRIMARY KEY CHECK (only_row = 1), sealed BLOB NOT NULL) STRICT;
