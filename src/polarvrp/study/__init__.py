"""What follows from a configuration: names of runs, specifications of jobs, and paths of files."""
