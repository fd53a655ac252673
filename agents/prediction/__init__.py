"""What pods will need: decaying histograms, the peak predictor on them, short-term reservations.

`buckets` and `decay` are constant tables, `histogram` the law on arrays [rows, buckets], `fleet`
the minute's round over a partition, `checkpoint` the peer's stored form, `peak` what mid may
reclaim.
"""
