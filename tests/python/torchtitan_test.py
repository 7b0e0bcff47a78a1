"""A split and a schedule of graphpipe.torch in torchtitan, as they are: its own Llama, cut by its own code where our stages say, run
in the order of our CSV by two processes on CPUs, and compared with one process.

    torchtitan_test.py GRAPHPIPE     needs torch 2.11 and torchtitan 0.2.2 (scripts/torchtitan)
"""

import os
import sys
import tempfile
import unittest
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as processes
import torchtitan.distributed.parallel_dims as parallel_dims
from torchtitan.components.loss import cross_entropy_loss
from torchtitan.config import JobConfig
from torchtitan.distributed.pipeline_parallel import pipeline_llm
from torchtitan.models.llama3.model.args import TransformerModelArgs
from torchtitan.models.llama3.model.model import Transformer

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "python"))

import graphpipe.torch  # noqa: E402

RANKS, SEQUENCES, LENGTH, WORDS = 2, 8, 16, 256
ARGS = TransformerModelArgs(dim=64, n_layers=4, n_heads=4, vocab_size=WORDS, multiple_of=32, max_seq_len=LENGTH)


def llama():
    torch.manual_seed(0)
    model = Transformer(ARGS)
    with torch.no_grad():
        model.init_weights()
    return model


def batch():
    torch.manual_seed(1)
    return torch.randint(0, WORDS, (SEQUENCES, LENGTH)), torch.randint(0, WORDS, (SEQUENCES, LENGTH))


def job_of(split, csv):
    job = JobConfig()
    job.training.local_batch_size = SEQUENCES
    job.parallelism.pipeline_parallel_degree = RANKS
    job.parallelism.pipeline_parallel_microbatch_size = SEQUENCES // split.micro_batches
    job.parallelism.module_fqns_per_model_part = split.stages
    job.parallelism.pipeline_parallel_schedule_csv = csv
    return job


def run_rank(rank, split, csv, rendezvous, failures):
    torch.set_num_threads(1)
    parallel_dims.device_type = "cpu"  # it takes CUDA where there is no accelerator
    dist.init_process_group("gloo", init_method=f"file://{rendezvous}", rank=rank, world_size=RANKS)
    dims = parallel_dims.ParallelDims(dp_replicate=1, dp_shard=1, cp=1, tp=1, pp=RANKS, ep=1, etp=1, world_size=RANKS)
    schedule, (part,), _, is_last = pipeline_llm(llama(), dims, job_of(split, csv), torch.device("cpu"), ARGS,
                                                 lambda module, *_: module, cross_entropy_loss)
    tokens, labels = batch()
    losses = []
    schedule.step(*([] if rank else [tokens]), **({"target": labels, "losses": losses} if is_last else {}))
    alone = llama()
    loss = cross_entropy_loss(alone(tokens), labels)
    loss.backward()
    gradients = {name: p.grad for name, p in alone.named_parameters()}
    compared = {name: (p.grad - gradients[name]).abs().max().item() for name, p in part.named_parameters()}
    failures += [f"{name} differs by {most}" for name, most in compared.items() if most > 1e-4]
    if not compared:
        failures.append(f"rank {rank} has no parameters")
    if is_last and abs(sum(item.item() for item in losses) - loss.item()) > 1e-3 * loss.item():
        failures.append(f"the loss is {losses}, in one process {loss}")
    dist.destroy_process_group()


class Torchtitan(unittest.TestCase):
    def test_split_and_schedule_run_there_as_they_are(self):
        tokens, labels = batch()
        for policy in ("gpipe", "1f1b", "zb-1p"):
            with self.subTest(policy), tempfile.TemporaryDirectory() as folder, processes.Manager() as manager:
                split = graphpipe.torch.plan(llama(), (tokens[:1],), ranks=RANKS, micro_batches=SEQUENCES, policy=policy,
                                             loss_fn=lambda output: cross_entropy_loss(output, labels[:1]))
                self.assertEqual(sum(split.stages, []), ["tok_embeddings", *(f"layers.{i}" for i in range(4)), "norm", "output"])
                self.assertLessEqual(split.step, split.even_step)
                csv = Path(folder) / "schedule.csv"
                csv.write_text(split.schedule_csv)
                failures = manager.list()
                processes.spawn(run_rank, (split, str(csv), os.path.join(folder, "rendezvous"), failures), nprocs=RANKS)
                self.assertEqual(list(failures), [])


if __name__ == "__main__":
    os.environ["GRAPHPIPE_BINARY"] = sys.argv.pop(1)
    unittest.main()
