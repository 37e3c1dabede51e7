-- Taking walpost away from a database: the slot first, since it holds back WAL until the disk is
-- full, whether anybody reads from it or not.
--
-- Requires: nothing; what is not there is passed over. Can be repeated.
-- Run as:   superuser, or a role with REPLICATION that owns the publication, in the database that
--           the slot belongs to.
--
-- Stop every walpost that uses the slot first, the standbys too: a standby would take over. Events
-- that were not delivered by then will not be.
--
-- debezium and dbz_publication are the defaults of slot.name and publication.name.

DO $$
DECLARE
    slot record;
BEGIN
    SELECT slot_name, database, active_pid INTO slot
    FROM pg_replication_slots
    WHERE slot_name = 'debezium';
    IF NOT FOUND THEN
        RETURN;
    END IF;
    IF slot.database <> current_database() THEN
        RAISE EXCEPTION 'slot "%" belongs to database "%"', slot.slot_name, slot.database
            USING HINT = 'Run this file there.';
    END IF;
    IF slot.active_pid IS NOT NULL THEN
        RAISE EXCEPTION 'slot "%" is in use by process %', slot.slot_name, slot.active_pid
            USING HINT = 'Stop every walpost that uses it, then run this file again.';
    END IF;
    PERFORM pg_drop_replication_slot(slot.slot_name);
END
$$;

DROP PUBLICATION IF EXISTS dbz_publication;

-- What remains, when nobody else needs it:
--
--   DROP TABLE outbox;
--   DROP OWNED BY walpost;
--   DROP ROLE walpost;
--
-- and on the Kafka side the stored position: walpost offsets reset.
