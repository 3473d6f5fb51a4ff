-- What the script that admits answers for one request: it stands before it.

local REPLY = {}

local MINUTE_MS = 60000

local function spend(rate, cost)
  if rate.limit == 0 then return end
  rate.remaining = math.max(0, rate.remaining - cost)
  rate.reset = rate.reset + cost * MINUTE_MS / rate.limit
end

-- What an admitted request takes shows in the rates of its own reply.
function REPLY.of(verdict, tokens, now_unix, queue)
  if not verdict.refused_by then
    spend(verdict.requests, 1)
    spend(verdict.tokens, tokens)
  end
  local by_request, by_token, budget = verdict.requests, verdict.tokens, verdict.budget
  local reply = {
    verdict.refused_by and 'limited' or 'ok', now_unix,
    by_request.limit, by_request.remaining, math.ceil(by_request.reset),
    by_token.limit, by_token.remaining, math.ceil(by_token.reset),
    verdict.refused_by or verdict.hold,
  }
  if not verdict.refused_by then
    -- `false` is a null in the reply: nil would end it.
    if queue then reply[9], reply[10] = verdict.hold or false, queue end
    return reply
  end
  table.insert(reply, verdict.wait == math.huge and -1 or math.ceil(verdict.wait))
  if budget then
    for _, word in ipairs({ budget.name, budget.limit, budget.spent, budget.held,
      budget.ends_at or 0 }) do
      table.insert(reply, word)
    end
  end
  return reply
end
