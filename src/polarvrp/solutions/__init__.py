"""Files of solutions: their form, and their checks."""
