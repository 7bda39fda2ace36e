-- Makes a grant last its ttl again, if the lock is still this attempt's with this token.
-- KEYS: lock. ARGV: attempt and token as the lock's value begins, ttl.
local value = redis.call('GET', KEYS[1]) -- so far nothing
if value and string.sub(value, 1, #ARGV[1]) == ARGV[1] then
  return redis.call('PEXPIRE', KEYS[1], ARGV[2]) -- so far nothing
end
return 0
