"""One ledger of what is lent to whom: folded from the log, granted by one bridge at a time."""
