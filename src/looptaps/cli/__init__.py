"""The command line: one file a verb, loaded when that verb is called."""
