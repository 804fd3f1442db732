-- How often it was noted when resources were seen and how they are. That changes no configuration, so nobody reads all of it
-- anew; who keeps resources themselves does.
ALTER TABLE revision ADD COLUMN seen INTEGER NOT NULL DEFAULT 0;
