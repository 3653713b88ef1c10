"""What a load reads: files of several formats, found, cut into items and read item by item."""
