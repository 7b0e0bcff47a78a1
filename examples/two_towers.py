# %% [markdown]
# # A pipeline of two branches, in Python
#
# The tutorial (`docs/tutorial.md`) through the Python package alone: export, plan, train from a `DataLoader`, and take the weights
# back. Needs torch, onnx, onnxscript and the package `graphpipe`.

# %%
import tempfile
from pathlib import Path

import graphpipe
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

folder = Path(tempfile.mkdtemp(prefix="two-towers-"))


# %% [markdown]
# ## The model
# An image and a sentence about it; the label says which of four relations holds.


# %%
class TwoTowers(nn.Module):
    def __init__(self):
        super().__init__()
        self.image = nn.Sequential(nn.Conv2d(3, 16, 3, stride=2, padding=1), nn.ReLU(),
                                   nn.Conv2d(16, 32, 3, stride=2, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(2048, 64))
        self.words = nn.Embedding(100, 64)
        layer = nn.TransformerEncoderLayer(64, 4, 128, dropout=0.0, batch_first=True)
        self.text = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Sequential(nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, 4))

    def forward(self, pixels, ids):
        return self.head(torch.cat([self.image(pixels), self.text(self.words(ids)).mean(1)], -1))


class Samples(Dataset):
    """Dicts by the names of the model's inputs and of the label."""

    def __init__(self, count):
        torch.manual_seed(1)
        self.pixels, self.ids = torch.randn(count, 3, 32, 32), torch.randint(0, 100, (count, 12))
        self.label = 2 * (self.pixels[:, 0].mean((1, 2)) > 0).long() + ((self.ids < 50).sum(1) > 6).long()

    def __len__(self):
        return len(self.label)

    def __getitem__(self, i):
        return {"pixels": self.pixels[i], "ids": self.ids[i], "label": self.label[i]}


torch.manual_seed(0)
module, samples = TwoTowers(), Samples(256)

# %% [markdown]
# ## The plan
# In a notebook a plan shows its timeline.

# %%
example = samples[:4]
model = graphpipe.export(module, {"pixels": example["pixels"], "ids": example["ids"]}, folder / "model.onnx", output_names=["logits"])
plan = graphpipe.plan(model, devices=3, stages=3, batch=32, micro_batch=8, planner="graphpipe", optimizer="adamw", cluster="default",
                      loss="cross_entropy:logits,label")
for stage in plan.stages:
    print(stage.devices, stage.modules)
plan

# %% [markdown]
# ## Training
# `compile` writes one program per device and builds them; the `DataLoader` feeds them through shared memory.

# %%
program = plan.compile(folder / "out")
loader = DataLoader(samples, batch_size=32, shuffle=True, drop_last=True)
run = graphpipe.Trainer(program, lr=0.003).fit(loader, epochs=6, save=folder / "trained.safetensors")
print(f"loss {run.losses[0]:.3f} at the first step, {run.losses[-1]:.3f} at the last")

# %% [markdown]
# ## Back in PyTorch

# %%
program.load_into(module, folder / "trained.safetensors")
with torch.no_grad():
    right = (module.eval()(samples.pixels, samples.ids).argmax(1) == samples.label).float().mean().item()
print(f"{100 * right:.0f} % right")
assert run.losses[-1] < run.losses[0] and right > 0.8
