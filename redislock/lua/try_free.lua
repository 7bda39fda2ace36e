-- A try of a free key for which nobody waits, where tokens are drawn by counting alone. It
-- stands before lib.lua: making that file's functions, which every run does anew, takes as
-- long as all of this. Whatever is not as simple goes on to try.lua, with nothing done.
-- ARGV: base, clock, attempt, ttl, tail, floor.
if ARGV[1] == '0' and ARGV[2] == '0' and ARGV[6] == '0' and redis.call('EXISTS', KEYS[1], KEYS[3]) == 0 then -- so far nothing
  local n = redis.pcall('INCR', KEYS[2])
  if type(n) == 'number' then
    local token = string.format('%.0f', n)
    if n >= 9007199254740992 then token = redis.call('GET', KEYS[2]) end -- so far nothing
    local clock = redis.call('TIME') -- so far nothing
    local value = table.concat({ARGV[3], token, clock[1] .. string.format('%06d', clock[2]), 't', ARGV[5]}, ' ')
    redis.call('SET', KEYS[1], value, 'PX', ARGV[4]) -- so far nothing
    return {0, token}
  end
end
