"""Reference solutions: PyVRP, OR-Tools, and those published with the test sets."""
