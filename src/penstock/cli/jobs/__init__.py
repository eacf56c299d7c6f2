"""`penstock job`: bulk work on Spark, a command each."""
