-- Takes the grant's right to renew: another attempt stands in its place until its expiry.
-- ARGV: terms, token, now, the attempt to put there, what to add to the note.
local token, now, nobody, added = ARGV[2], ARGV[3], ARGV[4], ARGV[5]

local value = redis.call('GET', LOCK) -- so far nothing
if not value then return {GONE} end
local _, has, since, how, length, rest = string.match(value, '^(%x+) (%d+) (%-?%d+) (%a) (%d+) (.*)$')
if has ~= token then return held(value, 0) end
if now == '1' then
  redis.call('DEL', LOCK) -- so far nothing
  pcall(hand_on, nil)
elseif how ~= 'b' then
  if #rest > tonumber(length) then added = '; ' .. added end
  redis.call('SET', LOCK, table.concat({nobody, token, since, 'b', length, rest .. added}, ' '), 'KEEPTTL') -- so far nothing
end
return {DONE}
