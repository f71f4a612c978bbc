"""What each branch of an episode added: the value of all branches minus the value without one of them.

An *evaluation* says what an episode is worth without some of its branches. There are three: `coverage` asks which
evidence is lost, `rescore` how likely the right answer still is, `regenerate` decodes the answer again. Everything else
(left-out terms, Shapley values, centring, rank correlation) is the same for all of them.
"""
