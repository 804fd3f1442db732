-- Which server carries a job out, where several share a database; empty: an earlier build queued it, and any does.
ALTER TABLE job ADD COLUMN server TEXT NOT NULL DEFAULT '';
