"""How it moves: Faust, Kafka, images, ticks, the `slackwater` command. No thresholds."""
