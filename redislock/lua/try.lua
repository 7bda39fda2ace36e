-- One attempt. ARGV: base, clock, attempt, ttl, tail, floor, confirm.
local attempt, ttl, tail, floor, confirm = ARGV[3], ARGV[4], ARGV[5], ARGV[6], ARGV[7]

local value, why = redis.call('GET', LOCK), nil -- so far nothing
if not value and redis.call('EXISTS', QUEUE) == 1 then -- so far nothing
  value, why = hand_on(attempt) -- those who wait come first
  if why then return {EXHAUSTED, why} end
end
if not value then
  local token
  value, token, why = give(attempt, ttl, TRIED, tail, floor)
  if why then return {EXHAUSTED, why} end
  return {GRANTED, token}
end
if mine(value, attempt) then return found(value, confirm) end
return held(value, 0)
