"""What people see: values on one line, and tables for notebooks."""
