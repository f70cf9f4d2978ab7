#!/usr/bin/env python3
"""Times the cpu device of cpattn beside PyTorch, call by call in turn.  `make compare` runs it.

One process: scaled_dot_product_attention, on [B, S, H, D] tensors as transposed views (what most
models hand over, and cpattn's layout) and on contiguous [B, H, S, D] beside it.  Two processes:
ring and all-to-all attention over gloo (Diffusers' too, where it is installed), beside
`mpirun --bind-to none -n 2 cpattn bench --comm mpi`.

A number is the best of all rounds; a ratio is PyTorch's time over ours.  What is wrong gets no number.
"""
import argparse
import ctypes
import importlib.util
import json
import math
import os
import subprocess
import sys
import time

import torch
import torch.nn.functional as F

TORCH = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
# Loose: it only has to see a wrong result; `cpattn verify` and its bounds are the judge.
OFF = {"fp32": 1e-4, "bf16": 3e-2, "fp16": 4e-3}

# name, (Sq, Skv, H, D), causal, {dtype: (at least, aim)}
LONG128 = {"fp32": (1.10, 1.20), "bf16": (1.8, 2.1), "fp16": (1.15, 1.24)}
LONG64 = {"fp32": (1.20, 1.35), "bf16": (1.8, 2.1), "fp16": (1.25, 1.35)}
SHORT64 = {"fp32": (1.5, 2.0), "bf16": (1.9, 2.3), "fp16": (1.5, 2.0)}
SHORT = {"fp32": (1.35, 1.8), "bf16": (1.9, 2.2), "fp16": (1.4, 1.8)}
SHAPES = [
    ("short", (64, 64, 128, 64), False, SHORT64),
    ("short", (128, 128, 24, 128), False, SHORT),
    ("short", (256, 256, 16, 64), False, SHORT),
    ("long", (1024, 1024, 4, 128), False, LONG128),
    ("long", (1024, 1024, 4, 64), False, LONG64),
    ("long", (512, 4608, 2, 128), False, LONG128),
    ("long", (512, 4608, 2, 64), False, LONG64),
    ("causal", (1024, 1024, 4, 128), True, {"fp32": (None, None)}),
]


class Ours:
    """The attention of the cpu device, by data/compare_attend.c."""

    def __init__(self, path):
        self.library = ctypes.CDLL(path)
        self.library.compare_error.restype = ctypes.c_char_p
        pointer = ctypes.c_void_p
        self.library.compare_attend.argtypes = [
            ctypes.c_char_p, ctypes.POINTER(ctypes.c_int64), ctypes.c_int, ctypes.c_double,
            pointer, pointer, pointer, pointer, pointer, ctypes.c_int]

    def call(self, dtype, shape, causal, q, k, v, o, lse, threads):
        """q, k, v, o: [1, S, H, D], contiguous."""
        sq, skv, h, d = shape
        sizes = (ctypes.c_int64 * 6)(1, sq, skv, h, h, d)
        if self.library.compare_attend(
                dtype.encode(), sizes, causal, 1 / math.sqrt(d), q.data_ptr(), k.data_ptr(),
                v.data_ptr(), o.data_ptr(), lse.data_ptr(), threads):
            sys.exit("compare: " + self.library.compare_error().decode())


class Case:
    """One shape, dtype and number of threads; three ways to compute it."""

    def __init__(self, ours, name, shape, causal, dtype, threads, bounds):
        self.name, self.shape, self.causal, self.dtype = name, shape, causal, dtype
        self.threads, self.bounds, self.ours = threads, bounds, ours
        sq, skv, h, d = shape
        generator = torch.Generator().manual_seed(1)

        def made(s):
            return torch.randn(1, s, h, d, generator=generator).to(TORCH[dtype])

        self.q, self.k, self.v = made(sq), made(skv), made(skv)
        self.o, self.lse = torch.empty_like(self.q), torch.empty(1, sq, h)
        self.views = [x.transpose(1, 2) for x in (self.q, self.k, self.v)]
        self.contiguous = [x.contiguous() for x in self.views]
        self.best = {"ours": math.inf, "views": math.inf, "contiguous": math.inf}
        self.ncalls = 1
        self.check()

    def run(self, way):
        if way == "ours":
            self.ours.call(self.dtype, self.shape, self.causal, self.q, self.k, self.v, self.o,
                           self.lse, self.threads)
        else:
            F.scaled_dot_product_attention(*getattr(self, way), is_causal=self.causal)

    def check(self):
        torch.set_num_threads(self.threads)
        self.run("ours")
        right = F.scaled_dot_product_attention(*(x.float() for x in self.views),
                                               is_causal=self.causal).transpose(1, 2)
        off = (self.o.float() - right).abs().max().item()
        if not off <= OFF[self.dtype]:
            sys.exit(f"compare: {self.title()}: o is {off:.3g} away from PyTorch's in fp32")
        self.ncalls = max(1, int(3e-3 / max(self.time("ours"), 1e-6)))

    def time(self, way):
        self.run(way)  # wakes the threads of this runtime, and lets those of the other one sleep
        start = time.perf_counter()
        for _ in range(self.ncalls):
            self.run(way)
        return (time.perf_counter() - start) / self.ncalls

    def round(self):
        torch.set_num_threads(self.threads)
        for way in self.best:
            self.best[way] = min(self.best[way], self.time(way))

    def title(self):
        sq, skv, h, d = self.shape
        return f"S={sq}x{skv},H={h},D={d}" + (",causal" if self.causal else "")

    def record(self):
        ratio = self.best["views"] / self.best["ours"]
        least, aim = self.bounds
        return {"row": self.name, "problem": self.title(), "dtype": self.dtype,
                "threads": self.threads, "ours_seconds": self.best["ours"],
                "torch_views_seconds": self.best["views"],
                "torch_contiguous_seconds": self.best["contiguous"], "ratio": ratio,
                "ratio_contiguous": self.best["contiguous"] / self.best["ours"],
                "at_least": least, "aim": aim, "met": None if least is None else ratio >= least}


def picked(args, s, dtype):
    return (not args.keys or s in args.keys) and (not args.dtypes or dtype in args.dtypes)


def number(value):
    return "-" if value is None else f"{value:.2f}"


def met(record):
    if record["at_least"] is None:
        return ""
    return "aim" if record["ratio"] >= record["aim"] else "met" if record["met"] else "NOT MET"


def one_process(args):
    ours = Ours(args.library)
    cases = [Case(ours, name, shape, causal, dtype, threads, bounds)
             for name, shape, causal, by_dtype in SHAPES
             for dtype, bounds in by_dtype.items() for threads in args.threads
             if picked(args, shape[1], dtype)]
    for _ in range(args.rounds):
        for case in cases:
            case.round()
    print("# PyTorch's time over ours; views: its [B,S,H,D] tensors as transposed views;\n"
          "# contiguous: its [B,H,S,D] tensors, which it likes better\n#")
    print(f"# {'':7} {'problem':27} {'dtype':5} {'thr':>3} {'ours':>9} {'views':>7}"
          f" {'contiguous':>10} {'least':>6} {'aim':>6}")
    print(f"# {'':7} {'':27} {'':5} {'':>3} {'us':>9} {'ratio':>7} {'ratio':>10}")
    records = [case.record() for case in cases]
    for r in records:
        print(f"  {r['row']:7} {r['problem']:27} {r['dtype']:5} {r['threads']:3}"
              f" {1e6 * r['ours_seconds']:9.1f} {r['ratio']:7.2f} {r['ratio_contiguous']:10.2f}"
              f" {number(r['at_least']):>6} {number(r['aim']):>6}  {met(r)}", flush=True)
    return records


# ---- two processes ----

# Diffusers has no ring on CPUs: its native attention returns no lse.
GLOO = ["ring allgather", "ring alltoall", "all-to-all"] + (
    ["diffusers ulysses"] if importlib.util.find_spec("diffusers") else [])
# S, H, D, {dtype: (at least, aim)}: the FLUX shape, and one where the exchange matters.
WORLD = [(4608, 24, 128, {"fp32": (1.10, 1.25), "bf16": (1.6, 1.9)}),
         (1024, 24, 128, {"fp32": (1.25, 1.45), "bf16": (1.8, 2.2)})]


class Worker:
    """This process's end of a gloo world; q, k, v are shards [1, H, S/P, D] of transposed views."""

    def __init__(self, rank, size):
        import torch.distributed as dist
        from torch.distributed.tensor.experimental._context_parallel import _attention
        dist.init_process_group("gloo", rank=rank, world_size=size)
        torch.set_num_threads(1)
        self.dist, self.attention, self.rank, self.size = dist, _attention, rank, size
        self.parallel = {}
        self.options = _attention._cp_options
        self.options.enable_load_balance = False
        self.options.convert_to_f32 = True

    def make(self, s, h, d, dtype):
        generator = torch.Generator().manual_seed(1)
        whole = [torch.randn(1, s, h, d, generator=generator).to(TORCH[dtype]) for _ in range(3)]
        n = s // self.size
        self.local = [x[:, self.rank * n:(self.rank + 1) * n].contiguous() for x in whole]
        right = F.scaled_dot_product_attention(
            *(x[:, :, :2].transpose(1, 2).float() for x in whole))
        self.right = right.transpose(1, 2)[:, self.rank * n:(self.rank + 1) * n]

    def ring(self, how):
        self.attention.set_rotate_method(how)
        q, k, v = (x.transpose(1, 2) for x in self.local)
        flash = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
        return self.attention._templated_ring_attention(
            self.dist.group.WORLD, 2, flash, q, k, v)[0].transpose(1, 2)

    def swap(self, x, heads_to_tokens):
        """[1, S/P, H, D] to [1, S, H/P, D], or back."""
        p = self.size
        if heads_to_tokens:
            _, s, h, d = x.shape
            send = x.reshape(s, p, h // p, d).transpose(0, 1).contiguous()
        else:
            _, s, h, d = x.shape
            send = x.reshape(p, s // p, h, d).contiguous()
        got = torch.empty_like(send)
        self.dist.all_to_all_single(got, send)
        if heads_to_tokens:
            return got.reshape(1, s * p, h // p, d)
        return got.transpose(0, 1).reshape(1, s // p, h * p, d)

    def all_to_all(self):
        q, k, v = (self.swap(x, True).transpose(1, 2) for x in self.local)
        return self.swap(F.scaled_dot_product_attention(q, k, v).transpose(1, 2), False)

    def diffusers(self, degree):
        """How Diffusers runs it, through its own dispatcher; degree: "ring" or "ulysses"."""
        from diffusers.models._modeling_parallel import ContextParallelConfig, ParallelConfig
        from diffusers.models.attention_dispatch import dispatch_attention_fn
        if degree not in self.parallel:
            shape = (self.size, 1) if degree == "ring" else (1, self.size)
            mesh = self.dist.device_mesh.init_device_mesh(
                "cpu", shape, mesh_dim_names=("ring", "ulysses"))
            config = ParallelConfig(context_parallel_config=ContextParallelConfig(
                **{degree + "_degree": self.size}))
            config.setup(self.rank, self.size, torch.device("cpu"), mesh=mesh)
            self.parallel[degree] = config
        return dispatch_attention_fn(*self.local, backend="native",
                                     parallel_config=self.parallel[degree])

    def run(self, way):
        if way == "all-to-all":
            return self.all_to_all()
        who, how = way.split()
        return self.ring(how) if who == "ring" else self.diffusers(how)

    def time(self, way, repeat):
        best = math.inf
        for i in range(repeat + 1):
            self.dist.barrier()
            start = time.perf_counter()
            o = self.run(way)
            mine = torch.tensor([time.perf_counter() - start], dtype=torch.float64)
            self.dist.all_reduce(mine, op=self.dist.ReduceOp.MAX)
            if i > 0:
                best = min(best, mine.item())
        off = (o[:, :, :2].float() - self.right).abs().max().item()
        return {"seconds": best, "off": off}

    def serve(self):
        for line in sys.stdin:
            word, *rest = json.loads(line)
            answer = self.make(*rest) if word == "make" else self.time(*rest)
            print(json.dumps(answer), flush=True)
        self.dist.destroy_process_group()


class Gloo:
    """Worker processes that stand by."""

    def __init__(self, size):
        environment = dict(os.environ, MASTER_ADDR="127.0.0.1", MASTER_PORT=str(free_port()),
                           OMP_NUM_THREADS="1")
        self.workers = [subprocess.Popen(
            [sys.executable, __file__, "--worker", str(r), str(size)], env=environment,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for r in range(size)]

    def ask(self, *words):
        for worker in self.workers:
            worker.stdin.write(json.dumps(words) + "\n")
            worker.stdin.flush()
        return [json.loads(worker.stdout.readline()) for worker in self.workers]

    def close(self):
        for worker in self.workers:
            worker.stdin.close()
        for worker in self.workers:
            worker.wait()


def free_port():
    import socket
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def bench(args, s, h, d, dtype, repeat):
    """One short run of our command; {"ring": result, "ulysses": result}."""
    command = [args.mpirun, "--bind-to", "none", "-n", "2", args.cpattn, "bench", "--comm", "mpi", "--threads", "1",
               "--variant", "ring,ulysses", "--problem", f"S={s},H={h},D={d},dtype={dtype}",
               "--warmup", "1", "--repeat", str(repeat), "--json", "-"]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    if done.returncode:
        sys.exit("compare: failed: " + " ".join(command))
    return {r["variant"]: r for r in json.loads(done.stdout)["results"]}


def two_processes(args):
    records = []
    gloo = Gloo(2)
    print("#\n# two processes of one thread: time of attention over gloo, over ours over MPI\n#")
    print(f"# {'problem':21} {'dtype':5} {'gloo':17} {'theirs':>8} {'ours':>8} {'ours':8}"
          f" {'ratio':>6} {'least':>6} {'aim':>6}")
    print(f"# {'':21} {'':5} {'':17} {'ms':>8} {'ms':>8}")
    for s, h, d, by_dtype in WORLD:
        for dtype, (least, aim) in by_dtype.items():
            if not picked(args, s, dtype):
                continue
            theirs = dict.fromkeys(GLOO, math.inf)
            ours = {"ring": math.inf, "ulysses": math.inf}
            gloo.ask("make", s, h, d, dtype)
            for _ in range(args.rounds):
                for way in GLOO:
                    for answer in gloo.ask("time", way, 1):
                        if not answer["off"] <= OFF[dtype]:
                            sys.exit(f"compare: {way} over gloo is {answer['off']:.3g} off")
                        theirs[way] = min(theirs[way], answer["seconds"])
                for variant, result in bench(args, s, h, d, dtype, 1).items():
                    ours[variant] = min(ours[variant], result["seconds"]["min"])
            for way in GLOO:
                variant = "ring" if way.startswith("ring") else "ulysses"
                ratio = theirs[way] / ours[variant]
                record = {"row": "processes", "problem": f"S={s},H={h},D={d}", "dtype": dtype,
                          "gloo": way, "variant": variant, "theirs_seconds": theirs[way],
                          "ours_seconds": ours[variant], "ratio": ratio, "at_least": least,
                          "aim": aim, "met": ratio >= least}
                records.append(record)
                print(f"  {record['problem']:21} {dtype:5} {way:17} {1e3 * theirs[way]:8.1f}"
                      f" {1e3 * ours[variant]:8.1f} {variant:8} {ratio:6.2f} {least:6.2f}"
                      f" {aim:6.2f}  {met(record)}", flush=True)
    gloo.close()
    return records


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--library", help="data/compare_attend.c, built as a shared library")
    parser.add_argument("--cpattn", help="the command; without it only one process is measured")
    parser.add_argument("--mpirun", default="mpirun")
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, os.cpu_count()])
    parser.add_argument("--keys", type=int, nargs="+", help="only these numbers of keys")
    parser.add_argument("--dtypes", nargs="+", choices=TORCH, help="only these")
    parser.add_argument("--json", help="writes all results there")
    parser.add_argument("--worker", type=int, nargs=2, metavar=("RANK", "SIZE"),
                        help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker:
        return Worker(*args.worker).serve()
    if args.rounds < 1:
        parser.error("--rounds is at least 1")
    args.threads = sorted(set(args.threads))
    print(f"# PyTorch {torch.__version__}, best of {args.rounds} rounds, all in turn", flush=True)
    records = one_process(args) if args.library else []
    if args.cpattn:
        records += two_processes(args)
    if args.json:
        with open(args.json, "w") as file:
            json.dump({"torch": torch.__version__, "rounds": args.rounds, "results": records},
                      file, indent=1)
    return 0


if __name__ == "__main__":
    sys.exit(main())
