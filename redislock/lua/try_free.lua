-- A try of a free key for which nobody waits, where tokens are drawn by counting alone. It
-- stands before lib.lua: making that file's functions, which every run does anew, takes as
-- long as all of this. Whatever is not as simple goes on to try.lua, with nothing done.
-- ARGV: as try.lua's.
if ARGV[1] == '' and redis.call('EXISTS', KEYS[1], KEYS[3]) == 0 then -- so far nothing
  local n = redis.pcall('INCR', KEYS[2])
  if type(n) == 'number' then
    local token = string.format('%.0f', n)
    if n >= 9007199254740992 then token = redis.call('GET', KEYS[2]) end -- so far nothing
    redis.call('SET', KEYS[1], ARGV[2] .. ' ' .. token .. ' -' .. ARGV[3] .. ' t ' .. ARGV[4], 'PX', ARGV[3]) -- so far nothing
    return token
  end
end
