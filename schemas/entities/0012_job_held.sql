-- When a job's server last said that it is there: one that is gone leaves its jobs to nobody, so another server ends them.
ALTER TABLE job ADD COLUMN held_ms INTEGER NOT NULL DEFAULT 0;
