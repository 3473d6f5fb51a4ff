-- Decides requests of one key with the same scope and unit, one after the other, in one
-- step, for the key and its owner.
--
-- KEYS  1 lim:{owner}:<key>         2 lease:{owner}:<key>
--       3 lim:{owner}               4 lease:{owner}
--       5 lease:{owner}:<key>:video 6 lease:{owner}:video, only to begin videos
-- ARGV  1 record key          read only: not in KEYS, to which EVALSHA requires write
--                             access
--       2 owner limits key    read only; also has the state of the owner
--       3 scope, or empty
--       4 limit of a unit     "images_per_day"; empty: the requests cost tokens
--       5 expected time       Unix ms by the edge's own clock, or empty; earlier than
--                             this server's where its clock has jumped forward
--       6 calendar            the day and the month of budgets: `budget.lua`
--       7 source              that tells end users of the key apart, as far as the edge
--                             knows; empty: it knows of none
--       8 budgets             with which the lease of a request that has a price ends,
--                             after what it is to hold; empty: it ends with neither
--       then of each request
--       model, or empty
--       tokens to reserve     empty: only the key and its rights are checked
--       units to reserve      0: not known before it has run
--       lease id              empty: nothing is taken, the script only decides, for no
--                             end user
--       billionths to hold    of budgets of money; empty: the request has no price
--       client's address      32 hexadecimal digits; empty: it is not known
--
-- Returns a reply for each request:
--
--   {"unknown"} {"expired"} {"disabled"} {"scope"} {"model"} {"address"}
--   {"unpriced"}   there is a budget, which would not count a model without a price
--   {"calendar", now}  budgets are set, and the time is not in the calendar
--   {"end_user", source}  the edge has another source than the record of the key
--   {"empty"}      Redis holds no keys at all: its data was lost
--   {"ok", models} without tokens to reserve: comma-separated ids, empty: all
--   {"ok" | "limited", now, then for requests per minute and for tokens per minute:
--     limit (0: none), remaining, ms until nothing of it is used}
--     now          Unix ms of the server
--   "limited" is followed by which limit and a wait:
--     which        "key", "owner" or "user", a colon, "requests" "tokens" "day"
--                  "concurrency" "video_jobs", the limit of the unit, "budget_day"
--                  "budget_month" "budget_total", or "budget_held": the rest is held
--     wait         ms until all of the violated limits admit this request; -1: for ever
--   and, of a budget, by its name, the budget, what is spent, what is held, and when it
--   is reset, in Unix ms (0: never). "ok" is followed by what is held of budgets, if
--   any is set; by how the request waits for a slot, if the key or its account has a
--   weight or stands back: both weights in percent (0: not set), and 1 if it stands
--   back; by the seconds for which its answer is kept, if that is a default of the key;
--   and by the budgets that its lease should name, if it names others.
--
-- All or nothing: everything is checked before anything is taken. The tighter limit of
-- key and owner is reported. Layout of the state: `shared/keys/limiter_state.ts`.
--
-- - Requests: GCRA, up to a minute ahead: as many as the limit pass at once, then one
--   per interval.
-- - Tokens: the same with weights. A request larger than the bucket is admitted when it
--   is full; the rest is debt that later requests wait for.
-- - Day: a counter until midnight UTC; again, any request passes while it is 0.
-- - Concurrency: leases that have not expired. A video's outlasts its request.
--
-- If the server's clock was set back, the times in the state and of leases are moved
-- back with it, also by refusals: a key that is only refused must recover. If it has
-- jumped forward, leases count that had not expired by the clock of the edge.
--
-- The parts are in `admit`, and stand before this: load, decide, commit. Most tables
-- are made with all their fields, since a table that grows is made anew.
--
-- Constants: CALL LOAD DECIDE COMMIT REPLY

local function reply_to(request)
  local answer = DECIDE.rights(request)
  if answer then return answer end
  local sides = LOAD.sides_of(request.lease)
  local verdict = DECIDE.limits(sides, request)
  local is_admitted = not verdict.refused_by and request.lease ~= ''
  if is_admitted then COMMIT.take(sides, request, verdict) end
  return REPLY.make(verdict, request, LOAD.terms)
end

local refusal = LOAD.records()
local replies = {}
for _, request in ipairs(CALL.requests()) do
  replies[#replies + 1] = refusal or reply_to(request)
end
COMMIT.write()
return replies
