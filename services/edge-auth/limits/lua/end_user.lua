-- End users of a key, for the scripts that admit and settle: it stands before them.
-- They have a state like that of a key, by an id that the edge computes:
--
--   lim:{owner}:<key>:<id>              as that of a key
--   spend:{owner}:<key>:<id>:<window>   as that of a key
--   users:{owner}:<key>                 their ids, by the last admission
--
-- The id of a lease names the end user: "<edge>.<number>.<id>~<terms>".
--
-- Constants: END_USERS_MAX END_USER_TTL_MS BUDGET

local END_USER = { TTL_MS = END_USER_TTL_MS }

-- The id in a lease; nil for one without.
function END_USER.id_in(lease) return string.match(lease, '^[^.~]+%.[^.~]+%.(%x+)~') end

function END_USER.state_key(limiter_key, id) return limiter_key .. ':' .. id end

-- Where budgets of a lease count, by whose they are.
function END_USER.limiter_keys(key, owner, lease)
  local id = END_USER.id_in(lease)
  return { key = key, owner = owner, user = id and END_USER.state_key(key, id) }
end

-- Reads what a record has: by what end users are told apart, the requests and tokens
-- per minute and the budget of a day of each.
function END_USER.read(text)
  if not text or text == '' then return { from = '', budget_day = 0 } end
  local from, requests, tokens, budget = string.match(text, '^(%S+) (%d+) (%d+) (%d+)$')
  if not from then error('corrupt end users in the record of a key') end
  return {
    from = from,
    requests_per_minute = tonumber(requests),
    tokens_per_minute = tonumber(tokens),
    tokens_per_day = 0,
    concurrency = 0,
    video_jobs = 0,
    units_per_day = 0,
    budget_day = tonumber(budget),
    budget_month = 0,
    budget_total = 0,
  }
end

-- Notes that these were admitted. Beyond the bound, forgets the least recently used.
-- `window` is the present one of their budgets; nil if they have none.
function END_USER.touch(limiter_key, ids, now, window)
  local index = 'users' .. string.sub(limiter_key, #'lim' + 1)
  for id in pairs(ids) do redis.call('ZADD', index, now, id) end
  redis.call('PEXPIRE', index, END_USER_TTL_MS)
  local excess = redis.call('ZCARD', index) - END_USERS_MAX
  if excess <= 0 then return end
  local gone = redis.call('ZRANGEBYSCORE', index, '-inf', '+inf', 'LIMIT', 0, excess)
  for _, id in ipairs(gone) do
    redis.call('ZREM', index, id)
    local state_key = END_USER.state_key(limiter_key, id)
    redis.call('PEXPIRE', state_key, 0)
    if window then redis.call('EXPIRE', BUDGET.spend_key(state_key, window), 0) end
  end
end
