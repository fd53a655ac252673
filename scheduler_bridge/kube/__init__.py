"""The one place that speaks Kubernetes: connection, errors, mirrors, election, quantities."""
