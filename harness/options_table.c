/*
 * options_table.c - options: how a value is read, which commands take it, what help says. Those
 * that choose configurations are in options_config.c.
 */
#include "harness/options_table.h"

#include <stdio.h>
#include <string.h>

#include "harness/check.h"
#include "harness/fault.h"
#include "harness/parse.h"
#include "harness/peers.h"
#include "kernels/kernels.h"

enum { MAX_WORLD = 4096, MAX_NAMES = 64 };

#define COUNT(array) ((int)(sizeof(array) / sizeof((array)[0])))

/* ---- what runs on what ------------------------------------------------------------------- */

static enum cpa_status set_problem(struct cpa_options *o, const char *value,
	struct cpa_error *error)
{
	struct cpa_problem problem;
	enum cpa_status status =
		cpa_problem_parse(value, o->command != CPA_COMMAND_PLAN, &o->arena,
			&problem, error);

	if (status == CPA_OK) {
		o->has_problem = true;
		o->problem_text = value;
		o->problem = problem;
	}
	return status;
}

static enum cpa_status set_model(struct cpa_options *o, const char *value,
	struct cpa_error *error)
{
	if (value[0] == '\0')
		return cpa_fail(error, CPA_INVALID,
			"--model: the name is empty; cpattn list models has them");
	o->model = value;
	return CPA_OK;
}

static enum cpa_status set_size(struct cpa_options *o, const char *value,
	struct cpa_error *error)
{
	if (value[0] == '\0')
		return cpa_fail(error, CPA_INVALID,
			"--size is empty; write HEIGHTxWIDTH or HEIGHTxWIDTHxFRAMES");
	o->size = value;
	return CPA_OK;
}

static enum cpa_status set_random(struct cpa_options *o, const char *value,
	struct cpa_error *error)
{
	return cpa_parse_int("--random", value, 1, 1000000000, &o->random, error);
}

static enum cpa_status set_fill(struct cpa_options *o, const char *value,
	struct cpa_error *error)
{
	const char *names[CPA_FILL_UNLIKE + 1];
	int index;
	enum cpa_status status;

	for (int i = 0; i <= CPA_FILL_UNLIKE; i++)
		names[i] = cpa_fill_name((enum cpa_fill)i);
	status = cpa_parse_name("--fill", value, names, COUNT(names), NULL, 0, &index, error);
	if (status == CPA_OK) {
		o->fill = (enum cpa_fill)index;
		o->fill_asked = true;
	}
	return status;
}

static enum cpa_status set_seed(struct cpa_options *o, const char *value,
	struct cpa_error *error)
{
	return cpa_parse_seed("--seed", value, &o->seed, error);
}

static enum cpa_status set_dtype(struct cpa_options *o, const char *value,
	struct cpa_error *error)
{
	const char *names[CPA_DTYPE_FP16 + 1];
	int index;
	enum cpa_status status;

	for (int i = 0; i <= CPA_DTYPE_FP16; i++)
		names[i] = cpa_dtype_name((enum cpa_dtype)i);
	status = cpa_parse_name("--dtype", value, names, COUNT(names), NULL, 0, &index, error);
	if (status == CPA_OK) {
		o->dtype = (enum cpa_dtype)index;
		o->has_dtype = true;
	}
	return status;
}

static enum cpa_status set_call(struct cpa_options *o, const char *value,
	struct cpa_error *error)
{
	if (value[0] == '\0')
		return cpa_fail(error, CPA_INVALID,
			"--call: the pattern is empty; '*' stands for every call");
	o->call_glob = value;
	return CPA_OK;
}

/* ---- how they run ------------------------------------------------------------------------ */

static enum cpa_status set_device(struct cpa_options *o, const char *value,
	struct cpa_error *error)
{
	static const char *const later[] = { "cuda", "cudnn" };
	const char *names[MAX_NAMES];
	int n = 0, index;
	enum cpa_status status;

	while (n < MAX_NAMES && cpa_device_name(n)) {
		names[n] = cpa_device_name(n);
		n++;
	}
	status = cpa_parse_name("--device", value, names, n, later, 2, &index, error);
	if (status == CPA_OK) {
		o->device = names[index];
		o->device_asked = true;
	}
	return status;
}

static enum cpa_status set_comm(struct cpa_options *o, const char *value,
	struct cpa_error *error)
{
	static const char *const names[] = { "fake", "mpi" }, *const later[] = { "nccl" };
	int index;
	enum cpa_status status =
		cpa_parse_name("--comm", value, names, 2, later, 1, &index, error);

	if (status == CPA_OK) {
		o->comm = names[index];
		o->comm_asked = true;
	}
	return status;
}

static enum cpa_status set_interleavings(struct cpa_options *o, const char *value,
	struct cpa_error *error)
{
	int64_t number;
	enum cpa_status status =
		cpa_parse_int("--interleavings", value, 1, 1000000, &number, error);

	if (status == CPA_OK)
		o->interleavings = (int)number;
	return status;
}

static enum cpa_status set_interleaving_seed(struct cpa_options *o, const char *value,
	struct cpa_error *error)
{
	return cpa_parse_seed("--interleaving-seed", value, &o->interleaving_seed, error);
}

static enum cpa_status set_rows(struct cpa_options *o, const char *value,
	struct cpa_error *error)
{
	return cpa_parse_int("--rows", value, 1, INT64_MAX, &o->rows, error);
}

static enum cpa_status set_all(struct cpa_options *o, const char *value,
	struct cpa_error *error)
{
	(void)value;
	(void)error;
	o->rows = INT64_MAX;
	return CPA_OK;
}

static enum cpa_status set_arithmetic(struct cpa_options *o, const char *value,
	struct cpa_error *error)
{
	const char *names[CPA_NARITHMETICS];
	int index;
	enum cpa_status status;

	for (int i = 0; i < CPA_NARITHMETICS; i++)
		names[i] = cpa_arithmetic_name((enum cpa_arithmetic_name)i);
	status = cpa_parse_name("--arithmetic", value, names, CPA_NARITHMETICS, NULL, 0, &index,
		error);
	if (status == CPA_OK)
		o->arithmetic = names[index];
	return status;
}

static enum cpa_status set_fault(struct cpa_options *o, const char *value,
	struct cpa_error *error)
{
	enum cpa_status status =
		cpa_fault_parse(value, &o->fault_number, &o->fault_where, error);

	if (status == CPA_OK)
		o->fault = value;
	return status;
}

static enum cpa_status set_count(const char *name, const char *value, int64_t least, int *number,
	struct cpa_error *error)
{
	int64_t read;
	enum cpa_status status = cpa_parse_int(name, value, least, 1000000, &read, error);

	if (status == CPA_OK)
		*number = (int)read;
	return status;
}

static enum cpa_status set_warmup(struct cpa_options *o, const char *value,
	struct cpa_error *error)
{
	return set_count("--warmup", value, 0, &o->warmup, error);
}

static enum cpa_status set_repeat(struct cpa_options *o, const char *value,
	struct cpa_error *error)
{
	return set_count("--repeat", value, 1, &o->repeat, error);
}

static enum cpa_status set_threads(struct cpa_options *o, const char *value,
	struct cpa_error *error)
{
	return set_count("--threads", value, 1, &o->threads, error);
}

static enum cpa_status set_one_rank_threads(struct cpa_options *o, const char *value,
	struct cpa_error *error)
{
	return set_count("--one-rank-threads", value, 1, &o->one_rank_threads, error);
}

static enum cpa_status set_kernels(struct cpa_options *o, const char *value,
	struct cpa_error *error)
{
	(void)value;
	(void)error;
	o->kernels = true;
	return CPA_OK;
}

/* ---- what is printed --------------------------------------------------------------------- */

static enum cpa_status set_path(const char *what, const char *value, const char **path,
	struct cpa_error *error)
{
	if (value[0] == '\0')
		return cpa_fail(error, CPA_INVALID,
			"%s: the file name is empty; - stands for stdout", what);
	*path = value;
	return CPA_OK;
}

static enum cpa_status set_json(struct cpa_options *o, const char *value,
	struct cpa_error *error)
{
	return set_path("--json", value, &o->json, error);
}

static enum cpa_status set_record(struct cpa_options *o, const char *value,
	struct cpa_error *error)
{
	if (value[0] == '\0' || strcmp(value, "-") == 0)
		return cpa_fail(error, CPA_INVALID, "--record needs the name of a file to write");
	o->record = value;
	return CPA_OK;
}

static enum cpa_status set_junit(struct cpa_options *o, const char *value,
	struct cpa_error *error)
{
	return set_path("--junit", value, &o->junit, error);
}

static enum cpa_status set_csv(struct cpa_options *o, const char *value,
	struct cpa_error *error)
{
	return set_path("--csv", value, &o->csv, error);
}

static enum cpa_status set_file(struct cpa_options *o, const char *value, struct cpa_error *error)
{
	if (value[0] == '\0')
		return cpa_fail(error, CPA_INVALID, "-o: the file name is empty");
	o->out = value;
	return CPA_OK;
}

static enum cpa_status set_annotations(struct cpa_options *o, const char *value,
	struct cpa_error *error)
{
	return set_path("--annotations", value, &o->annotations, error);
}

static enum cpa_status set_out(struct cpa_options *o, const char *value,
	struct cpa_error *error)
{
	if (value[0] == '\0' || strcmp(value, "-") == 0)
		return cpa_fail(error, CPA_INVALID,
			"--out needs a directory, which is made where it is not there");
	o->out = value;
	return CPA_OK;
}

static enum cpa_status set_like(struct cpa_options *o, const char *value, struct cpa_error *error)
{
	if (value[0] == '\0')
		return cpa_fail(error, CPA_INVALID, "--for: the file name is empty");
	o->like = value;
	return CPA_OK;
}

static enum cpa_status set_format(struct cpa_options *o, const char *value,
	struct cpa_error *error)
{
	static const char *const names[] = { "text", "json", "dot" };
	int index;
	enum cpa_status status =
		cpa_parse_name("--format", value, names, 3, NULL, 0, &index, error);

	if (status == CPA_OK)
		o->format = (enum cpa_format)index;
	return status;
}

static enum cpa_status set_print_ranks(struct cpa_options *o, const char *value,
	struct cpa_error *error)
{
	o->has_print_ranks = true;
	return cpa_parse_set("--rank", value, 0, MAX_WORLD - 1, &o->arena, &o->print_ranks,
		error);
}

static enum cpa_status set_best(struct cpa_options *o, const char *value,
	struct cpa_error *error)
{
	static const char *const names[] = { "bytes", "work", "memory" };
	int index;
	enum cpa_status status =
		cpa_parse_name("--best", value, names, 3, NULL, 0, &index, error);

	if (status == CPA_OK)
		o->best = names[index];
	return status;
}

static enum cpa_status set_as(struct cpa_options *o, const char *value, struct cpa_error *error)
{
	const char *names[MAX_NAMES];
	int n = 0, index;
	enum cpa_status status;

	for (; n < MAX_NAMES && cpa_peer(n); n++)
		names[n] = cpa_peer(n)->name;
	status = cpa_parse_name("--as", value, names, n, NULL, 0, &index, error);
	if (status == CPA_OK)
		o->as = names[index];
	return status;
}

/* Which names there are, the system says: it may come later on the line. */
static enum cpa_status set_backend(struct cpa_options *o, const char *value,
	struct cpa_error *error)
{
	(void)error;
	o->backend = value;
	return CPA_OK;
}

static enum cpa_status set_convert(struct cpa_options *o, const char *value,
	struct cpa_error *error)
{
	static const char *const names[] = { "yes", "no" };
	int index;
	enum cpa_status status =
		cpa_parse_name("--convert-to-fp32", value, names, 2, NULL, 0, &index, error);

	if (status == CPA_OK) {
		o->has_convert = true;
		o->keep_dtype = index == 1;
	}
	return status;
}

static enum cpa_status set_tensor(struct cpa_options *o, const char *value,
	struct cpa_error *error)
{
	int64_t number;
	enum cpa_status status =
		cpa_parse_int("--tensor-parallel", value, 1, MAX_WORLD, &number, error);

	if (status == CPA_OK)
		o->tensor = (int)number;
	return status;
}

static enum cpa_status set_verbose(struct cpa_options *o, const char *value,
	struct cpa_error *error)
{
	(void)value;
	(void)error;
	o->verbose = true;
	return CPA_OK;
}

/* ---- the table --------------------------------------------------------------------------- */

#define V (1u << CPA_COMMAND_VERIFY)
#define P (1u << CPA_COMMAND_PLAN)
#define M (1u << CPA_COMMAND_MERGE)
#define R (1u << CPA_COMMAND_PROBE)
/* diagnose is check, and then asks why. */
#define C (1u << CPA_COMMAND_CHECK | 1u << CPA_COMMAND_DIAGNOSE)
#define B (1u << CPA_COMMAND_BENCH)
#define T (1u << CPA_COMMAND_REPORT)

static const struct cpa_option_info option_table[] = {
	{ "--problem", "P", V | P | B | R, set_problem,
		"a problem instead of a file: S=64,H=8,causal" },
	{ "--model", "NAME", P, set_model,
		"a model instead: its tensors over the ranks, and its attentions" },
	{ "--size", "HxW[xF]", P, set_size, "of its image or video (the model's own)" },
	{ "--random", "N", V, set_random,
		"N made-up problems in every variant, until one is wrong" },
	{ "--fill", "KIND", V | R, set_fill,
		"its tensors: normal count identity digits extreme unlike (normal)" },
	{ "--seed", "N", V | R, set_seed, "seed of made tensors and of --random (1)" },
	{ "--dtype", "X", V | P | B, set_dtype,
		"converts the tensors of a file first: fp64 fp32 bf16 fp16" },
	{ "--call", "GLOB", V | P | B | C | M | R, set_call, "only calls of a file whose name matches" },
	{ "--device", "NAME", V | B, set_device, "what computes: ref cpu (cpu)" },
	{ "--comm", "NAME", V | B, set_comm, "what carries messages: fake, or mpi under mpirun (fake)" },
	{ "--interleavings", "N", V, set_interleavings,
		"schedules of the fake communicator (2)" },
	{ "--interleaving-seed", "N", V, set_interleaving_seed, "the first of them (1)" },
	{ "--rows", "N", V | C, set_rows,
		"query rows compared, at least (all; 256 in large problems)" },
	{ "--all", NULL, C, set_all, "all of them, however long it takes" },
	{ "--arithmetic", "NAME", C, set_arithmetic,
		"what the run computed in: fp64 fp32 tensor tf32 (by the dtype)" },
	{ "--fault", "NAME[:where]", V, set_fault,
		"plants a fault, to see it caught (where: rank=2,hop=1); list faults" },
	{ "--record", "FILE", V, set_record,
		"writes what every rank of the one configuration returned" },
	{ "--for", "FILE", R, set_like,
		"a problem like that of a recording, with what it could not show" },
	{ "-o", "FILE", M | R, set_file, "the recording to write" },
	{ "--rank", "LIST", P, set_print_ranks, "prints the operations of these ranks" },
	{ "--best", "WHAT", P, set_best,
		"bytes work memory: meshes of each world, best first" },
	{ "--as", "SYSTEM", P, set_as,
		"judges by the rules of another system too; list systems names them" },
	{ "--backend", "NAME", P, set_backend, "of that system (its default)" },
	{ "--convert-to-fp32", "HOW", P, set_convert,
		"yes no: as diffusers, whether blocks are merged in fp32 (yes)" },
	{ "--tensor-parallel", "N", P, set_tensor, "beside it in that system (1)" },
	{ "--format", "FORM", P, set_format, "text json dot (text)" },
	{ "--warmup", "N", B, set_warmup, "runs of each before the clock counts (2)" },
	{ "--repeat", "N", B, set_repeat, "timed runs of each, in turn with the others (12)" },
	{ "--threads", "N", B, set_threads, "of each rank that computes (all cores over the processes)" },
	{ "--one-rank-threads", "N", B, set_one_rank_threads,
		"of the one rank that all are compared to (threads x processes)" },
	{ "--kernels", NULL, B, set_kernels,
		"times attention, merge and copies alone, over S, D, dtype and mask" },
	{ "--json", "FILE", V | P | B | C, set_json, "writes the results as JSON; - for stdout" },
	{ "--out", "DIR", T, set_out, "where index.html, report.md and the plots go" },
	{ "--annotations", "FILE", T, set_annotations,
		"writes what is wrong as lines for a CI (::error ...); - for stdout" },
	{ "--junit", "FILE", V | P | B | C | T, set_junit, "writes them as JUnit XML" },
	{ "--csv", "FILE", V | P | B | C, set_csv, "writes them as CSV" },
	{ "--verbose", NULL, V | P | C, set_verbose,
		"a line for each configuration; in check for each wrong head" },
};

const struct cpa_option_info *cpa_option_info(int i)
{
	if (i >= 0 && i < COUNT(option_table))
		return &option_table[i];
	return cpa_option_config_info(i - COUNT(option_table));
}
