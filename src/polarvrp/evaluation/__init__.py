"""Greedy multi-start with eight symmetries, on test sets and on CVRPLIB Set-X; gaps."""
