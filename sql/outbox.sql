-- The outbox table, with the column names that the router expects by default.
--
-- Requires: nothing.
-- Run as:   the owner of your application's tables.
--
-- Write to it in the same transaction as the change that the event tells of:
--
--   BEGIN;
--   UPDATE orders SET state = 'paid' WHERE id = 4711;
--   INSERT INTO outbox (aggregatetype, aggregateid, type, payload)
--   VALUES ('order', '4711', 'OrderPaid', '{"id": 4711, "state": "paid"}');
--   COMMIT;
--
-- The event goes to topic outbox.event.order with key 4711, so all events of one order stay in
-- order, and carries the row's id in header "id".

CREATE TABLE IF NOT EXISTS outbox (
    -- Identifies the event; consumers recognise a repetition by it. Times run through UUID version
    -- 7, which keeps the primary key dense: generate that one in the application if you can, or
    -- change the default to uuidv7() on Postgres 18.
    id            uuid         NOT NULL DEFAULT gen_random_uuid(),
    -- Becomes part of the topic name, so it is held to what Kafka accepts.
    aggregatetype varchar(200) NOT NULL CHECK (aggregatetype ~ '^[A-Za-z0-9._-]+$'),
    -- The record's key: what must stay in order shares one.
    aggregateid   varchar(255) NOT NULL,
    -- Sent only if table.fields.additional.placement names it, for example type:header:eventType.
    type          varchar(255) NOT NULL,
    -- The record's value. NULL is a tombstone: "the aggregate is gone". jsonb orders members and
    -- drops white space; use json or text where every byte counts, bytea for what is not text.
    payload       jsonb,
    -- For cleanup only.
    created_at    timestamptz  NOT NULL DEFAULT now(),
    PRIMARY KEY (id)
);

COMMENT ON TABLE outbox IS 'Events on their way to Kafka. Insert only; see cleanup.sql.';

-- Indexes: none but the primary key. walpost reads the write-ahead log, never this table (the
-- initial snapshot reads all of it once), so an index would only slow your inserts down. The index
-- on created_at that deleting in batches needs comes with cleanup.sql.

-- Rows come and go without ever being updated: fill pages to the brim, and let vacuum follow the
-- deletions closely by count instead of by a share of a table that never grows. A vacuum of a
-- table this small costs next to nothing, so it need not pause.
ALTER TABLE outbox SET (
    fillfactor = 100,
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_threshold = 10000,
    autovacuum_vacuum_insert_scale_factor = 0,
    autovacuum_vacuum_insert_threshold = 100000,
    autovacuum_analyze_scale_factor = 0,
    autovacuum_analyze_threshold = 100000,
    autovacuum_vacuum_cost_delay = 0
);

-- The table may also stay empty for ever: delete the row again in the transaction that inserted it.
-- The insert is in the log, and that is all walpost needs. Rows that are gone cannot be looked at,
-- and no snapshot finds them.
