-- The statements of the embedded store and its counters.

-- name: schema
-- names and `raw`, which is 1, are those of diskcache, which made the files of earlier versions
CREATE TABLE IF NOT EXISTS Cache (key TEXT, raw INTEGER, expire_time REAL, access_time REAL, value BLOB);
CREATE UNIQUE INDEX IF NOT EXISTS Cache_key_raw ON Cache (key, raw);
CREATE INDEX IF NOT EXISTS Cache_expire_time ON Cache (expire_time);
CREATE INDEX IF NOT EXISTS Cache_access_time ON Cache (access_time);

-- name: put
INSERT INTO Cache (key, raw, expire_time, access_time, value) VALUES (:key, 1, :now + :ttl, :now, :value)
ON CONFLICT (key, raw) DO UPDATE SET
expire_time = excluded.expire_time, access_time = excluded.access_time, value = excluded.value

-- name: get
SELECT value, access_time FROM Cache WHERE key = :key AND raw = 1 AND expire_time > :now

-- name: use
UPDATE Cache SET access_time = :now, expire_time = :now + :ttl WHERE key = :key AND raw = 1 AND expire_time > :now

-- name: delete
DELETE FROM Cache WHERE key = :key

-- name: remove_expired
DELETE FROM Cache WHERE rowid IN (SELECT rowid FROM Cache WHERE expire_time <= :now LIMIT 64)

-- name: remove_oldest
DELETE FROM Cache WHERE rowid IN (
  SELECT rowid FROM Cache WHERE access_time <= :until AND key <> :key ORDER BY access_time LIMIT 1
)

-- name: keys
SELECT key FROM Cache WHERE key >= :first AND key < :end AND raw = 1 AND expire_time > :now ORDER BY key LIMIT :limit

-- name: latest
-- the sign keeps the planner on the keys: by time it would read the whole table
SELECT key FROM Cache WHERE key >= :first AND key < :end AND raw = 1 AND expire_time > :now
ORDER BY +access_time DESC LIMIT :limit

-- name: counts
CREATE TABLE IF NOT EXISTS counts (key TEXT PRIMARY KEY, value REAL NOT NULL, expires REAL NOT NULL) WITHOUT ROWID

-- name: add_count
INSERT INTO counts (key, value, expires) VALUES (:key, :amount, :now + :ttl) ON CONFLICT (key) DO UPDATE SET
value = CASE WHEN expires <= :now THEN excluded.value ELSE value + excluded.value END, expires = excluded.expires
RETURNING value

-- name: read_count
SELECT value FROM counts WHERE key = :key AND expires > :now

-- name: remove_counts
DELETE FROM counts WHERE expires <= :now
