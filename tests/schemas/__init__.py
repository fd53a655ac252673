"""What is said: records, codecs, topic table, policy, generated files."""
