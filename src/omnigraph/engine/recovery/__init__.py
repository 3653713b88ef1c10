"""Recovery: what an interrupted write left behind is finished or undone by whoever comes next."""
