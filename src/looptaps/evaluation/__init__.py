"""Did it help? Runs, records and statistics."""
