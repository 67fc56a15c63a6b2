-- An outbox. A program that adds, cancels or reschedules a task in a transaction on this server inserts a row here: with
-- biz_type, with biz_id or biz_key, and, unless it cancels, with due_time or delay_ms. A relay moves the row and deletes it. Lock
-- your own row first and write here last: then the ids are the order of what happens to one biz_id.
CREATE TABLE IF NOT EXISTS {outbox} (
    id         bigint        GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    op         varchar(16)   NOT NULL DEFAULT 'add',                -- add, cancel or reschedule
    biz_type   varchar(64)   NOT NULL,                              -- name of the biz type
    biz_id     numeric(20)   NOT NULL DEFAULT 0,                    -- above 0; or biz_key
    biz_key    varchar(64)   NOT NULL DEFAULT '',                   -- a business key that is no number; or biz_id
    due_time   timestamptz   NULL,                                  -- when to act; or delay_ms
    delay_ms   bigint        NULL,                                  -- act this many milliseconds after created; or due_time
    dedup_key  varchar(64)   NULL,                                  -- no second task of the biz_type and biz_id or biz_key with this key
    headers    varchar(1024) NULL,                                  -- JSON object of texts: trace context, tenant
    attribute  varchar(8192) NOT NULL DEFAULT '',                   -- the payload, passed through unread
    created    timestamptz   NOT NULL DEFAULT clock_timestamp(),    -- leave it out
    attempts   integer       NOT NULL DEFAULT 0,                    -- how often a relay has set the row aside; leave it out
    last_error varchar(255)  NOT NULL DEFAULT '',                   -- why a relay has set the row aside; leave it out
    CONSTRAINT tocsin_op      CHECK (op IN ('add', 'cancel', 'reschedule')),
    CONSTRAINT tocsin_biz_id  CHECK (biz_id >= 0 AND biz_id <= 18446744073709551615 AND (biz_id > 0) <> (biz_key <> '')),
    CONSTRAINT tocsin_key     CHECK (octet_length(biz_key) <= 64),
    CONSTRAINT tocsin_when    CHECK (op = 'cancel' OR (due_time IS NULL) <> (delay_ms IS NULL)),
    CONSTRAINT tocsin_due     CHECK (due_time >= '1000-01-01 00:00:00+00' AND due_time < '10000-01-01 00:00:00+00'),
    CONSTRAINT tocsin_delay   CHECK (delay_ms >= 0),
    CONSTRAINT tocsin_dedup   CHECK (octet_length(dedup_key) <= 64),
    CONSTRAINT tocsin_created CHECK (created >= '1970-01-02 00:00:00+00' AND created < '9999-01-01 00:00:00+00')
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 10000);
