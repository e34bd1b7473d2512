local value = redis.call('GET', KEYS[3])
if value and not ours(value) then return foreign end
if value then use(KEYS[3], value, tonumber(ARGV[2])) end
return {epoch, value}
