"""Two processes of a training beside one: the sides of the comparison, and its cost model."""
