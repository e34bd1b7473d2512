redis.call('SET', KEYS[2], '1', 'PX', 1000)
return {epoch}
