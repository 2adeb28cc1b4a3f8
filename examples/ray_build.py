#!/usr/bin/env python3
"""Build an index on a Ray cluster: a part a task, joined on the machine that started it.

    python examples/ray_build.py --address auto --parts 64 -o /shared/index -- /shared/pile --tokenizer /shared/20B_tokenizer.json

Everything behind `--` goes to `hds-index build` as it is. Every worker must see this folder, the inputs, the tokenizer and the folder of
the parts under the same paths (a shared file system), and must have `hds-index` (`--program` names it where it is not on PATH).

The plan is cut by `hds-index build --shard i/n`, which depends on the names and sizes of the inputs alone, so the tasks need not know of each
other. A task that dies is started again by Ray and goes on where it was. The index is, byte for byte, the one of a single build.

`--local-workers N` starts a cluster of N workers with one CPU each on this machine instead, to try it out.
"""

import argparse
import os
import shutil
import subprocess
import sys


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    cluster = parser.add_mutually_exclusive_group(required=True)
    cluster.add_argument("--address", help="address of the Ray cluster, or auto")
    cluster.add_argument("--local-workers", type=int, metavar="N", help="start a cluster of N workers on this machine")
    parser.add_argument("--parts", type=int, required=True, help="parts to make; no more than there are input files is of use")
    parser.add_argument("--cpus", type=float, default=1, help="CPUs of a task, and its threads (default 1)")
    parser.add_argument("--program", default="hds-index", help="the program, as the workers find it")
    parser.add_argument("--keep-parts", action="store_true", help="do not remove the parts behind")
    parser.add_argument("-o", "--output", required=True, help="the index folder to make")
    parser.add_argument("build", nargs="+", help="inputs and options of `hds-index build`, behind --")
    return parser.parse_args()


def start_local_cluster(workers):
    """A head without CPUs and workers of one CPU each, every one a raylet of its own."""
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0})
    for _ in range(workers):
        cluster.add_node(num_cpus=1)
    cluster.wait_for_nodes()
    return cluster


def build_part(program, arguments, threads, part, parts, folder, here):
    """Makes one part; gives the node that did it. A part that is there already is whole, as parts appear by a rename."""
    import ray

    target = os.path.join(folder, f"{part:05}-of-{parts:05}")
    if not os.path.exists(target):
        command = [program, "build", *arguments, "--shard", f"{part}/{parts}", "--threads", str(threads), "-o", target]
        done = subprocess.run(command, cwd=here, capture_output=True, text=True)
        if done.returncode != 0:
            raise RuntimeError(f"part {part}: {done.stderr.strip()}")
    return target, ray.get_runtime_context().get_node_id()


def main():
    arguments = parse_arguments()
    import ray

    output = os.path.abspath(arguments.output)
    program = shutil.which(arguments.program) or arguments.program
    if os.path.exists(program):
        program = os.path.abspath(program)
    folder = output + ".parts"
    os.makedirs(folder, exist_ok=True)

    cluster = start_local_cluster(arguments.local_workers) if arguments.local_workers else None
    ray.init(address=cluster.address if cluster else arguments.address, log_to_driver=False)
    try:
        task = ray.remote(num_cpus=arguments.cpus, max_retries=3)(build_part)
        threads = max(1, int(arguments.cpus))
        waiting = [
            task.remote(program, arguments.build, threads, part, arguments.parts, folder, os.getcwd())
            for part in range(1, arguments.parts + 1)
        ]
        parts, nodes = [], set()
        while waiting:
            ready, waiting = ray.wait(waiting)
            for target, node in ray.get(ready):
                parts.append(target)
                nodes.add(node)
                print(f"{len(parts)} of {arguments.parts} parts are there", file=sys.stderr)
        print(f"built by {len(nodes)} nodes", file=sys.stderr)
    finally:
        ray.shutdown()
        if cluster:
            cluster.shutdown()

    subprocess.run([program, "merge", *sorted(parts), "-o", output], check=True)
    if not arguments.keep_parts:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
