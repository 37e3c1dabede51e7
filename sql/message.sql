-- The outbox without a table: events go straight into the write-ahead log.
--
-- Requires: nothing.
-- Run as:   the owner of your application's functions.
--
-- Nothing is stored but the log, so there is nothing to clean up, and nothing that a snapshot or a
-- person could read later. walpost must be told to take messages: transform
-- DecodeLogicalDecodingMessageContent in front of the router, as in Debezium.
--
--   BEGIN;
--   UPDATE orders SET state = 'paid' WHERE id = 4711;
--   SELECT walpost_emit('order', '4711', 'OrderPaid', '{"id": 4711, "state": "paid"}');
--   COMMIT;

-- Emits one event and returns its id. The event belongs to the transaction: a rollback takes it
-- back. Arguments are checked here, in the transaction that can still be rolled back, rather than
-- behind the commit, where a bad event could only stop the stream. A payload of NULL is a tombstone
-- and needs fields.null.include=true at the transform, which else leaves the member out.
CREATE OR REPLACE FUNCTION walpost_emit(
    aggregatetype text,
    aggregateid   text,
    type          text,
    payload       jsonb,
    id            uuid DEFAULT gen_random_uuid(),
    prefix        text DEFAULT 'outbox'
)
RETURNS uuid
LANGUAGE plpgsql
AS $$
BEGIN
    -- It becomes part of the topic name; 249 is Kafka's limit for the whole of it.
    IF aggregatetype IS NULL OR aggregatetype !~ '^[A-Za-z0-9._-]{1,200}$' THEN
        RAISE EXCEPTION 'aggregatetype must be 1 to 200 of the characters A-Z a-z 0-9 . _ -'
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    IF aggregateid IS NULL OR aggregateid = '' THEN
        RAISE EXCEPTION 'aggregateid must not be empty: it is the key that keeps events in order'
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    IF type IS NULL OR type = '' THEN
        RAISE EXCEPTION 'type must not be empty'
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    IF id IS NULL THEN
        RAISE EXCEPTION 'id must not be null: consumers recognise a repetition by it'
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    IF prefix IS NULL OR prefix = '' THEN
        RAISE EXCEPTION 'prefix must not be empty'
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    -- Kafka's default limit is 1 MiB for the whole record. A larger one needs
    -- message.max.bytes on the topic and max.request.size here, and this line changed.
    IF octet_length(payload::text) > 1000000 THEN
        RAISE EXCEPTION 'payload has % bytes, more than 1000000', octet_length(payload::text)
            USING ERRCODE = 'program_limit_exceeded';
    END IF;
    PERFORM pg_logical_emit_message(
        true,
        prefix,
        jsonb_build_object(
            'id', id,
            'aggregatetype', aggregatetype,
            'aggregateid', aggregateid,
            'type', type,
            'payload', payload
        )::text
    );
    RETURN id;
END
$$;
