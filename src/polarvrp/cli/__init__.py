"""The command line, one module a command; heavy imports happen inside the commands."""
