-- Whatever is wrong is found before anything is counted.
for n = 2, #KEYS do
  if not tonumber(redis.call('GET', KEYS[n]) or '0') then return redis.error_reply('WRONGTYPE not a number') end
end
local counts = {}
for n = 2, #KEYS do
  counts[n - 1] = redis.call('INCRBYFLOAT', KEYS[n], ARGV[n + 1])
  redis.call('PEXPIRE', KEYS[n], ARGV[2])
end
return {epoch, counts}
