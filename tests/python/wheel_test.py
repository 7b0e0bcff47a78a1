"""The installed wheel, as a user has it: scripts/wheel calls this in a fresh virtual environment.

    wheel_test.py FOLDER_OF_MODELS
"""

import copy
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import graphpipe

MODELS = Path(sys.argv.pop(1)) if len(sys.argv) > 1 else Path()
HAS_TORCH = importlib.util.find_spec("torch") is not None


class Command(unittest.TestCase):
    def test_it_is_the_wheels_and_on_the_path(self):
        self.assertTrue(Path(graphpipe.__file__).is_relative_to(sys.prefix))
        program = shutil.which("graphpipe")
        self.assertIsNotNone(program)
        self.assertTrue(Path(program).is_relative_to(sys.prefix))
        shown = subprocess.run([program, "--version"], stdout=subprocess.PIPE, text=True, check=True).stdout
        version = (Path(graphpipe.__file__).parent / "share/version").read_text().strip()
        self.assertIn(version, shown)

    def test_it_plans_without_torch(self):
        model = MODELS / "dlrm/model.onnx"
        self.assertTrue(graphpipe.lint(model, loss="bce:logit,click").passed)
        plan = graphpipe.plan(model, devices=2, batch=8, loss="bce:logit,click")
        self.assertGreater(plan.simulate().simulated_step, 0)
        self.assertIn("<svg", plan.svg())

    def test_stage_programs_need_a_torch_and_say_so(self):
        if HAS_TORCH:
            self.skipTest("torch is there")
        with self.assertRaisesRegex(graphpipe.EnvironmentFault, "pip install torch"), tempfile.TemporaryDirectory() as folder:
            graphpipe.compile(MODELS / "dlrm/model.onnx", folder + "/out", devices=2, batch=8, loss="bce:logit,click")


def tower_model():
    import torch
    from torch import nn

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.words = nn.Embedding(20, 8, padding_idx=0)
            self.text = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 16))
            self.image = nn.Sequential(nn.Linear(12, 16), nn.GELU(), nn.Linear(16, 16))
            self.head = nn.Linear(32, 5)
            self.image[0].weight.requires_grad_(False)

        def forward(self, ids, pixels):
            return self.head(torch.cat([self.text(self.words(ids).mean(1)), self.image(pixels)], -1))

    torch.manual_seed(1)
    model = Model()
    with torch.no_grad():
        model.words.weight[0] = 0.5
    return model


def tower_batches(count):
    import torch

    torch.manual_seed(2)
    return [{"ids": torch.randint(0, 6, (8, 4)), "pixels": torch.randn(8, 12), "label": torch.randint(0, 5, (8,))}
            for _ in range(count)]


def tied_model():
    import torch
    from torch import nn

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.words = nn.Embedding(20, 8)
            self.middle = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 8))
            self.head = nn.Linear(8, 20, bias=False)
            self.head.weight = self.words.weight

        def forward(self, ids):
            return self.head(self.middle(self.words(ids).mean(1)))

    torch.manual_seed(1)
    return Model()


@unittest.skipUnless(HAS_TORCH, "needs torch")
class Training(unittest.TestCase):
    def train_here_and_in_pytorch(self, model, names, **plan):
        """Two epochs by the pipeline and by PyTorch. Returns the pipeline's module and the compiled plan."""
        import torch

        module = copy.deepcopy(model)
        batches = [{name: batch[name] for name in [*names, "label"]} for batch in tower_batches(6)]
        with tempfile.TemporaryDirectory() as folder:
            examples = {name: batches[0][name] for name in names}
            path = graphpipe.export(module, examples, folder + "/model.onnx", output_names=["logits"])
            program = graphpipe.compile(path, folder + "/out", batch=8, micro_batch=4, loss="cross_entropy:logits,label", **plan)
            run = graphpipe.Trainer(program, lr=0.1).fit(batches, epochs=2, save=folder + "/weights.safetensors")
            program.load_into(module, folder + "/weights.safetensors")
            self.assertTrue(program.verify(steps=2).passed)
            stages = program.plan.stages
        optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1)
        losses = []
        for batch in batches + batches:
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(model(*[batch[name] for name in names]), batch["label"])
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        self.assertEqual(len(run.losses), len(losses))
        for ours, theirs in zip(run.losses, losses):
            self.assertAlmostEqual(ours, theirs, places=5)
        for (name, ours), theirs in zip(module.named_parameters(), model.parameters()):
            self.assertLess((ours - theirs).abs().max().item(), 1e-5, name)
        return module, stages

    def test_export_compile_fit_and_load_equal_pytorch(self):
        import torch

        module, stages = self.train_here_and_in_pytorch(tower_model(), ["ids", "pixels"], devices=3, stages=3, planner="graphpipe")
        self.assertEqual({name for stage in stages for name in stage.modules} & {"words", "head"}, {"words", "head"})
        self.assertTrue(torch.all(module.words.weight[0] == 0.5))  # padding does not train

    def test_a_table_tied_over_stages_is_one_parameter(self):
        module, stages = self.train_here_and_in_pytorch(tied_model(), ["ids"], devices=2, planner="equal-split")
        self.assertEqual(len(stages), 2)
        self.assertIs(module.words.weight, module.head.weight)

    def test_what_an_export_would_lose_is_refused(self):
        import torch

        module = torch.nn.Sequential(torch.nn.Embedding(10, 4, max_norm=1.0), torch.nn.Linear(4, 2))
        with self.assertRaisesRegex(ValueError, "max_norm"):
            graphpipe.export(module, torch.zeros(2, 3, dtype=torch.int64), "never.onnx")
        with self.assertRaisesRegex(ValueError, "two samples"):
            graphpipe.export(torch.nn.Linear(4, 2), torch.zeros(1, 4), "never.onnx")


def chain_model():
    import torch
    from torch import nn

    torch.manual_seed(0)
    layers = []
    for before, after in [(64, 128), (128, 128), (128, 128), (128, 512), (512, 512)]:
        layers += [nn.Linear(before, after), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(512, 10))


def run_rank(rank, split, rendezvous, failures):
    import torch
    import torch.distributed as dist
    from torch.distributed.pipelining import pipeline

    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{rendezvous}", rank=rank, world_size=2)
    torch.manual_seed(3)
    samples, target = torch.randn(32, 64), torch.randint(0, 10, (32,))
    pipe = pipeline(chain_model(), mb_args=(samples[:4],), split_spec=split.split_spec())
    stage = pipe.build_stage(rank, torch.device("cpu"))
    schedule = split.schedule(stage, torch.nn.functional.cross_entropy)
    losses = []
    if rank == 0:
        schedule.step(samples)
    else:
        schedule.step(target=target, losses=losses)
    alone = chain_model()
    loss = torch.nn.functional.cross_entropy(alone(samples), target)
    loss.backward()
    gradients = {name: p.grad for name, p in alone.named_parameters()}
    for name, p in stage.submod.named_parameters():
        if (p.grad - gradients[name]).abs().max() > 1e-6:
            failures.put(name)
    if rank == 1 and abs(sum(item.item() for item in losses) / len(losses) - loss.item()) > 1e-5:
        failures.put("loss")
    dist.destroy_process_group()


@unittest.skipUnless(HAS_TORCH, "needs torch")
class PyTorchPipelines(unittest.TestCase):
    def test_split_and_order_run_in_torch_and_equal_one_process(self):
        import torch
        import torch.multiprocessing as processes

        for policy in ("1f1b", "zb-1p"):
            with self.subTest(policy), tempfile.TemporaryDirectory() as folder:
                split = graphpipe.torch.plan(chain_model(), (torch.randn(4, 64),), ranks=2, micro_batches=8, policy=policy)
                self.assertLessEqual(split.step, split.even_step)
                self.assertGreaterEqual(split.step, split.bound)
                failures = processes.get_context("spawn").SimpleQueue()
                processes.spawn(run_rank, (split, os.path.join(folder, "rendezvous"), failures), nprocs=2)
                self.assertTrue(failures.empty())

    def test_parts_that_do_not_run_in_order_are_named(self):
        import torch

        class Twice(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.a, self.b = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)

            def forward(self, x):
                return self.a(self.b(self.a(x)))

        with self.assertRaisesRegex(ValueError, "order"):
            graphpipe.torch.plan(Twice(), (torch.randn(2, 4),), ranks=2, micro_batches=2)


if __name__ == "__main__":
    if HAS_TORCH:
        import graphpipe.torch
    unittest.main()
