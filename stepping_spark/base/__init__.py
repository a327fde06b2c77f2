"""What all packages use: places in the user's program, limits, packages that may be absent."""
