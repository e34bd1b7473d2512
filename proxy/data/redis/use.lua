-- What can be read is worth more than its next day: where the use cannot be noted, it is read all the same.
local function use(key, value, ttl)
  local used = tonumber(string.sub(value, 1, 16))
  if ttl > 0 and used and tonumber(now) - used > math.min(60e6, ttl * 100) then
    redis.pcall('PEXPIRE', key, ttl)
    redis.pcall('SETRANGE', key, 0, now)
  end
end
