-- Times are RFC 3339 in UTC; words are those of the wire.

CREATE TABLE clusters (
    name       TEXT NOT NULL PRIMARY KEY,
    install    TEXT NOT NULL UNIQUE,
    created_at TEXT NOT NULL
) STRICT;

CREATE TABLE enrolments (
    id           TEXT NOT NULL PRIMARY KEY,
    cluster      TEXT NOT NULL REFERENCES clusters (name),
    token_hash   BLOB NOT NULL UNIQUE,
    created_at   TEXT NOT NULL,
    last_used_at TEXT,
    revoked_at   TEXT
) STRICT;

CREATE TABLE namespaces (
    name       TEXT NOT NULL PRIMARY KEY,
    slug       TEXT NOT NULL UNIQUE,
    created_at TEXT NOT NULL
) STRICT;

INSERT INTO namespaces (name, slug, created_at) VALUES ('default', 'default', strftime('%Y-%m-%dT%H:%M:%fZ', 'now'));

CREATE TABLE tokens (
    id         TEXT    NOT NULL PRIMARY KEY,
    name       TEXT    NOT NULL,
    token_hash BLOB    NOT NULL UNIQUE,
    admin      INTEGER NOT NULL CHECK (admin IN (0, 1)),
    bootstrap  INTEGER NOT NULL CHECK (bootstrap IN (0, 1)),
    created_at TEXT    NOT NULL,
    revoked_at TEXT
) STRICT;

CREATE UNIQUE INDEX tokens_by_name ON tokens (name) WHERE revoked_at IS NULL;

CREATE TABLE token_namespaces (
    token     TEXT NOT NULL REFERENCES tokens (id),
    namespace TEXT NOT NULL REFERENCES namespaces (name),
    PRIMARY KEY (token, namespace)
) STRICT;

CREATE TABLE providers (
    namespace  TEXT NOT NULL REFERENCES namespaces (name),
    name       TEXT NOT NULL,
    slug       TEXT NOT NULL,
    launcher   TEXT NOT NULL,
    dispatch   TEXT NOT NULL,
    cluster    TEXT NOT NULL REFERENCES clusters (name),
    kwargs     TEXT NOT NULL,
    created_at TEXT NOT NULL,
    updated_at TEXT NOT NULL,
    PRIMARY KEY (namespace, name),
    UNIQUE (namespace, slug)
) STRICT;

CREATE TABLE modes (
    namespace  TEXT NOT NULL REFERENCES namespaces (name),
    name       TEXT NOT NULL,
    provider   TEXT NOT NULL,
    fields     TEXT NOT NULL,
    created_at TEXT NOT NULL,
    updated_at TEXT NOT NULL,
    PRIMARY KEY (namespace, name)
) STRICT;

CREATE TABLE daemons (
    cluster       TEXT    NOT NULL REFERENCES clusters (name),
    node          TEXT    NOT NULL,
    epoch         INTEGER NOT NULL,
    role          TEXT    NOT NULL,
    version       TEXT    NOT NULL,
    policy_digest TEXT    NOT NULL,
    facts         TEXT    NOT NULL,
    last_seen     TEXT    NOT NULL,
    PRIMARY KEY (cluster, node)
) STRICT;

-- One row a dispatch; the instance of its current attempt stands in it. A dispatch outlives its provider's row.
CREATE TABLE dispatches (
    id               INTEGER PRIMARY KEY AUTOINCREMENT,
    dispatch_id      TEXT    NOT NULL UNIQUE,
    attempt          INTEGER NOT NULL,
    instance         TEXT    NOT NULL UNIQUE,
    namespace        TEXT    NOT NULL REFERENCES namespaces (name),
    provider         TEXT    NOT NULL,
    cluster          TEXT    NOT NULL REFERENCES clusters (name),
    node             TEXT    NOT NULL,
    requested_by     TEXT    NOT NULL,
    kube_namespace   TEXT,
    payload          BLOB,
    idempotency_token TEXT,
    idempotency_key  TEXT,
    body_hash        BLOB,
    phase            TEXT    NOT NULL CHECK (phase IN ('queued', 'accepted', 'created', 'ended')),
    answered         INTEGER NOT NULL DEFAULT 0 CHECK (answered IN (0, 1)),
    launched_at      TEXT    NOT NULL,
    accepted_at      TEXT,
    accepted_epoch   INTEGER,
    delete_requested_at TEXT,
    report_seq       INTEGER NOT NULL DEFAULT 0,
    state            TEXT    NOT NULL,
    reason           TEXT    NOT NULL,
    message          TEXT    NOT NULL DEFAULT '',
    exit_code        INTEGER,
    uid              TEXT,
    created_at       TEXT,
    started_at       TEXT,
    finished_at      TEXT,
    observed_at      TEXT    NOT NULL,
    rejection        TEXT,
    log_started      INTEGER NOT NULL DEFAULT 0 CHECK (log_started IN (0, 1)),
    log_position     INTEGER NOT NULL DEFAULT 0,
    log_stored       INTEGER NOT NULL DEFAULT 0 CHECK (log_stored <= log_position),
    log_resume       TEXT    NOT NULL DEFAULT '{"container":"","timestamp":"","lines":0,"partial":0}',
    log_end          TEXT,
    -- What is queued can still be sent, and nothing else keeps the caller's script and values.
    CHECK ((phase = 'queued') = (payload IS NOT NULL)),
    CHECK ((phase = 'ended') = (state = 'stopped'))
) STRICT;

CREATE INDEX dispatches_by_provider ON dispatches (namespace, provider, id);
CREATE INDEX dispatches_open ON dispatches (cluster, node, phase, id) WHERE phase <> 'ended';
CREATE INDEX dispatches_logs ON dispatches (cluster, node) WHERE log_started = 1 AND log_end IS NULL;
CREATE UNIQUE INDEX dispatches_by_key ON dispatches (namespace, provider, idempotency_token, idempotency_key) WHERE idempotency_key IS NOT NULL;
