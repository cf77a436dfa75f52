"""What clients send, parsed at the door into one `FeedbackEvent`.

continue_   `POST /v1/events/continue`, stock Continue's dev data
rlinf       `POST /api/training/submit`, RLinf's modified Continue
own         `POST /v1/feedback`, our own: for clients that are written for Tabwise
tabby       `POST /v1/events/tabby`, what Tabby's plugins send to the gateway's `/v1/events`
"""
