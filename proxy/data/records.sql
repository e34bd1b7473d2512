-- The table of records in SQLite: one row a request, as JSON, and the questions of the page. A statement stands behind
-- a line with its name; `{}` is filled in. Rows come many in one text: SQLite takes them apart itself, without Python's lock.

-- name: schema
-- What lists filter by and sums add up is generated from the row.
CREATE TABLE IF NOT EXISTS requests (
  id INTEGER PRIMARY KEY,
  request_id AS (json_extract(row, '$.request_id')) STORED,
  started AS (json_extract(row, '$.started')) STORED,
  ended AS (json_extract(row, '$.ended')) STORED,
  tenant AS (json_extract(row, '$.tenant')) STORED,
  conversation AS (json_extract(row, '$.conversation')) STORED,
  session AS (json_extract(row, '$.session')) STORED,
  agent AS (json_extract(row, '$.agent')) STORED,
  task AS (json_extract(row, '$.task')) STORED,
  turn AS (json_extract(row, '$.turn')) STORED,
  model AS (json_extract(row, '$.model')) STORED,
  chain AS (json_extract(row, '$.chain')) STORED,
  tokens_before AS (json_extract(row, '$.tokens_before')) STORED,
  tokens_after AS (json_extract(row, '$.tokens_after')) STORED,
  usd AS (json_extract(row, '$.usd')) STORED,
  usd_estimated AS (json_extract(row, '$.usd_estimated')) STORED,
  input_tokens AS (json_extract(row, '$.input_tokens')) STORED,
  cached_tokens AS (json_extract(row, '$.cached_tokens')) STORED,
  written_tokens AS (json_extract(row, '$.written_tokens')) STORED,
  output_tokens AS (json_extract(row, '$.output_tokens')) STORED,
  usd_saved AS (json_extract(row, '$.usd_saved')) STORED,
  errors AS (json_extract(row, '$.problems.errors')) STORED,
  refused AS (json_extract(row, '$.problems.refused')) STORED,
  failed_steps AS (json_extract(row, '$.problems.failed_steps')) STORED,
  prefix_breaks AS (json_extract(row, '$.problems.prefix_breaks')) STORED,
  row TEXT NOT NULL
);
CREATE TABLE IF NOT EXISTS request_texts (
  tenant TEXT, key TEXT, text TEXT, last INTEGER, PRIMARY KEY (tenant, key)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS requests_by_end ON requests (ended);
CREATE INDEX IF NOT EXISTS requests_by_name ON requests (request_id);
CREATE INDEX IF NOT EXISTS requests_by_conversation ON requests (conversation);

-- Where no usage came, the cost is that of the prompt; an error costs nothing, but a client that left (499) may.
CREATE TEMP VIEW IF NOT EXISTS known AS
SELECT *, json_extract(row, '$.key') AS key, json_extract(row, '$.title') AS title,
  coalesce(usd, CASE WHEN json_extract(row, '$.status') < 400 OR json_extract(row, '$.status') = 499
    THEN usd_estimated END) AS cost
FROM requests;

-- A policy has no costs of its own. Its requests are its steps, of which a chain may have several, its errors failed ones.
CREATE TEMP VIEW IF NOT EXISTS steps AS
SELECT
  requests.id, requests.ended, requests.input_tokens, requests.cached_tokens,
  json_extract(s.value, '$.policy') AS policy,
  json_extract(s.value, '$.verdict') AS verdict,
  json_extract(s.value, '$.why') AS why,
  CASE WHEN json_extract(s.value, '$.observed') THEN 0
    ELSE coalesce(json_extract(s.value, '$.tokens_before') - json_extract(s.value, '$.tokens_after'), 0) END AS saved,
  json_extract(s.value, '$.milliseconds') AS ms,
  json_extract(s.value, '$.usd_saved') AS usd_saved,
  json_extract(s.value, '$.verdict') = 'fail' AS errors,
  NULL AS cost
FROM requests, json_each(requests.row, '$.steps') s;

-- name: insert
INSERT INTO requests (row) SELECT value FROM json_each(:rows)
WHERE type = 'object' AND json_extract(value, '$.ended') IS NOT NULL

-- name: use_texts
UPDATE request_texts SET last = (SELECT max(id) FROM requests) WHERE (tenant, key) IN (
  SELECT json_extract(value, '$.tenant'), json_extract(value, '$.key') FROM json_each(:rows)
  WHERE type = 'object' AND json_extract(value, '$.key') IS NOT NULL
)

-- name: insert_texts
INSERT INTO request_texts
SELECT json_extract(value, '$.tenant'), json_extract(value, '$.key'), json_extract(value, '$.text'),
  (SELECT max(id) FROM requests)
FROM json_each(:rows)
WHERE type = 'object' AND json_extract(value, '$.key') IS NOT NULL AND json_extract(value, '$.text') IS NOT NULL
ON CONFLICT DO NOTHING

-- name: remove_oldest
DELETE FROM requests WHERE id IN (SELECT id FROM requests ORDER BY ended LIMIT :count)

-- name: remove_orphans
DELETE FROM request_texts WHERE last < coalesce((SELECT min(id) FROM requests), last + 1)

-- name: latest
SELECT row FROM known WHERE {where} ORDER BY ended DESC, id DESC LIMIT :limit

-- name: search
-- A part of a name, a title or one of the latest texts, in small or capital letters.
(instr(lower(coalesce(conversation, '') || ' ' || coalesce(request_id, '') || ' ' || coalesce(tenant, '') || ' ' ||
    coalesce(session, '') || ' ' || coalesce(agent, '') || ' ' || coalesce(task, '') || ' ' || coalesce(model, '') ||
    ' ' || coalesce(chain, '') || ' ' || coalesce(key, '') || ' ' || coalesce(title, '')), lower(:words)) > 0
  OR conversation IN (
    SELECT r.conversation FROM requests r, (
      SELECT tenant, key FROM request_texts WHERE instr(lower(text), lower(:words)) > 0 ORDER BY last DESC LIMIT 20
    ) t WHERE r.tenant = t.tenant AND instr(r.row, t.key) > 0
  ))

-- name: conversations
SELECT json_object('id', conversation, 'tenant', max(tenant), 'title', max(title),
  'keys', json_group_array(DISTINCT key) FILTER (WHERE key IS NOT NULL),
  'session', max(session), 'agent', max(agent), 'task', max(task), 'started', min(started), 'ended', max(ended),
  'turns', coalesce(max(turn), count(*)), 'recorded', count(*),
  'models', json_group_array(DISTINCT model) FILTER (WHERE model IS NOT NULL),
  'chains', json_group_array(DISTINCT chain) FILTER (WHERE chain IS NOT NULL),
  'input_tokens', sum(input_tokens), 'cached_tokens', sum(cached_tokens), 'written_tokens', sum(written_tokens),
  'output_tokens', sum(output_tokens), 'usd_saved', sum(usd_saved), 'usd', sum(cost),
  'usd_unchanged', sum(cost) + sum(usd_saved),
  'problems', json_object('errors', sum(errors), 'refused', sum(refused), 'failed_steps', sum(failed_steps),
    'prefix_breaks', sum(prefix_breaks)))
FROM known WHERE conversation IN (
  SELECT conversation FROM requests
  WHERE conversation IN (SELECT conversation FROM known WHERE conversation IS NOT NULL AND {where})
  GROUP BY conversation HAVING max(ended) < :before ORDER BY max(ended) DESC, max(id) DESC LIMIT :limit
)
GROUP BY conversation ORDER BY max(ended) DESC, max(id) DESC

-- name: curve
SELECT tokens_before, tokens_after FROM requests WHERE conversation = :id AND tokens_after IS NOT NULL
ORDER BY ended, id

-- name: verdicts
SELECT policy, verdict, why, count(*), sum(saved), sum(usd_saved)
FROM steps WHERE id IN (SELECT id FROM known WHERE {where} ORDER BY ended DESC LIMIT :most) GROUP BY 1, 2, 3

-- name: times
SELECT policy, min(CASE WHEN place >= 0.5 THEN ms END), min(CASE WHEN place >= 0.95 THEN ms END) FROM (
  SELECT policy, ms, cume_dist() OVER (PARTITION BY policy ORDER BY ms) AS place FROM steps
  WHERE verdict <> 'skip' AND id IN (SELECT id FROM known WHERE {where} ORDER BY ended DESC LIMIT :most)
) GROUP BY policy

-- name: span
SELECT CAST(strftime('%s', min(ended)) AS INTEGER), CAST(strftime('%s', max(ended)) AS INTEGER)
FROM (SELECT ended FROM known WHERE {where} ORDER BY ended DESC LIMIT :most)

-- name: periods
SELECT {name}, json_object('start', CAST(strftime('%s', ended) AS INTEGER) / :length * :length, 'requests', count(*),
  'errors', sum(errors), 'usd', sum(cost), 'usd_saved', sum(usd_saved), 'input_tokens', sum(input_tokens),
  'cached_tokens', sum(cached_tokens))
FROM {source} WHERE id IN (SELECT id FROM known WHERE {where} ORDER BY ended DESC LIMIT :most)
GROUP BY 1, CAST(strftime('%s', ended) AS INTEGER) / :length ORDER BY min(ended)

-- name: rows
SELECT row FROM known WHERE {where} ORDER BY id
