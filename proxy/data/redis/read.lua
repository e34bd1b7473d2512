local counts = {}
for n = 2, #KEYS do
  counts[n - 1] = redis.call('GET', KEYS[n]) or '0'
  if not tonumber(counts[n - 1]) then return redis.error_reply('WRONGTYPE not a number') end
end
return {epoch, counts}
