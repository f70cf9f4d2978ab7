/*
 * check.h - recorded outputs against full attention: of the one device and of every rank, right
 * or wrong, and where.  Private to the commands check and diagnose.
 */
#ifndef CPA_CHECK_H
#define CPA_CHECK_H

#include "harness/judge.h"
#include "harness/recording.h"

/* What the recorded run is said to have computed with (NUMERICS section 2). */
enum cpa_arithmetic_name { CPA_ARITHMETIC_FP64, CPA_ARITHMETIC_FP32, CPA_ARITHMETIC_TENSOR,
	CPA_ARITHMETIC_TF32, CPA_NARITHMETICS };
const char *cpa_arithmetic_name(enum cpa_arithmetic_name name);
bool cpa_arithmetic_parse(const char *text, enum cpa_arithmetic_name *name);
/* fp64 for fp64 recordings, fp32 for fp32 ones, tensor for 16 bit. */
enum cpa_arithmetic_name cpa_arithmetic_default(enum cpa_dtype dtype);
/* Chains of additions of 512 + S/512. */
struct cpa_arithmetic cpa_arithmetic_of(enum cpa_arithmetic_name name, enum cpa_dtype dtype);

/* One call of a recording, its inputs and its reference.  Arrays are dense [B, S, H, D]. */
struct cpa_checked {
	const struct cpa_call *call;
	struct cpa_tensors tensors; /* of call->problem, in its dtype */
	void *data[3];
	struct cpa_truth *truth;
	int64_t *index; /* [Sq] place of a query token in truth->tokens, -1: not judged */
};
/* rows: query rows to compute at least, evenly spread, with the first and last of each rank;
 * 0: all up to 1e11 flop, else 256.  Fini in any case. */
enum cpa_status cpa_checked_init(struct cpa_checked *checked, struct cpa_recording *recording,
	int i, int64_t rows, struct cpa_error *error);
void cpa_checked_fini(struct cpa_checked *checked);

/* Rows of one (batch item, head) beyond their bound. */
struct cpa_wrong_head {
	int64_t batch, head, nrows;
	struct cpa_range *tokens; /* [ntokens] query tokens; between two judged ones, what lies between */
	int ntokens;
	double ratio;             /* largest error over bound */
};
struct cpa_wrong {
	struct cpa_wrong_head *at; /* [n] */
	int n;
	int64_t nrows;
};

/* What was found in one part: the outputs of the one device (rank -1), or of one rank. */
struct cpa_check_part {
	int rank;
	bool has_o, has_lse;
	int64_t nheld, njudged; /* rows (batch item, token, head) of o, or of lse where there is no o */
	struct cpa_deviation o, lse;
	struct cpa_wrong o_wrong, lse_wrong;
	/* Of those the rows that hold a NaN or an infinity (of lse: NaN or +inf). */
	struct cpa_wrong o_lost, lse_lost;
	bool right;
	/* Wrong, but right within the bounds of another arithmetic; CPA_NARITHMETICS: of none. */
	enum cpa_arithmetic_name would_do;
	int nfindings; /* sentences that are no verdict: inputs that differ from those of the call */
	const char **findings;
};

struct cpa_check_rules {
	enum cpa_arithmetic_name arithmetic;
	enum cpa_partials partials;
};
/*
 * Judges one part.  rank -1: the call's own o and lse.  Lists are made in arena.
 * A part that holds neither o nor lse has both has_ false, and is not judged.
 */
enum cpa_status cpa_check_part(const struct cpa_checked *checked, struct cpa_recording *recording,
	int i, int rank, const struct cpa_check_rules *rules, struct cpa_arena *arena,
	struct cpa_check_part *part, struct cpa_error *error);

/* What the rows of a rank (rank -1: of the one device) are judged by. */
struct cpa_bound_run cpa_check_bound(const struct cpa_checked *checked, int rank,
	enum cpa_arithmetic_name arithmetic, enum cpa_partials partials);

/* Faults that could not have shown in this run, whatever it did: "A01: the blocks of each row
 * weigh alike" and so on.  A list in arena, ended by NULL.  From FAULTS: settings under which a
 * real fault passes. */
const char **cpa_check_blind_spots(const struct cpa_checked *checked, struct cpa_arena *arena);

#endif
