/*
 * bound.c - how far a right result may be from the exact one.
 *
 * Notation.  For one row: exact scores s_j, weights p_j = exp(s_j - lse), n visible keys, R
 * partials; u = roundoff of the dtype, u_a = of the arithmetic.  Sums run over visible keys.
 *     lambda = max |s_j| + ln n   a = scale |q|_2 max |k_j|_2   V = sum p_j max_d |v_jd|
 *     l = exp(lse - max s_j) = sum exp(s_j - max s)
 * All is to first order in the roundoffs; the factor 1.01 covers the rest.
 *
 * E, a score.  scale q_d is rounded once, then comes a dot product of D terms: each passes at
 *   most D + 1 roundings, so |error| <= (D + 1) u_a sum |scale q_d k_jd|, and that sum is <= a
 *   (Cauchy-Schwarz).  One more u_a a is for rounding the stored score.  E follows sum |q k|,
 *   never |lse|.  Where scale q_d or a product is subnormal, it is off by eta, the least
 *   subnormal, at most: + eta (sqrt(D) max |k_j|_2 + D).  Adding a bias rounds once more, to
 *   u_a max |s_j|, s_j being the sum.  A mask of truth values rounds nothing.
 *
 * X, exp and its sum.  exp(s_j - m) is off by c_exp u_a, relative to itself, and by
 *   u_a |s_j - m| from the subtraction, of which the average over p_j is at most u_a times the
 *   entropy, <= u_a ln n.  Then a weight passes at most `chain` additions; a device that
 *   rescales its running sum counts that among them.  X = u_a (ln n + c_exp + chain).
 *
 * Far keys.  lambda and max |s_j| leave out scores more than 1e4 below the largest, which is m.
 *   One of them, m - g, is off by at most E + u_a g, so its weight is at most
 *   exp(E - g (1 - u_a)) times that of the largest: below exp(E - 4999), nothing beside
 *   exp(E), which is counted.  A partial that holds only such keys has an lse of about m - g,
 *   off by R u_m g in mode all at worst: even for 64 bf16 merges its weight is 0.  Were its
 *   |lse| too large for the dtype, it would be -inf, and weigh 0 as well.
 *
 * M, merges.  One merge rounds the stored lse (u_m |lse| <= u_m lambda) and computes two
 *   weights, one of them exp(0): the other's c_exp u_m counts with its share, <= 1/2; then a
 *   sum, a log, a division.  u_m (lambda + 4) for each of R - 1 merges in a chain.  What enters
 *   has been rounded once itself: u_m lambda.  With R = 1 nothing is merged; in mode all the
 *   one partial is still rounded.
 *
 * lse.  E + X + M are relative errors of the sum, so absolute ones of lse.  Adding max and log
 *   rounds to u_a lambda, storing to u_L |lse|.
 *
 * o.  Computed weights are p_j exp(delta_j) / sum p_i exp(delta_i), |delta| <= T = E + X + M,
 *   within a factor exp(+-2 T) of p_j: the average is off by at most V expm1(2 T).  Whatever T,
 *   it is an average of the same values: off by at most V + max |v_jd|.  The smaller of the two
 *   counts, and the latter alone for T > 1 (scores of 1e38 have T = 1e34: exp overflows, and a
 *   key whose exact weight is 0 in double may rightly win).
 *   Products p v, their sum and the division: (chain + 4) u_a V.  Weights rounded to the dtype:
 *   u V.  Partials rounded to the dtype: u V once (block: they are averaged) or R times (all:
 *   the running result is rounded at each merge).  The output: u |o*|.
 *   Equal scores give weights exp(0) = 1, exact in every format.  But scores equal in exact
 *   arithmetic may be 2 E apart as computed, and rounding 1 - x is off by min(u, 2 x) at most:
 *   min(u, 4 E) V takes the place of u V (0 where k = 0).
 *
 * Underflow.  Relative errors end where numbers are subnormal.  An fp16 weight is a multiple of
 *   2^-24, off by 2^-25: h = 2^-25 sum max_d |v_jd| / l.  In the arithmetic, an exp below the
 *   least normal number may be flushed: tiny (1/l + R - 1) sum max_d |v_jd| (the weights of a
 *   merge are not divided by l).  In sums of p v, n products and up to n rescalings lose eta/2
 *   each, a merge eta: (n + R) eta.  Each value rounded to the dtype loses its own eta.
 *
 * The reference is computed itself, in double, from one partial with short chains.  What is
 * called exact above is known to within the same formulas only, and that much is added:
 * |x - ref| <= |x - x*| + |ref - x*|.  It counts for fp64 runs and vanishes for others.  Both
 * are averages of the same values, so V + max |v_jd| limits the two together.
 *
 * A sink is one more visible key with k = 0, v = 0 and score = sink: in lambda, n, V, l and
 *   max |s_j| (a device may take its maximum with or without it).  It may be merged like a
 *   partial, so R is one more.  Its rounding is that of a stored lse.  Where it is alone, o is 0
 *   in any arithmetic.
 *
 * Guidance.  neg + s (pos - neg), or neg + s2 (mid - neg) + s (pos - mid), is linear in its
 *   branches, and each is within its own bound e of the exact one: |1 - s| e_neg + |s| e_pos with
 *   two, and |1 - s2| e_neg + |s2 - s| e_mid + |s| e_pos with three.  It is computed in double,
 *   where a branch passes at most 4 roundings (a difference, a product, two sums): 4 2^-53 A for
 *   A = |neg| + |s2| (|mid| + |neg|) + |s| (|pos| + |mid|), with e added to each as the branches
 *   are the computed ones; the exact combination is computed so too, hence twice.  A product may
 *   be subnormal: eta/2 for each, 2 eta in all.  Then one rounding to its type: u |out| + eta.
 *
 * soft compares with the same device on one rank, (o_1, lse_1).  E and X largely repeat there
 * (same q and k, same rounding of weights): 2 |o_1 - o*| stands for them, and only what
 * distribution adds is bounded: M, rounded partials, another order of sums.  Over a row,
 * sum p_j |v_j|_2 <= sqrt(sum p_j |v_j|_2^2) (Jensen) takes the place of V.  The reference's
 * error enters three times: twice by o_1, once by o.
 */
#include "ref/ref.h"

#include <assert.h>
#include <math.h>

static const double second_order = 1.01;

/* What attention.c does: blocks of 64; the exp of any libm in use is right to 1 ulp = 2 u. */
static const struct cpa_arithmetic reference_arithmetic = { 0x1p-53, 4.0, 65.0, 0x1p-6, false };

const char *cpa_partials_name(enum cpa_partials partials)
{
	static const char *const names[] = { "fp32", "block", "all" };

	return names[partials];
}

/* eta of the dtype. */
static double least_subnormal(enum cpa_dtype dtype)
{
	static const double least[] = { 0x1p-1074, 0x1p-149, 0x1p-133, 0x1p-24 };

	return least[dtype];
}

/* The terms named above. */
struct terms {
	double E, X, M, links; /* links = (chain + 4) u_a */
	double lse;            /* E + X + M + u_a lambda: before it is stored */
	double average;        /* V expm1(2 T), infinite for T > 1 */
	double underflow;      /* absolute, of weights and sums */
};

/* Scores in the denominator. */
static double nscores(const struct cpa_problem *problem, const struct cpa_row *row)
{
	return (double)row->nvisible + (problem->rule.sink ? 1.0 : 0.0);
}

static double row_lambda(const struct cpa_problem *problem, const struct cpa_row *row)
{
	return row->max_abs + log(nscores(problem, row));
}

/* u_m and R describe the merges, M_stays that M does not vanish at R = 1. */
static struct terms terms_of(const struct cpa_arithmetic *arithmetic,
	const struct cpa_problem *problem, const struct cpa_row *row, int R, double u_m,
	bool M_stays)
{
	double u = arithmetic->u, n = nscores(problem, row), lambda = row_lambda(problem, row);
	double chain = fmin(n, arithmetic->chain + arithmetic->chain_key * n);
	bool wide = u < 0x1p-24 && (R == 1 || u_m < 0x1p-24);
	double eta = wide ? 0x1p-1074 : 0x1p-149, tiny = wide ? 0x1p-1022 : 0x1p-126;
	double inverse_l = exp(row->max_score - row->lse), D = (double)problem->D, T;
	struct terms terms;

	terms.E = (D + 2.0) * u * row->a + eta * (sqrt(D) * row->k_max + D);
	if (problem->rule.mask.kind == CPA_MASK_BIAS)
		terms.E += u * row->max_abs;
	terms.X = u * (log(n) + arithmetic->c_exp + chain);
	terms.M = 0.0;
	if (R > 1 || M_stays)
		terms.M = (R - 1) * u_m * (lambda + 4.0) + u_m * lambda;
	terms.links = (chain + 4.0) * u;
	T = terms.E + terms.X + terms.M;
	terms.lse = T + u * lambda;
	terms.average = T > 1.0 ? INFINITY : row->V * expm1(2.0 * T);
	terms.underflow = tiny * (inverse_l + (R - 1)) * row->Vsum + (n + R) * eta;
	return terms;
}

/* u_P V + h: what rounding the weights to a 16-bit dtype adds. */
static double rounded_weights(const struct cpa_bound_run *run, const struct cpa_row *row,
	double E)
{
	double u = cpa_dtype_roundoff(run->problem->dtype);

	if (!run->arithmetic.rounds_p || cpa_dtype_nbytes(run->problem->dtype) != 2)
		return 0.0;
	if (row->equal && 4.0 * E < u)
		return 4.0 * E * row->V;
	if (run->problem->dtype == CPA_DTYPE_BF16)
		return u * row->V;
	return u * row->V + 0x1p-25 * exp(row->max_score - row->lse) * row->Vsum;
}

void cpa_bound_row(const struct cpa_bound_run *run, const struct cpa_row *row, double o_norm,
	struct cpa_bound *bound)
{
	const struct cpa_problem *problem = run->problem;
	double u = cpa_dtype_roundoff(problem->dtype), u_a = run->arithmetic.u;
	double u_L = cpa_problem_lse_dtype(problem) == CPA_DTYPE_FP64 ? 0x1p-53 : 0x1p-24;
	bool all = run->partials == CPA_PARTIALS_ALL;
	int R = run->R + (problem->rule.sink ? 1 : 0);
	double nrounded = all ? R : run->partials == CPA_PARTIALS_BLOCK ? 1.0 : 0.0;
	double u_m = fmax(u_a, fmax(cpa_dtype_roundoff(run->partial_dtype), all ? u : 0.0));
	double stored = u_L * fabs(row->lse), spread = sqrt(row->V2);
	double per_row = sqrt((double)problem->Dv); /* Frobenius norm of a row of ones */
	double underflow;
	struct terms run_terms, own;

	/* In mode all up to 2 R lse are rounded to the dtype, to eta/2 where they are subnormal in it. */
	if (all)
		stored += R * least_subnormal(problem->dtype);
	assert(run->R >= 1);
	*bound = (struct cpa_bound){ 0.0, 0.0, 0.0, 0.0, 0.0 };
	if (nscores(problem, row) == 0.0)
		return;
	run_terms = terms_of(&run->arithmetic, problem, row, R, u_m, all);
	own = terms_of(&reference_arithmetic, problem, row, 1, 0.0, false);
	/* The reference rounds once more, to double: |o*| <= V. */
	own.links += 0x1p-53;
	own.lse += 0x1p-53 * fabs(row->lse);
	underflow = run_terms.underflow + (1.0 + nrounded) * least_subnormal(problem->dtype);

	bound->o_abs = fmin(run_terms.average + own.average, row->V + row->v_max);
	bound->o_abs += (nrounded * u + run_terms.links) * row->V + underflow +
			rounded_weights(run, row, run_terms.E);
	bound->o_abs += own.links * row->V + own.underflow;
	bound->o_rel = u;
	bound->lse = run_terms.lse + stored + own.lse;
	bound->soft_row = u * o_norm +
			  (2.0 * run_terms.M + nrounded * u + run_terms.links) * spread +
			  underflow * per_row;
	bound->soft_row += 3.0 * (2.0 * (own.E + own.X) + own.links) * spread +
			   3.0 * own.underflow * per_row;
	bound->soft_lse = run_terms.M + run_terms.X + u_a * row_lambda(problem, row) + stored +
			  3.0 * own.lse;

	bound->o_abs *= second_order;
	bound->o_rel *= second_order;
	bound->lse *= second_order;
	bound->soft_row *= second_order;
	bound->soft_lse *= second_order;
	if (row->nvisible == 0)
		bound->o_abs = bound->o_rel = bound->soft_row = 0.0;
}

double cpa_bound_guidance(const struct cpa_guidance *guidance, enum cpa_dtype to,
	const double *exact, const double *bound)
{
	const int last = guidance->nbranches - 1;
	const double s = guidance->s, s2 = last == 2 ? guidance->s2 : 0.0,
		     u = cpa_dtype_roundoff(to);
	/* Coefficients of neg, mid, pos; with two branches neg is mid. */
	const double of[3] = {1.0 - (last == 2 ? s2 : s), s2 - s, s};
	double off = 0.0, out = 0.0, at[3];

	assert(last == 1 || last == 2);
	for (int i = 0; i <= last; i++) {
		const double coefficient = i == last ? of[2] : of[i];

		off += fabs(coefficient) * bound[i];
		out += coefficient * exact[i];
		at[i] = fabs(exact[i]) + bound[i];
	}
	off += 8.0 * 0x1p-53 *
		(at[0] + fabs(s2) * (at[last - 1] + at[0]) + fabs(s) * (at[last] + at[last - 1]));
	off += 2.0 * least_subnormal(CPA_DTYPE_FP64);
	return second_order * ((1.0 + u) * off + u * fabs(out) + least_subnormal(to));
}
