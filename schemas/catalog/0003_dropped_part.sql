-- Whether something took the place of a removed part. It is noted when the part goes: what took its place may be replaced
-- and forgotten before the files of the part are deleted.
ALTER TABLE part ADD COLUMN dropped INTEGER NOT NULL DEFAULT 0; -- 1 = nothing did: its rows are gone with it
UPDATE part SET dropped = 1 WHERE removed IS NOT NULL
    AND NOT EXISTS (SELECT 1 FROM part AS p WHERE p.added = part.removed);
