/*
 * fill.c - inputs that any rank can make alone: each element is a hash of where it is.
 */
#include "ref/ref.h"

#include <assert.h>
#include <math.h>

const char *cpa_fill_name(enum cpa_fill fill)
{
	static const char *const names[] = { "normal", "count", "identity", "digits",
		"extreme", "unlike" };

	return names[fill];
}

/* Splitmix64's finaliser (Steele, Lea, Flood, OOPSLA 2014) of one step from state. */
static uint64_t mix(uint64_t state)
{
	uint64_t x = state + 0x9e3779b97f4a7c15u;

	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
	x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
	return x ^ (x >> 31);
}

static uint64_t hash(uint64_t seed, char tensor, int64_t b, int64_t t, int64_t h, int64_t d)
{
	uint64_t x = mix(seed) ^ (uint64_t)(unsigned char)tensor;

	x = mix(x) ^ (uint64_t)b;
	x = mix(x) ^ (uint64_t)t;
	x = mix(x) ^ (uint64_t)h;
	x = mix(x) ^ (uint64_t)d;
	return mix(x);
}

/* Box and Muller, from two uniform numbers of 32 bits, neither 0: |z| < 6.8. */
static double normal(uint64_t bits)
{
	const double two_pi = 6.283185307179586477;
	double u1 = ((double)(bits >> 32) + 0.5) * 0x1p-32;
	double u2 = ((double)(bits & 0xffffffffu) + 0.5) * 0x1p-32;

	return sqrt(-2.0 * log(u1)) * cos(two_pi * u2);
}

/* Digit d (mod 16, lowest first) of the number of the row, to base 16, as a fraction: exact in
 * every dtype, and rows differ. */
static double digit(const struct cpa_problem *problem, int64_t b, int64_t t, int64_t h,
	int64_t d)
{
	uint64_t row = (uint64_t)((b * problem->Skv + t) * problem->Hkv + h);

	return (double)(row >> 4 * (d % 16) & 15) / 16.0;
}

/*
 * Odd heads are huge: 1e4, less where scale and D are so large that scale |q| |k| could pass
 * 1e38 (at |z| < 7).  Even heads are a seventh of the dtype's least normal number: subnormal.
 */
static double extreme_size(const struct cpa_problem *problem, int64_t h)
{
	static const double least_normal[] = { 0x1p-1022, 0x1p-126, 0x1p-126, 0x1p-14 };
	double most = sqrt(1e38 / 49.0 / problem->scale / (double)problem->D);

	return h % 2 ? fmin(1e4, most) : least_normal[problem->dtype] / 7.0;
}

/* Feature 0 of q is 3, and that of key t what makes scale q k the score that is wanted of it. */
static double unlike(const struct cpa_problem *problem, uint64_t seed, char tensor, int64_t t)
{
	double score = 6.0 * (double)t / (double)problem->Skv;

	if (tensor == 'q')
		return 3.0;
	if (hash(seed, 'x', 0, t, 0, 0) % 16 == 0)
		score += 4.0;
	return fmin(score / 3.0 / problem->scale, 1e4);
}

double cpa_fill_value(enum cpa_fill fill, const struct cpa_problem *problem, uint64_t seed,
	char tensor, int64_t b, int64_t t, int64_t h, int64_t d)
{
	double size;

	assert(tensor == 'q' || tensor == 'k' || tensor == 'v');
	if (fill == CPA_FILL_COUNT && tensor == 'k')
		return 0.0;
	if ((fill == CPA_FILL_COUNT || fill == CPA_FILL_IDENTITY) && tensor == 'v')
		return d == t % problem->Dv ? 1.0 : 0.0;
	if (fill == CPA_FILL_DIGITS && tensor == 'v')
		return digit(problem, b, t, h, d);
	if (fill == CPA_FILL_UNLIKE && tensor != 'v' && d == 0)
		return unlike(problem, seed, tensor, t);
	if (fill != CPA_FILL_EXTREME)
		return normal(hash(seed, tensor, b, t, h, d));
	/* Every fifth token is the same one.  Cut at 6.5: fp16 can hold 1e4 times it. */
	if (t % 5 == 3)
		t = 3;
	size = extreme_size(problem, h);
	return size * fmax(-6.5, fmin(6.5, normal(hash(seed, tensor, b, t, h, d))));
}
