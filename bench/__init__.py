"""How fast fdwait is, beside what else there is. `python -m bench` prints the table of ratios."""
