-- Servers that share the database ask each second which sessions ended.
CREATE INDEX session_ended ON session (ended_ms) WHERE ended_ms IS NOT NULL;
