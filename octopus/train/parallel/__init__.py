"""One run on many processes: who they are, who does what, and weights that each holds a share of."""
