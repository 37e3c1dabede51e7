-- The publication: what Postgres puts into the stream.
--
-- Requires: outbox.sql or outbox_partitioned.sql.
-- Run as:   the owner of the table, with CREATE on the database.
--
-- walpost can create it by itself if its role owns the table (publication.autocreate.mode). Made
-- here, its role needs no right on your tables but SELECT. Create it before the first start: a
-- slot that is older than its publication fails on the changes in between.
--
-- dbz_publication is the default of publication.name.

DO $$
BEGIN
    IF NOT EXISTS (SELECT FROM pg_publication WHERE pubname = 'dbz_publication') THEN
        -- Inserts only: cleaning up then costs the stream nothing. With
        -- publish_via_partition_root the rows of a partitioned outbox carry the parent's name;
        -- for an ordinary table it changes nothing.
        CREATE PUBLICATION dbz_publication
            FOR TABLE outbox
            WITH (publish = 'insert', publish_via_partition_root = true);
    END IF;
END
$$;

-- What it publishes now; one row, with pubinsert true.
SELECT p.pubname, t.schemaname, t.tablename, p.pubinsert, p.pubviaroot
FROM pg_publication p
LEFT JOIN pg_publication_tables t USING (pubname)
WHERE p.pubname = 'dbz_publication';
