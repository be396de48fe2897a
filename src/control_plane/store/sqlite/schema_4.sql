-- Each time that this file began to stand in for what was lost: opened as a restored copy, or found damaged.

CREATE TABLE restores (
    id          INTEGER PRIMARY KEY AUTOINCREMENT,
    at          TEXT    NOT NULL,
    cause       TEXT    NOT NULL,
    -- Every session after it has a higher epoch, those of daemons that the file does not know too.
    epoch_floor INTEGER NOT NULL
) STRICT;

-- Was queued when the copy was taken: it may have been given another attempt since.
ALTER TABLE dispatches ADD COLUMN restored INTEGER NOT NULL DEFAULT 0 CHECK (restored IN (0, 1));
