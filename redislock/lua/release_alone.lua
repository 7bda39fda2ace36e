-- The end of a grant for which nobody waits. It stands before lib.lua as try_free.lua does.
-- ARGV: terms, attempt.
local value = redis.call('GET', KEYS[1]) -- so far nothing
if value and string.sub(value, 1, 32) == ARGV[2] and redis.call('EXISTS', KEYS[3]) == 0 then -- so far nothing
  redis.call('DEL', KEYS[1]) -- so far nothing
  return 1
end
