"""`make bench-learning`: what each algorithm makes of the same feedback.

In: algorithms, seeds and a budget of events. Out: reward and acceptance on a fixed held-out set against the number of
events, with confidence bands over the seeds, as lines of JSON and as a picture; the last line is the gain.

One event is one shown completion that a simulated developer judged. There is no gateway, no ingest service, no queue
and no vLLM, so nothing waits and nobody's patience ends; everything else is the product's own code: the developers'
moments, what the editor shows, personas, experience and reward (`services.ingest`), settled text, sibling scores,
advantages and mini-batches (`services.trainer`), and the learner process, which trains and here samples as well.

algorithms  what is compared
team        developers without HTTP
product     from a judged completion to an experience, as ingest makes it
training    from experience to the next version, as the trainer does it
evaluation  the fixed set: reward, acceptance, suggestion rate, length
reference   KL to the base model
run         one algorithm, one seed
results     one file for each of them, so that a stopped run goes on
figures     gains, bands, ratio; pure
picture     the plot
"""
