"""Bridges to other people's tools. Each module needs the extra of the same name."""
