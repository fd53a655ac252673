"""Who is told: desired capacity against what a scheduler shows, and one sink for each system."""
