for n = 3, #KEYS do write(KEYS[n], ARGV[n], ARGV[2]) end
return {epoch}
