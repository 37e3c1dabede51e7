-- What to look at on the database's side. Every query stands alone and works on Postgres 14 to 18,
-- on a primary and on a standby.
--
-- Requires: nothing.
-- Run as:   any role; without pg_monitor the rows of other roles' sessions show less.

-- 1. Each logical slot: who uses it, how far it is behind, how much WAL it holds back.
--    lag_bytes grows without end          nobody reads, or Kafka does not take: see /status
--    wal_status extended                  more than max_wal_size is held back: look soon
--    wal_status unreserved                at the next checkpoint the slot may be lost: act now
--    wal_status lost                      rows are missing: see operations.md, exit code 3
--    safe_wal_size                        bytes until then; NULL without max_slot_wal_keep_size
--    inactive_since, invalidation_reason  from Postgres 17 on
WITH server AS (
    SELECT CASE WHEN pg_is_in_recovery()
                THEN pg_last_wal_replay_lsn()
                ELSE pg_current_wal_lsn()
           END AS position
)
SELECT s.slot_name,
       s.database,
       s.active,
       s.active_pid,
       s.confirmed_flush_lsn,
       pg_wal_lsn_diff(server.position, s.confirmed_flush_lsn) AS lag_bytes,
       pg_wal_lsn_diff(server.position, s.restart_lsn) AS retained_bytes,
       s.wal_status,
       s.safe_wal_size,
       to_jsonb(s) ->> 'inactive_since' AS inactive_since,
       to_jsonb(s) ->> 'invalidation_reason' AS invalidation_reason
FROM pg_replication_slots s, server
WHERE s.slot_type = 'logical'
ORDER BY retained_bytes DESC NULLS FIRST;

-- 2. Each session that streams: what was sent, and what it says it has.
SELECT pid,
       application_name,
       client_addr,
       state,
       sent_lsn,
       flush_lsn,
       pg_wal_lsn_diff(sent_lsn, flush_lsn) AS unconfirmed_bytes,
       reply_time
FROM pg_stat_replication
ORDER BY pid;

-- 3. Transactions that hold the slot back: its restart position cannot pass the oldest open one,
--    and creating a slot waits for it.
SELECT pid,
       usename,
       state,
       now() - xact_start AS age,
       backend_xid
FROM pg_stat_activity
WHERE backend_xid IS NOT NULL
  AND now() - xact_start > interval '1 minute'
ORDER BY xact_start;

-- 4. Transactions so large that decoding them went to disk. Much of it: raise
--    logical_decoding_work_mem.
SELECT slot_name,
       spill_txns,
       spill_count,
       pg_size_pretty(spill_bytes) AS spilled,
       total_txns,
       pg_size_pretty(total_bytes) AS decoded
FROM pg_stat_replication_slots
ORDER BY slot_name;

-- 5. The outbox tables in publications, their size and whether vacuum keeps up.
SELECT p.pubname,
       p.schemaname,
       p.tablename,
       pg_size_pretty(pg_total_relation_size(c.oid)) AS size,
       st.n_live_tup,
       st.n_dead_tup,
       st.last_autovacuum
FROM pg_publication_tables p
JOIN pg_namespace n ON n.nspname = p.schemaname
JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = p.tablename
LEFT JOIN pg_stat_all_tables st ON st.relid = c.oid
ORDER BY p.pubname, p.schemaname, p.tablename;

-- 6. The settings that matter.
SELECT name,
       current_setting(name) AS value
FROM pg_settings
WHERE name IN (
    'wal_level',
    'max_replication_slots',
    'max_wal_senders',
    'max_slot_wal_keep_size',
    'idle_replication_slot_timeout',
    'wal_sender_timeout',
    'logical_decoding_work_mem',
    'max_wal_size'
)
ORDER BY name;
