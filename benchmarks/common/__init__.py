"""What the scripts beside this folder share: their options, their puzzles, and how a record is written."""
