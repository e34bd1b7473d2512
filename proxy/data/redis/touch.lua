local found = {}
for n = 3, #KEYS do
  local stamp = redis.call('GETRANGE', KEYS[n], 0, 15)
  if stamp ~= '' and not ours(stamp) then return foreign end
  if stamp ~= '' and redis.call('PEXPIRE', KEYS[n], ARGV[2]) == 1 then
    redis.call('SETRANGE', KEYS[n], 0, now)
    redis.call('ZADD', KEYS[2], 0, KEYS[n])
    found[#found + 1] = n - 3
  end
end
return {epoch, found}
