-- A node that cannot take a launch passes it on, unless its caller named it.

ALTER TABLE dispatches ADD COLUMN node_named INTEGER NOT NULL DEFAULT 0 CHECK (node_named IN (0, 1));

-- Nodes whose daemons could not take it, as a JSON list.
ALTER TABLE dispatches ADD COLUMN tried TEXT NOT NULL DEFAULT '[]';
