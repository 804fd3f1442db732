-- Orders in which entities are listed, so that a page costs what it gives. The text of `sort_text` follows from the body, by
-- the family; null: an earlier build wrote the row, and the next start fills it in.
ALTER TABLE entity ADD COLUMN sort_text TEXT;
CREATE INDEX entity_sorted ON entity (family, owner, sort_text, id);
CREATE INDEX entity_unsorted ON entity (family, id) WHERE sort_text IS NULL;
CREATE INDEX entity_created ON entity (family, owner, created_ms, id);
CREATE INDEX entity_updated ON entity (family, owner, updated_ms, id);
DROP INDEX entity_owner;
CREATE INDEX entity_owner ON entity (family, owner, id);
