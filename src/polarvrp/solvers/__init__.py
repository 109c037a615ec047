"""PyVRP and OR-Tools on instances of this package."""
