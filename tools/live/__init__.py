"""Live clusters that get the same jobs, under sadvise and without it, with run times that their placements decide."""
