"""Own data: a user's table, with pictures or features, trained on, predicted and cleaned in a run's folder."""
