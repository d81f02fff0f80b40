"""The paths of /v1, a module for each thing that they are about (docs/api.md)."""
