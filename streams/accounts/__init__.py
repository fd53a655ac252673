"""What co-location came to: what was lent and used, whom it cost, what it saved.

`cli` is `slackwater account`. `reading` folds the records of a recording or of topics into sums by
`place.Cell`; each family of figures is one module (`lending`, `suppression`, ...): its sums, which
add up, and the figures made of them. `statement` joins them and is what the rollout's gate reads.
"""
