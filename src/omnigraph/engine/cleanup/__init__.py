"""Removing what nobody asks for any more: versions, forks, tables and files."""
