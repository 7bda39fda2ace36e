-- Shows one key and changes nothing. KEYS: lock, queue, places, live.
local clock = redis.call('TIME') -- so far nothing
local millis = math.floor(clock[1] * 1000 + clock[2] / 1000)
local PAGE = 1000 -- members at once: Lua's stack is finite

local waiters, from = 0, 0
while true do
  local attempts = redis.call('ZRANGE', KEYS[2], from, from + PAGE - 1) -- so far nothing
  if #attempts == 0 then break end
  local places = redis.call('HMGET', KEYS[3], unpack(attempts)) -- so far nothing
  local seen = redis.call('ZMSCORE', KEYS[4], unpack(attempts)) -- so far nothing
  for i = 1, #attempts do
    local horizon = places[i] and string.match(places[i], '^(%d+) ')
    if horizon and seen[i] and millis - seen[i] < tonumber(horizon) then waiters = waiters + 1 end
  end
  from = from + PAGE
end
return {redis.call('GET', KEYS[1]) or '', redis.call('PTTL', KEYS[1]), millis, waiters} -- so far nothing
