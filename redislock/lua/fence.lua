-- Runs one command if no greater token was seen. KEYS: mark, value.
-- ARGV: token, whether it raises the mark, the command, and one more that every script has.
-- The answer begins with the mark that stands against the token, or with an empty string.
-- The text of an error of the command comes third: only the mark was raised then. As such it
-- would make the client lose its place in the answer.
local token = ARGV[1]

local mark = redis.call('GET', KEYS[1]) or '0' -- so far nothing
if not string.match(mark, '^%d+$') then return {'no number: ' .. mark} end
if #token < #mark or (#token == #mark and token < mark) then return {mark} end
if ARGV[2] == '1' and token ~= mark then redis.call('SET', KEYS[1], token) end -- so far nothing
if #ARGV < 4 then return {''} end
local reply = redis.pcall(unpack(ARGV, 3, #ARGV - 1))
if type(reply) == 'table' and reply.err then return {'', false, reply.err} end
return {'', reply}
