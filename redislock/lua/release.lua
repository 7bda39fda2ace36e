-- Ends whatever the attempt has, its grant or its place, and hands the key on.
-- ARGV: terms, attempt. The token is not compared: attempts are unique.
local attempt = ARGV[2]

local value = redis.call('GET', LOCK) -- so far nothing
local had = 0
if value and mine(value, attempt) then
  redis.call('DEL', LOCK) -- so far nothing
  value, had = nil, 1
elseif redis.call('EXISTS', QUEUE) == 1 then -- so far nothing
  had = remove(attempt)
end
if not value and redis.call('EXISTS', QUEUE) == 1 then
  pcall(hand_on, nil) -- whatever is wrong with the queue, the release stands
end
return had
