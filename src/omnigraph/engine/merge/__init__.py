"""One branch taken into another: what both changed, who wins, and what cannot be decided."""
