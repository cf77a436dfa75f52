"""Runs one command where it can do no harm, and says how it ended. Linux and the standard library alone.

In, on stdin: a `Task` as JSON. Out, on stdout: a `Verdict` as JSON. Started by `warmstart.rewards.sandbox`, one process
for each command, and light for that: nothing here imports anything of ours but what is here.

    warden (`__main__`)     watches clock, memory and output; kills everything
    └── keeper (`keeper`)   first in its PID namespace: what is left over when it goes, the kernel kills
        └── the command     own session, limits, no privileges, an environment of its own

With namespaces the command sees a file system of its own (`filesystem`: programs read-only, a small RAM disk for the
rest), no network and no other process. Without, it has its limits and a folder, and is watched. As root it runs under a
user number that nobody else has.

task         what both sides say to each other
kernel       the system calls that Python has no name for
processes    who is below whom; how to be rid of them
"""
