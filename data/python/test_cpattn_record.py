"""Tests of cpattn_record.py against the command: CPATTN=build/release/cpattn python test_cpattn_record.py

Needs h5py and numpy; what needs PyTorch is skipped without it.
"""
import os
import signal
import subprocess
import sys
import tempfile
import unittest

import h5py
import numpy as np

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import cpattn_record
from cpattn_record import RecordError, call, record

try:
    import torch
except ImportError:
    torch = None

CPATTN = os.path.abspath(os.environ.get("CPATTN", "build/release/cpattn"))


def cpattn(*arguments):
    ran = subprocess.run([CPATTN, *map(str, arguments)], capture_output=True, text=True)
    return ran.returncode, ran.stdout + ran.stderr


def attention(q, k, v, scale, visible=None, bias=None):
    """o and lse of full attention in float64; [B, S, H, D]."""
    q, k, v = (x.astype(np.float64) for x in (q, k, v))
    group = q.shape[2] // k.shape[2]
    k, v = (np.repeat(x, group, axis=2) for x in (k, v))
    score = scale * np.einsum("bihd,bjhd->bhij", q, k)
    if bias is not None:
        score = score + bias
    if visible is not None:
        score = np.where(visible, score, -np.inf)
    most = score.max(axis=-1, keepdims=True)
    most = np.where(np.isinf(most), 0, most)
    weight = np.exp(score - most)
    total = weight.sum(axis=-1, keepdims=True)
    o = np.einsum("bhij,bjhd->bihd", weight / np.where(total == 0, 1, total), v)
    with np.errstate(divide="ignore"):
        return o, (np.log(total) + most)[..., 0].transpose(0, 2, 1)


def numbers(seed, *shape, dtype=np.float32):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


class Case(unittest.TestCase):
    def setUp(self):
        self.directory = tempfile.TemporaryDirectory()
        self.addCleanup(self.directory.cleanup)
        self.run_d, self.out = os.path.join(self.directory.name, "run.d"), os.path.join(self.directory.name, "run.h5")

    def merged(self, status=0):
        code, text = cpattn("merge", self.run_d, "-o", self.out)
        self.assertEqual(code, status, text)
        self.assertEqual(os.path.exists(self.out), status == 0)
        self.assertEqual([f for f in os.listdir(self.directory.name) if "tmp" in f], [])
        return text

    def checked(self, status=0):
        code, text = cpattn("check", self.out)
        self.assertEqual(code, status, text)
        return text

    def verified(self):
        code, text = cpattn("verify", self.out, "--ranks", "3", "--variant", "ring_anything")
        self.assertEqual(code, 0, text)

    def tensor(self, name):
        with h5py.File(self.out) as file:
            calls = file["calls"]
            return calls[list(calls)[0]][name][...]


class ByHand(Case):
    """A run of several ranks, one after the other."""

    def ranks(self, tokens, kv_tokens=None, world=None, Hq=4, Hkv=2, B=2, D=8, visible=None, bias=None, spoil=None,
              mask=None, mask_keys=None, **rest):
        world = world or len(tokens)
        S = 1 + max(t for ids in tokens for t in ids)
        Skv = S if kv_tokens is None else 1 + max(t for ids in kv_tokens for t in ids)
        q, k, v = numbers(1, B, S, Hq, D), numbers(2, B, Skv, Hkv, D), numbers(3, B, Skv, Hkv, D)
        o, lse = attention(q, k, v, 0.3, visible, bias)
        take = lambda x, ids: np.where(np.array(ids)[:, None, None] >= 0, x[:, np.maximum(ids, 0).astype(int)], x.dtype.type(7))
        for r in range(world):
            mine, keys = tokens[r], (tokens if kv_tokens is None else kv_tokens)[r]
            held = [take(q, mine), take(k, keys), take(v, keys), take(o.astype(np.float32), mine),
                    take(lse.astype(np.float32)[..., None], mine)[..., 0]]
            if spoil:
                spoil(r, held)
            with record(self.run_d, None, rank=r, world=world):
                call(*held, scale=0.3, tokens=list(mine), kv_tokens=list(keys),
                     mask=None if mask is None else mask(r), mask_keys=mask_keys and mask_keys(r),
                     config=dict(ring_degree=world), **rest)
        return q, k, v

    def good(self, *arguments, **keywords):
        q, k, v = self.ranks(*arguments, **keywords)
        self.merged()
        self.checked()
        self.verified()
        for name, value in zip("qkv", (q, k, v)):
            np.testing.assert_array_equal(self.tensor(name), value)

    def test_contiguous_uneven_shards(self):
        self.good([range(0, 5), range(5, 9), range(9, 10)])

    def test_striped_shards(self):
        self.good([range(r, 11, 3) for r in range(3)])

    def test_zigzag_shards_with_padding_and_causal(self):
        tokens = [[0, 1, 10, 11, -1], [2, 3, 8, 9, -1], [4, 5, 6, 7, 12]]
        self.good(tokens, causal=True, causal_offset=0, visible=np.tri(13, dtype=bool))

    def test_a_rank_without_tokens(self):
        self.good([range(0, 5), range(0), range(5, 9)])

    def test_cross_attention_keeps_which_keys_a_rank_had(self):
        self.good([range(0, 4), range(4, 7)], [range(0, 2), range(2, 9)])
        with h5py.File(self.out) as file:
            held = file["calls/00000_call/ranks/1"]
            self.assertEqual(held["k"].attrs["tokens"].tolist(), [[2, 7, 1]])
            self.assertNotIn("v", held)

    def test_keys_that_were_gathered_before(self):
        self.good([range(0, 4), range(4, 7)], [range(7), range(7)])

    def test_replicated_text(self):
        self.good([[0, 1, 2, 3, 4], [0, 1, 5, 6]],
                  segments=[("text", 2, "replicated"), ("image", 5, "split")])

    def test_a_mask_by_query_rows(self):
        mask = np.random.default_rng(5).random((2, 4, 7, 7)) < 0.7
        tokens = [range(0, 4), range(4, 7)]
        self.good(tokens, visible=mask, mask=lambda r: mask[:, :, list(tokens[r])], mask_keys=lambda r: range(7))
        np.testing.assert_array_equal(self.tensor("mask"), mask)

    def test_a_mask_by_keys(self):
        mask = np.random.default_rng(5).random((2, 1, 1, 7)) < 0.6
        tokens = [range(0, 7, 2), range(1, 7, 2)]
        self.good(tokens, visible=mask, mask=lambda r: mask[..., list(tokens[r])])
        np.testing.assert_array_equal(self.tensor("mask"), mask)

    def test_a_bias_that_every_rank_has_whole(self):
        bias = numbers(6, 1, 4, 1, 7)
        bias[0, 1, 0, 3] = -np.inf
        self.good([range(0, 4), range(4, 7)], bias=bias, mask=lambda r: bias)
        np.testing.assert_array_equal(self.tensor("mask"), bias)

    def test_ulysses_ranks_hold_heads(self):
        q, k, v = numbers(1, 1, 9, 6, 8), numbers(2, 1, 9, 3, 8), numbers(3, 1, 9, 3, 8)
        o, lse = attention(q, k, v, 8**-0.5)
        for r, (heads, keys) in enumerate([((0, 4), (0, 2)), ((4, 6), (2, 3))]):
            h, g = slice(*heads), slice(*keys)
            with record(self.run_d, None, rank=r, world=2):
                call(q[:, :, h], k[:, :, g], v[:, :, g], o[:, :, h].astype("f4"), lse[:, :, h].astype("f4"),
                     heads=range(*heads), config=dict(ulysses_degree=2))
        self.merged()
        self.checked()
        np.testing.assert_array_equal(self.tensor("k"), k)

    def test_batches_and_layout_bhsd(self):
        q = numbers(1, 3, 4, 5, 8)
        o, lse = attention(*(q.transpose(0, 2, 1, 3),) * 3, 8**-0.5)
        o, lse = o.transpose(0, 2, 1, 3).astype("f4"), lse.transpose(0, 2, 1).astype("f4")
        for r, (start, end) in enumerate([(0, 2), (2, 3)]):
            x = q[start:end]
            with record(self.run_d, None, rank=r, world=2):
                call(x, x, x, o[start:end], lse[start:end], layout="BHSD", batches=range(start, end),
                     config=dict(batch_degree=2))
        self.merged()
        self.checked()
        np.testing.assert_array_equal(self.tensor("q"), q)

    def test_a_wrong_rank_is_found(self):
        def spoil(r, held):
            if r == 1:
                held[3] = held[3] * np.float32(1.01)

        self.ranks([range(0, 5), range(5, 9)], spoil=spoil)
        self.merged()
        self.assertIn("rank 1       WRONG", self.checked(1))

    def refuses(self, *words, **keywords):
        tokens = keywords.pop("tokens", [range(0, 5), range(5, 9)])
        self.ranks(tokens, **keywords)
        text = self.merged(2)
        for word in words:
            self.assertIn(word, text)

    def test_a_gap_is_named(self):
        self.refuses("no rank holds token 5 (batch item 0, head 0) of q", tokens=[range(0, 5), range(6, 9)])

    def test_an_overlap_is_named(self):
        self.refuses("rank1.h5", "rank0.h5", "q: token 4", "held twice", tokens=[range(0, 5), range(4, 9)])

    def test_a_disagreement_is_named(self):
        def spoil(r, held):
            if r == 1:
                held[1][1, 3, 1, 2] += 1

        self.refuses("rank1.h5", "/k: token 3 (batch item 1, head 1) differs from what rank 0 held",
                     kv_tokens=[range(9), range(9)], spoil=spoil)

    def test_a_mask_that_differs_is_named(self):
        self.refuses("mask: query", "differs", mask=lambda r: np.full((1, 1, 1, 9), [1, 1, 1, 1, 1, 1, 1, 1, r], bool))

    def test_a_rank_that_is_missing_is_named(self):
        self.ranks([range(0, 5), range(5, 9), range(9, 10)])
        os.unlink(os.path.join(self.run_d, "00000_call.rank2.h5"))
        self.assertIn("rank 2 of 3 is missing", self.merged(2))

    def test_what_is_no_number_is_named(self):
        def spoil(r, held):
            if r == 1:
                held[0][0, 2, 3, 1] = np.nan

        self.refuses("rank1.h5", "/q: token number 2", "head 3", "NaN", spoil=spoil)

    def test_another_scale_on_a_rank_is_named(self):
        x = numbers(1, 1, 4, 2, 8)
        for r in range(2):
            with record(self.run_d, None, rank=r, world=2):
                call(x, x, x, tokens=range(4 * r, 4 * r + 4), scale=0.1 + r)
        self.assertIn("another scale", self.merged(2))


class OneRank(Case):
    def test_a_call_is_a_recording_by_itself(self):
        q, k, v = numbers(1, 2, 5, 4, 8), numbers(2, 2, 9, 2, 8), numbers(3, 2, 9, 2, 6)
        o, lse = attention(q, k, v, 0.4, np.tri(5, 9, 4, dtype=bool))
        with record(self.run_d, None) as recorder:
            path = call(q, k, v, o.astype("f4"), lse, scale=0.4, causal=True, causal_offset=4, name="layer 1")
        self.assertEqual(os.listdir(self.run_d), ["00000_layer_1.rank0.h5"])
        self.assertEqual((recorder.written, recorder.seen), (1, 1))
        code, text = cpattn("check", path)
        self.assertEqual(code, 0, text)
        self.merged()
        self.checked()
        self.verified()

    def test_bfloat16_keeps_its_bits(self):
        bits = np.arange(1 << 16, dtype=np.uint16)
        bits = bits[(bits & 0x7F80) != 0x7F80].reshape(1, -1, 1, 64)
        with record(self.run_d, None):
            path = call(bits, bits, bits)
        for file in (path, self.out):
            with h5py.File(file) as recording:
                dataset = recording["calls/00000_call/q"]
                raw = np.empty(bits.shape, np.uint16)
                dataset.id.read(h5py.h5s.ALL, h5py.h5s.ALL, raw.view(np.int16), mtype=dataset.id.get_type())
            np.testing.assert_array_equal(raw, bits)
            if file == path:
                self.merged()

    def test_many_calls_go_into_one_file(self):
        x = numbers(1, 1, 4, 2, 8)
        with record(self.run_d, None, every=2, max_calls=3):
            made = [call(x + i, x, x, attention(x + i, x, x, 8**-0.5)[0].astype("f4")) for i in range(9)]
        self.assertEqual([i for i, path in enumerate(made) if path], [0, 2, 4])
        self.merged()
        self.checked()
        with h5py.File(self.out) as file:
            self.assertEqual(list(file["calls"]), ["00000_call", "00002_call", "00004_call"])

    def test_rules_and_texts_arrive(self):
        x = numbers(1, 2, 6, 2, 8)
        with record(self.run_d, None, max_bytes=1):
            call(x, x, x, window=(2, 1), key_lengths=[6, 3], documents=[0, 2, 6], sink=[0.5, 1], note="why",
                 segments=[("all", 6, "split")])
            self.assertIsNone(call(x, x, x))
        self.merged()
        self.verified()
        with h5py.File(self.out) as file:
            it = file["calls/00000_call"]
            self.assertEqual(it.attrs["note"], "why")
            self.assertEqual(it.attrs["window"].tolist(), [2, 1])
            self.assertEqual(it["key_lengths"][...].tolist(), [6, 3])
            self.assertEqual(it["documents"][...].tolist(), [0, 2, 6])
            self.assertEqual(it["sink"][...].tolist(), [0.5, 1])

    def test_what_cannot_be_recorded_is_refused(self):
        x = numbers(1, 1, 4, 2, 8)
        bad = [
            (dict(q=x.astype(int)), "q holds int64"),
            (dict(k=x.astype("f8")), "different types"),
            (dict(q=x[0]), "expected 4 dimensions"),
            (dict(v=x[:, :3]), "v has the shape"),
            (dict(o=x[:, :3]), "o has the shape"),
            (dict(lse=x[..., 0].astype("f2")), "lse has 16 bits"),
            (dict(scale=0.0), "scale is 0.0"),
            (dict(layout="SBHD"), "layout is"),
            (dict(tokens=range(4)), "this is one of 1"),
            (dict(mask=np.ones((3, 4), bool)), "mask has the shape"),
            (dict(mask=np.ones((1, 1, 4, 3), bool)), "keys"),
            (dict(k=x[:, :3], v=x[:, :3], causal=True), "say causal_offset"),
        ]
        with record(self.run_d, None):
            for change, words in bad:
                with self.assertRaisesRegex(RecordError, words):
                    call(**{**dict(q=x, k=x, v=x), **change})
        self.assertEqual(os.listdir(self.run_d), [])
        with record(os.path.join(self.run_d, "several"), None, rank=0, world=2):
            for ids, words in [(range(3), "names 3 entries"), ([0, 1, 2, -2], "id -2"), (["a"], "expected integers"),
                               ([(0, 4, 0)], "is no row"), (range(4, 0, -1), "backwards"), ([[1, 2]], "shape")]:
                with self.assertRaisesRegex(RecordError, words):
                    call(x, x, x, tokens=ids)
            with self.assertRaisesRegex(RecordError, "say kv_heads"):
                call(x, x[:, :, :1], x[:, :, :1], tokens=range(4), heads=[1, 2])
        with self.assertRaisesRegex(RecordError, "rank 2 of 2"):
            record(self.run_d, None, rank=2, world=2).__enter__()
        self.assertIsNone(call(x, x, x))  # outside of record()

    def test_an_earlier_run_is_not_mixed_in(self):
        x = numbers(1, 1, 4, 2, 8)
        with record(self.run_d, None):
            call(x, x, x)
        with self.assertRaisesRegex(RecordError, "earlier run"):
            record(self.run_d, None).__enter__()

    def test_rows(self):
        for ids in ([], [3], [0, 1, 2], [5, 3, 1], [0, 2, 4, 5, 6, -1, -1, 9], [4, 4, 4]):
            back = [s + i * d for s, n, d in cpattn_record.rows(ids).tolist() for i in range(n)]
            self.assertEqual(back, ids)

    def test_a_killed_program_leaves_what_it_recorded(self):
        program = (
            "import numpy, sys, cpattn_record\n"
            "x = numpy.ones((1, 600, 8, 64), 'f4')\n"
            f"with cpattn_record.record({self.run_d!r}, None):\n"
            "    for i in range(100000):\n"
            "        cpattn_record.call(x, x, x)\n"
            "        print(i, flush=True)\n"
        )
        environment = dict(os.environ, PYTHONPATH=os.path.dirname(os.path.abspath(__file__)))
        running = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, env=environment)
        for _ in range(5):
            running.stdout.readline()
        running.send_signal(signal.SIGKILL)
        running.communicate()
        self.assertGreaterEqual(len([f for f in os.listdir(self.run_d) if f.endswith(".h5")]), 5)
        self.merged()

    def test_a_directory_of_nothing_is_refused(self):
        self.assertIn("No such file", self.merged(2))
        os.mkdir(self.run_d)
        self.assertIn("without *.h5", self.merged(2))
        with open(os.path.join(self.run_d, "x.h5"), "wb") as file:
            file.write(b"\x89HDF\r\n\x1a\n" + bytes(500))
        self.assertIn("x.h5", self.merged(2))

    def test_without_pytorch_it_says_so(self):
        if torch is None:
            with self.assertRaisesRegex(RecordError, "calls=None"):
                record(self.run_d).__enter__()


@unittest.skipIf(torch is None, "PyTorch is not here")
class Sdpa(Case):
    def sdpa(self, *arguments, **keywords):
        with record(self.run_d) as recorder, torch.no_grad():
            torch.nn.functional.scaled_dot_product_attention(*arguments, **keywords)
        self.assertEqual(recorder.written, 1)
        self.merged()
        self.checked()

    def make(self, *shape, dtype=None):
        torch.manual_seed(len(shape) + sum(shape))
        return torch.randn(*shape, dtype=dtype or torch.float32)

    def test_plain_and_bfloat16(self):
        q, k, v = (self.make(2, 4, s, 16, dtype=torch.bfloat16) for s in (30, 30, 30))
        self.sdpa(q, k, v)
        np.testing.assert_array_equal(self.tensor("q"), q.float().numpy())

    def test_causal_is_aligned_at_the_top_left(self):
        self.sdpa(self.make(1, 2, 7, 8), self.make(1, 2, 12, 8), self.make(1, 2, 12, 8), is_causal=True)

    def test_grouped_heads_and_scale(self):
        self.sdpa(self.make(1, 6, 9, 8), self.make(1, 2, 9, 8), self.make(1, 2, 9, 8), enable_gqa=True, scale=0.7)

    def test_masks(self):
        mask = torch.rand(1, 3, 7, 9, generator=torch.Generator().manual_seed(3)) < 0.7
        mask[..., 0] = True
        self.sdpa(self.make(2, 3, 7, 8), self.make(2, 3, 9, 8), self.make(2, 3, 9, 8), attn_mask=mask)

    def test_a_bias_of_three_dimensions(self):
        self.sdpa(self.make(3, 7, 8), self.make(3, 9, 8), self.make(3, 9, 8), attn_mask=self.make(3, 7, 9))

    def test_two_dimensions(self):
        self.sdpa(self.make(7, 8), self.make(9, 8), self.make(9, 8))

    def test_dropout_is_refused(self):
        x = self.make(1, 2, 8, 8)
        with record(self.run_d), self.assertRaisesRegex(RecordError, "dropout_p"):
            torch.nn.functional.scaled_dot_product_attention(x, x, x, dropout_p=0.1)
        self.assertEqual(os.listdir(self.run_d), [])

    def test_several_ranks_must_say_what_they_hold(self):
        x = self.make(1, 2, 8, 8)
        with record(self.run_d, rank=0, world=2), self.assertRaisesRegex(RecordError, "must say"):
            torch.nn.functional.scaled_dot_product_attention(x, x, x)
        for r in range(2):
            with record(self.run_d + "2", rank=r, world=2, heads=range(2 * r, 2 * r + 2)):
                torch.nn.functional.scaled_dot_product_attention(x + r, x, x)
        self.run_d += "2"
        self.merged()
        self.checked()

    def test_a_model_with_names_and_a_pattern(self):
        layer = torch.nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)
        model = torch.nn.TransformerEncoder(layer, 3, enable_nested_tensor=False).eval()
        x, before = self.make(2, 11, 16).requires_grad_(), torch.nn.functional.scaled_dot_product_attention
        with record(self.run_d, "*layers.1*", model=model):
            model(x)
        self.assertEqual(os.listdir(self.run_d), ["00001_layers.1.self_attn.rank0.h5"])
        self.assertIs(torch.nn.functional.scaled_dot_product_attention, before)
        self.merged()
        self.checked()

    def test_other_types_are_refused(self):
        x = self.make(1, 5, 2, 8)
        for kind in (torch.float8_e4m3fn, torch.int32, torch.complex64):
            with record(self.run_d + str(kind), None), self.assertRaisesRegex(RecordError, "q holds"):
                call(x.to(kind), x, x)

    def test_calls_by_hand_take_tensors(self):
        x = self.make(1, 5, 2, 8, dtype=torch.float16)
        o, lse = attention(*(x.numpy(),) * 3, 8**-0.5)
        with record(self.run_d, None):
            call(x, x, x, torch.tensor(o).half(), torch.tensor(lse))
        self.merged()
        self.checked()


if __name__ == "__main__":
    unittest.main()
