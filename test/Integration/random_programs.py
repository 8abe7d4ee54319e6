#!/usr/bin/env python3
"""Random programs and ragged steps, verified by shardq-run.

Each seed makes a module (ranks, heads, dimensions, types, layers, where the
indices come from, LSE, sink; with --kv a cache that is sharded over ranks, with --tokens contiguous shards of
the rows beside it, with --pcp requests in chunks over ranks) and a
step (requests, contexts, decodes, padding) and runs `shardq-run --verify`: the program as given, the rewritten one and the
float64 reference must agree. A failing seed's files are kept and its command
printed.
"""

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile


def tensor(element, *dims):
    return "tensor<" + "".join(f"{d}x" for d in dims) + f"{element}>"


class Program:
    """One module, as text."""

    def __init__(self, rng):
        self.ranks = rng.choice([1, 2, 3, 4, 8])
        self.heads = rng.choice([1, 2, 3, 5, 8])
        self.element = rng.choice(["bf16", "bf16", "f16", "f32"])
        self.parts = rng.choice([[16], [24, 8], [16, 5], [33]])
        self.value = rng.randint(1, sum(self.parts))
        self.k = rng.choice([1, 3, 8, 16, 33])
        self.block = rng.choice([1, 4, 16])
        self.index_heads = rng.choice([1, 4, 9, 16])
        self.index_dim = rng.choice([1, 8, 24])
        self.layers = rng.choice([1, 1, 2, 3])
        self.speculative = rng.choice([0, 0, 1, 2])
        self.source = rng.choice(["indexer", "indexer", "shared", "topk", "slots"])
        self.lse = rng.choice([None, None, "e", "two"])
        self.sink = rng.choice([False, False, True])
        self.counts = self.source != "slots" and rng.random() < 0.3
        self.slot_type = rng.choice(["i32", "i32", "i64"])
        self.rows = rng.random() < 0.5 or self.source in ("topk", "slots")
        self.dcp, self.interleave, self.step_form = 1, 0, "gate"
        self.pcp, self.two_calls, self.writes = 1, False, False
        self.tokens, self.padded = False, 0

    def shard_kv(self, rng):
        """Shards the cache over some of the ranks, where --shardq-dcp can."""
        if self.source == "slots":
            self.source = "indexer"
        self.step_form = rng.choice(["decode", "gather", "gate", "gate"])
        # A count of positions that may stand anywhere says nothing of columns.
        self.counts &= self.source != "topk"
        self.dcp = rng.choice([n for n in range(1, self.ranks + 1) if self.ranks % n == 0])
        self.interleave = rng.choice([n for n in range(1, 4 * self.block + 1)
                                      if self.block % n == 0 or n % self.block == 0])
        if rng.random() < 0.3:
            self.padded = self.heads * self.dcp + rng.choice([0, 1, 8])

    def shard_tokens(self, rng):
        """Gives ranks contiguous shards of the rows, beside the cache."""
        self.shard_kv(rng)
        self.tokens, self.padded = True, 0

    def chunk(self, rng):
        """Divides requests over ranks too; the cache may hold the step's rows only when they are written."""
        self.pcp = rng.choice([1, 2, 2, 3, 4])
        self.ranks = rng.choice([n for n in (1, 2, 4) if n * self.pcp <= 8])
        self.two_calls = rng.random() < 0.5
        if rng.random() < 0.6:
            self.shard_kv(rng)
        self.writes = self.source != "slots" and rng.random() < 0.6

    def text(self):
        split, by_rows = '{shardq.split = #shardq.split<@ranks, 1 over "tp">}', ""
        if self.tokens:
            split = by_rows = '{shardq.split = #shardq.split<@ranks, 0 over "dcp">}'
        query = sum(self.parts)
        args, body, returns, types = [], [], [], []

        def arg(name, type, attrs=""):
            args.append(f"%{name}: {type}{' ' + attrs if attrs else ''}")
            return f"%{name}", type

        starts, lens = arg("starts", "tensor<?xi32>"), arg("lens", "tensor<?xi32>")
        if not self.tokens:
            arg("rows", "index")
        table = arg("table", "tensor<?x?xi32>")
        itable = arg("itable", "tensor<?x?xi32>")
        start, length = "%starts", "%lens"
        if self.tokens:
            first = tensor(self.element, "?", self.heads, self.parts[0])
            body.append("%c0 = arith.constant 0 : index")
            body.append(f"%rows = tensor.dim %q0_0, %c0 : {first}")
            body.append('%start, %length = shardq.shard_lengths %starts, %lens rows(%rows) over @ranks "dcp" : '
                        "(tensor<?xi32>, tensor<?xi32>, index) -> (tensor<?xi32>, tensor<?xi32>)")
            start, length = "%start", "%length"
        body.append(
            f"%req, %visible = shardq.expand_rows {start}, {length} to %rows "
            f"{{speculative_tokens = {self.speculative} : i64}} : "
            "(tensor<?xi32>, tensor<?xi32>, index) -> (tensor<?xi32>, tensor<?xi32>)")

        def indexer(layer):
            q = arg(f"iq{layer}", tensor(self.element, "?", self.index_heads, self.index_dim), by_rows)
            w = arg(f"iw{layer}", tensor("f32", "?", self.index_heads), by_rows)
            keys = arg(f"ik{layer}", tensor(self.element, "?", self.index_dim))
            body.append(
                f"%topk{layer} = shardq.indexer q({q[0]}) weights({w[0]}) keys({keys[0]}) "
                f"table(%itable) rows(%req, %visible) {{block_size = {self.block} : i64}} : "
                f"({q[1]}, {w[1]}, {keys[1]}, {itable[1]}, tensor<?xi32>, tensor<?xi32>) "
                f"-> tensor<?x{self.k}xi32>")
            return f"%topk{layer}"

        def convert(layer, topk):
            slots = tensor(self.slot_type, "?", self.k)
            results = f"%slots{layer}" + (f", %count{layer}" if self.counts else "")
            out = f"({slots}, tensor<?xi32>)" if self.counts else slots
            body.append(
                f"{results} = shardq.convert_indices {topk} table(%table) rows(%req) "
                f"{{block_size = {self.block} : i64}} : (tensor<?x{self.k}xi32>, "
                f"{table[1]}, tensor<?xi32>) -> {out}")
            return f"%slots{layer}", slots

        shared = None
        if self.source == "shared":
            shared = indexer("s")
        elif self.source == "topk":
            shared = arg("topk", f"tensor<?x{self.k}xi32>", by_rows)[0]
        elif self.source == "slots":
            given = arg("slots", tensor(self.slot_type, "?", self.k))
        for layer in range(self.layers):
            if self.source == "slots":
                slots = given
            else:
                slots = convert(layer, shared or indexer(layer))
            qs = [arg(f"q{layer}_{i}", tensor(self.element, "?", self.heads, d), split)
                  for i, d in enumerate(self.parts)]
            kv = arg(f"kv{layer}", tensor(self.element, "?", query))
            if self.writes:
                new = arg(f"new{layer}", kv[1])
                at = arg(f"at{layer}", "tensor<?xi64>")
                body.append(f"%all{layer} = shardq.write_rows {new[0]} at({at[0]}) into({kv[0]}) : "
                            f"({new[1]}, {at[1]}, {kv[1]}) -> {kv[1]}")
                kv = f"%all{layer}", kv[1]
            operands = (f"q({', '.join(q[0] for q in qs)}) kv({kv[0]}) slots({slots[0]})")
            operand_types = [q[1] for q in qs] + [kv[1], slots[1]]
            if self.rows:
                operands += " rows(%req)"
                operand_types.append("tensor<?xi32>")
            if self.counts:
                operands += f" topk_length(%count{layer})"
                operand_types.append("tensor<?xi32>")
            if self.sink:
                sink = arg(f"sink{layer}", tensor("f32", self.heads * (1 if self.tokens else self.ranks)))
                operands += f" sink({sink[0]})"
                operand_types.append(sink[1])
            results, result_types = [f"%out{layer}"], [tensor(self.element, "?", self.heads, self.value)]
            kv_sharding = f', kv = interleave<{self.interleave}> ["dcp"]' if self.interleave else ""
            by = 'tokens = contiguous ["dcp"]' if self.tokens else 'heads = ["tp"]'
            attrs = ["scale = 0.25 : f32", f"sharding = #shardq.sharding<@ranks, {by}{kv_sharding}>"]
            if self.lse:
                results.append(f"%lse{layer}")
                result_types.append(tensor("f32", "?", self.heads))
                attrs.append(f"lse = #shardq.lse<base = {self.lse}>")
            body.append(
                f"{', '.join(results)} = shardq.sparse_mla {operands} {{{', '.join(attrs)}}} : "
                f"({', '.join(operand_types)}) -> ({', '.join(result_types)})")
            returns += results
            types += result_types
        pcp = f'"pcp" = {self.pcp}, ' if self.pcp > 1 else ""
        lines = [f'shardq.mesh @ranks [{pcp}"tp" = {self.ranks}, "dcp" = {self.dcp} in "tp"]',
                 f"func.func @main({', '.join(args)}) -> "
                 f"({', '.join(f'{t} {split}' for t in types)}) {{"]
        lines += ["  " + line for line in body]
        lines += [f"  return {', '.join(returns)} : {', '.join(types)}", "}"]
        return "\n".join(lines) + "\n"

    def step(self, rng):
        # Mostly steps that open the gate: long enough for every rank, and a
        # sequence beyond top-k. The others close it, each for its reason.
        opens = rng.random() < 0.7
        requests = rng.choice([1, 2, 3, 5]) if opens else rng.choice([0, 1, 2, 4])
        longest = rng.choice([20, 60] if opens else [1, 4, 20])
        lens = [rng.choice([0, 1, rng.randint(0, longest)]) for _ in range(requests)]
        if rng.random() < 0.5:
            lens.sort()
        context = [rng.choice([0, rng.randint(0, 60)]) for _ in range(requests)]
        if opens:
            lens[-1] = 2 * self.ranks + rng.randint(self.speculative, 40)
            context[-1] += self.k
        step = {"query_lens": lens, "context_lens": context,
                "block_size": self.block, "speculative_tokens": self.speculative}
        if rng.random() < (0.05 if opens else 0.3):
            step["padding_rows"] = rng.randint(1, 4)
        if self.tokens:
            rows = sum(lens) + step.get("padding_rows", 0)
            step["padding_rows"] = step.get("padding_rows", 0) + -rows % self.dcp
        return step


def run(seed, runner, directory, options):
    rng = random.Random(seed)
    program = Program(rng)
    if options.tokens:
        program.shard_tokens(random.Random(~seed))
    elif options.kv:
        program.shard_kv(random.Random(~seed))
    if options.pcp:
        program.chunk(random.Random(~seed))
    step = program.step(rng)
    module = os.path.join(directory, f"seed{seed}.mlir")
    step_file = os.path.join(directory, f"seed{seed}.json")
    with open(module, "w") as file:
        file.write(program.text())
    with open(step_file, "w") as file:
        json.dump(step, file)
    command = [runner, module, f"--ranks={program.ranks * program.pcp}", f"--step={step_file}",
               "--verify", f"--seed={seed}", "--timeout=60",
               # LLVM's optimizer takes most of the time, and every third program is enough for it.
               f"--optimize={os.environ.get('SHARDQ_OPTIMIZE') or (0 if seed % 3 else 3)}"]
    if options.pcp:
        calls = str(program.two_calls).lower()
        command.append(f"--pipeline=shardq-pcp{{two-calls={calls} remarks=false}},"
                       f"shardq-dcp{{step={program.step_form} remarks=false}}")
    elif program.step_form != "gate" or program.padded or program.tokens:
        command.append(f"--pipeline=shardq-dcp{{step={program.step_form} padded-heads={program.padded} remarks=false}},"
                       "shard-q-tokens{min-tokens=0 remarks=false}")
    if rng.random() < 0.2:
        command += ["--slots=2", "--repeat=3"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode == 0:
        os.remove(module)
        os.remove(step_file)
        gate = [l for l in done.stdout.splitlines() if l.startswith("gate")]
        return True, gate[0].split()[1] if gate else "?"
    print(f"seed {seed}: exit status {done.returncode}: {' '.join(command)}")
    print(done.stdout[-2000:] + done.stderr[-2000:])
    return False, "failed"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runner", default="shardq-run")
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--count", type=int, default=50)
    parser.add_argument("--kv", action="store_true", help="shard KV caches over ranks")
    parser.add_argument("--tokens", action="store_true", help="shard KV caches and rows over ranks")
    parser.add_argument("--pcp", action="store_true", help="divide requests over ranks in chunks")
    parser.add_argument("--seed", action="store_true", help="begin at a random seed, which is printed")
    parser.add_argument("--directory", help="where failing programs are kept")
    options = parser.parse_args()
    directory = options.directory or tempfile.mkdtemp(prefix="shardq-random-")
    os.makedirs(directory, exist_ok=True)
    if options.seed:
        options.first = random.SystemRandom().randrange(2**31)
    gates, failures = {}, 0
    for seed in range(options.first, options.first + options.count):
        agrees, gate = run(seed, options.runner, directory, options)
        failures += not agrees
        gates[gate] = gates.get(gate, 0) + 1
    print(f"seeds {options.first} to {options.first + options.count - 1}: "
          f"{options.count - failures} agree, {failures} fail; gates {gates}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
