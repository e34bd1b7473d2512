local found = redis.pcall('XRANGE', KEYS[2], ARGV[2], '+', 'COUNT', ARGV[3])
return {epoch, found.err and 0 or found}
