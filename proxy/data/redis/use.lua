-- Whether a value is one of ours; where it is not, the caller repairs it, so nothing may have been written before.
local function ours(value)
  return #value >= 16 and not string.find(string.sub(value, 1, 16), '%D')
end
local foreign = redis.error_reply('WRONGTYPE not written by Penstock')
-- What can be read is worth more than its next day: where the use cannot be noted, it is read all the same.
local function use(key, value, ttl)
  local used = tonumber(string.sub(value, 1, 16))
  if ttl > 0 and used and tonumber(now) - used > math.min(60e6, ttl * 100) then
    redis.pcall('PEXPIRE', key, ttl)
    redis.pcall('SETRANGE', key, 0, now)
  end
end
