-- Adds up counters of usage, whatever their hour and model. Redis does it, because one
-- owner may have thousands of counters in a month.
--
-- KEYS  use:{owner}:…, any number of them
--
-- Returns requests, tokens and cost in billionths: exact up to 2^53, which is 9,007,199
-- units of the currency.
--
-- Constants: REQUESTS PROMPT_TOKENS COMPLETION_TOKENS COST

local requests, tokens, cost = 0, 0, 0
for _, key in ipairs(KEYS) do
  local counters = redis.call('HGETALL', key)
  for at = 1, #counters, 2 do
    -- `13:requests:<model>`, without the hour where a day has been added up
    local kind = string.match(counters[at], '^%d*:([%a_]+)')
    local count = counters[at + 1]
    if kind == REQUESTS then
      requests = requests + count
    elseif kind == PROMPT_TOKENS or kind == COMPLETION_TOKENS then
      tokens = tokens + count
    elseif kind == COST then
      cost = cost + count
    end
  end
end
return { requests, tokens, cost }
