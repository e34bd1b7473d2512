local counts = {}
for n = 2, #KEYS do
  counts[n - 1] = redis.call('INCRBYFLOAT', KEYS[n], ARGV[n + 1])
  redis.call('PEXPIRE', KEYS[n], ARGV[2])
end
return {epoch, counts}
