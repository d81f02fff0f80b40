"""What control keeps in PostgreSQL, in the schema `dovetail`: a module for each thing."""
