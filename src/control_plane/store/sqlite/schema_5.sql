-- Nodes that are gone, as the daemon of role `cluster` read it; the UID is empty where no daemon could read it.
CREATE TABLE gone_nodes (
    cluster TEXT NOT NULL REFERENCES clusters (name),
    node    TEXT NOT NULL,
    uid     TEXT NOT NULL,
    why     TEXT NOT NULL,
    gone_at TEXT NOT NULL,
    PRIMARY KEY (cluster, node, uid)
) STRICT;

-- UID of the Node object that the dispatch was accepted on.
ALTER TABLE dispatches ADD COLUMN node_uid TEXT;

-- The node that the object was bound to.
ALTER TABLE dispatches ADD COLUMN seen_node TEXT;
