-- Removes keys that hold something else than they should. It only uses rights that the other scripts need.
local removed = 0
for n = 2, #KEYS do
  local kind, read, wrong = ARGV[n], nil, false
  if kind == 'names' then
    read = redis.pcall('ZRANGEBYLEX', KEYS[n], '-', '+', 'LIMIT', 0, 1)
  elseif kind == 'records' then
    read = redis.pcall('XRANGE', KEYS[n], '-', '+', 'COUNT', 1)
  else
    read = redis.pcall('GET', KEYS[n])
  end
  if type(read) == 'table' then
    wrong = read.err and string.find(read.err, '^WRONGTYPE')
  elseif read and kind == 'value' then
    wrong = not ours(read)
  elseif read then
    wrong = not tonumber(read)
  end
  if wrong then removed = removed + redis.call('UNLINK', KEYS[n]) end
end
return {epoch, removed}
