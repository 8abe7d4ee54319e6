#!/usr/bin/env python3
"""Cuts steps out of a request trace, as an engine's scheduler would.

    make-steps.py TRACE.csv OUTPUT_DIRECTORY

The trace has the columns input_tokens, cached_tokens and output_tokens, one request
a line in order of arrival; see --help for the rest. Requests are served first come, first
served, with chunked prefill: every step takes the token budget from the front
of the queue, and a request that does not fit is cut and goes on in the next
step with what it has so far as context. Ten steps, evenly spread over the
trace, become trace-00.json to trace-09.json.

Beside each stands a small-trace-NN.json of the same shape that a CPU verifies in
seconds: fewer query tokens and a shorter context. Some keep a sequence beyond a
top-k of 2,048, so that the split's gate opens; the others close it.

decode-trace.json is a decode step: requests that arrived one after the other in the
middle of the trace, each with its prompt and half of its answer as context, a token and
a guessed one to compute. small-decode-trace.json has fewer of them and less context.
mixed-trace.json has all of them, and from the middle of the trace as much prefill as the budget
leaves.
The result depends on the arguments alone.
"""

import argparse
import csv
import json
import pathlib


def schedule(requests, budget):
    """Yields steps: lists of (query length, context length)."""
    step, room = [], budget
    for tokens, context in requests:
        while tokens > 0:
            taken = min(tokens, room)
            step.append((taken, context))
            context, tokens, room = context + taken, tokens - taken, room - taken
            if room == 0:
                yield step
                step, room = [], budget
    if step:
        yield step


def write(path, comment, step, block_size, **others):
    values = {
        "comment": comment,
        "query_lens": [query for query, _ in step],
        "context_lens": [context for _, context in step],
        "block_size": block_size,
        **others,
    }
    lines = ",\n".join(f"  {json.dumps(key)}: {json.dumps(value)}"
                       for key, value in values.items())
    path.write_text("{\n" + lines + "\n}\n")


def write_decodes(output, trace, requests, arguments):
    """The decode step and its small one; `requests` are contexts."""
    first = (len(requests) - arguments.decodes) // 2
    step = [(2, context) for context in requests[first:first + arguments.decodes]]
    comment = (f"decode of requests {first} to {first + len(step) - 1} of {trace}, half "
               "through their answers, one speculative token each")
    write(output / "decode-trace.json", comment, step, arguments.block_size, speculative_tokens=1)
    small = [(2, context // arguments.shrink_decodes)
             for _, context in step[:len(step) // arguments.shrink_decodes]]
    write(output / "small-decode-trace.json",
          f"{comment}, 1/{arguments.shrink_decodes} of the requests and of their context",
          small, arguments.block_size, speculative_tokens=1)
    return step


def write_mixed(output, trace, decodes, steps, arguments):
    """Those decodes in one step with a prefill step, which they cut."""
    index = len(steps) // 2
    room = arguments.budget - sum(query for query, _ in decodes)
    comment = (f"step {index} of {len(steps)} of {trace}, chunked prefill with what the decodes "
               f"of decode-trace.json leave of {arguments.budget} tokens")
    write(output / "mixed-trace.json", comment, decodes + next(schedule(steps[index], room)),
          arguments.block_size, speculative_tokens=1, decodes=len(decodes))


def main():
    parser = argparse.ArgumentParser(
        description="Cuts steps out of a request trace.")
    parser.add_argument("trace", type=pathlib.Path, help="CSV file of requests")
    parser.add_argument("output", type=pathlib.Path, help="directory for the steps")
    parser.add_argument("--budget", type=int, default=8192, help="tokens per step")
    parser.add_argument("--steps", type=int, default=10, help="number of steps")
    parser.add_argument("--block-size", type=int, default=64)
    parser.add_argument("--shrink-query", type=int, default=64,
                        help="divisor of query lengths in the small steps")
    parser.add_argument("--shrink-context", type=int, default=8,
                        help="divisor of context lengths in the small steps")
    parser.add_argument("--decodes", type=int, default=32,
                        help="requests of the decode step")
    parser.add_argument("--shrink-decodes", type=int, default=4,
                        help="divisor of requests and contexts in the small decode step")
    arguments = parser.parse_args()

    with arguments.trace.open(newline="") as file:
        rows = [{key: int(value) for key, value in row.items()}
                for row in csv.DictReader(file)]
    requests = [(row["input_tokens"] - row["cached_tokens"], row["cached_tokens"]) for row in rows]
    steps = list(schedule(requests, arguments.budget))
    if len(steps) < arguments.steps:
        parser.error(f"the trace has only {len(steps)} steps")

    arguments.output.mkdir(parents=True, exist_ok=True)
    for number in range(arguments.steps):
        # The middle of each of equal stretches: neither the empty queue of the
        # beginning nor the last, partly filled step.
        index = (2 * number + 1) * len(steps) // (2 * arguments.steps)
        comment = (f"step {index} of {len(steps)} of {arguments.trace.name}, "
                   f"chunked prefill with {arguments.budget} tokens a step")
        write(arguments.output / f"trace-{number:02}.json", comment,
              steps[index], arguments.block_size)
        # A request keeps at least one token, so that its shape stays.
        small = [(max(query // arguments.shrink_query, 1),
                  context // arguments.shrink_context)
                 for query, context in steps[index]]
        write(arguments.output / f"small-trace-{number:02}.json",
              f"{comment}, with 1/{arguments.shrink_query} of the tokens and "
              f"1/{arguments.shrink_context} of the context",
              small, arguments.block_size)
    decodes = write_decodes(arguments.output, arguments.trace.name,
                            [row["input_tokens"] + row["output_tokens"] // 2 for row in rows], arguments)
    write_mixed(arguments.output, arguments.trace.name, decodes, steps, arguments)


if __name__ == "__main__":
    main()
