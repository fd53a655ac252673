"""The scheduler extender: filter, prioritise and bind by load and by what is left to lend."""
