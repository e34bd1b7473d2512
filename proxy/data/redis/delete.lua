for n = 3, #KEYS do
  redis.call('UNLINK', KEYS[n])
  redis.call('ZREM', KEYS[2], KEYS[n])
end
return {epoch}
