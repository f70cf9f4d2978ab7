/*
 * options.h - what the command line says (COMMAND sections 1 to 3), and which configurations that means.
 */
#ifndef CPA_OPTIONS_H
#define CPA_OPTIONS_H

#include "dist/schedule.h"
#include "harness/fault.h"

enum cpa_command {
	CPA_COMMAND_NONE, CPA_COMMAND_LIST, CPA_COMMAND_VERIFY, CPA_COMMAND_PLAN, CPA_COMMAND_CHECK,
	CPA_COMMAND_DIAGNOSE, CPA_COMMAND_BENCH, CPA_COMMAND_MERGE, CPA_COMMAND_PROBE, CPA_COMMAND_REPORT,
	CPA_COMMAND_HELP, CPA_COMMAND_VERSION
};
enum cpa_rotate_choice { CPA_ROTATE_CHOICE_DEFAULT, CPA_ROTATE_CHOICE_P2P, CPA_ROTATE_CHOICE_ALLGATHER,
	CPA_ROTATE_CHOICE_DIRECT,
	CPA_ROTATE_CHOICE_ALL };
enum cpa_format { CPA_FORMAT_TEXT, CPA_FORMAT_JSON, CPA_FORMAT_DOT };

struct cpa_int_list {
	int64_t *at;
	int n;
};

struct cpa_options {
	enum cpa_command command;
	const char **files;
	int nfiles;
	const char *list_what;      /* of list; NULL: everything */
	enum cpa_command help_about; /* of help; CPA_COMMAND_NONE: the whole */
	bool has_problem;           /* --problem */
	const char *problem_text;
	const char *model, *size;   /* plan --model NAME --size HxW[xF]; NULL */
	struct cpa_problem problem; /* valid when has_problem */
	int64_t random;             /* --random N: how many made-up problems; 0: not asked for */
	enum cpa_fill fill;
	bool fill_asked;
	uint64_t seed;
	bool has_dtype;
	enum cpa_dtype dtype;       /* --dtype: converts q, k, v first */
	const char *call_glob;      /* NULL: all */

	struct cpa_int_list ranks;  /* worlds, ascending, no repeats; default 2..8 */
	bool ranks_asked;
	int batch, ring, ulysses;   /* 0: not fixed */
	bool variants[CPA_NVARIANTS];
	bool variants_asked;        /* --variant named some (not "all") */
	enum cpa_rotate_choice rotate;
	bool has_split, has_split_kv;
	enum cpa_split split, split_kv;
	struct cpa_int_list sizes, sizes_kv; /* of given */
	enum cpa_order order;
	bool order_auto;            /* --order auto: picked for each configuration; order is contiguous */
	enum cpa_heads heads;
	struct cpa_int_list head_counts;
	int direction;
	enum cpa_partials partials;
	bool has_partials;
	enum cpa_mesh mesh;
	struct cpa_guidance guidance; /* --guidance: scales; nbranches 0: not asked for */
	const char *device, *comm;  /* default "cpu", "fake" */
	bool device_asked, comm_asked;
	int interleavings;          /* default 2 */
	uint64_t interleaving_seed; /* --interleaving-seed: first seed; what a reproduction line names */
	int64_t rows;               /* 0: the default of COMMAND; --all: INT64_MAX */
	const char *arithmetic;     /* check --arithmetic NAME; NULL: by the dtype */

	bool kernels;               /* bench --kernels: one operation at a time, no ranks */
	int warmup, repeat;         /* bench: runs before and while the clock counts; default 2, 12 */
	int threads, one_rank_threads; /* bench; 0: the default of cpa_team */

	const char *json, *junit, *csv; /* paths, "-" for stdout; NULL: none */
	const char *annotations;        /* of report: a path or "-"; NULL: none */
	enum cpa_format format;         /* of plan */
	struct cpa_int_list print_ranks;/* plan --rank */
	bool has_print_ranks;
	const char *best;               /* plan --best bytes|work|memory; NULL */
	const char *as;                 /* plan --as SYSTEM; NULL */
	const char *backend;            /* of that system; NULL: its default */
	bool has_convert, keep_dtype;   /* --convert-to-fp32 yes|no */
	int tensor;                     /* --tensor-parallel N beside it; 0: not asked for */
	const char *out;                /* merge, probe -o FILE; report --out DIR; NULL: none */
	const char *like;               /* probe --for FILE; NULL */
	const char *fault;              /* --fault NAME[:where]: a planted fault, as typed; NULL: none */
	int fault_number;               /* of it, and where it is asked for; valid when fault is set */
	struct cpa_fault_where fault_where;
	const char *record;             /* verify --record FILE: what the ranks returned; NULL */
	bool verbose;
	char *command_line;             /* as typed, shell-quoted, for reproduction lines */
	struct cpa_arena arena;         /* owns all of the above */
};

/* argv[0] is the program.  CPA_INVALID with a sentence (and "did you mean") for anything unknown. */
enum cpa_status cpa_options_parse(int argc, char **argv, struct cpa_options *options,
	struct cpa_error *error);
void cpa_options_fini(struct cpa_options *options);

/* "B=1,S=64,H=8,..." (COMMAND section 2); lse starts as default_lse.  The arrays of the rule are made
 * in arena. */
enum cpa_status cpa_problem_parse(const char *text, bool default_lse, struct cpa_arena *arena,
	struct cpa_problem *problem, struct cpa_error *error);
/* A text that cpa_problem_parse() reads back as the same problem; it leaves out what is the
 * default, and text= is printed as the segments that it is short for.  A mask that it cannot
 * make, from a recording, is "mask=file", and such a sink "sink=file", which do not read back.  text
 * [size]; what does not fit is cut, and ends with "..." where there is room for it. */
void cpa_problem_print(const struct cpa_problem *problem, char *text, size_t size);

/*
 * Which configurations run for this problem (COMMAND section 3), in the order variant, world, N, R,
 * rotate.  Calls visit() for each until it returns false.  Configurations that a strict variant will
 * refuse are visited all the same.  `wide` keeps partials in fp64.  The default for rotate is
 * `default_rotate` (all in verify, p2p elsewhere).  CPA_INVALID when --ranks is no multiple of what is
 * fixed (names the idle ranks).
 */
typedef bool cpa_sweep_visit(void *context, const struct cpa_config *config);
enum cpa_status cpa_sweep(const struct cpa_options *options, const struct cpa_problem *problem,
	enum cpa_rotate_choice default_rotate, bool wide, cpa_sweep_visit *visit, void *context,
	struct cpa_error *error);
/* The options that select exactly this configuration: "--variant ring --ring 4 ...".  text [size]; what
 * does not fit is cut: given sizes have no limit. */
void cpa_config_print(const struct cpa_config *config, char *text, size_t size);
/* The same, whole: the caller's to free; NULL when out of memory. */
char *cpa_config_text(const struct cpa_config *config);

#endif
