"""What is said: frozen records, the topic table, the codecs. Knows nobody; everyone reads it."""
