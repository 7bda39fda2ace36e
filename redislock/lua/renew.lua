-- Makes grants last their ttl again, each whose lock is still its attempt's with its token.
-- KEYS: their locks. ARGV: the ttl, and of each attempt and token as the lock's value begins.
-- The answer has for each 1, 0 if it is over, or the text of a command's error: then nothing
-- was written of it. An error as such inside of an answer makes the client lose its place.
local ttl = ARGV[1]

local function renew(lock, head)
  local value = redis.pcall('GET', lock)
  if type(value) == 'table' then return value.err end
  if not value or string.sub(value, 1, #head) ~= head then return 0 end
  local lasts, rest = string.match(value, '^%-(%d+)( .*)$', #head + 1)
  if lasts then -- the first renewal notes since when: the expiry will not tell it any more
    local expiry = redis.pcall('PEXPIRETIME', lock)
    if type(expiry) == 'table' then return expiry.err end
    local set = redis.pcall('SET', lock, head .. string.format('%.0f', expiry - lasts) .. rest, 'PX', ttl)
    return set.err or 1
  end
  local set = redis.pcall('PEXPIRE', lock, ttl)
  return type(set) == 'table' and set.err or set
end

local answers = {}
for i = 1, #KEYS do answers[i] = renew(KEYS[i], ARGV[i + 1]) end
return answers
