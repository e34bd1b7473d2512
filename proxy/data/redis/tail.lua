local found = redis.pcall('XRANGE', KEYS[2], ARGV[2], '+', 'COUNT', ARGV[3])
if found.err then return string.find(found.err, '^WRONGTYPE') and found or {epoch, 0} end
return {epoch, found}
