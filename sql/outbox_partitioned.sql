-- The outbox table in daily partitions: old events go by dropping a table, which leaves nothing
-- for vacuum to do. Take this one from some hundred events a second on.
--
-- Requires: nothing. An alternative to outbox.sql, not an addition.
-- Run as:   the owner of your application's tables.
--
-- The publication must have publish_via_partition_root (publication.sql has), so that rows arrive
-- under the name of the parent; table.include.list names the parent only.

CREATE TABLE IF NOT EXISTS outbox (
    id            uuid         NOT NULL DEFAULT gen_random_uuid(),
    aggregatetype varchar(200) NOT NULL CHECK (aggregatetype ~ '^[A-Za-z0-9._-]+$'),
    aggregateid   varchar(255) NOT NULL,
    type          varchar(255) NOT NULL,
    payload       jsonb,
    created_at    timestamptz  NOT NULL DEFAULT now(),
    -- A partitioned table's key must contain the column that it is partitioned by.
    PRIMARY KEY (id, created_at)
) PARTITION BY RANGE (created_at);

COMMENT ON TABLE outbox IS 'Events on their way to Kafka. Insert only; see cleanup.sql.';

-- Catches what no other partition takes, so that a late job never makes an insert fail.
CREATE TABLE IF NOT EXISTS outbox_default PARTITION OF outbox DEFAULT;

-- Creates the partitions of today and of the days after it (UTC), as far as they are missing, and
-- says how many it created. Run it daily from whatever runs your jobs.
--
--   SELECT outbox_create_partitions(7);
--
-- A day for which outbox_default already holds rows is left out with a warning: Postgres would
-- have to move them.
CREATE OR REPLACE FUNCTION outbox_create_partitions(days_ahead integer DEFAULT 7)
RETURNS integer
LANGUAGE plpgsql
AS $$
DECLARE
    first_day date := (now() AT TIME ZONE 'UTC')::date;
    day       date;
    name      text;
    created   integer := 0;
BEGIN
    IF days_ahead IS NULL OR days_ahead NOT BETWEEN 0 AND 366 THEN
        RAISE EXCEPTION 'days_ahead must be between 0 and 366, not %', days_ahead
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    FOR offset_days IN 0 .. days_ahead LOOP
        day := first_day + offset_days;
        name := 'outbox_' || to_char(day, 'YYYYMMDD');
        CONTINUE WHEN to_regclass(name) IS NOT NULL;
        IF EXISTS (
            SELECT FROM outbox_default
            WHERE created_at >= day::timestamp AT TIME ZONE 'UTC'
              AND created_at < (day + 1)::timestamp AT TIME ZONE 'UTC'
        ) THEN
            RAISE WARNING 'no partition for %: outbox_default already holds rows of that day', day;
            CONTINUE;
        END IF;
        EXECUTE format(
            'CREATE TABLE %I PARTITION OF outbox FOR VALUES FROM (%L) TO (%L)',
            name,
            day::timestamp AT TIME ZONE 'UTC',
            (day + 1)::timestamp AT TIME ZONE 'UTC'
        );
        created := created + 1;
    END LOOP;
    RETURN created;
END
$$;

SELECT outbox_create_partitions(7);
