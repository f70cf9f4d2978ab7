"""Records attention calls of a running model, one file for each call and rank, for cpattn.

    import cpattn_record

    with cpattn_record.record("run.d"):        # every scaled_dot_product_attention of PyTorch
        model(x)

    with cpattn_record.record("run.d", calls=None):
        o, lse = my_ring_attention(q, k, v)
        cpattn_record.call(q, k, v, o, lse, causal=True, tokens=[(rank * 512, 512, 1)])

Then `cpattn merge run.d -o run.h5` and `cpattn check run.h5`.  Needs h5py and numpy; PyTorch only for
recording its calls and tensors.  Each file is written under another name and renamed when it is complete,
so what has been recorded is there even where the program dies later.

Tokens, heads and batches are global ids: rows (start, count, stride) in the order of storage, with
(-1, count, 0) for padding.  A flat list of ids does as well, and so does a range.
"""
import contextlib
import fnmatch
import importlib.util
import math
import os
import re

import h5py
import numpy as np

__all__ = ["record", "call", "rows", "RecordError"]

_active = []  # recorders, innermost last


class RecordError(ValueError):
    """What cannot be recorded, and why."""


# ---- numbers -------------------------------------------------------------------------------------


def _bfloat16():
    """The 16-bit HDF5 float that stands for bfloat16."""
    kind = h5py.h5t.IEEE_F32LE.copy()
    kind.set_fields(15, 7, 8, 0, 7)
    kind.set_size(2)
    kind.set_ebias(127)
    return kind


class _Array:
    """A tensor as numpy holds it; bfloat16 as its bits."""

    def __init__(self, name, value):
        self.name, self.bf16 = name, False
        if hasattr(value, "detach"):  # a PyTorch tensor, wherever it is
            if hasattr(value, "full_tensor"):
                raise RecordError(f"{name} is a DTensor; record what this rank holds, {name}.to_local()")
            value = value.detach().cpu()
            self.bf16 = str(value.dtype) == "torch.bfloat16"
            if self.bf16:
                import torch

                value = value.contiguous().view(torch.int16)
            try:
                value = value.numpy()
            except TypeError:  # float8 and others that numpy lacks
                raise RecordError(f"{name} holds {value.dtype}; expected float64, float32, float16 or bfloat16") from None
        value = np.asarray(value)
        if value.dtype.name == "bfloat16":  # of ml_dtypes
            value, self.bf16 = value.view(np.uint16), True
        elif value.dtype == np.uint16:  # bits of bfloat16, as numpy has no name for it
            self.bf16 = True
        self.at = value

    def floats(self):
        if not self.bf16 and self.at.dtype not in (np.float16, np.float32, np.float64):
            raise RecordError(
                f"{self.name} holds {self.at.dtype}; expected float64, float32, float16 or bfloat16"
            )
        return self

    def write(self, group, name=None):
        name = name or self.name
        data = np.ascontiguousarray(self.at)
        if data.dtype.byteorder == ">":
            data = data.astype(data.dtype.newbyteorder("<"))
        if not self.bf16:
            return group.create_dataset(name, data=data)
        kind = _bfloat16()
        space = h5py.h5s.create_simple(data.shape)
        made = h5py.h5d.create(group.id, name.encode(), kind, space)
        if data.size:  # the bits themselves: no conversion
            made.write(h5py.h5s.ALL, h5py.h5s.ALL, data.view(np.int16), mtype=kind)
        return h5py.Dataset(made)


# ---- spans ---------------------------------------------------------------------------------------


def rows(ids):
    """Ids as rows (start, count, stride).  ids: a range, a flat list of ids (-1: padding), or such rows."""
    if isinstance(ids, range):
        if len(ids) and ids.step < 1:
            raise RecordError(f"{ids} runs backwards; write its ids as a list")
        return np.array([(ids.start, len(ids), ids.step)], np.int64)
    table = np.asarray(ids)
    if table.size == 0:
        return np.zeros((0, 3), np.int64)
    if table.dtype.kind not in "iu":
        raise RecordError(f"ids are {table.dtype}; expected integers, as a list or as rows (start, count, stride)")
    table = table.astype(np.int64)
    if table.ndim == 1:
        return _pack(table.tolist())
    if table.ndim != 2 or table.shape[1] != 3:
        raise RecordError(f"ids have the shape {table.shape}; expected [n] ids or [n, 3] rows")
    for start, count, stride in table.tolist():
        padding = start == -1 and stride == 0
        if count < 0 or not (padding or (start >= 0 and stride >= 1)):
            raise RecordError(
                f"({start}, {count}, {stride}) is no row (start >= 0, count >= 0, stride >= 1), "
                "nor (-1, count, 0) for padding"
            )
    return table


def _pack(ids):
    out, i = [], 0
    while i < len(ids):
        if ids[i] < -1:
            raise RecordError(f"id {ids[i]}; expected 0 or more, or -1 for padding")
        stride = 0 if ids[i] == -1 else 1
        if ids[i] >= 0 and i + 1 < len(ids) and ids[i + 1] > ids[i]:
            stride = ids[i + 1] - ids[i]
        end = i + 1
        while end < len(ids) and ids[end] == ids[end - 1] + stride and (stride or ids[end] == -1):
            end += 1
        out.append((ids[i], end - i, stride))
        i = end
    return np.array(out, np.int64)


def _spans(what, ids, n):
    """rows() of an axis of n entries; ids None: all."""
    table = np.array([(0, n, 1)], np.int64) if ids is None else rows(ids)
    if table[:, 1].sum() != n:
        raise RecordError(f"{what} names {table[:, 1].sum()} entries, and the tensor has {n}")
    return table


# ---- a run ---------------------------------------------------------------------------------------


def _place(rank, world):
    """Rank and world: as given, of torch.distributed, of the environment, or 0 of 1."""
    if (rank is None) != (world is None):
        raise RecordError("rank and world come together")
    if rank is None:
        try:
            import torch.distributed as dist

            if dist.is_available() and dist.is_initialized():
                return dist.get_rank(), dist.get_world_size()
        except ImportError:
            pass
        rank, world = os.environ.get("RANK", 0), os.environ.get("WORLD_SIZE", 1)
    rank, world = int(rank), int(world)
    if not 0 <= rank < world:
        raise RecordError(f"rank {rank} of {world}; expected 0 to {world - 1}")
    return rank, world


class Recorder:
    """What record() gives: where files go, and how many."""

    def __init__(self, path, calls, rank, world, max_calls, max_bytes, every, model, where):
        if every < 1 or (max_calls is not None and max_calls < 0):
            raise RecordError("every must be 1 or more, and max_calls 0 or more")
        self.path, self.calls = os.fspath(path), calls
        self.rank, self.world = _place(rank, world)
        self.max_calls, self.max_bytes, self.every = max_calls, max_bytes, every
        self.where = where  # tokens, heads, ... of calls that are caught
        self.model, self.stack, self.hooks = model, [], []
        self.seen = self.matching = self.written = self.nbytes = 0
        os.makedirs(self.path, exist_ok=True)
        mine = [f for f in os.listdir(self.path) if f.endswith(f".rank{self.rank}.h5")]
        if mine:
            raise RecordError(
                f"{self.path} holds {mine[0]} of an earlier run; name a new directory or remove it"
            )

    def wants(self, name, pattern="*"):
        """Counts a call; its full name if it is to be recorded."""
        full = f"{self.seen:05d}_{re.sub(r'[^A-Za-z0-9._-]', '_', name)[:150]}"
        self.seen += 1
        if not fnmatch.fnmatch(full, pattern):
            return None
        self.matching += 1
        if (self.matching - 1) % self.every or (self.max_calls is not None and self.written >= self.max_calls):
            return None
        if self.max_bytes is not None and self.nbytes >= self.max_bytes:
            return None
        return full

    def write(self, name, fill):
        """fill(file) makes the content; the file is there whole or not at all."""
        final = os.path.join(self.path, f"{name}.rank{self.rank}.h5")
        temporary = os.path.join(self.path, f".{name}.rank{self.rank}.{os.getpid()}.tmp")
        try:
            with h5py.File(temporary, "w") as file:
                file.attrs["format"] = "cpattn recording"
                file.attrs["format_version"] = 1
                fill(file.create_group(f"calls/{name}"))
            with open(temporary, "rb") as file:
                os.fsync(file.fileno())
            self.nbytes += os.path.getsize(temporary)
            os.replace(temporary, final)
        except BaseException:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(temporary)
            raise
        self.written += 1
        return final

    # Names of modules, where a model was given: hooks keep a stack of where the program is.
    def watch(self):
        for name, module in self.model.named_modules() if self.model is not None else ():
            self.hooks.append(module.register_forward_pre_hook(lambda *_, n=name: self.stack.append(n)))
            self.hooks.append(
                module.register_forward_hook(lambda *_: self.stack.pop() and None, always_call=True)
            )

    def unwatch(self):
        for hook in self.hooks:
            hook.remove()


@contextlib.contextmanager
def record(path, calls="*", *, rank=None, world=None, max_calls=None, max_bytes=None, every=1, model=None,
           tokens=None, kv_tokens=None, heads=None, kv_heads=None, batches=None, config=None):
    """Records into the directory `path` while the block runs.

    calls       which calls of scaled_dot_product_attention, by a pattern for their names, 00000_sdpa and so
                on; None: none, only what call() is given.  With model=, names are those of its modules:
                00003_blocks.1.attn.
    rank, world taken from torch.distributed, or from RANK and WORLD_SIZE, where they are not given
    every       only each n-th call that matches; max_calls and max_bytes end recording.  All ranks must drop the same.
    tokens, kv_tokens, heads, kv_heads, batches, config
                as of call(), for the calls that are caught.  On several ranks the tokens or the heads that
                this rank holds must be said.
    """
    where = {"tokens": tokens, "kv_tokens": kv_tokens, "heads": heads, "kv_heads": kv_heads,
             "batches": batches, "config": config}
    recorder = Recorder(path, calls, rank, world, max_calls, max_bytes, every, model, where)
    if calls is not None and importlib.util.find_spec("torch") is None:
        raise RecordError("PyTorch is not here to record from; say calls=None and use call()")
    catch = _catch(recorder) if calls is not None else contextlib.nullcontext()
    _active.append(recorder)
    recorder.watch()
    try:
        with catch:
            yield recorder
    finally:
        recorder.unwatch()
        _active.remove(recorder)


# ---- PyTorch -------------------------------------------------------------------------------------


@contextlib.contextmanager
def _catch(recorder):
    """Sees scaled_dot_product_attention while it lasts.

    A TorchFunctionMode sees every call, by whatever name, but for those inside of functions that it sees
    as well (multi_head_attention_forward): there it is off, and the name in torch.nn.functional is used.
    """
    import torch
    from torch.overrides import TorchFunctionMode

    sdpa, caught = torch.nn.functional.scaled_dot_product_attention, [0]

    class Mode(TorchFunctionMode):
        def __torch_function__(self, function, types, args=(), kwargs=None):
            o = function(*args, **(kwargs or {}))
            if function is sdpa:
                caught[0] += 1
                _sdpa(recorder, o, *args, **(kwargs or {}))
            return o

    def by_name(*args, **kwargs):
        before = caught[0]
        o = sdpa(*args, **kwargs)
        if caught[0] == before:
            _sdpa(recorder, o, *args, **kwargs)
        return o

    torch.nn.functional.scaled_dot_product_attention = by_name
    try:
        with Mode():
            yield
    finally:
        torch.nn.functional.scaled_dot_product_attention = sdpa


def _sdpa(recorder, o, query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None,
          enable_gqa=False):
    module = recorder.stack[-1] if recorder.stack else ""
    name = recorder.wants(module or "sdpa", recorder.calls)
    if name is None:
        return
    if dropout_p:
        raise RecordError(f"{name}: dropout_p is {dropout_p}; nothing random can be compared: model.eval()")
    if recorder.world > 1 and recorder.where["tokens"] is None and recorder.where["heads"] is None:
        raise RecordError(
            f"{name}: rank {recorder.rank} of {recorder.world} must say what it holds: record(..., tokens=...) "
            "or heads=...; where attention is a ring of such calls, record the whole with calls=None and call()"
        )
    if not 2 <= query.dim() <= 4:
        raise RecordError(f"{name}: q has {query.dim()} dimensions; expected 2 to 4, [..., tokens, head size]")
    q, k, v, o = (_four(x) for x in (query, key, value, o))
    k, v = (x.expand(q.shape[0], -1, -1, -1) for x in (k, v))
    if q.shape[1] % k.shape[1]:
        raise RecordError(f"{name}: {q.shape[1]} query heads on {k.shape[1]} key heads")
    if attn_mask is not None and query.dim() == 3 and attn_mask.dim() == 3:
        attn_mask = attn_mask.unsqueeze(1)
    # PyTorch aligns is_causal at the top left: query 0 sees key 0, however many keys there are.
    _write(recorder, name, q, k, v, o, None, mask=attn_mask, scale=scale, causal=is_causal, causal_offset=0,
           layout="BHSD", source="torch.nn.functional.scaled_dot_product_attention", **recorder.where)


def _four(x):
    """[..., tokens, head size] as [B, H, tokens, head size]."""
    return x if x.dim() == 4 else x.unsqueeze(1) if x.dim() == 3 else x[None, None]


# ---- by hand -------------------------------------------------------------------------------------


def call(q, k, v, o=None, lse=None, *, mask=None, scale=None, causal=False, causal_offset=None, window=None,
         key_lengths=None, documents=None, sink=None, segments=None, segments_kv=None, name="call",
         tokens=None, kv_tokens=None, heads=None, kv_heads=None, batches=None, mask_keys=None,
         layout="BSHD", config=None, source=None, note=None):
    """Records one attention call, or this rank's part of it; nothing outside of record().

    q, k, v, o  [B, S, H, D] (layout "BHSD": [B, H, S, D]), PyTorch tensors or arrays; numpy arrays of uint16
                are bits of bfloat16
    lse         [B, S, H] ([B, H, S]), float32 or float64, the natural logarithm; -inf for a row without keys
    mask        truth values (True: attend) or floats that are added; broadcasts to [B, H, Sq, Skv]
    mask_keys   ids of the keys of the mask, where they are neither all keys nor those of k
    tokens      ids that the rows of q, o and lse have in the whole sequence; None: 0, 1, ...
    kv_tokens   of k and v; None: as tokens where q and k are alike in length, else 0, 1, ...
    heads, kv_heads, batches
                likewise; kv_heads follow from heads where those are whole groups
    scale, causal, causal_offset, window (left, right), key_lengths [B], documents (starts and the end),
    sink [Hq], segments [(name, length, "split" or "replicated"), ...]
                are of the whole call and the same on all ranks.  scale None: 1/sqrt(D)
    config      dict: ring_degree, ulysses_degree, batch_degree, rotate, split, order, sizes, system, ...

    Returns the name of the file, or None where the call was not wanted.
    """
    if not _active:
        return None
    recorder = _active[-1]
    full = recorder.wants(name)
    if full is None:
        return None
    return _write(
        recorder, full, q, k, v, o, lse, mask=mask, scale=scale, causal=causal, causal_offset=causal_offset,
        window=window, key_lengths=key_lengths, documents=documents, sink=sink, segments=segments,
        segments_kv=segments_kv, tokens=tokens, kv_tokens=kv_tokens, heads=heads, kv_heads=kv_heads,
        batches=batches, mask_keys=mask_keys, layout=layout, config=config, source=source, note=note,
    )


def _write(recorder, name, q, k, v, o, lse, *, mask=None, scale=None, causal=False, causal_offset=None,
           window=None, key_lengths=None, documents=None, sink=None, segments=None, segments_kv=None,
           tokens=None, kv_tokens=None, heads=None, kv_heads=None, batches=None, mask_keys=None,
           layout="BSHD", config=None, source=None, note=None):
    if layout not in ("BSHD", "BHSD"):
        raise RecordError(f"layout is {layout!r}; expected 'BSHD' or 'BHSD'")
    arrays = {n: _Array(n, x).floats() for n, x in dict(q=q, k=k, v=v, o=o, lse=lse).items() if x is not None}
    sizes = _sizes(arrays, layout)
    if scale is not None and not (math.isfinite(scale) and scale > 0):
        raise RecordError(f"scale is {scale}; expected a finite number above 0")
    if (causal or window) and causal_offset is None and sizes["Sq"] != sizes["Skv"] and recorder.world == 1:
        raise RecordError("causal or window with other lengths of q and k: say causal_offset, where query 0 "
                          "stands among the keys")
    if recorder.world == 1 and any(x is not None for x in (tokens, kv_tokens, heads, kv_heads, batches)):
        raise RecordError("tokens, heads and batches are for a run of several ranks; this is one of 1")
    spans = _all_spans(sizes, tokens, kv_tokens, heads, kv_heads, batches)

    def fill(group):
        group.attrs["layout"] = layout
        group.attrs["dtype"] = "bfloat16" if arrays["q"].bf16 else arrays["q"].at.dtype.name
        group.attrs["scale"] = float(scale if scale is not None else sizes["D"] ** -0.5)
        group.attrs["causal"] = int(bool(causal))
        if causal or window:
            group.attrs["causal_offset"] = int(causal_offset or 0)
        if window is not None:
            group.attrs["window"] = np.array(window, np.int64).reshape(2)
        for label, value in dict(source=source, note=note).items():
            if value:
                group.attrs[label] = value
        for label, value in dict(key_lengths=key_lengths, documents=documents).items():
            if value is not None:
                group.create_dataset(label, data=_Array(label, value).at.astype(np.int64))
        if sink is not None:
            group.create_dataset("sink", data=_widened("sink", sink))
        for label, value in dict(segments=segments, segments_kv=segments_kv).items():
            if value is not None:
                _write_segments(group.create_group(label), value)
        if config:
            _write_config(group.create_group("config"), config)
        held = group
        if recorder.world > 1:
            ranks = group.create_group("ranks")
            ranks.attrs["world_size"] = recorder.world
            held = ranks.create_group(str(recorder.rank))
        for label, array in arrays.items():
            made = array.write(held, label)
            if recorder.world > 1:
                for axis, table in spans["kv" if label in "kv" else "q"].items():
                    made.attrs[axis] = table
        if mask is not None:
            _write_mask(held, mask, mask_keys, sizes, spans, recorder.world > 1)

    return recorder.write(name, fill)


def _widened(name, value):
    array = _Array(name, value)
    if array.bf16:
        return (array.at.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    return array.at.astype(np.float64)


def _sizes(arrays, layout):
    """Sizes of this rank's part, once the shapes agree."""
    s, h = (1, 2) if layout == "BSHD" else (2, 1)
    for name, array in arrays.items():
        want = 3 if name == "lse" else 4
        if array.at.ndim != want:
            raise RecordError(f"{name} has the shape {array.at.shape}; expected {want} dimensions, {layout[:want]}")
    q, k, v = (arrays[n].at for n in "qkv")
    sizes = dict(B=q.shape[0], Sq=q.shape[s], Skv=k.shape[s], Hq=q.shape[h], Hkv=k.shape[h], D=q.shape[3],
                 Dv=v.shape[3])
    kinds = {(a.bf16, a.at.dtype.newbyteorder("=")) for n, a in arrays.items() if n in "qkv"}
    if len(kinds) > 1:
        raise RecordError("q, k and v have different types; expected one")
    rest = dict(k=("B", "Skv", "Hkv", "D"), v=("B", "Skv", "Hkv", "Dv"), o=("B", "Sq", "Hq", "Dv"),
                lse=("B", "Sq", "Hq"))
    for name, axes in rest.items():
        if name not in arrays:
            continue
        shape = [sizes[a] for a in axes]
        if layout == "BHSD":
            shape[1], shape[2] = shape[2], shape[1]
        if list(arrays[name].at.shape) != shape:
            raise RecordError(f"{name} has the shape {list(arrays[name].at.shape)}; expected {shape}, as q, k and v")
    if "lse" in arrays and (arrays["lse"].bf16 or arrays["lse"].at.dtype == np.float16):
        raise RecordError("lse has 16 bits; expected float32 or float64")
    return sizes


def _all_spans(sizes, tokens, kv_tokens, heads, kv_heads, batches):
    if kv_tokens is None and sizes["Sq"] == sizes["Skv"]:
        kv_tokens = tokens
    if kv_heads is None and heads is not None:
        kv_heads = _key_heads(rows(heads), sizes)
    batches = _spans("batches", batches, sizes["B"])
    return {
        "q": {"batches": batches, "tokens": _spans("tokens", tokens, sizes["Sq"]),
              "heads": _spans("heads", heads, sizes["Hq"])},
        "kv": {"batches": batches, "tokens": _spans("kv_tokens", kv_tokens, sizes["Skv"]),
               "heads": _spans("kv_heads", kv_heads, sizes["Hkv"])},
    }


def _key_heads(table, sizes):
    """Key heads of whole groups of query heads: query head h uses key head h // group."""
    ids = [s + i * d for s, n, d in table.tolist() for i in range(n)]
    group = sizes["Hq"] // sizes["Hkv"] if sizes["Hkv"] else 0
    if group and sizes["Hq"] == group * sizes["Hkv"] and all(
        ids[i] // group == ids[i - i % group] // group and ids[i] % group == i % group for i in range(len(ids))
    ):
        return [i // group for i in ids[::group]]
    raise RecordError(f"which key heads go with the query heads {ids} cannot be told; say kv_heads")


def _write_segments(group, segments):
    text = h5py.string_dtype()
    names, lengths, rules = zip(*segments) if segments else ((), (), ())
    if any(rule not in ("split", "replicated") for rule in rules):
        raise RecordError(f"segments {segments}; expected (name, length, 'split' or 'replicated')")
    group.create_dataset("name", data=list(names), dtype=text)
    group.create_dataset("length", data=np.array(lengths, np.int64))
    group.create_dataset("rule", data=list(rules), dtype=text)


def _write_config(group, config):
    for name, value in config.items():
        if isinstance(value, bool):
            value = int(value)
        group.attrs[name] = np.array(value, np.int64) if isinstance(value, (list, tuple)) else value


def _write_mask(group, mask, mask_keys, sizes, spans, several):
    array = _Array("mask", mask)
    if array.at.dtype.kind not in "biu" or array.bf16:
        array.floats()
    if not 1 <= array.at.ndim <= 4:
        raise RecordError(f"mask has the shape {array.at.shape}; expected 1 to 4 dimensions")
    shape = (1,) * (4 - array.at.ndim) + array.at.shape
    array.at = array.at.reshape(shape)
    full = (sizes["B"], sizes["Hq"], sizes["Sq"])
    for size, want, axis in zip(shape, full, "BHQ"):
        if size not in (1, want):
            raise RecordError(f"mask has the shape {list(shape)}; expected 1 or {want} for {axis}")
    if not several and shape[3] not in (1, sizes["Skv"]):
        raise RecordError(f"mask has the shape {list(shape)}; expected 1 or {sizes['Skv']} keys")
    made = array.write(group, "mask")
    if not several:
        return
    for i, (axis, label) in enumerate((("batches", "batches"), ("heads", "heads"), ("tokens", "tokens"))):
        if shape[i] == full[i]:
            made.attrs[label] = spans["q"][axis]
    if mask_keys is not None:
        made.attrs["keys"] = _spans("mask_keys", mask_keys, shape[3])
    elif shape[3] == sizes["Skv"]:
        made.attrs["keys"] = spans["kv"]["tokens"]
    # else all keys of the call: merging checks it
