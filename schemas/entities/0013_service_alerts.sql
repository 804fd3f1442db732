-- Which services have alerts that fire, at which server: the health of resources follows from all of them, and each server
-- knows its own alone.
CREATE TABLE service_alert (
    server TEXT NOT NULL,
    service TEXT NOT NULL,
    critical INTEGER NOT NULL,
    at_ms INTEGER NOT NULL,
    PRIMARY KEY (server, service)
) STRICT;
