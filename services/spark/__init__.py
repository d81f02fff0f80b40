"""What outgrows one machine, as jobs on Spark: `dovetail spark <job>`.

jobs.py lists them; __main__.py runs one, on session.py's Spark, with a row of runs.py in the
control database. jdbc.py is how Spark reads PostgreSQL.
"""
