"""What each rank of a distributed attention held, with h5py and numpy alone:

    python example_record_ranks.py run.d && cpattn merge run.d -o run.h5 && cpattn check run.h5

Here a loop stands for the ranks; in a system of yours each rank writes its own file.  It splits tokens
unevenly over a ring of 3, and o and lse of each rank are computed here; put in what your system returned.
cpattn_record.py does the same, and more, in one call.
"""
import os
import sys

import h5py
import numpy as np

WORLD, SIZES = 3, [20, 13, 4]
S, H, D = sum(SIZES), 4, 32
directory = sys.argv[1] if len(sys.argv) > 1 else "run.d"
random = np.random.default_rng(1)
q, k, v = (random.standard_normal((1, S, H, D)).astype(np.float32) for _ in range(3))


def attention(q, k, v):
    """o and the natural-log lse of full attention, in float64."""
    score = D**-0.5 * np.einsum("bihd,bjhd->bhij", q.astype(float), k.astype(float))
    lse = np.logaddexp.reduce(score, axis=-1)
    return np.einsum("bhij,bjhd->bihd", np.exp(score - lse[..., None]), v.astype(float)), lse.transpose(0, 2, 1)


def record_rank(rank, start, count):
    mine = slice(start, start + count)
    o, lse = attention(q[:, mine], k, v)  # a ring sends k and v round; here they are at hand
    temporary, final = (os.path.join(directory, f"00_layer0.rank{rank}.{end}") for end in ("tmp", "h5"))
    with h5py.File(temporary, "w") as file:
        call = file.create_group("calls/00_layer0")  # the same name on all ranks
        call.attrs["scale"], call.attrs["causal"] = D**-0.5, 0  # of the whole call
        call.create_group("config").attrs["ring_degree"] = WORLD
        ranks = call.create_group("ranks")
        ranks.attrs["world_size"] = WORLD
        held = ranks.create_group(str(rank))
        held.attrs["tokens"] = np.array([[start, count, 1]])  # rows (start, count, stride) of global ids
        for name, x in {"q": q[:, mine], "k": k[:, mine], "v": v[:, mine], "o": o, "lse": lse}.items():
            held.create_dataset(name, data=x.astype(np.float32))
    os.replace(temporary, final)  # whole or not there


os.makedirs(directory, exist_ok=True)
for rank in range(WORLD):
    record_rank(rank, sum(SIZES[:rank]), SIZES[rank])
