-- Asks after a place and keeps it alive. It never enqueues and never extends a grant.
-- ARGV: terms, attempt, horizon.
local attempt, horizon = ARGV[2], ARGV[3]

local value, why = redis.call('GET', LOCK), nil -- so far nothing
if not value then
  value, why = hand_on(attempt)
  if why then return {EXHAUSTED, why} end
else
  first()
end
if value and mine(value, attempt) then return found(value) end
if not value or not redis.call('ZSCORE', QUEUE, attempt) then return {GONE} end
if not alive(attempt, horizon) then
  remove(attempt)
  return {GONE}
end
touch(attempt, horizon)
return held(value, redis.call('ZRANK', QUEUE, attempt))
