"""Scores all users, or all items, of a shop into a file."""
