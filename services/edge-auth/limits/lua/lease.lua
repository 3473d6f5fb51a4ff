-- What the id of a lease says, for the scripts that admit, renew and settle: it stands
-- before them. `rate.ts` writes these ids.
--
--   <edge>.<number>~<terms>         of a request without an end user
--   <edge>.<number>.<id>~<terms>    of one of the end user with this id
--   ...~<amount> <budgets>          which holds something of budgets: `budget.lua`

-- The id of the end user; nil for a lease without one.
local function end_user_in(lease)
  return string.match(lease, '^[^.~]+%.[^.~]+%.(%x+)~')
end

-- What a lease says that its request holds of budgets; nil: nothing.
local function hold_in(lease) return string.match(lease, '~(%d+ [^~]*)$') end

-- The name of the mark of a request that was charged as lost.
local function mark_of(lease) return '!' .. lease end

return {
  end_user_in = end_user_in,
  hold_in = hold_in,
  mark_of = mark_of,
}
