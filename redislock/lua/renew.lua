-- Makes grants last their ttl again, each whose lock is still its attempt's with its token.
-- KEYS: their locks. ARGV: the ttl, and of each attempt and token as the lock's value begins.
-- The answer has for each 1, 0 if it is over, or the error of a command: then nothing was
-- written of it.
local ttl = ARGV[1]

local function renew(lock, head)
  local value = redis.pcall('GET', lock)
  if type(value) == 'table' then return value end
  if not value or string.sub(value, 1, #head) ~= head then return 0 end
  local lasts, rest = string.match(value, '^%-(%d+)( .*)$', #head + 1)
  if lasts then -- the first renewal notes since when: the expiry will not tell it any more
    local expiry = redis.pcall('PEXPIRETIME', lock)
    if type(expiry) == 'table' then return expiry end
    local set = redis.pcall('SET', lock, head .. string.format('%.0f', expiry - lasts) .. rest, 'PX', ttl)
    return set.err and set or 1
  end
  return redis.pcall('PEXPIRE', lock, ttl)
end

local answers = {}
for i = 1, #KEYS do answers[i] = renew(KEYS[i], ARGV[i + 1]) end
return answers
