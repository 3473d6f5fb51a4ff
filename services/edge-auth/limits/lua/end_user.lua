-- End users of a key, for the scripts that admit and settle: it stands before them.
-- They have a state like that of a key, by an id that the edge computes:
--
--   lim:{owner}:<key>:<id>              as that of a key
--   spend:{owner}:<key>:<id>:<window>   as that of a key
--   users:{owner}:<key>                 their ids, by the last admission
--
-- The id of a lease names the end user: "<edge>.<number>.<id>~<terms>".
--
-- Constants: END_USERS_MAX END_USER_TTL_MS BUDGET LEASE

local function state_key(limiter_key, id) return limiter_key .. ':' .. id end

-- Where budgets of a lease count, by whose they are.
local function limiter_keys(key, owner, lease)
  local id = LEASE.end_user_in(lease)
  return { key = key, owner = owner, user = id and state_key(key, id) }
end

-- Reads what a record has: the source that tells end users apart, and of each of them
-- the requests and tokens per minute and the budget of a day.
local function read(text)
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
    values = { budget },
    budgets_from = 1,
  }
end

-- Forgets the least recently used beyond the bound.
local function forget_oldest(limiter_key, index, window)
  local excess = redis.call('ZCARD', index) - END_USERS_MAX
  if excess <= 0 then return end
  local gone = redis.call('ZRANGEBYSCORE', index, '-inf', '+inf', 'LIMIT', 0, excess)
  for _, id in ipairs(gone) do
    redis.call('ZREM', index, id)
    local user_key = state_key(limiter_key, id)
    redis.call('PEXPIRE', user_key, 0)
    if window then redis.call('EXPIRE', BUDGET().spend_key(user_key, window), 0) end
  end
end

-- Notes that an end user was admitted. `window` is the present one of its budget; nil
-- if it has none.
local function touch(limiter_key, user, window)
  local index = 'users' .. string.sub(limiter_key, #'lim' + 1)
  local is_new = redis.call('ZADD', index, user.now, user.id) == 1
  if is_new or user.is_new_minute then
    redis.call('PEXPIRE', index, END_USER_TTL_MS)
  end
  if is_new then forget_oldest(limiter_key, index, window) end
end

return {
  state_key = state_key,
  limiter_keys = limiter_keys,
  read = read,
  touch = touch,
}
