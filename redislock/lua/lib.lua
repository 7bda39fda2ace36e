-- What the scripts that may grant have in common. It stands before each of them.
--
-- ARGV[1] are the terms of a grant, empty where tokens are drawn by counting alone and no
-- replica confirms: the namespace's token base, 1 if tokens never fall below the clock, 1 if
-- a grant is written again for a WAIT, and what the token has to be above.
-- Every script reads before it writes: a key of a wrong type stops it with nothing done.
-- "So far nothing" marks the calls before which no grant, no place and no end of one was
-- written: where the user lacks the permission for one of them, that is what is answered.

local LOCK, TOKEN, QUEUE, PLACES, LIVE = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local BASE, CLOCK, CONFIRM, FLOOR = '0', '0', '0', '0'
if ARGV[1] ~= '' then BASE, CLOCK, CONFIRM, FLOOR = string.match(ARGV[1], '^(%d+) (%d) (%d) (%d+)$') end

-- The first element of every answer but a grant's by a try: that is the token.
local FOUND, HELD, GONE, EXHAUSTED, DONE = 1, 2, 3, 4, 5

-- How a grant came about: for the whole ttl by a try, or by the queue.
local TRIED, QUEUED = 't', 'q'

-- The longest horizon there is, in milliseconds: three poll intervals of 5 s.
local LONGEST = 15000

local clock = redis.call('TIME') -- so far nothing
local micros = clock[1] * 1000000 + clock[2]
local millis = math.floor(micros / 1000)

-- reading is the clock as an answer shows it, rounded up: a grant never seems longer.
local function reading() return math.ceil(micros / 1000) end

-- less compares whole numbers as text: a double holds 53 bits only.
local function less(a, b)
  if #a ~= #b then return #a < #b end
  return a < b
end

-- draw raises the counter and returns it as text, or nil and why.
local function draw(floor)
  if CLOCK == '1' then
    local now = string.format('%.0f', micros)
    if less(floor, now) then floor = now end
  end
  if floor ~= '0' and less(redis.call('GET', TOKEN) or BASE, floor) then -- so far nothing
    redis.call('SET', TOKEN, floor) -- so far nothing
  end
  local n = redis.pcall('INCR', TOKEN)
  if n == 1 and BASE ~= '0' then -- the first ever: tokens begin above the base
    redis.call('SET', TOKEN, BASE) -- so far nothing
    n = redis.pcall('INCR', TOKEN)
  end
  if type(n) == 'table' then return nil, n.err end
  if n < 9007199254740992 then return string.format('%.0f', n) end
  return redis.call('GET', TOKEN) -- so far nothing
end

-- give makes the grant and returns the lock's value and the token, or why it cannot. Until
-- the first renewal the value has the ttl, with a minus, where it then has since when.
local function give(attempt, lasts, how, tail, floor)
  local token, why = draw(floor)
  if not token then return nil, nil, why end
  local value = table.concat({attempt, token, '-' .. lasts, how, tail}, ' ')
  redis.call('SET', LOCK, value, 'PX', lasts) -- so far nothing
  return value, token
end

-- mine reports whether a lock's value is the attempt's.
local function mine(value, attempt) return string.sub(value, 1, 32) == attempt end

-- found answers an attempt that has the key. Where replicas confirm, it is written again as it
-- is, so that a WAIT behind this script waits for the grant.
local function found(value)
  if CONFIRM == '1' then redis.call('SET', LOCK, value, 'KEEPTTL') end
  return {FOUND, value, redis.call('PEXPIRETIME', LOCK), reading()}
end

local function held(value, ahead)
  return {HELD, value, redis.call('PTTL', LOCK), reading(), ahead}
end

-- alive reports whether a place was heard of within its horizon.
local function alive(attempt, horizon)
  local seen = redis.call('ZSCORE', LIVE, attempt) -- so far nothing
  return seen and millis - seen < tonumber(horizon)
end

local function remove(attempt)
  redis.call('HDEL', PLACES, attempt)
  redis.call('ZREM', LIVE, attempt)
  return redis.call('ZREM', QUEUE, attempt)
end

-- first returns the first live place and what it asked for. Dead ones before it go.
local function first()
  while true do
    local attempt = redis.call('ZRANGE', QUEUE, 0, 0)[1] -- so far nothing
    if not attempt then return nil end
    local place = redis.call('HGET', PLACES, attempt) -- so far nothing
    if place then
      local horizon, claim, floor, channel, tail = string.match(place, '^(%d+) (%d+) (%d+) (%S+) (.*)$')
      if horizon and alive(attempt, horizon) then
        return {attempt = attempt, claim = claim, floor = floor, channel = channel, tail = tail}
      end
    end
    remove(attempt)
  end
end

-- hand_on gives the free key to the first live place, for its claim window, and tells it
-- unless it is the caller, who gets an answer. It returns the lock's value, or nil where
-- nobody live waits, or nil and why it cannot.
local function hand_on(caller)
  local place = first()
  if not place then return nil end
  local value, token, why = give(place.attempt, place.claim, QUEUED, place.tail, place.floor)
  if not value then return nil, why end
  remove(place.attempt)
  if place.attempt ~= caller then
    redis.call('PUBLISH', place.channel,
      place.attempt .. ' ' .. token .. ' ' .. string.format('%.0f', redis.call('PEXPIRETIME', LOCK)))
  end
  return value
end

-- extend makes a key last at least that long.
local function extend(key, lasts)
  if redis.call('PTTL', key) < tonumber(lasts) then redis.call('PEXPIRE', key, lasts) end
end

-- touch says that the place lives. Nothing of a queue outlives its longest horizon.
local function touch(attempt, horizon)
  redis.call('ZADD', LIVE, millis, attempt)
  extend(LIVE, horizon)
  extend(QUEUE, horizon)
  extend(PLACES, horizon)
end

