"""Tools: which are offered, and the internal ones that Penstock runs by itself."""
