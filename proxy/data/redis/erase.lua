local entries = redis.pcall('XRANGE', KEYS[2], ARGV[2], '+', 'COUNT', ARGV[3])
if entries.err then return string.find(entries.err, '^WRONGTYPE') and entries or {epoch, 0} end
for _, entry in ipairs(entries) do
  if entry[2][4] == ARGV[4] then
    redis.call('XDEL', KEYS[2], entry[1])
    redis.call('DECRBY', KEYS[3], #entry[2][6])
  end
end
return {epoch, #entries == tonumber(ARGV[3]) and entries[#entries][1] or ''}
