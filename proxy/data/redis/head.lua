-- How each script begins: with the server's time, and with what tells whether it still has what it had.
local time = redis.call('TIME')
local now = string.format('%010d%06d', time[1], time[2])
local epoch = redis.pcall('GET', KEYS[1])
if type(epoch) ~= 'string' then
  epoch = ARGV[1] .. now
  local set = redis.pcall('SET', KEYS[1], epoch)
  if set.err then epoch = '' end
end
