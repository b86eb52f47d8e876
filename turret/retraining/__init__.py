"""`turret retrain`: from stored events to the next live version, in one command."""
