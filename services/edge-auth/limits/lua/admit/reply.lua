-- What the script that admits answers for one request: it stands before its parts.
--
-- Constants: CALL

local MINUTE_MS = 60000

-- The limit of a meter, what remains of it, and the ms until nothing of it is used,
-- after a cost.
local function rate_after(meter, cost)
  if not meter then return 0, 0, 0 end
  local remaining = math.max(0, meter.remaining - cost)
  return meter.limit, remaining, math.ceil(meter.reset + cost * MINUTE_MS / meter.limit)
end

local function refusal_of(verdict)
  local refused_by, wait = verdict.refused_by, verdict.wait
  local requests, requests_left, requests_reset = rate_after(verdict.requests, 0)
  local tokens, tokens_left, tokens_reset = rate_after(verdict.tokens, 0)
  local which = refused_by.who .. ':' .. refused_by.name
  local wait_ms = wait == math.huge and -1 or math.ceil(wait)
  local budget = refused_by.budget
  if not budget then
    return { 'limited', CALL.now_unix, requests, requests_left, requests_reset, tokens,
      tokens_left, tokens_reset, which, wait_ms }
  end
  return { 'limited', CALL.now_unix, requests, requests_left, requests_reset, tokens,
    tokens_left, tokens_reset, which, wait_ms, budget.name, budget.limit, budget.spent,
    budget.held, budget.ends_at or 0 }
end

-- The rates of a reply include what its own request takes. `terms`: how the requests of
-- the key differ from those of others.
local function make(verdict, request, terms)
  if verdict.refused_by then return refusal_of(verdict) end
  local requests, requests_left, requests_reset = rate_after(verdict.requests, 1)
  local tokens, tokens_left, tokens_reset = rate_after(verdict.tokens, request.tokens)
  local budgets = verdict.budgets
  if not terms and not budgets then
    return { 'ok', CALL.now_unix, requests, requests_left, requests_reset, tokens,
      tokens_left, tokens_reset, verdict.hold }
  end
  -- `false` is a null in the reply: nil would end it.
  return { 'ok', CALL.now_unix, requests, requests_left, requests_reset, tokens,
    tokens_left, tokens_reset, verdict.hold or false, terms and terms.queue or false,
    terms and terms.keep_seconds or false, budgets }
end

return {
  make = make,
}
