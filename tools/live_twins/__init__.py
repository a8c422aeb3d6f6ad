"""Two identical live clusters that get the same jobs, one of them with sadvise."""
