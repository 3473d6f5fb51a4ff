import {
  LIMITER_FIELDS,
  USAGE_KINDS,
} from "@gateway/shared/keys/limiter_state";
import { defineScript, type RedisScript } from "@gateway/shared/redis/script";

/**
 * One page of keys from the search index, with today's counters.
 *
 * Looks at no more than `scanMax` members of the index, so its time is bounded
 * whatever an owner has stored; a search for something rare among many comes
 * back with fewer rows and the place to go on from.
 *
 * KEYS: 1 `find:{owner}`.
 * ARGV: 1 the query as JSON: `from`, `to` (lexical bounds), `backward`, `size`,
 * `scanMax`, `batch`, `state` ("" for any), `expires` (only keys with an end), `words` (each must begin a word of
 * the key), `prefix` (the word the range belongs to, "" for tags), `counted`,
 * `wholeFrom`, `wholeTo`, `owner`, `day`.
 * Reply: `{ total or -1, members before the first row or -1, 1 if the end of the
 * range was reached, the last member looked at, rows }`; a row is
 * `{ member, key id, record fields, last use, requests, tokens }`.
 */
export const PAGE_SCRIPT: RedisScript = defineScript(
  "key-admin/page",
  `
local q = cjson.decode(ARGV[1])
local recordPrefix = 'key:{' .. q.owner .. '}:'

-- A key with "api" and "apis" is in the range of "ap" twice: only its first word counts.
local function isFirstWord(words, term)
  for word in string.gmatch(words, '%S+') do
    if string.sub(word, 1, #q.prefix) == q.prefix then return word == term end
  end
  return false
end
local function matches(key, term)
  if q.state == '' and not q.expires and #q.words == 0 and q.prefix == '' then return true end
  local fields = redis.call('HMGET', recordPrefix .. key, 'state', 'words', 'expires_at')
  if not fields[1] then return false end
  if q.expires and fields[3] == '0' then return false end
  if q.state ~= '' and fields[1] ~= q.state then return false end
  local words = fields[2] or ''
  for _, word in ipairs(q.words) do
    if not string.find(words, ' ' .. word, 1, true) then return false end
  end
  return q.prefix == '' or isFirstWord(words, term)
end

local found, scanned, atEnd, last = {}, 0, 0, ''
local from, to = q.from, q.to
while #found < q.size and scanned < q.scanMax do
  local members
  if q.backward then
    members = redis.call('ZREVRANGEBYLEX', KEYS[1], to, from, 'LIMIT', 0, q.batch)
  else
    members = redis.call('ZRANGEBYLEX', KEYS[1], from, to, 'LIMIT', 0, q.batch)
  end
  for _, member in ipairs(members) do
    if #found == q.size then break end
    scanned = scanned + 1
    last = member
    local term, key = string.match(member, '^([^/]*)/[^/]*/(.*)$')
    if key and matches(key, term) then table.insert(found, { member, key }) end
  end
  if #members < q.batch and (last == members[#members] or #members == 0) then
    atEnd = 1
    break
  end
  if q.backward then to = '(' .. last else from = '(' .. last end
end

local function today(key)
  local requests, tokens = 0, 0
  local usage = redis.call('HGETALL', 'use:{' .. q.owner .. '}:' .. key .. ':' .. q.day)
  for at = 1, #usage, 2 do
    local kind, count = string.sub(usage[at], 4), tonumber(usage[at + 1]) or 0
    if kind == '${USAGE_KINDS.requests}' then requests = requests + count end
    if kind == '${USAGE_KINDS.promptTokens}' or kind == '${USAGE_KINDS.completionTokens}' then
      tokens = tokens + count
    end
  end
  return requests, tokens
end

local rows = {}
for _, row in ipairs(found) do
  local key = row[2]
  local requests, tokens = today(key)
  table.insert(rows, {
    row[1], key,
    redis.call('HGETALL', recordPrefix .. key),
    redis.call('HGET', 'lim:{' .. q.owner .. '}:' .. key, '${LIMITER_FIELDS.lastUsedAtMs}') or '0',
    string.format('%.0f', requests), string.format('%.0f', tokens)
  })
end

local total, before = -1, -1
if q.counted then
  total = redis.call('ZLEXCOUNT', KEYS[1], q.wholeFrom, q.wholeTo)
  if #rows > 0 then
    local first = q.backward and rows[#rows][1] or rows[1][1]
    before = redis.call('ZLEXCOUNT', KEYS[1], q.wholeFrom, '(' .. first)
  end
end
return { total, before, atEnd, last, rows }
`,
);
