-- Removing old events: in batches, or by whole partitions.
--
-- Requires: outbox.sql or outbox_partitioned.sql.
-- Run as:   the owner of the table. This file only installs; run what it installs from a job.
--
-- Once the slot exists, no event can be lost by this. walpost reads the write-ahead log, and the slot
-- keeps the log of everything that was not delivered; whether the row still exists does not matter.
-- Rows are worth keeping for as long as you want to look at them, or publish them once more through
-- a snapshot.

-- Deleting in batches looks for the oldest rows.
CREATE INDEX IF NOT EXISTS outbox_created_at ON outbox (created_at);

-- Deletes rows older than max_age, batch_size at a time, each batch in its own transaction, so
-- that neither locks nor snapshots last. Rows that somebody has locked are left for the next run.
--
--   CALL outbox_delete_older_than(interval '3 days');
--
-- Not inside a transaction block, since it commits.
CREATE OR REPLACE PROCEDURE outbox_delete_older_than(
    max_age    interval,
    batch_size integer DEFAULT 5000
)
LANGUAGE plpgsql
AS $$
DECLARE
    until   timestamptz := now() - max_age;
    deleted bigint;
BEGIN
    IF max_age IS NULL OR max_age < interval '0' THEN
        RAISE EXCEPTION 'max_age must not be negative'
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    IF batch_size IS NULL OR batch_size < 1 THEN
        RAISE EXCEPTION 'batch_size must be at least 1'
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    LOOP
        DELETE FROM outbox
        WHERE (id, created_at) IN (
            SELECT id, created_at FROM outbox
            WHERE created_at < until
            ORDER BY created_at
            LIMIT batch_size
            FOR UPDATE SKIP LOCKED
        );
        GET DIAGNOSTICS deleted = ROW_COUNT;
        COMMIT;
        EXIT WHEN deleted < batch_size;
    END LOOP;
END
$$;

-- Drops the partitions of outbox_partitioned.sql whose every row is older than max_age, and says
-- how many. It waits at most 2 s for the lock that this takes for an instant, so that inserts
-- never queue behind it; run it again later if it gives up.
--
--   SELECT outbox_drop_partitions_older_than(interval '3 days');
CREATE OR REPLACE FUNCTION outbox_drop_partitions_older_than(max_age interval)
RETURNS integer
LANGUAGE plpgsql
SET lock_timeout = '2s'
AS $$
DECLARE
    -- A day's partition is over when the next day begins.
    last_day  date := ((now() - max_age) AT TIME ZONE 'UTC')::date - 1;
    partition regclass;
    dropped   integer := 0;
BEGIN
    IF max_age IS NULL OR max_age < interval '0' THEN
        RAISE EXCEPTION 'max_age must not be negative'
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    FOR partition IN
        SELECT c.oid::regclass
        FROM pg_inherits i
        JOIN pg_class c ON c.oid = i.inhrelid
        WHERE i.inhparent = 'outbox'::regclass
          AND c.relname ~ '^outbox_[0-9]{8}$'
          AND to_date(right(c.relname, 8), 'YYYYMMDD') <= last_day
        ORDER BY c.relname
    LOOP
        EXECUTE format('DROP TABLE %s', partition);
        dropped := dropped + 1;
    END LOOP;
    RETURN dropped;
END
$$;
