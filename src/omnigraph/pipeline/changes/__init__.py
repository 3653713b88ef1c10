"""Changes as DataFrames."""
