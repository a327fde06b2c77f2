"""Ways to keep a view up to date, each in a process of its own, and what they are measured by."""
