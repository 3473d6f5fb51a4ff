-- Lets a running request hold more of budgets, as far as they have something left. It
-- says how much that is to be in all, so a call that is repeated changes nothing.
--
-- KEYS  1 lim:{owner}:<key>   2 lim:{owner}
-- ARGV  1 lease id   2 billionths to hold
--
-- Returns the billionths that it holds; nil: it has ended, or was charged as lost.
--
-- Constants: BUDGET END_USER

local limiter_keys = END_USER.limiter_keys(KEYS[1], KEYS[2], ARGV[1])
return BUDGET.raise(limiter_keys, ARGV[1], tonumber(ARGV[2]))
