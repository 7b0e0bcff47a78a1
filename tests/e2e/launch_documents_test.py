#!/usr/bin/env python3
"""What docs/launch.md says for Slurm and Kubernetes, run with stand-ins for their launchers: the batch script under an `srun` that starts
its tasks on this host, and the Job's command once for each of its pods.

    launch_documents_test.py GRAPHPIPE FOLDER     needs PyYAML (scripts/checkers.txt)
"""

import argparse
import os
import pathlib
import re
import shutil
import stat
import subprocess
import sys
import unittest

import yaml

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/launch.md").read_text()
MODEL = ROOT / "tests/data/models/dlrm"

SRUN = """#!/usr/bin/env python3
# Starts the job's tasks here, as srun does on its nodes; --kill-on-bad-exit ends all when one fails.
import os, subprocess, sys
options, command = [w for w in sys.argv[1:] if w.startswith("--")][:1], sys.argv[2:]
assert options == ["--kill-on-bad-exit=1"] and sys.argv[1] == options[0], sys.argv
count, on_node = int(os.environ["SLURM_NTASKS"]), int(os.environ["SLURM_NTASKS_PER_NODE"])
tasks = [subprocess.Popen(command, env=dict(os.environ, SLURM_PROCID=str(i), SLURM_LOCALID=str(i % on_node))) for i in range(count)]
sys.exit(max(task.wait() for task in tasks))
"""
SCONTROL = """#!/bin/sh
[ "$1 $2 $3" = "show hostnames node[1-2]" ] && printf 'localhost\\nlocalhost\\n'
"""


def batch_script():
    return re.search(r"^```\n(#!/bin/bash\n#SBATCH.*?)^```$", PAGE, re.MULTILINE | re.DOTALL).group(1)


def manifests():
    return list(yaml.safe_load_all(re.search(r"^```yaml\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL).group(1)))


class Launchers(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        shutil.rmtree(FOLDER, ignore_errors=True)
        FOLDER.mkdir(parents=True)
        (FOLDER / "data").symlink_to(MODEL / "data")
        subprocess.run([PROGRAM, "compile", MODEL / "model.onnx", "--devices", "4", "--batch", "8", "--planner", "data-parallel", "--loss",
                        "bce:logit,click", "--cluster", "default", "-o", FOLDER / "out", "-q"], check=True)

    def environment(self, **more):
        kept = {name: os.environ[name] for name in ("PATH", "GRAPHPIPE_LIBTORCH", "LD_LIBRARY_PATH") if name in os.environ}
        return {**kept, "HOME": str(FOLDER), **more}

    def losses_of(self, output):
        return re.findall(r"^step (\d+) .*loss (\S+)", output, re.MULTILINE)

    def test_the_batch_script_trains_and_goes_on(self):
        secret = re.search(r"\(umask 077; openssl .*?\)", PAGE).group(0)
        subprocess.run(["bash", "-c", secret], env=self.environment(), check=True)
        self.assertEqual(stat.S_IMODE((FOLDER / ".graphpipe-secret").stat().st_mode), 0o600)
        job = argparse.ArgumentParser()
        for option in ("--nodes", "--ntasks", "--ntasks-per-node"):
            job.add_argument(option, type=int, required=True)
        asked = job.parse_args(" ".join(re.findall(r"^#SBATCH (.*)$", batch_script(), re.MULTILINE)).split())
        self.assertEqual(asked.ntasks, asked.nodes * asked.ntasks_per_node)
        (FOLDER / "bin").mkdir()
        for name, text in {"srun": SRUN, "scontrol": SCONTROL}.items():
            (FOLDER / "bin" / name).write_text(text)
            (FOLDER / "bin" / name).chmod(0o755)
        (FOLDER / "job.sh").write_text(batch_script())
        environment = self.environment(SLURM_JOB_ID=str(os.getpid()), SLURM_JOB_NODELIST="node[1-2]", SLURM_NTASKS=str(asked.ntasks),
                                       SLURM_NTASKS_PER_NODE=str(asked.ntasks_per_node), SCRATCH=str(FOLDER / "scratch"))
        environment["PATH"] = f"{FOLDER}/bin:{environment['PATH']}"
        (FOLDER / "scratch").mkdir()
        for expected in (100, 0):  # the second job finds that all steps are done
            done = subprocess.run(["bash", "job.sh"], cwd=FOLDER, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                  text=True, timeout=300, check=False)
            self.assertEqual(done.returncode, 0, done.stdout)
            self.assertEqual(len(self.losses_of(done.stdout)), expected, done.stdout)

    def test_the_manifests_hang_together(self):
        service, job = manifests()
        self.assertEqual((service["apiVersion"], service["kind"], job["apiVersion"], job["kind"]), ("v1", "Service", "batch/v1", "Job"))
        name, pod = job["metadata"]["name"], job["spec"]["template"]["spec"]
        # A name of pod 0 before it is ready: a headless service over the Job's pods, which is their subdomain.
        self.assertEqual(service["spec"]["clusterIP"], "None")
        self.assertTrue(service["spec"]["publishNotReadyAddresses"])
        self.assertEqual(service["spec"]["selector"], {"job-name": name})
        self.assertEqual(pod["subdomain"], service["metadata"]["name"])
        self.assertEqual(job["spec"]["completionMode"], "Indexed")
        self.assertEqual(job["spec"]["parallelism"], job["spec"]["completions"])
        self.assertEqual((pod["restartPolicy"], job["spec"]["backoffLimit"]), ("Never", 0))
        container, = pod["containers"]
        words = " ".join(container["args"]).split()
        self.assertEqual(words[words.index("--world-size") + 1], str(job["spec"]["completions"]))
        self.assertEqual(words[words.index("--master-address") + 1], f"{name}-0.{pod['subdomain']}")
        self.assertEqual(container["env"], [{"name": "GRAPHPIPE_SECRET", "valueFrom": {"secretKeyRef": {"name": name, "key": "secret"}}}])

    def test_the_pods_of_the_job_train(self):
        _, job = manifests()
        container, = job["spec"]["template"]["spec"]["containers"]
        line, = container["args"]
        for there, here in {"/out/": f"{FOLDER}/out/", "/data ": f"{FOLDER}/data ", "pipeline-0.pipeline": "localhost",
                            "29500": str(20000 + os.getpid() % 20000)}.items():
            self.assertIn(there, line)
            line = line.replace(there, here)
        pods = [subprocess.Popen([*container["command"], line], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                 env=self.environment(GRAPHPIPE_SECRET="0123456789abcdef" * 4, JOB_COMPLETION_INDEX=str(index)))
                for index in range(job["spec"]["completions"])]
        outputs = [pod.communicate(timeout=300)[0] for pod in pods]
        self.assertEqual([pod.returncode for pod in pods], [0] * len(pods), outputs)
        self.assertEqual(len(self.losses_of(outputs[0])), 100, outputs[0])


if __name__ == "__main__":
    PROGRAM, FOLDER = sys.argv.pop(1), pathlib.Path(sys.argv.pop(1)).resolve()
    unittest.main()
