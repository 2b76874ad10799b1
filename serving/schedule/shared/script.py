"""The ledger's one rule, run by the server in one step. `serving/schedule/shared/footing.py` is its other half.

    granted := min(all pages - what others are granted, max(keep, want))         and the same for `alone`

Others: those whose grants have not expired, by the server's own clock. An asker uses no more than `keep` from before it asks
until it is answered, so a lost ask or answer only ever leaves the ledger with more on its books than is used.

A grant that lapsed goes to others only after the server has served without a gap for one life: after a restart, a freeze or
a step of its clock all gateways first tell what they hold (keep), and until then none gets more. An epoch only ever grows,
across restarts too: it starts from the server's time.
"""

GAP = 0.3
"""Part of a life without any call after which the server counts as having been away; each gateway calls every fifth of one."""

SCRIPT = """
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local book, id = KEYS[1], ARGV[1]
local life, epoch, number, by, pools, said = unpack(cjson.decode(ARGV[2]))
if by > 0 and now > by then return cjson.encode({now = now, late = true}) end

local served, mine, others, alive = nil, nil, {}, false
local all = redis.call('HGETALL', book)
for i = 1, #all, 2 do
  local name, ok, one = all[i], pcall(cjson.decode, all[i + 1])
  if ok and name == '*' and type(one) == 'table' and type(one.since) == 'number' and type(one.last) == 'number' then
    served = one
  elseif ok and type(one) == 'table' and type(one.ends) == 'number' and type(one.parts) == 'table' and one.ends > now then
    if one.ends > now + life and name ~= id then
      one.ends = now + life
      redis.call('HSET', book, name, cjson.encode(one))
    end
    if name == id then mine = one else others[name] = one; alive = true end
  else
    redis.call('HDEL', book, name)
  end
end

if served and served.life ~= life and alive then
  return redis.error_reply('LIFE other gateways have another ttl_s: ' .. served.life)
end
if not served or served.life ~= life then served = {life = life, since = now, last = now, epoch = 0} end
if now < served.last or now - served.last > GAP * life then served.since = now end
served.last = now
local settled = now >= served.since + life

if mine and number <= mine.number then return cjson.encode({now = now, late = true}) end
local lapsed = not mine or mine.epoch ~= epoch
if lapsed then
  epoch = math.max((served.epoch or 0) + 1, now)
  served.epoch = epoch
end

local function part(url, which, all_pages, keep, want)
  local free = all_pages
  for _, one in pairs(others) do
    local theirs = one.parts[url]
    if type(theirs) == 'table' and type(theirs[which]) == 'number' then free = free - theirs[which] end
  end
  return math.max(0, math.min(free, settled and math.max(keep, want) or keep))
end
local parts = {}
for url, one in pairs(pools) do
  parts[url] = {part(url, 1, one[1], one[2], one[3]), part(url, 2, one[1], one[4], one[5])}
end

redis.call('HSET', book, id, cjson.encode({ends = now + life, epoch = epoch, number = number, parts = parts, said = said}))
redis.call('HSET', book, '*', cjson.encode(served))
redis.call('PEXPIRE', book, 86400000)
return cjson.encode({now = now, epoch = epoch, lapsed = lapsed, parts = parts, others = others})
""".replace("GAP", str(GAP))

LEAVE = "return redis.call('HDEL', KEYS[1], ARGV[1])"
"""A gateway that has ended in order, and holds nothing any more."""

LIFE_NOW = """
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local life, alive = 0, false
local all = redis.call('HGETALL', KEYS[1])
for i = 1, #all, 2 do
  local ok, one = pcall(cjson.decode, all[i + 1])
  if ok and type(one) == 'table' then
    if all[i] == '*' then life = tonumber(one.life) or 0 elseif (tonumber(one.ends) or 0) > now then alive = true end
  end
end
return alive and life or 0
"""
"""How long the grants of those live who share now, milliseconds; 0: nobody does."""
