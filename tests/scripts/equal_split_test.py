#!/usr/bin/env python3
"""The equal split inside Piper, by graphpipe and by a search written here against the formulas: equal_split_test.py GRAPHPIPE.

BERT-32 is the profile that Piper's authors published (fp16 times of A100s, plain and with recomputation); BERT-24 and
BERT-48 are made of it by leaving out transformer layers, or repeating one. Piper's program makes its larger BERTs in its
own way: each time it repeats the first inner layer of a hash set, and the new one does not read the attention mask. Such
layers are cheaper at every cut, so its BERT-48 has other answers than one whose layers all read the mask.
"""

import itertools
import json
import math
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
GRAPHPIPE = pathlib.Path(sys.argv.pop()) if len(sys.argv) > 1 else ROOT / "build/release/bin/graphpipe"
PROFILE = ROOT / "tests/data/piper/bert32a100.json"
REPEATED = "ParallelTransformerLayer"
BANDWIDTH, MICRO_BATCHES = 25 << 30, 1920
CASES = ((4, 128), (16, 32), (8, 64), (8, 512))  # GiB, devices
PRINTED = (0.022231730176687243, 0.067379124003052709, 0.038537818384647371, 0.0048811053823033966)  # Piper's, BERT-48
NO_FEASIBLE_PLAN = 4


def bert(layers, repeated=None, reads_mask=True):
    """The published profile with another number of transformer layers: `repeated` (of the chain; the middle one where it
    is not given) stands for those that are added."""
    profile = json.loads(PROFILE.read_text())
    nodes, edges = profile["nodes"], profile["edges"]
    chain = [node["id"] for node in nodes if node["name"] == REPEATED]
    while len(chain) > layers:
        drop(nodes, edges, chain, len(chain) // 2)
    while len(chain) < layers:
        repeat(nodes, edges, chain, len(chain) // 2 if repeated is None else repeated, reads_mask)
    return profile


def hash_order(keys):
    """The order in which libstdc++'s unordered_set<int> lists keys that were inserted one by one. All elements are one
    list; a new one stands before those of its bucket (key modulo buckets), or at the front of all where that is empty."""
    order, buckets = [], 1

    def insert(key):
        bucket = [at for at, other in enumerate(order) if (other - key) % buckets == 0]
        order.insert(bucket[0] if bucket else 0, key)

    for key in keys:
        if len(order) + 1 > buckets:
            buckets = next(count for count in (13, 29, 59, 127) if count > buckets)
            elements, order[:] = list(order), []
            for element in elements:
                insert(element)
        insert(key)
    return order


def pipers_bert(layers):
    """As Piper's program enlarges it (algo.cpp, insertTransformerLayer)."""
    profile = json.loads(PROFILE.read_text())
    nodes, edges = profile["nodes"], profile["edges"]
    chain = [node["id"] for node in nodes if node["name"] == REPEATED]
    while len(chain) < layers:
        inner = next(layer for layer in hash_order(sorted(chain)) if layer not in (chain[0], chain[-1]))
        repeat(nodes, edges, chain, chain.index(inner), reads_mask=False)
    return profile


def rename_neighbour(node, old, new):
    for variants in node["TMPCs"].values():
        for variant in variants:
            for side in ("syncTimeFw", "syncTimeBw"):
                if str(old) in variant[side]:
                    variant[side][str(new)] = variant[side].pop(str(old))


def drop(nodes, edges, chain, place):
    before, gone, behind = chain[place - 1], chain.pop(place), chain[place]
    by_id = {node["id"]: node for node in nodes}
    nodes.remove(by_id[gone])
    edges[:] = [edge for edge in edges if gone not in (edge["sourceId"], edge["destId"]) or edge["sourceId"] == before]
    for edge in edges:
        if edge["destId"] == gone:
            edge["destId"] = behind
    rename_neighbour(by_id[before], gone, behind)
    rename_neighbour(by_id[behind], gone, before)
    for node in nodes:
        for variants in node["TMPCs"].values():
            for variant in variants:
                variant["syncTimeFw"].pop(str(gone), None)
                variant["syncTimeBw"].pop(str(gone), None)


def repeat(nodes, edges, chain, place, reads_mask):
    old, behind = chain[place], chain[place + 1]
    by_id = {node["id"]: node for node in nodes}
    new = json.loads(json.dumps(by_id[old]))
    new["id"] = max(by_id) + 1
    nodes.insert(nodes.index(by_id[old]) + 1, new)
    chain.insert(place + 1, new["id"])
    added = []
    for edge in edges:
        if edge["sourceId"] == old and edge["destId"] == behind:
            edge["sourceId"] = new["id"]
            added.append({**edge, "sourceId": old, "destId": new["id"]})
        elif edge["destId"] == old and edge["sourceId"] not in chain:  # the mask
            if not reads_mask:
                for variants in new["TMPCs"].values():
                    for variant in variants:
                        del variant["syncTimeFw"][str(edge["sourceId"])]
                continue
            added.append({**edge, "destId": new["id"]})
            for variants in by_id[edge["sourceId"]]["TMPCs"].values():
                for variant in variants:
                    if str(old) in variant["syncTimeBw"]:
                        variant["syncTimeBw"][str(new["id"])] = variant["syncTimeBw"][str(old)]
    edges += added
    rename_neighbour(by_id[old], behind, new["id"])
    rename_neighbour(by_id[behind], old, new["id"])
    rename_neighbour(new, chain[place - 1], old)


def sums_of(profile, variants, stage):
    """Of one stage: seconds of its layers, bytes of weights, bytes per micro-batch in flight, fixed bytes, bytes moved."""
    layers = {node: variants[node] for node in stage}
    moved = 0
    for edge in profile["edges"]:
        source, target = edge["sourceId"], edge["destId"]
        if source in layers and target not in layers:
            moved += 2 * (edge["communicationCost"] + layers[source]["syncTimeBw"].get(str(target), 0))
        elif target in layers and source not in layers:
            moved += 2 * (edge["communicationCost"] + layers[target]["syncTimeFw"].get(str(source), 0))
    names = ("timePerSample", "parameterSize", "memoryUsageA", "memoryUsageB")
    return (*(sum(layer[name] for layer in layers.values()) for name in names), moved)


def cost(stages, memory, replicas, empty_behind):
    """Seconds of a micro-batch in the slowest stage, of the stages' sums; infinity where a stage does not fit."""
    slowest = 0
    for place, (seconds, weights, per_item, fixed, moved) in enumerate(stages):
        if per_item * (len(stages) - place + empty_behind) + fixed > memory:
            return math.inf
        reduction = 4 * (replicas - 1) * weights / (MICRO_BATCHES * BANDWIDTH)
        slowest = max(slowest, (seconds + moved / BANDWIDTH + reduction) / replicas)
    return slowest


def equal_runs(items, count):
    size, larger = divmod(len(items), count)
    runs, begin = [], 0
    for run in range(count):
        end = begin + size + (run >= count - larger)
        runs.append(items[begin:end])
        begin = end
    return runs


def equal_splits(profile):
    """Every equal split with every degree and variant: devices for one replica, the stages' sums, empty stages behind."""
    nodes = {node["id"]: node for node in profile["nodes"]}
    chain = [node["id"] for node in profile["nodes"] if node["name"] == REPEATED]
    last = profile["nodes"].index(nodes[chain[-1]])
    behind = [node["id"] for node in profile["nodes"][last + 1:]]
    before = [node["id"] for node in profile["nodes"][:last] if node["id"] not in chain]
    splits = []
    for count in range(1, len(chain) + 1):
        runs = equal_runs(chain, count)
        joined = [list(run) for run in runs]
        joined[0] += before
        joined[-1] += behind
        splits += [joined, [before, *runs, behind]]
    table = []
    for degree, name in itertools.product((1, 2, 4, 8), ("vanilla", "activation recomp")):
        variants = {id: next(v for v in node["TMPCs"][str(degree)] if v["id"] == name) for id, node in nodes.items()}
        for stages in splits:
            sums = [sums_of(profile, variants, stage) for stage in stages if stage]
            table.append((len(stages) * degree, sums, 0 if stages[-1] else 1))
    return table


def best_equal_split(table, memory, devices):
    return min((cost(sums, memory, replicas, empty_behind) for width, sums, empty_behind in table
                for replicas in range(1, devices // width + 1) if MICRO_BATCHES % replicas == 0), default=math.inf)


def by_graphpipe(path, memory, devices):
    command = [GRAPHPIPE, "plan", "--profile", path, "--profile-format", "piper", "--planner", "equal-split", "--compat",
               "all", "--devices", str(devices), "--memory", str(memory), "--bandwidth", str(BANDWIDTH),
               "--micro-batches", str(MICRO_BATCHES), "--json"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode == NO_FEASIBLE_PLAN:
        return math.inf
    done.check_returncode()
    return json.loads(done.stdout)["objective"]


def objectives(profile):
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "bert.json"
        path.write_text(json.dumps(profile))
        return [by_graphpipe(path, gib << 30, devices) for gib, devices in CASES]


class EqualSplit(unittest.TestCase):
    def test_it_is_the_best_of_all_equal_runs(self):
        for name, layers, profile in (("fewer", 24, bert(24)), ("more", 48, bert(48)), ("Piper's", 48, pipers_bert(48))):
            table = equal_splits(profile)
            self.assertEqual(sum(node["name"] == REPEATED for node in profile["nodes"]), layers)
            for (gib, devices), found in zip(CASES, objectives(profile)):
                with self.subTest(profile=name, gib=gib, devices=devices):
                    expected = best_equal_split(table, gib << 30, devices)
                    self.assertTrue(math.isfinite(expected))
                    self.assertAlmostEqual(found / expected, 1, delta=1e-9)

    def test_every_digit_is_what_pipers_program_computes_on_its_bert_48(self):
        for case, found, printed in zip(CASES, objectives(pipers_bert(48)), PRINTED):
            with self.subTest(case=case):
                self.assertAlmostEqual(found / printed, 1, delta=1e-15)

    def test_a_hash_set_of_integers_lists_the_last_first_until_its_buckets_grow(self):
        self.assertEqual(hash_order(range(1, 4)), [3, 2, 1])
        self.assertEqual(hash_order(range(1, 15)), [14, *range(1, 14)])
        self.assertEqual(hash_order([1, 2, 14]), [2, 14, 1])  # 14 % 13 == 1

    def test_another_layer_or_its_mask_makes_another_model(self):
        table, with_mask, other = (equal_splits(profile) for profile in (pipers_bert(48), bert(48, 30), bert(48, 1, False)))
        for gib, devices in CASES:
            with self.subTest(gib=gib, devices=devices):
                seconds = best_equal_split(table, gib << 30, devices)
                self.assertTrue(1.069 < best_equal_split(with_mask, gib << 30, devices) / seconds < 1.199)
                self.assertTrue(1.011 < best_equal_split(other, gib << 30, devices) / seconds < 1.044)

    def test_the_search_here_gives_what_pipers_program_printed(self):
        table = equal_splits(json.loads(PROFILE.read_text()))
        for gib, devices, objective in ((8, 128, 0.0129112773), (8, 64, 0.0257245478), (8, 512, 0.00330132436),
                                        (2, 64, 0.12333875), (8, 8, 0.230978), (80, 64, 0.015650178)):
            with self.subTest(gib=gib, devices=devices):
                self.assertAlmostEqual(best_equal_split(table, gib << 30, devices) / objective, 1, delta=1e-6)


if __name__ == "__main__":
    unittest.main()
