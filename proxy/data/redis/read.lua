local counts = {}
for n = 2, #KEYS do counts[n - 1] = redis.call('GET', KEYS[n]) or '0' end
return {epoch, counts}
