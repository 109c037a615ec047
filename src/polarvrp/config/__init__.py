"""What a user writes: the study, its networks and trainings, checked when they are read."""
