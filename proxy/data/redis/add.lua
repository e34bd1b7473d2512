local value = redis.call('GET', KEYS[3])
if value and not ours(value) then return foreign end
if value then
  use(KEYS[3], value, tonumber(ARGV[2]))
  return {epoch, value}
end
write(KEYS[3], ARGV[3], ARGV[2])
return {epoch, now .. ARGV[3]}
