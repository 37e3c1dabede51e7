-- The role that walpost connects as, with no right that it does not need.
--
-- Requires: outbox.sql or outbox_partitioned.sql.
-- Run as:   superuser, or whoever may grant REPLICATION. On managed Postgres replace the attribute
--           by the vendor's role, for example GRANT rds_replication TO walpost.
--
-- Then give it a password, which does not belong into a file:  \password walpost
-- and let it in (pg_hba.conf). A logical replication connection names its database, so the keyword
-- "replication" is not the one to use:
--
--   hostssl  shop  walpost  10.0.0.0/8  scram-sha-256

DO $$
BEGIN
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'walpost') THEN
        CREATE ROLE walpost LOGIN REPLICATION
            NOSUPERUSER NOCREATEDB NOCREATEROLE NOBYPASSRLS;
    END IF;
    -- The database that this file runs in.
    EXECUTE format('GRANT CONNECT ON DATABASE %I TO walpost', current_database());
END
$$;

-- Streaming reads the log and needs neither of these. They serve the initial snapshot and the
-- look at the table's columns at start.
GRANT USAGE ON SCHEMA public TO walpost;
GRANT SELECT ON outbox TO walpost;

-- heartbeat.action.query, if you use one, writes to a table of yours: grant that table, and only
-- that one.
