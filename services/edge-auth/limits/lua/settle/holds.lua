-- What requests held of budgets, and those that were charged as lost, for the script
-- that settles. The layout is described in `lua/budget.lua`.
--
-- Constants: CALL BUDGET SPENDING END_USER LEASE HOLDS_TTL_MS LOST_HOLD_MS

local call = redis.call

local sum = CALL.sum
local hold_key = BUDGET().hold_key(KEYS[1])

-- Changes of budgets, one for all requests that held something of the same ones: in a
-- list, and by the names of the end user and the budgets.
local changes = {}
-- What is kept beside leases and is over: leases, and marks of those charged as lost.
local ended_holds = {}

local function change_of(request, budgets)
  local name = request.user and request.user .. budgets or budgets
  local change = changes[name]
  if not change then
    change = { lease = request.lease, budgets = budgets, held = 0, spent = 0 }
    changes[name] = change
    changes[#changes + 1] = change
  end
  return change
end

-- Drops what was charged as lost long ago. Requests are lost so seldom that it may read
-- all that is held.
local function drop_old_marks()
  local now = CALL.now()
  local holds = call('HGETALL', hold_key)
  for at = 1, #holds, 2 do
    local charged_at = string.match(holds[at + 1], ' @(%d+)$')
    if charged_at and now - charged_at > LOST_HOLD_MS then
      call('HDEL', hold_key, holds[at])
    end
  end
end

-- Writes what changed.
local function write()
  for _, change in ipairs(changes) do
    local limiter_keys = END_USER().limiter_keys(KEYS[1], KEYS[3], change.lease)
    SPENDING().change(limiter_keys, change.budgets, change)
  end
  if #ended_holds > 0 then call('HDEL', hold_key, unpack(ended_holds)) end
  if sum.lost > 0 then drop_old_marks() end
end

-- Charges a request that held something of budgets. Returns its cost, which is what it
-- held if its edge is lost.
local function charge(request, held, budgets)
  local cost = request.cost
  if request.is_lost and budgets ~= '' then cost = held end
  local change = change_of(request, budgets)
  change.held, change.spent = change.held - held, change.spent + cost
  return cost
end

-- Takes back what a request was charged as lost. Returns what it costs beyond that.
local function charge_rest(request, charged)
  local amount, budgets = BUDGET().parts(charged)
  local cost = request.cost - amount
  local change = change_of(request, budgets)
  change.spent = change.spent + cost
  ended_holds[#ended_holds + 1] = LEASE.mark_of(request.lease)
  sum.lost_cost = sum.lost_cost - amount
  return cost
end

-- Keeps what a request was charged as lost until its edge may have settled it.
local function mark_lost(lease, hold)
  local mark = string.format('%s @%.0f', hold, CALL.now())
  call('HSET', hold_key, LEASE.mark_of(lease), mark)
  call('PEXPIRE', hold_key, HOLDS_TTL_MS)
end

-- Settles what a request held of budgets, which may be kept beside its lease. If Redis
-- has lost the lease, it has lost what that held, too. Returns its cost.
local function settle_kept(request, hold)
  local lease = request.lease
  if hold.charged and not hold.kept then
    return request.is_lost and request.cost or charge_rest(request, hold.charged)
  end
  local text = hold.kept or request.had_lease and LEASE.hold_in(lease)
  if not text then return request.cost end
  if hold.kept then ended_holds[#ended_holds + 1] = lease end
  local held, budgets = BUDGET().parts(text)
  if request.is_lost and budgets ~= '' then mark_lost(lease, text) end
  return charge(request, held, budgets)
end

-- What a request holds as its lease says; nil: what is kept beside it must be read.
local function amount_held(request)
  return request.had_lease and tonumber(request.hold) or nil
end

-- Reads what is kept beside the leases of requests, where that may matter, by lease:
-- the text of what one holds, and of what it was charged as lost; false: nothing.
local function read_kept(requests)
  local kept, leases, fields = {}, {}, {}
  for _, request in ipairs(requests) do
    local lease = request.lease
    if request.hold ~= '' and not amount_held(request) then
      leases[#leases + 1] = lease
      fields[#fields + 1] = lease
      fields[#fields + 1] = LEASE.mark_of(lease)
    end
  end
  if #leases == 0 then return kept end
  local texts = call('HMGET', hold_key, unpack(fields))
  for nth, lease in ipairs(leases) do
    kept[lease] = { kept = texts[2 * nth - 1], charged = texts[2 * nth] }
  end
  return kept
end

-- Settles what requests held. Their costs become what they are charged.
local function settle(requests)
  local kept = read_kept(requests)
  for _, request in ipairs(requests) do
    local held = request.hold ~= '' and amount_held(request)
    local hold = request.hold ~= '' and kept[request.lease]
    if held then
      request.cost = charge(request, held, CALL.lease_budgets)
    elseif hold then
      request.cost = settle_kept(request, hold)
    end
    -- A lease that is named twice holds nothing the second time.
    kept[request.lease] = nil
  end
end

-- Takes back what a request was charged when its edge was taken for lost.
local function take_back(lease)
  local charged_in, prompt, completion, count, cost, unpriced = string.match(lease,
    '^[^~]+~%d%d%d%d%d%d%d%d(%d%d)~(%d+)~(%d+)~%w*~(%d+)~(%d+)~([01])~')
  if not prompt then return end
  if sum.hour == '' then sum.hour = charged_in end
  sum.requests, sum.lost = sum.requests - 1, sum.lost - 1
  sum.prompt_tokens = sum.prompt_tokens - prompt
  sum.completion_tokens = sum.completion_tokens - completion
  sum.units = sum.units - count
  sum.unpriced = sum.unpriced - unpriced
  -- `settle_kept` takes back what it held of budgets.
  if call('HEXISTS', hold_key, LEASE.mark_of(lease)) == 1 then return end
  sum.cost, sum.lost_cost = sum.cost - cost, sum.lost_cost - cost
end

return {
  settle = settle,
  take_back = take_back,
  write = write,
}
