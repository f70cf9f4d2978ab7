/*
 * test_recording_rope.c - q and k that were recorded before RoPE are read as they enter attention: turned
 * by their own global positions, whatever shard, layout and type they are read in.
 */
#include "harness/recording_rules.h"
#include "harness/test_recording.h"

enum { B = 2, SQ = 6, SKV = 9, HQ = 4, HKV = 2, D = 8, DV = 4, MOST = B * SKV * HQ * D };

static const int64_t positions[SQ] = {5, 0, 900, 901, -2, 41};
static const int64_t positions_kv[SKV] = {7, 8, 9, 0, 1, 2, 70000, 3, 3};

struct tensors {
	double q[MOST], k[MOST], v[MOST];
};

static void fill(enum cpa_dtype dtype, double *data)
{
	static uint64_t seed = 3;

	for (int i = 0; i < MOST; i++) {
		seed = seed * UINT64_C(6364136223846793005) + 1442695040888963407u;
		cpa_store(dtype, data, i, ((double)(seed >> 11) * 0x1p-53 - 0.5) * 8);
	}
}

/* One call as in BSHD or BHSD; what is left out or wrong is up to the caller. */
struct written {
	enum cpa_dtype dtype;
	bool bhsd, equal; /* equal: as many keys as queries */
	const char *pairs; /* NULL: no attribute */
	double base;       /* 0: no attribute */
	bool on_call, q, kv;
};

static const struct written good = {CPA_DTYPE_FP32, false, false, "half", 10000, false, true, true};

static void write_tensor(struct cpa_h5 *file, const char *path, const struct written *w, int64_t S,
	int64_t H, int64_t size, const double *data)
{
	const int64_t dims[4] = {B, w->bhsd ? H : S, w->bhsd ? S : H, size};
	double stored[MOST];

	for (int64_t i = 0; i < B * S * H * size; i++) {
		int64_t d = i % size, h = i / size % H, t = i / size / H % S, b = i / size / H / S;

		cpa_store(w->dtype, stored, w->bhsd ? ((b * H + h) * S + t) * size + d : i,
			cpa_load(w->dtype, data, i));
	}
	cpa_h5_write_array(file, path, w->dtype, 4, dims, stored);
}

static void write_positions(struct cpa_h5 *file, const char *path, const struct written *w, int64_t n,
	const int64_t *values)
{
	cpa_h5_write_integers(file, path, n, values);
	if (w->base != 0 && !w->on_call)
		cpa_h5_write_double(file, path, "rope_base", w->base);
	if (w->pairs && !w->on_call)
		cpa_h5_write_string(file, path, "rope_pairs", w->pairs);
}

static struct cpa_recording *make(const struct written *w, const struct tensors *x)
{
	static struct cpa_recording_guard guard;
	const int64_t Skv = w->equal ? SQ : SKV;
	struct cpa_recording *recording = NULL;
	struct cpa_h5 *file = NULL;
	struct cpa_error error = {""};
	void *image = NULL;
	size_t nbytes = 0;

	assert_int_equal(cpa_h5_create(&file, &error), CPA_OK);
	cpa_h5_write_group(file, "/calls");
	cpa_h5_write_group(file, "/calls/00");
	if (w->bhsd)
		cpa_h5_write_string(file, "/calls/00", "layout", "BHSD");
	write_tensor(file, "/calls/00/q", w, SQ, HQ, D, x->q);
	write_tensor(file, "/calls/00/k", w, Skv, HKV, D, x->k);
	write_tensor(file, "/calls/00/v", w, Skv, HKV, DV, x->v);
	if (w->q)
		write_positions(file, "/calls/00/positions", w, SQ, positions);
	if (w->kv)
		write_positions(file, "/calls/00/positions_kv", w, Skv, positions_kv);
	if (w->on_call && w->base != 0)
		cpa_h5_write_double(file, "/calls/00", "rope_base", w->base);
	if (w->on_call && w->pairs)
		cpa_h5_write_string(file, "/calls/00", "rope_pairs", w->pairs);
	if (cpa_h5_image(file, &image, &nbytes, &error) != CPA_OK)
		fail_msg("%s", error.text);
	cpa_h5_close(file);
	if (cpa_recording_open_image(image, nbytes, &guard, &recording, &error) != CPA_OK)
		fail_msg("%s", error.text);
	free(image);
	cpa_recording_guard_stop(&guard);
	guard = (struct cpa_recording_guard){0};
	return recording;
}

static void read_as(struct cpa_recording *recording, const char *name, int64_t S,
	const struct cpa_spans *tokens, enum cpa_dtype to, double *dst)
{
	struct cpa_span span = {0, S, S, 1};
	const struct cpa_spans all = {&span, 1, 1};
	struct cpa_error error = {""};

	if (cpa_recording_read(recording, 0, name, (struct cpa_range){0, B}, tokens ? tokens : &all, to, dst,
		    &error) != CPA_OK)
		fail_msg("%s: %s", name, error.text);
}

/* The tensor turned here, rounded to its type, and what is read, in that type and wider. */
static void check(struct cpa_recording *recording, const char *name, const struct written *w, int64_t S,
	int64_t H, int64_t size, const int64_t *at, const double *data)
{
	const struct cpa_rope rope = {D, w->base, *w->pairs == 'h' ? CPA_ROPE_HALF : CPA_ROPE_INTERLEAVED};
	const size_t nbytes = (size_t)(B * S * H * size) * cpa_dtype_nbytes(w->dtype);
	double wanted[MOST], wide[MOST], found[MOST];

	memcpy(wanted, data, sizeof wanted);
	if (at) {
		cpa_ref_rope_array(&rope, at, B, S, H, w->dtype, wanted);
		assert_memory_not_equal(wanted, data, nbytes);
	}
	read_as(recording, name, S, NULL, w->dtype, found);
	assert_memory_equal(found, wanted, nbytes);
	cpa_convert(CPA_DTYPE_FP64, wide, w->dtype, wanted, B * S * H * size);
	read_as(recording, name, S, NULL, CPA_DTYPE_FP64, found);
	assert_memory_equal(found, wide, (size_t)(B * S * H * size) * sizeof *wide);
}

static void q_and_k_are_turned_and_v_is_not(void **state)
{
	(void)state;
	for (int t = CPA_DTYPE_FP64; t <= CPA_DTYPE_FP16; t++)
		for (int form = 0; form < 8; form++) {
			struct written w = good;
			struct cpa_recording *recording;
			struct tensors x;

			w.dtype = (enum cpa_dtype)t;
			w.bhsd = form & 1;
			w.on_call = form & 2;
			w.pairs = form & 4 ? "interleaved" : "half";
			fill(w.dtype, x.q);
			fill(w.dtype, x.k);
			fill(w.dtype, x.v);
			recording = make(&w, &x);
			assert_true(good_call(recording, 0)->has_positions);
			assert_string_equal(good_call(recording, 0)->notes, "");
			check(recording, "q", &w, SQ, HQ, D, positions, x.q);
			check(recording, "k", &w, SKV, HKV, D, positions_kv, x.k);
			check(recording, "v", &w, SKV, HKV, DV, NULL, x.v);
			cpa_recording_close(recording);
		}
}

static void keys_stand_where_queries_do_unless_it_is_said(void **state)
{
	struct written w = good;
	struct cpa_recording *recording;
	struct tensors x;

	(void)state;
	w.equal = true;
	w.kv = false;
	fill(w.dtype, x.q);
	fill(w.dtype, x.k);
	fill(w.dtype, x.v);
	recording = make(&w, &x);
	check(recording, "k", &w, SQ, HKV, D, positions, x.k);
	cpa_recording_close(recording);
	w.kv = true;
	recording = make(&w, &x);
	check(recording, "k", &w, SQ, HKV, D, positions_kv, x.k);
	check(recording, "q", &w, SQ, HQ, D, positions, x.q);
	cpa_recording_close(recording);
}

/* The position is that of the token, not of its place in the shard. */
static void a_shard_is_the_slice_of_the_whole(void **state)
{
	struct cpa_span zigzag[] = {{7, 2, 2, 1}, {0, 2, 2, 1}}, striped[] = {{1, 1, 3, 3}};
	struct cpa_span runs[] = {{1, 2, 4, 2}};
	const struct cpa_spans lists[] = {{zigzag, 2, 2}, {striped, 1, 1}, {runs, 1, 1}};

	(void)state;
	for (int bhsd = 0; bhsd < 2; bhsd++) {
		struct written w = good;
		struct cpa_recording *recording;
		struct tensors x;
		double whole[MOST], shard[MOST];

		w.bhsd = bhsd;
		fill(w.dtype, x.q);
		fill(w.dtype, x.k);
		fill(w.dtype, x.v);
		recording = make(&w, &x);
		read_as(recording, "k", SKV, NULL, CPA_DTYPE_FP64, whole);
		for (size_t l = 0; l < sizeof lists / sizeof *lists; l++) {
			const int64_t n = cpa_spans_ntokens(&lists[l]), row = HKV * D;

			read_as(recording, "k", SKV, &lists[l], CPA_DTYPE_FP64, shard);
			for (int64_t i = 0; i < B * n; i++)
				assert_memory_equal(shard + i * row, whole + (i / n * SKV +
					cpa_spans_token(&lists[l], i % n)) * row,
					(size_t)row * sizeof *shard);
		}
		cpa_recording_close(recording);
	}
}

static void what_does_not_tell_how_to_turn_is_refused(void **state)
{
	const struct {
		struct written w;
		const char *says;
	} cases[] = {
		{{CPA_DTYPE_FP32, false, false, "half", 0, false, true, true},
			"/calls/00/positions: rope_base is missing"},
		{{CPA_DTYPE_FP32, false, false, "half", -2, false, true, true}, "rope_base is -2"},
		{{CPA_DTYPE_FP32, false, false, NULL, 100, true, true, true}, "rope_pairs is missing"},
		{{CPA_DTYPE_FP32, false, false, "thirds", 100, false, true, true}, "rope_pairs"},
		{{CPA_DTYPE_FP32, false, false, "half", 100, false, false, true},
			"/calls/00/positions: missing"},
		{{CPA_DTYPE_FP32, false, false, "half", 100, false, true, false},
			"/calls/00/positions_kv: missing"},
	};
	struct tensors x;

	(void)state;
	fill(CPA_DTYPE_FP32, x.q);
	fill(CPA_DTYPE_FP32, x.k);
	fill(CPA_DTYPE_FP32, x.v);
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct cpa_recording *recording = make(&cases[i].w, &x);
		const struct cpa_call *call;
		struct cpa_error error = {""};

		assert_int_equal(cpa_recording_call(recording, 0, &call, &error), CPA_INVALID);
		if (!strstr(error.text, cases[i].says))
			fail_msg("\"%s\" does not say \"%s\"", error.text, cases[i].says);
		cpa_recording_close(recording);
	}
}

/* 60000 is a number of float16, and 60000 sqrt(2) is not. */
static void what_leaves_its_type_when_turned_is_refused(void **state)
{
	struct written w = good;
	struct cpa_recording *recording;
	struct cpa_span span = {0, SKV, SKV, 1};
	const struct cpa_spans all = {&span, 1, 1};
	struct cpa_error error = {""};
	struct tensors x;
	double dst[MOST];

	(void)state;
	w.dtype = CPA_DTYPE_FP16;
	fill(w.dtype, x.q);
	fill(w.dtype, x.k);
	fill(w.dtype, x.v);
	cpa_store(w.dtype, x.k, (4 * HKV) * D, -60000); /* key 4 stands at 1: both coordinates change sides */
	cpa_store(w.dtype, x.k, (4 * HKV) * D + D / 2, 60000);
	recording = make(&w, &x);
	assert_int_equal(cpa_recording_read(recording, 0, "k", (struct cpa_range){0, 1}, &all,
		CPA_DTYPE_FP64, dst, &error), CPA_INVALID);
	assert_non_null(strstr(error.text, "/calls/00/k: "));
	assert_non_null(strstr(error.text, "once turned by their positions"));
	cpa_recording_close(recording);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(q_and_k_are_turned_and_v_is_not),
		cmocka_unit_test(keys_stand_where_queries_do_unless_it_is_said),
		cmocka_unit_test(a_shard_is_the_slice_of_the_whole),
		cmocka_unit_test(what_does_not_tell_how_to_turn_is_refused),
		cmocka_unit_test(what_leaves_its_type_when_turned_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
