"""`slackwater report`: a recording as one page that a person would rather look at than logs.

`build.build` makes the `model.Report` (all that is said, as data), `page.render` the HTML around
it.
"""
