-- One attempt. ARGV: terms, attempt, ttl, tail.
local attempt, ttl, tail = ARGV[2], ARGV[3], ARGV[4]

local value, why = redis.call('GET', LOCK), nil -- so far nothing
if not value and redis.call('EXISTS', QUEUE) == 1 then -- so far nothing
  value, why = hand_on(attempt) -- those who wait come first
  if why then return {EXHAUSTED, why} end
end
if not value then
  local token
  value, token, why = give(attempt, ttl, TRIED, tail, FLOOR)
  if why then return {EXHAUSTED, why} end
  return token
end
if mine(value, attempt) then return found(value) end
return held(value, 0)
