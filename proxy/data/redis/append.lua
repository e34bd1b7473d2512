redis.call('INCRBY', KEYS[3], 0)
local added = 0
for n = 5, #ARGV, 2 do
  local made = redis.pcall('XADD', KEYS[2], '*', 'by', ARGV[2], 'of', ARGV[n], 'rows', ARGV[n + 1])
  if type(made) == 'table' then return string.find(made.err, '^WRONGTYPE') and made or {epoch, 0} end
  added = added + #ARGV[n + 1]
end
local size = redis.call('INCRBY', KEYS[3], added)
local oldest = tonumber(now) / 1000 - tonumber(ARGV[4])
while true do
  local first = redis.call('XRANGE', KEYS[2], '-', '+', 'COUNT', 1)[1]
  if not first or (size <= tonumber(ARGV[3]) and tonumber(string.match(first[1], '%d+')) >= oldest) then
    break
  end
  redis.call('XDEL', KEYS[2], first[1])
  size = redis.call('DECRBY', KEYS[3], #first[2][6])
end
redis.call('PEXPIRE', KEYS[2], ARGV[4])
redis.call('PEXPIRE', KEYS[3], ARGV[4])
return {epoch, 1}
