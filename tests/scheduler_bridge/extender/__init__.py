"""The scheduler extender: laws over the fleet, forms, reservations, the service on a real log."""
