"""What the images hold: a bill of materials (CycloneDX 1.6) and a list of licences.

installed     the packages that Dovetail needs, as they are installed here
licences      what a package says of its licence
cyclonedx     the bill as JSON
"""
