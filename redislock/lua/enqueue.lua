-- A place at the end of the queue, or the key. Sent again, it finds what it made.
-- ARGV: terms, attempt, ttl, tail, horizon, claim, channel.
local attempt, ttl, tail, horizon, claim, channel = ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6], ARGV[7]

local value, why, _ = redis.call('GET', LOCK), nil, nil -- so far nothing
if not value then
  value, why = hand_on(attempt)
  if not value and not why then
    value, _, why = give(attempt, ttl, QUEUED, tail, FLOOR)
  end
  if why then return {EXHAUSTED, why} end
else
  first()
end
if mine(value, attempt) then return found(value) end

local place = redis.call('ZSCORE', QUEUE, attempt) -- so far nothing
if place and not alive(attempt, horizon) then
  remove(attempt) -- it was silent for too long, and others came meanwhile
  place = nil
end
if not place then
  local last = redis.call('ZRANGE', QUEUE, -1, -1, 'WITHSCORES') -- so far nothing
  redis.call('ZREMRANGEBYSCORE', LIVE, '-inf', millis - LONGEST) -- so far nothing
  redis.call('HSET', PLACES, attempt, table.concat({horizon, claim, FLOOR, channel, tail}, ' '))
  redis.call('ZADD', QUEUE, (last[2] or 0) + 1, attempt)
end
touch(attempt, horizon)
return held(value, redis.call('ZRANK', QUEUE, attempt))
