"""Users' own files: solved by a network and PyVRP under a time limit, written, drawn."""
