local function write(key, value, ttl)
  redis.call('SET', key, now .. value, 'PX', ttl)
  redis.call('ZADD', KEYS[2], 0, key)
  for _, name in ipairs(redis.call('ZRANDMEMBER', KEYS[2], 3)) do
    if redis.call('EXISTS', name) == 0 then redis.call('ZREM', KEYS[2], name) end
  end
end
