"""`turret history`: loads a log into the store of histories, and writes stored events back into a log."""
