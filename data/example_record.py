"""Records one attention call with h5py and numpy alone: python example_record.py my_run.h5

A call of your own model goes in where the random q, k, v are made.  o and lse are computed here in
float64; put in what your system returned if that is what you want to have checked.
"""
import sys

import h5py
import numpy as np

B, Sq, Skv, Hq, Hkv, D = 1, 37, 53, 6, 2, 32  # the second chunk of a causal prefill, grouped heads
causal, offset, scale = True, Skv - Sq, D**-0.5

random = np.random.default_rng(1)
q = random.standard_normal((B, Sq, Hq, D)).astype(np.float32)
k = random.standard_normal((B, Skv, Hkv, D)).astype(np.float32)
v = random.standard_normal((B, Skv, Hkv, D)).astype(np.float32)


def attention(q, k, v):
    """o and the natural-log lse of full attention, in float64."""
    q, k, v = (x.astype(np.float64) for x in (q, k, v))
    k, v = (np.repeat(x, Hq // Hkv, axis=2) for x in (k, v))  # query head h uses key head h // group
    score = scale * np.einsum("bihd,bjhd->bhij", q, k)
    if causal:
        visible = np.arange(Skv) <= np.arange(Sq)[:, None] + offset
        score = np.where(visible, score, -np.inf)
    lse = np.logaddexp.reduce(score, axis=-1)  # -inf for a query that sees no key; o is 0 there
    weight = np.exp(score - np.where(np.isinf(lse), 0, lse)[..., None])
    return np.einsum("bhij,bjhd->bihd", weight, v), lse.transpose(0, 2, 1)


o, lse = attention(q, k, v)
with h5py.File(sys.argv[1] if len(sys.argv) > 1 else "my_run.h5", "w") as file:
    file.attrs["format"] = "cpattn recording"
    file.attrs["format_version"] = 1
    call = file.create_group("calls/00_layer0")
    for name, value in {"q": q, "k": k, "v": v, "o": o.astype(q.dtype), "lse": lse.astype("f4")}.items():
        call.create_dataset(name, data=value, compression="gzip", shuffle=True)
    call.attrs["scale"] = scale
    call.attrs["causal"] = causal
    call.attrs["causal_offset"] = offset
    call.attrs["source"] = "data/example_record.py"
