local values = {}
for n = 3, #KEYS do
  local value = redis.call('GET', KEYS[n])
  if value and not ours(value) then return foreign end
  if value then use(KEYS[n], value, tonumber(ARGV[2])) end
  values[n - 2] = value
end
return {epoch, values}
