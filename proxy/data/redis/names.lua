local names = redis.call('ZRANGEBYLEX', KEYS[2], ARGV[2], ARGV[3], 'LIMIT', 0, ARGV[4])
local found = {}
for _, name in ipairs(names) do
  local used = redis.pcall('GETRANGE', name, 0, 15)
  if type(used) ~= 'string' or used == '' then
    redis.pcall('ZREM', KEYS[2], name)
  else
    found[#found + 1] = {used, name}
  end
end
return {epoch, #names, names[#names] or '', found}
