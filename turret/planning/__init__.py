"""`turret plan`: memory, disk, time and machines for a shop of any size, from measured figures."""
