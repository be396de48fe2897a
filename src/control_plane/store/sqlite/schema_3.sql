-- Who a cluster's daemons prove to be: its signing keys, as the first proof recorded them, and the ServiceAccount of each role.

ALTER TABLE clusters ADD COLUMN cluster_uid TEXT;
ALTER TABLE clusters ADD COLUMN issuer TEXT;
ALTER TABLE clusters ADD COLUMN jwks TEXT;
ALTER TABLE clusters ADD COLUMN keys_recorded_at TEXT;

CREATE TABLE accounts (
    cluster     TEXT NOT NULL REFERENCES clusters (name),
    role        TEXT NOT NULL,
    namespace   TEXT NOT NULL,
    name        TEXT NOT NULL,
    recorded_at TEXT NOT NULL,
    PRIMARY KEY (cluster, role)
) STRICT;

ALTER TABLE enrolments ADD COLUMN expires_at TEXT;

-- As proved when the last session opened; NULL when that one had the enrolment token alone.
ALTER TABLE daemons ADD COLUMN identity TEXT;
ALTER TABLE daemons ADD COLUMN node_uid TEXT;
ALTER TABLE daemons ADD COLUMN pod_uid TEXT;
