"""The gateway beside nginx (a plain proxy, the floor) and LiteLLM's proxy, in front of the same static upstream.

__main__  the run: peers × streamed or not × connections, interleaved rounds, medians, JSON lines
upstream  a completion server that always answers the same, with vLLM's chunks
load      a closed-loop load generator; a process of its own
peers     how nginx, the gateway and LiteLLM are started
memory    the gateway's resident memory over many requests
engine    the gateway beside a direct connection, in front of real vLLM
"""
